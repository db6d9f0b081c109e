"""Reads one row: parses its JSON, keeps its fields as parts of the line, and checks them.

A row is one JSON object with ``responses_create_params`` and the fields that its environment declares. Rows
of episodes may leave the former out, as NeMo Gym's do: the environment says what the model reads.
Its ``agent_ref`` names the environment; rows without one belong to the environment that the caller names.
A row is checked by decoding it exactly as the workers will. What is wrong with a refused row is told with the
path of the field; that is the slow path.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from gym_runtime.environment import catalogue
from gym_runtime.environment.catalogue import named
from gym_runtime.environment.environment import LoadedEnvironment, with_settings
from gym_runtime.environment.settings import filled
from gym_runtime.errors import UNREADABLE, TaskError, UsageError
from gym_runtime.files.complaints import bad_json, bad_value
from gym_runtime.messages.choices import choices
from gym_runtime.messages.names import is_mark
from gym_runtime.messages.responses import CreateParams, decode_item
from gym_runtime.messages.rollout_settings import fold, refused

_PARAMS = "responses_create_params"
_NOTHING = Raw(b'{"input":[]}')


# Up to 2**53 a double is exact: other tools read numbers as such.
_Index = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class _AgentRef(msgspec.Struct, frozen=True):
    name: str | None = None


class _Asked(msgspec.Struct, frozen=True):
    responses_create_params: CreateParams


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    """What this module reads of every row besides the input; the rest is the environment's."""

    agent_ref: _AgentRef | UnsetType | None = UNSET
    task_index: _Index | UnsetType | None = msgspec.field(name="_ng_task_index", default=UNSET)

    @property
    def ref(self) -> str | None:
        """The name in ``agent_ref``, if there is one."""
        return self.agent_ref.name if isinstance(self.agent_ref, _AgentRef) else None


_ROLE_CHARS = 40
_ROLES = ("user", "assistant", "system", "developer")


class _InputItem(msgspec.Struct, frozen=True):
    type: str | None = None
    role: str | None = None


_decode_head = msgspec.json.Decoder(_Head).decode
_NO_HEAD = _Head()
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_input = msgspec.json.Decoder[str | list[_InputItem]](str | list[_InputItem]).decode
_decode_asked = msgspec.json.Decoder(_Asked).decode
_encode = msgspec.json.Encoder().encode


class BadRow(TaskError):
    """A row that can't be run; the message says why.

    ``unknown``: the name in its ``agent_ref`` if there is no such environment here; else empty.
    """

    def __init__(self, message: str, *, unknown: str = "") -> None:
        super().__init__(message)
        self.unknown = unknown


class Row(msgspec.Struct, frozen=True):
    """A row and the parts that were read.

    Attributes:
        line: the row's JSON, without the line's end, completed by the settings.
        environment: the environment it belongs to.
        agent_ref: its own ``agent_ref`` if it has one with a name.
        task_index: its own ``_ng_task_index``, if any.
        plain: the line can be used as it is: it carries no number, reference or ``gold`` of its own.
        fields, params: the line's fields, and those of its ``responses_create_params``, as parts of the line,
            so that a long line is searched once.
        ref: the name in its ``agent_ref``, or empty.
        adopted: its ``agent_ref`` names an unknown environment, so that the row was given to the environment
            that the caller named.
    """

    line: bytes
    environment: LoadedEnvironment
    agent_ref: Raw | None
    task_index: int | None
    plain: bool
    fields: dict[str, Raw]
    params: dict[str, Raw]
    ref: str = ""
    adopted: bool = False


