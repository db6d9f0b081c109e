"""A recorded rollout as the gold of an example row.

The model's turns become the gold, calls in their short form. Reasoning is left out, and so is what the
environment answered. The gold is judged before anything is written: it must score what a gold scores.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
from gym_runtime import Episode, own_files
from gym_runtime.environment import Example, LoadedEnvironment, examples, requirements, session_of, turns
from gym_runtime.errors import UNREADABLE, GymError, UsageError
from gym_runtime.files import sample_row
from gym_runtime.messages import (
    FunctionCall,
    Item,
    Message,
    Reasoning,
    decode_items,
    decode_response,
    is_own,
)

from gym_testing.checks.stored_row import Stored, decode_stored, require_all_moves
from gym_testing.checks.subject import Subject

_PLACE = re.compile(r"(?P<file>.+):(?:(?P<task>\d+)\.(?P<rollout>\d+)|(?P<line>\d+))")
_TOKENS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


async def take(environment: LoadedEnvironment, named: str, into: Path | None = None) -> int:
    """Write a recorded rollout as the gold of its row, or of a new row, beside an environment's module.

    Args:
        named: ``FILE:LINE`` or ``FILE:TASK.ROLLOUT``, as for ``gym-runtime show``.
        into: the file that gets the row; by default the environment's example rows.

    Returns:
        The number of the row's line in the file of example rows, from 1.

    Raises:
        UsageError: there is no such rollout, or it does not score what a gold scores. Nothing was written.
    """
    return await take_line(environment, _stored_line(named), named, into)


async def take_line(environment: LoadedEnvironment, line: bytes, named: str, into: Path | None = None) -> int:
    """As `take`, of a result row; ``named`` is how errors name it."""
    requirements.require(environment)
    try:
        stored, fields = decode_stored(line), _decode(line)
        gold = _gold(decode_items(decode_response(stored.response).output))
        roles = _said(stored)
    except UNREADABLE as error:
        raise UsageError(f"{named} is no rollout with a response: {error}") from error
    row = _row(environment, fields)
    example = examples.example(environment, named, 1, _encode({**row, "gold": _whole(gold, roles)}))
    try:
        require_all_moves(environment, stored)
        row = await _without_observation(environment, example, row)
        row, asked = await _judged(environment, named, example, row)
    except GymError as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{named} cannot be judged: {error.message}") from error
    gold = _whole(gold, {role: said for role, said in roles.items() if role in asked})
    return _write(into or environment.examples, row, gold)


async def _without_observation(
    environment: LoadedEnvironment, example: Example, row: dict[str, Any]
) -> dict[str, Any]:
    """The row as it was before the first observation of an episode was appended to its input."""
    resource = environment.resource
    if not issubclass(resource.session_type, Episode):
        return row
    async with session_of(resource, example.row, example.answers().models(resource.roles)) as session:
        assert isinstance(session, Episode)
        observed = [_decode(item) for item in await resource.reset(session)]
    params, given = _params(row), _input(row)
    began = len(given) - len(observed)
    if not observed or given[max(0, began) :] != observed:
        return row
    return {**row, "responses_create_params": {**params, "input": given[:began]}}


async def _judged(
    environment: LoadedEnvironment, named: str, example: Example, row: dict[str, Any]
) -> tuple[dict[str, Any], set[str]]:
    """The row without what the verifier added to it, and the roles that the verifier asked."""
    subject, answers = Subject(environment, [example]), example.answers()
    response = await examples.play(environment.resource, example)
    verdict = await subject.judge(example, response, answers)
    wanted = environment.definition.gold_reward
    if abs(verdict.reward - wanted) > 1e-9:
        raise UsageError(
            f"{named} scores {verdict.reward:g} instead of {wanted:g}: only a rollout that solves its task "
            "becomes a gold"
        )
    added = verdict.fields.keys() - set(environment.resource.task_type.__struct_encode_fields__)
    kept = {name: value for name, value in row.items() if name not in added}
    return kept, {name for name, _ in answers.asked}


def _stored_line(named: str) -> bytes:
    found = _PLACE.fullmatch(named)
    if not found:
        raise UsageError(f"'{named}' names no rollout; give FILE:LINE or FILE:TASK.ROLLOUT")
    key = (int(found["task"]), int(found["rollout"])) if found["task"] else None
    chosen = b""
    try:
        with Path(found["file"]).open("rb") as file:
            for number, line in enumerate(file, 1):
                if key is None and number == int(found["line"]):
                    return line
                if key is not None and not line.isspace() and sample_row(line).key == key:
                    chosen = line  # the last one counts, as everywhere
    except OSError as error:
        raise UsageError(f"cannot read {found['file']}: {error.strerror}") from None
    except UNREADABLE as error:
        raise UsageError(f"{found['file']} has a line that is no rollout: {error}") from None
    if not chosen:
        raise UsageError(f"{found['file']} has no rollout {named.rpartition(':')[2]}")
    return chosen


# -- what becomes of a transcript -----------------------------------------------------------------------


def _gold(transcript: Sequence[Item]) -> Any:
    """The turns of the model, each as short as it can be written; a single text as it is."""
    found = [[_short(item) for item in _told(turn)] for turn in turns(transcript)]
    listed = [turn[0] if len(turn) == 1 else turn for turn in found]
    return listed[0] if len(listed) == 1 and isinstance(listed[0], str) else listed


def _told(turn: Sequence[Item]) -> Sequence[Item]:
    return [item for item in turn if not isinstance(item, Reasoning)] or turn


def _short(item: Item) -> Any:
    if isinstance(item, Message) and all(part.type == "output_text" for part in item.parts):
        return item.text
    if isinstance(item, FunctionCall):
        whole = {"type": "function_call", **{n: getattr(item, n) for n in ("call_id", "name", "arguments")}}
        try:
            short = {"call": item.name, **_decode(item.arguments)}
        except UNREADABLE:  # the model's mistake, which is kept
            return whole
        return short if examples.written_out(short, item.call_id)["name"] == item.name else whole
    return _as_it_is(item)


def _as_it_is(item: Item) -> dict[str, Any]:
    fields = _decode(item.raw or b"{}")
    return {name: value for name, value in fields.items() if name not in _TOKENS}


def _said(stored: Stored) -> dict[str, list[Any]]:
    """What each role answered, in the order of the questions: texts, or responses where there is more."""
    said: dict[str, list[Any]] = {}
    for answer in stored.own.role_answers:
        items = decode_items(decode_response(answer.response).output)
        short = [_short(item) for item in _told(items)]
        one_text = len(short) == 1 and isinstance(short[0], str)
        said.setdefault(answer.role, []).append(
            short[0] if one_text else {"output": [_as_it_is(item) for item in items]}
        )
    return said


def _whole(turns: Any, roles: dict[str, list[Any]]) -> Any:
    return {"turns": turns, "roles": roles} if roles else turns


# -- the row --------------------------------------------------------------------------------------------


def _row(environment: LoadedEnvironment, stored: dict[str, Any]) -> dict[str, Any]:
    """The dataset's row of a result row, without what a run adds to it."""
    params = _params(stored)
    own = [tool.definition() for tool in environment.resource.tools.values()]
    kept = {name: params[name] for name in ("input", "instructions", "tools") if params.get(name)}
    if kept.get("tools") == own:
        kept.pop("tools")
    fields = {name: value for name, value in stored.items() if not is_own(name)}
    return {"responses_create_params": {"input": [], **kept}, **fields}


