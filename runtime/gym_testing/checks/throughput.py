"""What an environment costs without a model: verifying, calling tools, opening and closing sessions.

It plays rollouts of the example rows on this process's event loop, as a worker does, and times each part
separately. CPU time includes the processes that this one started (isolated verification, sandboxes); it is
counted by a control group where one can be had (`gym_testing.checks.cpu_meter`).
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import anyio
import msgspec
from anyio.lowlevel import checkpoint
from gym_runtime import Episode, Session, make_response
from gym_runtime.environment import Example, LoadedEnvironment, examples, requirements, verify_isolated
from gym_runtime.errors import leaf
from gym_runtime.messages import FunctionCall, decode_items, decode_response

from gym_testing.checks.cpu_meter import CpuMeter, cpu_meter

SILENCE = make_response()


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What one call costs, on average.

    Attributes:
        calls: how many were measured.
        per_s: how many of them one worker does in a second, if it does nothing else; isolated verification
            uses all CPUs of the machine.
        wall_us: from call to answer, in microseconds.
        cpu_us: processor time, in microseconds.
    """

    calls: int
    per_s: float
    wall_us: float
    cpu_us: float


class Throughput(msgspec.Struct, frozen=True, kw_only=True):
    """What an environment costs.

    Attributes:
        counted_by: how the CPU time of other processes was counted: by ``a control group``, or ``samples``,
            which miss processes that live for less than a few milliseconds.
        isolated: verification runs in separate processes; the verdicts' costs then include opening a session.
        gold, silence: a verdict on a perfect rollout, and on an empty answer.
        session: opening and closing a session.
        tools: a call of each tool that the perfect rollouts use; ``reset`` and ``step`` of an episode.
    """

    environment: str
    shape: str
    isolated: bool
    counted_by: str = ""
    gold: Cost
    silence: Cost
    session: Cost
    tools: dict[str, Cost] = {}


class Meter:
    """Adds up the times of the calls of one kind; ``others_ns`` is the CPU time of other processes."""

    def __init__(self, others_ns: Callable[[], int]) -> None:
        self._others_ns = others_ns
        self.calls = self._wall_ns = self._cpu_ns = 0

    @contextmanager
    def timing(self, calls: int = 1) -> Generator[None]:
        """Measure so many calls, which are made within this context."""
        others_ns = self._others_ns()
        wall_ns, cpu_ns = time.perf_counter_ns(), time.process_time_ns()
        yield
        self._cpu_ns += time.process_time_ns() - cpu_ns
        self._wall_ns += time.perf_counter_ns() - wall_ns
        self._cpu_ns += self._others_ns() - others_ns
        self.calls += calls

    def cost(self, *, at_once: int = 1) -> Cost:
        """The cost of one call, when ``at_once`` of them ran concurrently."""
        calls = max(1, self.calls)
        wall_us = self._wall_ns / 1000 / calls
        return Cost(
            calls=self.calls,
            per_s=1e6 / wall_us if wall_us else 0.0,
            wall_us=wall_us * at_once,
            cpu_us=self._cpu_ns / 1000 / calls,
        )


async def measure(environment: LoadedEnvironment, seconds: float) -> Throughput:
    """Measure an environment for about ``seconds``; each of its example rows is played at least once.

    Raises:
        UsageError: its packages or its example rows are missing.
        GymError: its code failed.
    """
    requirements.require(environment)
    rows = examples.read(environment)
    with cpu_meter() as meter:
        return await _measured(environment, rows, seconds, meter)