class RowReader:
    """Reads rows one by one.

    Args:
        environment: where rows without an ``agent_ref`` belong; a name that a person gave.
        settings: defaults of row fields (`environment.settings`), for the environments that have them.
        declared: environments that are not found here by their names, because their code is elsewhere.
        adopt: rows whose ``agent_ref`` names an unknown environment are given to ``environment``, too.
        lay: lays a prompt on a row, given its environment and whether it has an input (`files.prompts`).

    Raises:
        UsageError: there is no such environment, or it can't have such a setting.
    """

    def __init__(
        self,
        environment: str | None = None,
        settings: Mapping[str, Any] | None = None,
        declared: Mapping[str, LoadedEnvironment] | None = None,
        *,
        adopt: bool = False,
        lay: Callable[[bytes, LoadedEnvironment, bool], bytes] | None = None,
    ) -> None:
        self._settings, self._adopt, self._lay = settings or {}, adopt, lay
        self._declared = declared or {}
        self._default: LoadedEnvironment | None = None
        if environment is not None:
            given = self._declared.get(environment) or catalogue.environment(environment)
            self._default = with_settings(given, self._settings)
        self._resolved: dict[str, list[LoadedEnvironment] | str] = {}

    def read(self, line: bytes, *, check: bool = True) -> Row:
        """A line as a row; with ``check`` it is also decoded as its environment will decode it.

        Raises:
            BadRow: the line can't be run.
            UsageError: the environment that the row asks for can't be loaded.
        """
        # `isascii` is faster, and most rows are ASCII; msgspec does not check fields that stay raw.
        if not line.isascii():
            try:
                line.decode()
            except UnicodeDecodeError as error:
                what = f"byte 0x{line[error.start]:02x} (byte {error.start}) is not UTF-8"
                raise BadRow(f"{what}; convert the file to UTF-8") from None
        try:
            fields = _decode_fields(line)
            head = _head(fields)
        # Before DecodeError, of which it is a kind: this one has the place of a value.
        except msgspec.ValidationError as error:
            raise BadRow(bad_value(line, str(error))) from None
        except UNREADABLE as error:
            raise BadRow(bad_json(line, str(error))) from None
        environment, params, given = self._environment(line, head.ref), _params(fields), line
        if self._lay is not None:
            line = self._lay(line, environment, "input" in params)
            if line is not given:
                fields = _decode_fields(line)
                params, given = _params(fields), line
        if _PARAMS not in fields:
            if environment.definition.shape != "episode":
                error = f"Object missing required field `{_PARAMS}`"
                raise BadRow(bad_value(line, error))
            line = _encode({**fields, _PARAMS: _NOTHING})
        complete = filled(environment, _folded(line, fields, params), head.ref)
        if check:
            _check(line, complete, environment, fields if complete is given else None)
        ref = fields.get("agent_ref") if head.ref else None
        plain = not ({"agent_ref", "gold"} & fields.keys() or any(map(is_mark, fields)))
        if complete is not given:
            fields = _decode_fields(complete)
            params = _params(fields)
        return Row(
            line=complete,
            environment=environment,
            agent_ref=ref,
            task_index=head.task_index if isinstance(head.task_index, int) else None,
            plain=plain,
            fields=fields,
            params=params,
            ref=head.ref or "",
            adopted=isinstance(self._resolved.get(head.ref or ""), str),
        )

    def _environment(self, line: bytes, ref: str | None) -> LoadedEnvironment:
        if self._default is not None and self._default.guest:
            return self._default
        if not ref:
            if self._default is None:
                remedy = "run NAME --input FILE, publish FILE --environment NAME"
                raise BadRow(f"the row has no 'agent_ref', and no environment was named for it: {remedy}")
            return self._default
        found = self._candidates(ref)
        if isinstance(found, str):
            if self._default is not None and self._adopt:
                return self._default
            raise BadRow(found, unknown=ref)
        if len(found) == 1:
            return found[0]
        named_one = next((one for one in found if one is self._default), None)
        return named_one or next((one for one in found if _fits(line, one)), found[0])

    def _candidates(self, ref: str) -> list[LoadedEnvironment] | str:
        """The environments that a name means, or why there is none."""
        found = self._resolved.get(ref)
        if found is None:
            # Before the catalogue, which would import every module to look for a name that it does not have.
            if ref in self._declared:
                found = [self._declared[ref]]
            else:
                try:
                    names = catalogue.resolve_agent_refs(ref)
                except UsageError as error:
                    other = named(ref, self._declared.values())
                    found = [other] if other else error.message
                else:
                    found = [self._own(catalogue.known_environment(name)) for name in names]
            # Errors are kept as well: a million rows with one wrong name must not search a million times.
            self._resolved[ref] = found
        return found

    def _own(self, environment: LoadedEnvironment) -> LoadedEnvironment:
        """The environment with the run's settings; the one that was named, if it is the same environment."""
        if self._default is not None and self._default.source == environment.source:
            return self._default
        return with_settings(environment, self._settings)


def _head(fields: Mapping[str, Raw]) -> _Head:
    """Raises `msgspec.ValidationError` where one of its fields is of a wrong type."""
    own = {name: fields[name] for name in ("agent_ref", "_ng_task_index") if name in fields}
    return _decode_head(_encode(own)) if own else _NO_HEAD


