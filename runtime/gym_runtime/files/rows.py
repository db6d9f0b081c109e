"""Dataset rows: what a row must be, and how rows become rollouts to be made.

A row is one JSON object with ``responses_create_params`` and the fields that its environment declares.
Its ``agent_ref`` names the environment; rows without one belong to the environment that the caller names.

Numbering, as NeMo Gym's: rows with the same text are one task; tasks count from 0 in the order of their
first appearance; a row's own ``_ng_task_index`` is kept. Rollouts count from 0 within the task, and go on
counting when the row comes again. So the same rows and settings always give the same keys, in the same
order (each row's repeats together).
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from gym_runtime import catalogue
from gym_runtime.environment import LoadedEnvironment
from gym_runtime.errors import TaskError, UsageError
from gym_runtime.files.diagnosis import Complaint, bad_encoding, bad_json, bad_value, locate
from gym_runtime.messages.responses import CreateParams, override
from gym_runtime.messages.tasks import RolloutTask

_PARAMS = "responses_create_params"
_NUMBERS = ("_ng_task_index", "_ng_rollout_index")
_BOOKKEEPING = (*_NUMBERS, "_ng_attempt_index", "_ng_failure_class", "_ng_failure_terminal")


_Index = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class _AgentRef(msgspec.Struct, frozen=True):
    name: str | None = None


class _RawRef(msgspec.Struct, frozen=True):
    agent_ref: Raw


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    """What this module reads of every row; the rest is the environment's."""

    responses_create_params: Raw | UnsetType = UNSET
    agent_ref: _AgentRef | UnsetType | None = UNSET
    task_index: _Index | UnsetType | None = msgspec.field(name="_ng_task_index", default=UNSET)
    rollout_index: Raw | UnsetType = msgspec.field(name="_ng_rollout_index", default=UNSET)
    attempt_index: Raw | UnsetType = msgspec.field(name="_ng_attempt_index", default=UNSET)
    failure_class: Raw | UnsetType = msgspec.field(name="_ng_failure_class", default=UNSET)
    failure_terminal: Raw | UnsetType = msgspec.field(name="_ng_failure_terminal", default=UNSET)
    gold: Raw | UnsetType = UNSET

    @property
    def ref(self) -> str | None:
        """The name in ``agent_ref``, if there is one."""
        return self.agent_ref.name if isinstance(self.agent_ref, _AgentRef) else None

    @property
    def plain(self) -> bool:
        """The row carries nothing that has to be taken out before it is used."""
        return all(
            field is UNSET
            for field in (
                self.agent_ref,
                self.task_index,
                self.rollout_index,
                self.attempt_index,
                self.failure_class,
                self.failure_terminal,
                self.gold,
            )
        )


class _InputItem(msgspec.Struct, frozen=True):
    type: str | None = None
    role: str | None = None


_decode_head = msgspec.json.Decoder(_Head).decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_input = msgspec.json.Decoder[str | list[_InputItem]](str | list[_InputItem]).decode
_decode_ref = msgspec.json.Decoder(_RawRef).decode
_encode = msgspec.json.Encoder().encode


class BadRow(TaskError):
    """A row that can't be run: ``complaint`` says what is wrong, and at which column."""

    def __init__(self, complaint: Complaint) -> None:
        super().__init__(complaint.what)
        self.complaint = complaint


class Row(msgspec.Struct, frozen=True):
    """A row and what was read of it.

    Attributes:
        line: the row's JSON, without the line's end.
        environment: the environment it belongs to.
        agent_ref: its own ``agent_ref`` if it has one with a name.
        task_index: its own ``_ng_task_index``, if any.
        plain: the line can be used as it is: it carries no number, reference or ``gold`` of its own.
    """

    line: bytes
    environment: LoadedEnvironment
    agent_ref: Raw | None
    task_index: int | None
    plain: bool


