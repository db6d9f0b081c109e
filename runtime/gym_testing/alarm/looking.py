"""``python -m gym_testing.alarm.looking``: second looks at rewarded rollouts, in its own process.

It reads lines with an environment and a result row, and writes for each what the second look says. What a
model wrote is judged here as on a worker, isolated where the environment says so; a hang costs one look.

The second look is, in this order: a model in the role ``auditor`` (`gym_testing.alarm.auditor`); another
environment that is named, for the same rows; the environment itself with ``strict`` set, where its rows have
this field; else the environment itself, asked of changed replies: near misses made of the reply must not be
paid as much as it, and a reply that is paid in full must hold the row's answer.
"""

from __future__ import annotations

import os
import random
import re
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import cache
from typing import Any, BinaryIO, cast

import anyio
import msgspec
from gym_runtime import Model
from gym_runtime.adapters import ModelSettings
from gym_runtime.environment import Example, LoadedEnvironment, catalogue, examples
from gym_runtime.errors import UNREADABLE, GymError
from msgspec import Raw

from gym_testing.alarm.auditor import ROLE, is_deserved
from gym_testing.audit import mutations
from gym_testing.audit.registry import makers, probes
from gym_testing.audit.target import ANSWER_FIELDS, Target
from gym_testing.checks.reverification import asked_models
from gym_testing.checks.stored_row import decode_stored, require_all_moves
from gym_testing.checks.subject import Subject

TOLERANCE = 1e-9
TRIED = 6
"""Near misses of one reply."""
NO_GOLD = "?"


class _Rollout(msgspec.Struct):
    response: Raw


class _Response(msgspec.Struct):
    output: list[dict[str, Any]]


_decode_rollout = msgspec.json.Decoder(_Rollout).decode
_decode_response = msgspec.json.Decoder(_Response).decode
_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode


class Question(msgspec.Struct):
    """A rollout to look at: its result row, and the environment or the model that looks, if one is named."""

    environment: str
    reward: float
    row: Raw
    second: str = ""
    auditor: ModelSettings | None = None


class Answer(msgspec.Struct, frozen=True):
    """What a second look says.

    Attributes:
        confirmed: the reward that the second look gives; None if it could not look.
        why: what it saw, or why it could not look.
        signs: figures of the reply, by name.
        answer: what the reply answers, in short.
    """

    confirmed: float | None
    why: str = ""
    signs: dict[str, float] = {}
    answer: str = ""


async def look(question: Question, auditor: Model | None = None) -> Answer:
    """The second look at one rollout."""
    try:
        environment = catalogue.environment(question.environment)
        require_all_moves(environment, decode_stored(bytes(question.row)))
        example, response = _example(environment, bytes(question.row))
        target = Target(example)
        confirmed, why = await _confirmed(environment, question, target, response, auditor)
    except GymError as error:
        return Answer(None, error.message)
    except UNREADABLE as error:
        return Answer(None, f"not a row: {error}")
    text = target.text
    return Answer(confirmed, why, _signs(target), plain(target.answer or text)[:80])


async def _confirmed(
    environment: LoadedEnvironment,
    question: Question,
    target: Target,
    response: bytes,
    auditor: Model | None,
) -> tuple[float | None, str]:
    example = target.example
    if auditor is not None:
        deserved = await is_deserved(
            auditor,
            reward=question.reward / environment.definition.gold_reward,
            task=f"{target.system}\n\n{target.prompt}".strip(),
            expected=_known(target, environment),
            reply=_said(target),
        )
        return (question.reward if deserved else 0.0), "the auditor calls it a trick"
    if question.second:
        other = catalogue.environment(question.second)
        return (await _reward(other, example, response)), f"{question.second} gives less"
    if "strict" in environment.row_fields:
        strict = msgspec.structs.replace(example, row=_encode({**_fields(example.row), "strict": True}))
        return (await _reward(environment, strict, response)), "the strict rule gives less"
    if question.reward < environment.definition.gold_reward - TOLERANCE:
        return question.reward, ""
    answer = _wanted(target)
    if answer and not target.calls and answer not in plain(target.text):
        return 0.0, "it does not hold the row's answer"
    for turns in _near_misses(target, environment):
        made = await examples.play(environment.resource, msgspec.structs.replace(example, turns=turns))
        if await _reward(environment, example, made) >= question.reward - TOLERANCE:
            return 0.0, "a near miss made of it is paid, too"
    return question.reward, ""