def _params(fields: Mapping[str, Raw]) -> dict[str, Raw]:
    """The fields of ``responses_create_params``; none if it is no object, which `_check` refuses."""
    try:
        return _decode_fields(fields.get(_PARAMS, b"{}"))
    except UNREADABLE:
        return {}


def _fits(line: bytes, environment: LoadedEnvironment) -> bool:
    try:
        environment.resource.task(line)
    except TaskError:
        return False
    return True


def _check(
    line: bytes, complete: bytes, environment: LoadedEnvironment, fields: Mapping[str, Raw] | None
) -> None:
    """Decode a row as its environment and its agent will, and check the parts that they leave raw.

    Raises:
        BadRow: it does not fit.
    """
    try:
        params = environment.resource.task(complete, fields).responses_create_params
    except TaskError as error:
        # The environment decodes the input too, but only this module says which item is wrong there.
        with contextlib.suppress(*UNREADABLE):
            asked = _decode_asked(complete).responses_create_params
            _check_input(line, asked, environment)
            _check_items(line, asked)
        raise BadRow(_misfit(line, error.message, environment)) from None
    except RecursionError:
        raise BadRow("not JSON: nested too deeply") from None
    _check_input(line, params, environment)
    for name in ("extra_body", "chat_template_kwargs"):
        if (text := (params.metadata or {}).get(name)) is None:
            continue
        try:
            fields = _decode_fields(text)
        except UNREADABLE:
            raise BadRow(_at(f"metadata.{name}", "expected the text of a JSON object")) from None
        if name == "extra_body" and (problem := refused(fields)):
            raise BadRow(_at(f"metadata.{name}", problem))


def _check_input(line: bytes, params: CreateParams, environment: LoadedEnvironment) -> None:
    try:
        items = _decode_input(params.input)
    except UNREADABLE as error:
        raise BadRow(_within(line, "input", str(error))) from None
    # An episode's first message is the environment's.
    if items == [] and environment.definition.shape != "episode" and b'"input"' in bytes(line):
        raise BadRow(_at("input", "it is empty, so there is nothing to answer"))
    if not isinstance(items, str):
        for index, item in enumerate(items):
            if item.type is None and item.role is None:
                raise BadRow(_at(f"input[{index}]", "an input item has a 'role' or a 'type'"))
            if item.type in (None, "message") and item.role not in _ROLES:
                known = f"a message's role is one of {', '.join(_ROLES)}"
                raise BadRow(_at(f"input[{index}].role", f"{known}, not {_quoted(item.role)}"))


def _check_items(line: bytes, params: CreateParams) -> None:
    for index, item in enumerate(params.input_items()):
        try:
            decode_item(item)
        except msgspec.ValidationError as error:
            raise BadRow(_within(line, f"input[{index}]", str(error))) from None


def _quoted(role: str | None) -> str:
    return "missing" if role is None else f"'{role[:_ROLE_CHARS]}'"


def _folded(line: bytes, fields: Mapping[str, Raw], params: Mapping[str, Raw]) -> bytes:
    """The row, with an ``extra_body`` object where NeMo Gym has it, in ``metadata``.

    Raises:
        BadRow: it is no object, or ``metadata`` does not hold what it should.
    """
    if "extra_body" not in params:
        return line
    try:
        return _encode({**fields, _PARAMS: fold(params)})
    except UNREADABLE:
        what = "expected a JSON object, beside metadata whose values are text"
        raise BadRow(_at("extra_body", what)) from None


def _misfit(line: bytes, error: str, environment: LoadedEnvironment) -> str:
    """The complaint about a row that does not decode, with the names that belong where it went wrong."""
    inside_params = f"`$.{_PARAMS}`" in error
    known = CreateParams if inside_params else environment.resource.task_type
    found = bad_value(line, error, known.__struct_encode_fields__)
    return f"{found}{choices(error, environment.resource.task_type)}"


def _within(line: bytes, place: str, error: str) -> str:
    """The complaint about a value inside ``responses_create_params`` that was decoded on its own."""
    what, _, path = error.partition(" - at `$")
    return bad_value(line, f"{what} - at `$.{_PARAMS}.{place}{path.removesuffix('`')}`")


def _at(place: str, what: str) -> str:
    return f"'{_PARAMS}.{place}': {what}"
