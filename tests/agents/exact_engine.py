"""An engine with exact tokens, a desk that agents work at, and what a rollout there has to show."""

from __future__ import annotations

import array
import time
import zlib
from collections.abc import Coroutine, Generator
from functools import partial
from typing import Any

import anyio
import msgspec
import numpy as np
from gym_runtime import Environment, Reply, Session, Task, Verdict, tool
from gym_runtime.adapters import Agent, Rollout
from gym_runtime.environment import catalogue
from gym_runtime.messages.calls import Tokens
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.rollout.journal import journal_subject
from gym_testing.small_system import (
    Engine,
    Item,
    SmallSystem,
    Turn,
    environment,
    rollout_spec,
    small_system,
)
from msgspec import Raw

ROW = {"responses_create_params": {"instructions": "Be brief.", "input": "What is 6 × 7?"}}


class Exact(Engine):
    """Two tokens for each item, which follow from its bytes: a prompt has those of all items in it.

    Attributes:
        sampled: each call's prompt and what was sampled, in the order of the answers.
    """

    def __init__(self, *turns: Turn, **more: Any) -> None:
        super().__init__(*turns, **more)
        self.sampled: list[tuple[list[int], list[int]]] = []

    async def respond(self, call: Any, context: Any) -> Any:
        given = await super().respond(call, context)
        output: list[Raw] = msgspec.json.decode(given.response, type=_Output).output
        prompt, sampled = [_ids(items) for items in (call.input, output)]
        self.sampled.append((prompt, sampled))
        tokens = Tokens(
            prompt_ids=_packed("i", prompt),
            generation_ids=_packed("i", sampled),
            log_probs=_packed("f", [-1.0] * len(sampled)),
        )
        return msgspec.structs.replace(given, tokens=tokens)


class _Output(msgspec.Struct):
    output: list[Raw]


def _packed(kind: Any, values: list[Any]) -> bytes:
    return array.array(kind, values).tobytes()


def _ids(items: list[Raw]) -> list[int]:
    return [number for item in items for number in (zlib.crc32(item) >> 8, len(bytes(item)))]


def assert_exact(record: RolloutRecord, engine: Exact) -> None:
    """What there is to train on is what was sampled: each token once, after just the tokens it was sampled
    after.
    """
    trained: list[tuple[list[int], list[int]]] = []
    for sequence in record.sequences():
        ids = [*sequence.prompt_ids.tolist(), *sequence.completion_ids.tolist()]
        first = len(sequence.prompt_ids)
        trained += [(ids[: first + start], ids[first + start : first + end]) for start, end in sequence.turns]
        count = sum(end - start for start, end in sequence.turns)
        assert np.count_nonzero(sequence.mask) == (count if sequence.weight else 0)
    assert sorted(trained) == sorted((prompt, sampled) for prompt, sampled in engine.sampled if sampled)


class Desk(Session[Task]):
    """Tools that leave no trace elsewhere; the last message has to be 42."""

    @tool
    def look(self, page: int) -> int:
        return page

    @tool
    def submit(self, result: str) -> str:
        return result

    @tool
    def crash(self) -> str:
        raise ZeroDivisionError("in the tool")

    @tool
    async def wait(self, seconds: float) -> float:
        await anyio.sleep(seconds)
        self.waited = True
        return seconds

    async def verify(self, reply: Reply) -> Verdict:
        return Verdict(float(reply.text == "42"), fields={"waited": hasattr(self, "waited")})


DESK = environment(Environment(resource=Desk, description="d"))


async def furnish(system: SmallSystem, engine: Engine) -> None:
    await system.add_model(engine)
    await system.add_resource(DESK)


async def hire(system: SmallSystem, agent: str, name: str = "agent-1") -> None:
    await system.add_agent({agent: catalogue.load("agents", agent).Agent()}, name=name)


def spec(agent: str, row: dict[str, Any] = ROW, **more: Any) -> Any:
    return rollout_spec(msgspec.json.encode(row), agent=agent, return_tokens=True, **more)


async def play(agent: str, *turns: Turn, **more: Any) -> tuple[RolloutRecord, Exact]:
    engine = Exact(*turns)
    async with small_system() as system:
        await furnish(system, engine)
        await hire(system, agent)
        (record,) = await system.make(spec(agent, **more))
    return record, engine


async def recorded(system: SmallSystem, turns: int) -> None:
    """Return when the journal has so many turns."""
    subject = journal_subject("run", 0, 0)
    with anyio.fail_after(60):
        while (await system.bus.counts(subject)).get(subject, 0) < turns:
            await anyio.sleep(0.01)


def items(record: RolloutRecord) -> list[Item]:
    """The transcript, without tokens."""
    output = msgspec.json.decode(record.row)["response"]["output"]
    return [
        {key: value for key, value in item.items() if "token" not in key and "log_probs" not in key}
        for item in output
    ]


def inputs(engine: Engine) -> list[list[str]]:
    """What the model was shown at each call: texts, names of calls, outputs."""
    return [[short(msgspec.json.decode(item)) for item in call.input] for call, _ in engine.calls.items]


def short(item: Item) -> str:
    if "content" in item:
        content = item["content"]
        return content if isinstance(content, str) else content[0]["text"]
    return f"{item['name']}()" if "name" in item else item["output"]


class Watched:
    """An agent whose steps are timed: what it does from one point at which it waits to the next.

    Attributes:
        longest_s: the processor time of the longest step.
    """

    def __init__(self, agent: Agent) -> None:
        self.longest_s = 0.0
        self._agent = agent

    async def run(self, rollout: Rollout) -> None:
        await _Steps(self, self._agent.run(rollout))


class _Steps:
    def __init__(self, watched: Watched, work: Coroutine[Any, Any, None]) -> None:
        self._watched = watched
        self._work = work

    def __await__(self) -> Generator[Any, Any, None]:
        step = partial(self._work.send, None)
        while True:
            begun_s = time.thread_time()
            try:
                waits_for = step()
            except StopIteration:
                return
            finally:
                took_s = time.thread_time() - begun_s
                self._watched.longest_s = max(self._watched.longest_s, took_s)
            try:
                step = partial(self._work.send, (yield waits_for))
            except BaseException as error:
                step = partial(self._work.throw, error)