def _write(path: Path, row: dict[str, Any], gold: Any) -> int:
    """Put the gold on the row that is the same task, or append the row."""
    try:
        lines = path.read_bytes().removeprefix(codecs.BOM_UTF8).splitlines() if path.exists() else []
        place = next((n for n, known in _objects(lines) if _same(known, row)), len(lines))
        known = _decode(lines[place]) if place < len(lines) else row
        lines[place:] = [_line({**known, "gold": gold}), *lines[place + 1 :]]
        with own_files.replacing(path) as file:
            file.writelines(line + b"\n" for line in lines)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
    return place + 1


def _objects(lines: Sequence[bytes]) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(lines):
        try:
            yield number, _decode(line)
        except UNREADABLE:  # `gym-runtime test` names it
            continue


def _same(known: dict[str, Any], row: dict[str, Any]) -> bool:
    """Whether an example row is this row: the input and its other fields are."""
    fields = (name for name in known if name != "gold" and not is_own(name))
    return _input(known) == _input(row) and all(row.get(name) == known[name] for name in fields)


def _input(row: dict[str, Any]) -> list[Any]:
    given = cast("str | list[Any]", _params(row).get("input") or [])
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


def _params(row: dict[str, Any]) -> dict[str, Any]:
    params = row.get("responses_create_params")
    return cast("dict[str, Any]", params) if isinstance(params, dict) else {}


def _line(row: dict[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=False).encode()
