"""A stored row becomes a dataset row that forks its rollout at a turn.

The fork's row has the recorded input, sampling and fields, and the first turns of the transcript in the field
`FIELD`, which `gym_runtime.files.rows` puts into the published task. So forks run, resume and come in groups
as other rows do.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Raw

from gym_runtime.environment import catalogue
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.errors import UNREADABLE, TaskError, UsageError, require_at_least
from gym_runtime.files.results import Manifest, OutputFiles, load_manifest
from gym_runtime.files.rows import check_sampling, overridden, unrepeatable
from gym_runtime.files.sample import CANCELLED, samples_of
from gym_runtime.files.stored_images import with_images
from gym_runtime.messages.call_tokens import Tokens, chained
from gym_runtime.messages.fork import (
    FIELD,
    Fork,
    ForkTurn,
    OnDifference,
    RecordedCall,
    item_tokens,
    recorded_calls,
)
from gym_runtime.messages.names import MAX_CHARS, is_own
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.messages.responses import NULL, FunctionCallOutput, Response, decode_item, decode_response
from gym_runtime.plurals import counted

_PARAMS = "responses_create_params"
_PLACE = re.compile(r"(?P<file>.+):(?:(?P<task>\d+)(?:\.(?P<rollout>\d+))?)@(?P<turn>\d+)")


@dataclass(frozen=True, kw_only=True)
class Change:
    """What a fork changes of the recorded rollout, to ask what would have been.

    Attributes:
        system_prompt: in place of the recorded one. The shared turns then have no token ids, because the
            model would have seen others.
        tool_output: what the model is told that tools answered in the last shared turn: a text if it called
            one tool, or texts by ``call_id``. The environment's state is that of the real answers.
        sampling: fields of `Sampling`, or of ``responses_create_params``.
    """

    system_prompt: str | None = None
    tool_output: str | Mapping[str, str] | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict[str, Any])


NO_CHANGE = Change()


class _Saved(msgspec.Struct, frozen=True):
    turns: dict[int, str] = {}
    origins: list[str] = []


class _Own(msgspec.Struct, frozen=True):
    rollout_id: str = ""
    saved: _Saved = _Saved()
    environment: str = ""
    turns: int | None = None
    seat: str = ""
    weight_versions: list[str] = []


class _Row(msgspec.Struct, frozen=True):
    responses_create_params: dict[str, Raw]
    response: Raw = Raw(b"null")
    agent_ref: Raw = Raw(b"null")
    own: _Own = msgspec.field(name="_gym", default=_Own())
    task_index: int = msgspec.field(name="_ng_task_index", default=0)
    rollout_index: int = msgspec.field(name="_ng_rollout_index", default=0)


class _Ref(msgspec.Struct, frozen=True):
    name: str | None = None


class _InputItem(msgspec.Struct, frozen=True):
    role: str = ""


_decode_row = msgspec.json.Decoder(_Row).decode
_decode_ref = msgspec.json.Decoder[_Ref | None](_Ref | None).decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_input = msgspec.json.Decoder[str | list[Raw]](str | list[Raw]).decode
_decode_input_item = msgspec.json.Decoder(_InputItem).decode
_decode_metadata = msgspec.json.Decoder[dict[str, str] | None](dict[str, str] | None).decode
_encode = msgspec.json.Encoder().encode


def forked(
    row: RolloutRecord | Mapping[str, Any] | bytes | str,
    turn: int,
    change: Change = NO_CHANGE,
    *,
    on_difference: OnDifference = "fail",
) -> bytes:
    """The dataset row whose rollouts begin with the first turns of a stored rollout.

    Args:
        row: a result row, or a record.
        turn: how many turns are shared; 0 for none, so that only the row is the same.
        on_difference: what follows if the environment answers a repeated call differently than it did: the
            rollout fails, or it goes on with the new answer.

    Raises:
        UsageError: the rollout has no transcript or fewer turns, or the change does not fit it.
        TaskError: this is no result row.
    """
    require_at_least(0, turn=turn)
    line = row.row if isinstance(row, RolloutRecord) else row
    line = _encode(line) if isinstance(line, Mapping) else line.encode() if isinstance(line, str) else line
    try:
        stored, fields = _decode_row(line), _decode_fields(line)
        if bytes(stored.response) == b"null":
            raise UsageError("the rollout has no transcript: it failed before its first turn")
        response = decode_response(stored.response)
        recorded = recorded_calls(response.output)
        _require(turn, recorded, stored.own)
        found = list(_turns(response, recorded, stored.own))[:turn] if turn else []
        if change.system_prompt is not None:
            found = [msgspec.structs.replace(one, tokens=None) for one in found]
        fork = Fork(
            rollout_id=stored.own.rollout_id,
            task_index=stored.task_index,
            rollout_index=stored.rollout_index,
            turns=found,
            outputs=_told(change.tool_output, found),
            changed=_changed(change),
            on_difference=on_difference,
            **_begun(stored.own, min(turn, len(recorded) - 1)),
        )
        kept = {name: value for name, value in fields.items() if not is_own(name)}
        params = _unseeded(_params(stored.responses_create_params, change.system_prompt))
        head = {"agent_ref": stored.agent_ref} if bytes(stored.agent_ref) != b"null" else {}
        if not head and stored.own.environment:
            head = {"agent_ref": Raw(_encode({"name": stored.own.environment}))}
        made = _encode({_PARAMS: params, **head, **kept, FIELD: fork})
    except (*UNREADABLE, struct.error) as error:
        raise TaskError(f"not a result row: {error}") from error
    return overridden(made, check_sampling(change.sampling)) if change.sampling else made


def stored_row(named: str) -> tuple[bytes, int]:
    """The row that ``FILE:TASK@TURN`` or ``FILE:TASK.ROLLOUT@TURN`` names, and the turn.

    Raises:
        UsageError: it names none, or the file cannot be read.
    """
    found = _PLACE.fullmatch(named)
    if not found:
        raise UsageError(f"'{named}' names no turn: give FILE:TASK@TURN or FILE:TASK.ROLLOUT@TURN")
    path, task = Path(found["file"]), int(found["task"])
    rollout = None if found["rollout"] is None else int(found["rollout"])
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    chosen = b""
    try:
        for sample, line, _ in samples_of(path):
            if sample.task_index == task and rollout in (None, sample.rollout_index):
                # Of several rows of a rollout the first counts, of several failures the last.
                rollout = sample.rollout_index
                chosen = chosen if chosen and sample.outcome not in ("failed", CANCELLED) else line
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    if not chosen:
        raise UsageError(f"{path} has no rollout {named.rpartition(':')[2].partition('@')[0]}")
    return with_images(chosen, path.parent), int(found["turn"])


@dataclass(frozen=True, kw_only=True)
class StoredRollout:
    """A rollout in a file of results, and how it was made.

    Attributes:
        path: the file.
        line: its row.
        turn: the turn that was named.
        environment: that of its row, or the one that was named in its place.
        run: the manifest beside the file, if there is one.
    """

    path: Path
    line: bytes
    turn: int
    environment: LoadedEnvironment
    run: Manifest | None

    def agent(self, asked: str | None = None) -> tuple[str | None, dict[str, Any]]:
        """The agent and its options, as its run named them; None for the environment's agent.

        Args:
            asked: an agent to take in its place, as a user names it.

        Raises:
            UsageError: the agent is not known here.
        """
        settings = self.run.settings if self.run else {}
        name, options = settings.get("agent"), settings.get("agent_options")
        found = cast("dict[str, Any]", options) if isinstance(options, dict) else {}
        if asked is not None:
            return asked, found if catalogue.known_name("agents", asked) == name else {}
        if not isinstance(name, str):
            return None, found
        if not catalogue.is_known("agents", name):  # never a file, because a manifest gives the name
            raise UsageError(
                f"the rollout's agent '{name[:MAX_CHARS]}' is not installed here: name its file with --agent"
            )
        return name, found


def stored_rollout(named: str, environment: str | None = None) -> StoredRollout:
    """What `stored_row` finds, with its environment and the manifest of its run.

    Args:
        environment: one that a user has named, also by its file or as a guest, for a row whose own is not
            known without that.

    Raises:
        UsageError: as `stored_row`; or the environment is not known, or cannot be brought to this turn again.
    """
    given = None if environment is None else catalogue.environment(environment)
    line, turn = stored_row(named)
    found = _environment(named, line, given)
    if turn and not found.definition.replayable:
        raise UsageError(unrepeatable(found.name))
    path = Path(named.rpartition(":")[0])
    beside = path.with_name(f"{path.stem.removesuffix('_failures')}.jsonl")
    return StoredRollout(
        path=path,
        line=line,
        turn=turn,
        environment=found,
        run=load_manifest(OutputFiles.beside(beside).manifest),
    )


def _environment(named: str, line: bytes, given: LoadedEnvironment | None) -> LoadedEnvironment:
    try:
        stored = _decode_row(line)
        ref = _decode_ref(stored.agent_ref) or _Ref()
    except UNREADABLE as error:
        raise UsageError(f"{named} is no result row: {error}") from None
    own = stored.own.environment
    name = own if own and catalogue.is_known("environments", own) else ""
    try:
        if ref.name and not own:
            name = catalogue.resolve_agent_ref(ref.name)
    except UsageError:
        name = ""
    # Never a file, because a row gives the name.
    if found := catalogue.known_environment(name) if name else given:
        return found
    said = own or ref.name or ""
    if not said:
        raise UsageError(f"{named} does not say its environment: name it with --environment")
    raise UsageError(
        f"the rollout's environment '{said[:MAX_CHARS]}' is not installed here: name its file, or the guest "
        "as its run did, with --environment"
    )


def _require(turn: int, recorded: Sequence[RecordedCall], own: _Own) -> None:
    """
    Raises:
        UsageError: the rollout cannot be forked at this turn.
    """
    if turn and own.seat:
        raise UsageError(
            f"the rollout has several seats, and its transcript is that of '{own.seat[:MAX_CHARS]}' alone: "
            "it can be forked at turn 0, which shares no turns"
        )
    if turn and own.turns is not None and own.turns != len(recorded):
        why = (
            "the others were asked in conversations of their own"
            if any(one.tokens for one in recorded)
            else "where one follows another directly, only token ids tell them apart (--return-token-ids)"
        )
        raise UsageError(
            f"the rollout took {counted(own.turns, 'turn')}, and its transcript shows {len(recorded)}: "
            f"{why}; it can be forked at turn 0, which shares no turns"
        )
    if turn > len(recorded):
        there = counted(len(recorded), "turn")
        raise UsageError(f"turn is {turn}, and the rollout has {there}: give 0 to {len(recorded)}")


def _begun(own: _Own, turn: int) -> dict[str, Any]:
    """The newest state that the session had saved up to a turn.

    Not that after the transcript's last turn: only its repeated call says whether an episode ended there.
    """
    turns = [one for one in own.saved.turns if 1 <= one <= turn]
    if not turns:
        return {}
    newest = max(turns)
    saved_in = [own.rollout_id, *own.saved.origins]
    return {"saved": own.saved.turns[newest], "saved_turn": newest, "saved_in": saved_in}


def _turns(response: Response, recorded: Sequence[RecordedCall], own: _Own) -> Iterator[ForkTurn]:
    tokens = {one.start: item_tokens(one.tokens) for one in recorded if one.tokens}
    short: dict[int, Tokens] = {one.item: one.tokens for one in chained(tokens)}
    # With several versions only the tokens say which one answered.
    version = own.weight_versions[0] if len(own.weight_versions) == 1 else None
    for number, one in enumerate(recorded):
        answer = msgspec.structs.replace(
            response, id=f"{response.id}_{number}", output=one.said, usage=None, metadata=NULL
        )
        if number < len(recorded) - 1:  # only the last answer may be incomplete
            answer = msgspec.structs.replace(answer, status="completed", incomplete_details=None)
        yield ForkTurn(
            response=Raw(_encode(answer)),
            tokens=short.get(one.start),
            weight_version=version,
            after=one.after,
        )


def answered_calls(line: bytes, turn: int) -> list[str]:
    """The ``call_id`` s of the calls that were answered after a turn of a result row."""
    try:
        recorded = recorded_calls(decode_response(_decode_row(line).response).output)
    except UNREADABLE:
        return []
    return _answered(recorded[turn - 1].after) if 0 < turn <= len(recorded) else []


def _answered(after: Sequence[Raw]) -> list[str]:
    return [item.call_id for item in map(decode_item, after) if isinstance(item, FunctionCallOutput)]


def _told(output: str | Mapping[str, str] | None, turns: Sequence[ForkTurn]) -> dict[str, str]:
    """
    Raises:
        UsageError: the last shared turn did not call the tools that are answered.
    """
    if output is None:
        return {}
    called = _answered(turns[-1].after) if turns else []
    if isinstance(output, str):
        if len(called) != 1:
            raise UsageError(
                "tool_output is one text, and the last shared turn called "
                f"{counted(len(called), 'tool')}: give texts by call_id"
            )
        return {called[0]: output}
    for name in output:
        if name not in called:
            raise UsageError(
                f"the last shared turn has no answered call '{name}'; it has: {', '.join(called) or 'none'}"
            )
    return dict(output)


def _changed(change: Change) -> list[str]:
    names = [name for name in ("system_prompt", "tool_output") if getattr(change, name) is not None]
    return [*names, *change.sampling]


def _params(params: Mapping[str, Raw], system_prompt: str | None) -> dict[str, Raw]:
    """The recorded parameters, with another system prompt where the recorded one stands."""
    if system_prompt is None:
        return dict(params)
    items = _decode_input(params.get("input", b"[]"))
    if not isinstance(items, str):
        for place, item in enumerate(items):
            if _decode_input_item(item).role in ("system", "developer"):
                said = {**_decode_fields(item), "content": Raw(_encode(system_prompt))}
                items[place] = Raw(_encode(said))
                return {**params, "input": Raw(_encode(items))}
    return {**params, "instructions": Raw(_encode(system_prompt))}


def _unseeded(params: Mapping[str, Raw]) -> dict[str, Any]:
    """The parameters without the recorded seed, with which all forks would sample the same."""
    metadata: dict[str, str] = _decode_metadata(params.get("metadata", b"null")) or {}
    extra = _decode_fields(metadata.get("extra_body", "{}"))
    if extra.pop("seed", None) is None:
        return dict(params)
    metadata["extra_body"] = _encode(extra).decode()
    return {**params, "metadata": metadata}