async def _reward(environment: LoadedEnvironment, example: Example, response: bytes) -> float:
    return (await Subject(environment, [example]).judge(example, response)).reward


def _example(environment: LoadedEnvironment, row: bytes) -> tuple[Example, bytes]:
    """The row with the rollout as its perfect one."""
    response = bytes(_decode_rollout(row).response)
    said = _decode_response(response).output
    items = [_item(item) for item in said if item.get("type") in _OWN]
    fields = {name: value for name, value in _fields(row).items() if name != "response"}
    task = _encode({**fields, "gold": NO_GOLD})
    example = examples.example(environment, "row", 1, task)
    return msgspec.structs.replace(example, turns=[items or [""]]), response


_OWN = ("message", "reasoning", "function_call")


def _item(item: dict[str, Any]) -> Any:
    """A message of the assistant as its text, other items as they are."""
    if item.get("type") != "message":
        return item
    content: Any = item.get("content")
    parts = cast("list[Any]", content) if isinstance(content, list) else []
    texts = [str(cast("dict[str, Any]", one).get("text", "")) for one in parts if isinstance(one, dict)]
    return content if isinstance(content, str) else "".join(texts)


def _known(target: Target, environment: LoadedEnvironment) -> str:
    """The row's own fields, without those of the rollout."""
    return msgspec.json.encode({name: target.row.get(name) for name in environment.row_fields}).decode()


def _said(target: Target) -> str:
    return "\n".join(
        item if isinstance(item, str) else msgspec.json.encode(item).decode()
        for turn in target.turns
        for item in turn
        if item is not None
    )


def _wanted(target: Target) -> str:
    """The row's answer, if it is one that a reply can hold."""
    for name in ANSWER_FIELDS:
        value = target.row.get(name)
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return plain(str(value))
    return ""


def _near_misses(target: Target, environment: LoadedEnvironment) -> Iterator[list[list[Any]]]:
    if target.span is None and not target.calls:
        return
    known = makers(str(mutations.__file__), str(environment.source))
    made = [one.turns for one in probes(target, known) if one.expect == "less" and not one.suspect]
    yield from random.Random(target.text).sample(made, min(TRIED, len(made)))


def _signs(target: Target) -> dict[str, float]:
    words = target.text.split()[:5_000]
    grams = list(zip(words, words[1:], words[2:], words[3:], strict=False))
    repetition = 1 - len(set(grams)) / len(grams) if grams else 0.0
    broken = sum(not _is_object(call.get("arguments")) for call in target.calls)
    return {"length": float(len(target.text)), "repetition": repetition, "malformed": float(broken)}


def _is_object(text: Any) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (*UNREADABLE, TypeError):
        return False


@cache
def _spaces() -> re.Pattern[str]:
    return re.compile(r"[\s,$]+")


def plain(text: str) -> str:
    """A text in small letters, without what is written in more than one way.

    >>> plain(" 1,266 "), plain("Marie  Curie")
    ('1266', 'mariecurie')
    """
    return _spaces().sub("", unicodedata.normalize("NFKC", text).casefold())


def _own_output() -> BinaryIO:
    """Standard output, for answers alone: what a log or an author's code prints goes to standard error."""
    own = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return own


async def _answer_all() -> None:
    read, write = sys.stdin.buffer, _own_output()
    auditor: Model | None = None
    async with AsyncExitStack() as stack:
        while line := await anyio.to_thread.run_sync(read.readline):
            question = msgspec.json.decode(line, type=Question)
            try:
                if question.auditor is not None and auditor is None:  # one process serves one watch
                    asked = await stack.enter_async_context(asked_models({ROLE.name: question.auditor}))
                    auditor = Model(ROLE, asked[ROLE.name])
                said = await look(question, auditor)
            except GymError as error:
                said = Answer(None, error.message)
            write.write(_encode(said) + b"\n")
            write.flush()


if __name__ == "__main__":
    anyio.run(_answer_all)