class RowReader:
    """Reads rows one by one.

    Args:
        environment: where rows without an ``agent_ref`` belong.
    """

    def __init__(self, environment: str | None = None) -> None:
        self._default = catalogue.environment(environment) if environment is not None else None
        self._resolved: dict[str, LoadedEnvironment | str] = {}

    def read(self, line: bytes, *, check: bool = True) -> Row:
        """A line as a row; with ``check`` it is also decoded as its environment will decode it.

        Raises:
            BadRow: the line can't be run.
            UsageError: the environment that the row asks for can't be loaded.
        """
        if not line.isascii():
            try:
                line.decode()
            except UnicodeDecodeError as error:
                raise BadRow(bad_encoding(line, error)) from None
        try:
            head = _decode_head(line)
        except msgspec.ValidationError as error:
            raise BadRow(bad_value(line.decode(), str(error))) from None
        except msgspec.DecodeError as error:
            raise BadRow(bad_json(line.decode(), str(error))) from None
        except RecursionError:
            raise BadRow(Complaint(1, "not JSON: nested too deeply")) from None
        if isinstance(head.responses_create_params, UnsetType):
            error = f"Object missing required field `{_PARAMS}`"
            raise BadRow(bad_value(line.decode(), error))
        environment = self._environment(line, head)
        if check:
            _check(line, environment)
        return Row(
            line=line,
            environment=environment,
            agent_ref=_decode_ref(line).agent_ref if head.ref else None,
            task_index=head.task_index if isinstance(head.task_index, int) else None,
            plain=head.plain,
        )

    def _environment(self, line: bytes, head: _Head) -> LoadedEnvironment:
        ref = head.ref
        if not ref:
            if self._default is None:
                raise BadRow(Complaint(1, "the row has no 'agent_ref', and no environment was named for it"))
            return self._default
        found = self._resolved.get(ref)
        if found is None:
            try:
                name = catalogue.resolve_agent_ref(ref)
            except UsageError as error:
                found = error.message
            else:
                found = catalogue.environment(name)
            self._resolved[ref] = found
        if isinstance(found, str):
            raise BadRow(Complaint(locate(line.decode(), "$.agent_ref.name") + 1, found))
        return found


def _check(line: bytes, environment: LoadedEnvironment) -> None:
    """Decode a row as its environment and its agent will, and look into what they leave raw.

    Raises:
        BadRow: it does not fit.
    """
    try:
        params = environment.resource.task(line).responses_create_params
    except TaskError as error:
        raise BadRow(_misfit(line, error.message, environment)) from None
    except RecursionError:
        raise BadRow(Complaint(1, "not JSON: nested too deeply")) from None
    try:
        items = _decode_input(params.input)
    except msgspec.DecodeError as error:
        raise BadRow(_within(line, "input", str(error))) from None
    if not isinstance(items, str):
        for index, item in enumerate(items):
            if item.type is None and item.role is None:
                raise BadRow(_at(line, f"input[{index}]", "an input item has a 'role' or a 'type'"))
    extra_body = (params.metadata or {}).get("extra_body")
    if extra_body is not None:
        try:
            _decode_fields(extra_body)
        except msgspec.DecodeError:
            what = "expected the text of a JSON object"
            raise BadRow(_at(line, "metadata.extra_body", what)) from None


def _misfit(line: bytes, error: str, environment: LoadedEnvironment) -> Complaint:
    """The complaint about a row that does not decode, with the names that belong where it went wrong."""
    inside_params = f"`$.{_PARAMS}`" in error
    known = CreateParams if inside_params else environment.resource.task_type
    return bad_value(line.decode(), error, known.__struct_encode_fields__)


def _within(line: bytes, place: str, error: str) -> Complaint:
    """The complaint about a value inside ``responses_create_params`` that was decoded on its own."""
    what, _, path = error.partition(" - at `$")
    return bad_value(line.decode(), f"{what} - at `$.{_PARAMS}.{place}{path.removesuffix('`')}`")


def _at(line: bytes, place: str, what: str) -> Complaint:
    column = locate(line.decode(), f"$.{_PARAMS}.{place}") + 1
    return Complaint(column, f"'{_PARAMS}.{place}': {what}")


class Numbering:
    """Gives rows their task and rollout indices, in the order in which it is asked.

    Args:
        first: the first index for rows that bring none of their own.
        repeated: the `row_key` hashes (or own task indices) that come more than once, if known; what
            comes once needs no memory.
    """

    def __init__(self, first: int = 0, repeated: Container[int] | None = None) -> None:
        self._next = first
        self._repeated = repeated
        self._tasks: dict[bytes, int] = {}
        self._rollouts: dict[int, int] = {}

    def number(self, row: Row, repeats: int) -> tuple[int, int]:
        """The row's task index, and the index of the first of its ``repeats`` rollouts."""
        if row.task_index is not None:
            task_index = row.task_index
            repeated = self._repeated is None or task_index in self._repeated
        else:
            key = row_key(row.line, row.environment.name)
            repeated = self._repeated is None or short_key(key) in self._repeated
            known = self._tasks.get(key) if repeated else None
            task_index = self._next if known is None else known
            if known is None:
                self._next += 1
                if repeated:
                    self._tasks[key] = task_index
        if not repeated:
            return task_index, 0
        rollout_index = self._rollouts.get(task_index, 0)
        self._rollouts[task_index] = rollout_index + repeats
        return task_index, rollout_index


def row_key(line: bytes, environment: str) -> bytes:
    """What two rows of the same task have in common: 16 bytes."""
    return hashlib.blake2b(line, digest_size=16, key=environment.encode()[:64]).digest()