async def _measured(
    environment: LoadedEnvironment, rows: list[Example], seconds: float, meter: CpuMeter
) -> Throughput:
    # What a row, a tool or a verifier imports and reads at its first use is start-up, not what it costs.
    warming = _Measurement(environment, meter.others_ns)
    for example in rows:
        await warming.play(example, empty=False)
        await warming.play(example, empty=True)
    measured = _Measurement(environment, meter.others_ns)
    isolated = environment.definition.isolated
    for empty in (False, True):
        end_s = time.monotonic() + seconds / (4 if isolated else 2)
        for number, example in enumerate(itertools.cycle(rows)):
            if number >= len(rows) and time.monotonic() >= end_s:
                break
            await checkpoint()  # or Ctrl-C would wait for the end: most verifiers await nothing
            await measured.play(example, empty=empty)
    at_once = (os.cpu_count() or 1) if isolated else 1
    if isolated:
        await measured.judge_heavily(rows, seconds / 4, at_once)
    return Throughput(
        environment=environment.name,
        shape=environment.definition.shape,
        isolated=isolated,
        counted_by=meter.counted_by,
        gold=measured.gold.cost(at_once=at_once),
        silence=measured.silence.cost(at_once=at_once),
        session=measured.session.cost(),
        tools={name: meter.cost() for name, meter in measured.tools.items()},
    )


class _Measurement:
    """Plays rollouts and keeps the meters."""

    def __init__(self, environment: LoadedEnvironment, others_ns: Callable[[], int]) -> None:
        self._environment = environment
        self._resource = environment.resource
        self._others_ns = others_ns
        self.gold, self.silence, self.session = Meter(others_ns), Meter(others_ns), Meter(others_ns)
        self.tools: dict[str, Meter] = {}

    async def play(self, example: Example, *, empty: bool) -> None:
        """Play one rollout on a new session; verify it unless verification is isolated."""
        resource, output = self._resource, list[msgspec.Raw]()
        with self.session.timing(0):
            session = await resource.open(example.row, example.answers().models(resource.roles))
        try:
            if isinstance(session, Episode):
                with self._tool("reset").timing():
                    await resource.reset(session)
            for turn in () if empty else example.turns:
                response = make_response(*turn)
                output += decode_response(response).output
                await self._answer(session, response)
            if not self._environment.definition.isolated:
                whole = SILENCE if empty else msgspec.json.encode({"id": "gold", "output": output})
                with (self.silence if empty else self.gold).timing():
                    await resource.verify(session, whole)
        finally:
            with self.session.timing():
                await resource.close(session)

    async def _answer(self, session: Session[Any], response: bytes) -> None:
        if isinstance(session, Episode):
            with self._tool("step").timing():
                await self._resource.step(session, response)
        elif self._resource.tools or not self._resource.stateless:
            for call in decode_items(decode_response(response).output):
                if isinstance(call, FunctionCall):
                    with self._tool(call.name).timing():
                        await self._resource.call_tool(session, call.name, call.arguments)

    def _tool(self, name: str) -> Meter:
        return self.tools.setdefault(name, Meter(self._others_ns))

    async def judge_heavily(self, rows: list[Example], seconds: float, at_once: int) -> None:
        """Measure isolated verifications, as many at once as there are CPUs."""
        source, definition = str(self._environment.source), self._environment.definition
        limit_s, folders = definition.verify_timeout_s, self._environment.asset_folders
        responses = [await examples.play(self._resource, example) for example in rows]

        async def judge(responses: list[bytes], meter: Meter) -> None:
            calls = itertools.count()
            end_s = time.monotonic() + seconds

            async def lane() -> None:
                while (number := next(calls)) < len(rows) or time.monotonic() < end_s:
                    example, response = rows[number % len(rows)], responses[number % len(rows)]
                    await verify_isolated(source, example.row, response, limit_s, folders)
                    meter.calls += 1

            try:
                with meter.timing(0):
                    async with anyio.create_task_group() as lanes:
                        for _ in range(at_once):
                            lanes.start_soon(lane)
            except BaseExceptionGroup as group:
                raise leaf(group) from group

        await judge(responses, Meter(self._others_ns))
        await judge(responses, self.gold)
        await judge([SILENCE] * len(rows), self.silence)
