"""What a simulated system plays: small environments and an engine, all of them in virtual time.

Each environment wants every call of its rollout exactly once, so a call that is lost, executed twice, or
answered by the wrong session costs the reward. One gives its rewards to whole groups, one saves its state.
`OPEN` counts the sessions that are open, and those that went on from a saved state.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from functools import cache
from typing import Any

import anyio
from gym_runtime import (
    Candidates,
    Environment,
    Episode,
    Pending,
    Reply,
    Session,
    Step,
    Task,
    Verdict,
    tool,
)
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.errors import ModelUnavailable
from gym_runtime.messages.calls import ModelAnswer, ModelCall
from gym_runtime.workers.adapter import CallContext
from gym_testing.small_system import Engine, answer, environment, function_call

OPEN: Counter[str] = Counter()
SAVED: set[tuple[int, int]] = set()
TURNS = 3
CALLS, MORE = 6, " of more"
"""Of a session that saves, which lasts longer, so that more of them are lost."""
GROUPED, SIZE = "contest", 3
AGENTS = {"tally": "tool_loop", "once": "tool_loop", "quest": "step_loop", "saver": "tool_loop"}


class Counted:
    """A session that is counted while it is open."""

    async def open(self) -> None:
        self.count = 0
        OPEN["sessions"] += 1

    async def close(self) -> None:
        OPEN["sessions"] -= 1


class Tally(Counted, Session[Task]):
    """Counts its calls."""

    @tool
    async def increment(self) -> str:
        await anyio.sleep(0.05)
        self.count += 1
        return str(self.count)

    async def verify(self, reply: Reply) -> Verdict:
        return Verdict(float(self.count == TURNS - 1 == len(reply.function_calls)))


class Contestant(Tally):
    """As `Tally`; its group says what it is worth."""

    async def verify(self, reply: Reply) -> Pending:
        return Pending((await super().verify(reply)).reward)


async def compare(candidates: Candidates[Task]) -> list[Verdict]:
    await anyio.sleep(0.3)
    found = candidates.features(float)
    return [Verdict(reward, fields={"of": len(found)}) for reward in found]


class Once(Counted, Session[Task]):
    """Answers with what only this session knows, so it cannot be rebuilt."""

    async def open(self) -> None:
        await super().open()
        self.token = random.randrange(10**9)

    @tool
    async def increment(self) -> str:
        await anyio.sleep(0.05)
        self.count += 1
        return f"{self.token}.{self.count}"

    async def verify(self, reply: Reply) -> Verdict:
        mine = [f"{self.token}.{count}" for count in range(1, TURNS)]
        return Verdict(float([json.loads(output.output) for output in reply.tool_outputs] == mine))


class Saver(Counted, Session[Task]):
    """Answers with what only this session knows, and saves it after three calls of four: those after the last
    state are repeated when the session is lost."""

    async def open(self) -> None:
        await super().open()
        self.token = random.randrange(10**9)

    @tool
    async def increment(self) -> str:
        await anyio.sleep(0.05)
        self.count += 1
        return f"{self.token}.{self.count}{MORE if self.count < CALLS else ''}"

    async def save(self) -> Any:
        if self.store is None or random.random() < 0.25:
            return None
        SAVED.add((self.token, self.count))
        return await self.store.put(f"{self.token}.{self.count}".encode())

    async def on_restore(self, saved: Any) -> None:
        assert self.store is not None
        token, count = (await self.store.get(saved)).decode().split(".")
        self.token, self.count = int(token), int(count)
        OPEN["restored"] += 1
        OPEN["restored what was never saved"] += (self.token, self.count) not in SAVED

    async def verify(self, reply: Reply) -> Verdict:
        said = [json.loads(output.output).removesuffix(MORE) for output in reply.tool_outputs]
        return Verdict(float(said == [f"{self.token}.{count}" for count in range(1, CALLS + 1)]))


class Quest(Counted, Episode[Task]):
    """Asks for one message a step."""

    async def reset(self) -> str:
        return "go"

    async def step(self, reply: Reply) -> Step:
        await anyio.sleep(0.05)
        self.count += 1
        right = reply.text == str(self.count)
        return Step(observation="on", reward=right / TURNS, terminated=self.count == TURNS)

    async def verify(self, reply: Reply) -> Verdict:
        return Verdict(float(self.count == TURNS and round(self.total_reward, 6) == 1.0))


@cache
def environments() -> dict[str, LoadedEnvironment]:
    """By name."""
    definitions = {
        "tally": Environment(resource=Tally, description=""),
        "once": Environment(resource=Once, description="", replayable=False),
        "saver": Environment(resource=Saver, description=""),
        "quest": Environment(resource=Quest, description="", agent="step_loop"),
        GROUPED: Environment(resource=Contestant, description="", compare=compare),
    }
    return {name: environment(definition, name) for name, definition in definitions.items()}


class Thinker(Engine):
    """Takes its time, is sometimes overloaded; what it answers depends on the conversation only."""

    async def respond(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        await anyio.sleep(0.3)
        if random.random() < 0.05:
            raise ModelUnavailable("overloaded", stage="model")
        items = [bytes(item) for item in call.input]
        if b'"go"' in items[-1] or b'"on"' in items[-1]:
            return answer(str(1 + sum(b'"on"' in item for item in items)))
        called = sum(b"function_call_output" in item for item in items)
        more = called < TURNS - 1 or MORE.encode() in items[-1]
        return answer(function_call("increment") if more else "done")