def short_key(key: bytes) -> int:
    """63 bits of a `row_key`, as a negative number, so that it is no task index."""
    return -1 - (int.from_bytes(key[:8], "big") >> 1)


def check_sampling(sampling: Mapping[str, Any]) -> None:
    """Refuse sampling settings that ``responses_create_params`` does not have.

    Raises:
        UsageError: an unknown name (with the nearest one), or a value of a wrong type.
    """
    for name in sampling:
        if name not in CreateParams.__struct_encode_fields__:
            known = list(CreateParams.__struct_encode_fields__)
            raise UsageError(f"there is no sampling setting '{name}'{catalogue.suggest(name, known)}")
    try:
        msgspec.json.decode(_encode(dict(sampling)), type=CreateParams)
    except msgspec.ValidationError as error:
        raise UsageError(f"sampling setting {bad_value('{}', str(error)).what}") from error


def expand(
    rows: Iterable[bytes | Row],
    *,
    run: str,
    environment: str | None = None,
    repeats: int = 1,
    sampling: Mapping[str, Any] | None = None,
    add_seed: bool = False,
    agent: str | None = None,
    model: str = "policy",
    timeout_s: float | None = None,
    max_attempts: int = 3,
    max_turns: int | None = None,
    return_tokens: bool = False,
    numbering: Numbering | None = None,
) -> Iterator[RolloutTask]:
    """The rollouts to be made of some rows: each row's repeats together, in the order of the rows.

    It is lazy; lines are checked as they come, `Row` s were checked by who read them.

    Args:
        environment: where lines without an ``agent_ref`` belong.
        sampling: laid over each row's ``responses_create_params``, field by field.
        add_seed: give every rollout its index within the task as the engine's ``seed``, in
            ``metadata.extra_body``.
        agent, max_turns: instead of what the environment asks for.
        timeout_s: instead of the environment's, in seconds.

    Raises:
        TaskError: a line can't be run; the message names it.
        UsageError: an unknown environment or sampling setting, or ``repeats`` below 1.
    """
    if repeats < 1:
        raise UsageError(f"repeats is {repeats}; it must be at least 1")
    sampling = dict(sampling or {})
    check_sampling(sampling)
    numbering = numbering or Numbering()
    reader = RowReader(environment)
    for position, given in enumerate(rows, 1):
        row = given if isinstance(given, Row) else _read(reader, given, position)
        definition = row.environment.definition
        base = _base_row(row, sampling)
        task_index, first = numbering.number(row, repeats)
        for rollout_index in range(first, first + repeats):
            yield RolloutTask(
                run=run,
                task_index=task_index,
                rollout_index=rollout_index,
                environment=row.environment.name,
                agent=agent or definition.agent,
                row=Raw(_seeded(base, rollout_index) if add_seed else base),
                agent_ref=row.agent_ref or Raw(_encode({"name": row.environment.name})),
                model=model,
                timeout_s=definition.timeout_s if timeout_s is None else timeout_s,
                max_attempts=max_attempts,
                max_turns=definition.max_turns if max_turns is None else max_turns,
                parallel_tools=definition.parallel_tools,
                return_tokens=return_tokens,
            )


def _read(reader: RowReader, line: bytes, position: int) -> Row:
    try:
        return reader.read(line)
    except BadRow as error:
        raise TaskError(f"row {position}, column {error.complaint.column}: {error.message}") from error


def _base_row(row: Row, sampling: Mapping[str, Any]) -> bytes:
    """The row without what the rollout carries itself, with the sampling settings laid over."""
    line = row.line
    if not row.plain:
        fields = _decode_fields(line)
        for name in ("agent_ref", *_BOOKKEEPING):
            fields.pop(name, None)
        if "gold" not in row.environment.resource.task_type.__struct_encode_fields__:
            fields.pop("gold", None)
        line = _encode(fields)
    return override(line, sampling)


def _seeded(row: bytes, seed: int) -> bytes:
    params = _decode_fields(_decode_fields(row)[_PARAMS])
    metadata: dict[str, str] = msgspec.json.decode(params.get("metadata", b"{}")) or {}
    extra_body = {**_decode_fields(metadata.get("extra_body", "{}")), "seed": seed}
    return override(row, {"metadata": {**metadata, "extra_body": _encode(extra_body).decode()}})


def materialize(task: RolloutTask) -> bytes:
    """A rollout's line in the materialized inputs: its row, ``agent_ref`` and numbers."""
    tail = _encode(
        {
            "agent_ref": task.agent_ref,
            "_ng_task_index": task.task_index,
            "_ng_rollout_index": task.rollout_index,
        }
    )
    head = bytes(task.row).rstrip()[:-1].rstrip()
    return head + (b"" if head.endswith(b"{") else b",") + tail[1:]
