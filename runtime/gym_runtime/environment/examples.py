"""Example rows of an environment, each with a perfect rollout.

An example row carries a ``gold`` beside the dataset's fields: the assistant's final text, or the list of
the model's turns. A turn is a string (a message of the assistant), a call of a tool, an output item, or a
list of these. A call names the tool and its arguments: ``{"call": "pick", "shelf": "A"}``.
What the environment answers stands between the turns when the rollout is played; it is not part of the
gold. Where models in roles are asked, the gold is an object: ``turns`` (the text or the list), and ``roles``
with what each role answers, question by question: ``{"turns": "42", "roles": {"judge": ["[[A=B]]"]}}``; a
role that calls tools answers with a response, ``{"output": […]}``.
"""

from __future__ import annotations

import codecs
from typing import Any, cast

import msgspec
from msgspec import Raw

from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.environment.replaying import session_of
from gym_runtime.environment.resource import Resource
from gym_runtime.environment.roles import ScriptedAnswers
from gym_runtime.environment.settings import filled
from gym_runtime.environment.shapes import Episode, Session, Store
from gym_runtime.environment.verdict import Pending, Verdict, make_response
from gym_runtime.errors import UNREADABLE, UsageError
from gym_runtime.messages.responses import (
    NULL,
    FunctionCall,
    decode_items,
    decode_response,
    tool_output,
)

GoldTurn = list[Any]
Scripts = dict[str, list[str | dict[str, Any]]]
"""What each role answers: texts, or whole responses."""


class _Gold(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    turns: str | list[Any]
    roles: Scripts = {}


_CALL = "function_call"
_fields = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """An example row. ``number`` counts from 1, as the lines of its file do.

    Attributes:
        roles: what each role answers in the perfect rollout, in the order of the questions.
    """

    number: int
    row: bytes
    fields: dict[str, Any]
    turns: list[GoldTurn]
    roles: Scripts = {}

    def answers(self) -> ScriptedAnswers:
        """The roles of the perfect rollout, from the first question on."""
        return ScriptedAnswers(self.roles)


def read(environment: LoadedEnvironment) -> list[Example]:
    """The example rows beside an environment's module, with its settings.

    Raises:
        UsageError: the file is missing or has no row, a line is not a JSON object, or it has no ``gold``.
    """
    path = environment.examples
    data = path.read_bytes().removeprefix(codecs.BOM_UTF8) if path.is_file() else None
    lines = None if data is None else list(enumerate(data.splitlines(), 1))
    rows = [(number, line) for number, line in lines or () if line.strip()]
    if not rows:
        what = "is missing" if lines is None else "has no row"
        raise UsageError(f"{path} {what}; write five example rows to it, one JSON object per line")
    return [example(environment, f"{path}:{number}", number, line) for number, line in rows]


def example(environment: LoadedEnvironment, where: str, number: int, line: bytes) -> Example:
    """An example row; ``where`` is its place, for messages.

    Raises:
        UsageError: as `read`.
    """
    try:
        line = filled(environment, line, None)
        fields = _fields(line)
    except UNREADABLE as error:
        raise UsageError(f"{where}: not a JSON object: {error}") from error
    gold: Any = fields.get("gold")
    roles: Scripts = {}
    if isinstance(gold, dict) and "call" in gold:
        gold = [gold]
    if isinstance(gold, dict):
        try:
            scripted = msgspec.convert(gold, _Gold)
        except msgspec.ValidationError as error:
            raise UsageError(f"{where}: 'gold': {error}") from error
        gold, roles = scripted.turns, scripted.roles
    if not isinstance(gold, str | list) or not gold:
        what = "the row has no 'gold'" if gold in (None, "", []) else f"'gold' is no text: {gold!r}"
        raise UsageError(
            f"{where}: {what}; add the perfect rollout as a text or as a list of turns, or "
            f"take a recorded one: gym-runtime new {environment.name} --gold-from results/FILE.jsonl:LINE"
        )
    listed = cast("list[Any]", [gold] if isinstance(gold, str) else gold)
    turns = [_turn(where, place, turn) for place, turn in enumerate(listed)]
    return Example(number=number, row=line, fields=fields, turns=turns, roles=roles)


def _turn(where: str, place: int, turn: Any) -> GoldTurn:
    """The items of a turn, with its calls written out."""
    items = cast("list[Any]", turn if isinstance(turn, list) else [turn])
    whole = [written_out(item, f"call_{place}_{number}") for number, item in enumerate(items)]
    try:
        decode_items(decode_response(make_response(*whole)).output)
    except UNREADABLE as error:
        what = 'a turn is a text, {"call": TOOL, ARGUMENT: VALUE}, an output item, or a list of these'
        raise UsageError(f"{where}: turn {place + 1} of 'gold': {error}; {what}") from error
    return whole


def written_out(item: Any, call_id: str) -> Any:
    """The item of a call that is written short; anything else as it is.

    >>> written_out({"call": "pick", "shelf": "A"}, "1")["arguments"]
    '{"shelf":"A"}'
    """
    if not isinstance(item, dict) or not isinstance(item.get("call"), str) or item.get("type") == _CALL:
        return cast("Any", item)
    arguments = {name: value for name, value in cast("dict[str, Any]", item).items() if name != "call"}
    name = cast("str", item["call"])
    return {"type": _CALL, "call_id": call_id, "name": name, "arguments": _encode(arguments).decode()}


async def play(resource: Resource, example: Example, answers: ScriptedAnswers | None = None) -> bytes:
    """Play the perfect rollout on a new session; return the response with the whole transcript.

    Args:
        answers: of the models in roles; by default those of the perfect rollout.
    """
    output: list[Raw] = []
    models = (answers or example.answers()).models(resource.roles)
    async with session_of(resource, example.row, models) as session:
        if isinstance(session, Episode):
            await resource.reset(session)
        for turn in example.turns:
            output += await _played(resource, session, turn)
    return _whole_response(output)


async def play_with_losses(
    resource: Resource, example: Example, store: Store
) -> tuple[bytes, Verdict | Pending]:
    """Play the perfect rollout, whose session is lost after each turn that it has saved, and restored.

    Returns the response with the whole transcript, and the verdict of the last session.

    Args:
        store: what the session saves its larger parts in.
    """
    output: list[Raw] = []
    models = example.answers().models(resource.roles)
    session = await resource.open(example.row, models, store=store)
    try:
        if isinstance(session, Episode):
            await resource.reset(session)
        for turn in example.turns:
            output += await _played(resource, session, turn)
            saved = await resource.saved(session)
            if saved != NULL:
                await resource.close(session)
                session = await resource.open(example.row, models, store=store, restore=saved)
        response = _whole_response(output)
        return response, await resource.verify(session, response)
    finally:
        await resource.close(session)


def _whole_response(output: list[Raw]) -> bytes:
    return _encode({"id": "gold", "status": "completed", "output": output})


async def _played(resource: Resource, session: Session[Any], turn: GoldTurn) -> list[Raw]:
    """A turn's items: the model's, then the environment's answers to them."""
    response = make_response(*turn)
    return [*decode_response(response).output, *await _answers(resource, session, response)]


async def _answers(resource: Resource, session: Session[Any], response: bytes) -> list[Raw]:
    if isinstance(session, Episode):
        return (await resource.step(session, response)).items
    if resource.stateless and not resource.tools:
        return []
    calls = [i for i in decode_items(decode_response(response).output) if isinstance(i, FunctionCall)]
    return [
        tool_output(call.call_id, await resource.call_tool(session, call.name, call.arguments))
        for call in calls
    ]
