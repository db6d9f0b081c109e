"""A whole system in one process, for the tests of an environment, an agent or a model adapter.

Agents, environments and models run as workers on one in-memory broker (`gym_testing.memory`), so a
test needs no broker process, no network and no GPU. `Engine` is a model whose answers the test decides:

>>> from gym_runtime import Environment, Reply, Task, Verdict
>>> async def verify(task: Task, reply: Reply) -> Verdict:
...     return Verdict(float("4" in reply.text))
>>> async def rewards() -> list[float | None]:
...     async with small_system() as system:
...         await system.add_resource(environment(Environment(resource=verify, description="Sums."), "sums"))
...         await system.add_model(Engine(answer("It is 4.")))
...         await system.add_agent()
...         sums = rollout_spec(row(), environment="sums")
...         return [record.reward for record in await system.make(sums)]
>>> anyio.run(rewards)
[1.0]

`gym_runtime.environment.catalogue.environment` loads an environment by its name or path, and
`SmallSystem.client` makes rollouts of such environments as a trainer does.
`SmallSystem.add_agent` takes your own agents.
`SmallSystem.kill` and a policy of `gym_testing.memory.Faults` inject faults.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Self, TypeVar, cast

import anyio
import msgspec
from anyio.abc import TaskGroup
from gym_runtime import Environment, Pending, RolloutRecord, Verdict, clock, make_response
from gym_runtime.adapters import Adapter, Agent, CallContext, ModelAnswer, ModelCall
from gym_runtime.bus import Bus
from gym_runtime.client import Client
from gym_runtime.environment import LoadedEnvironment, Scripted, ScriptedAnswers, catalogue, judge_recorded
from gym_runtime.errors import GymError, UsageError
from gym_runtime.messages import RolloutSpec, encode_spec, read_record
from gym_runtime.rpc import FIRST, Before, Heartbeat, announce
from gym_runtime.workers import AgentWorker, ModelWorker, ResourceWorker
from msgspec import Raw

from gym_testing.background import SOON_S, Mailbox, background, hosting
from gym_testing.memory import NO_FAULTS, Faults, MemoryBroker, MemoryBus

W = TypeVar("W", AgentWorker, ResourceWorker, ModelWorker)

# -- an engine whose answers a test decides -------------------------------------------------------------

Item = dict[str, Any]


def message(text: str) -> Item:
    """An output item: a message of the assistant."""
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def function_call(name: str, arguments: str = "{}", call_id: str = "") -> Item:
    """An output item: a call of a tool; arguments are JSON text."""
    call_id = call_id or f"call_{name}"
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def reasoning(text: str) -> Item:
    """An output item: reasoning."""
    return {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": text}]}


def answer(*output: Item | str, **fields: Any) -> ModelAnswer:
    """A model's answer with these output items; a string is a message."""
    items = [message(item) if isinstance(item, str) else item for item in output]
    usage = {"input_tokens": 10, "output_tokens": len(items), "total_tokens": 10 + len(items)}
    body = {"id": "resp", "model": "scripted", "output": items, "usage": usage, **fields}
    return ModelAnswer(response=Raw(msgspec.json.encode(body)))


class Hang:
    """A turn in which the engine does not answer."""


Turn = ModelAnswer | GymError | Hang


class Engine:
    """A model adapter: turn *n* of an attempt gets the *n*-th answer, later turns the last one.

    Args:
        turns: answers, errors to raise, or `Hang`.
        by_attempt: other turns for attempts of these numbers.

    Attributes:
        calls: every call with its context, in the order of arrival.
        cancelled: the contexts of hanging calls that were cancelled.
        asked_s: when each call arrived, by `gym_runtime.clock.monotonic`.
    """

    def __init__(self, *turns: Turn, by_attempt: Mapping[int, Sequence[Turn]] | None = None) -> None:
        self.calls: Mailbox[tuple[ModelCall, CallContext]] = Mailbox()
        self.cancelled: Mailbox[CallContext] = Mailbox()
        self.asked_s: list[float] = []
        self._turns = turns
        self._by_attempt = by_attempt or {}
        self._asked: Counter[tuple[str, int]] = Counter()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    async def respond(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        turns = self._by_attempt.get(context.attempt, self._turns)
        turn = turns[min(self._asked[context.rollout, context.attempt], len(turns) - 1)]
        self._asked[context.rollout, context.attempt] += 1
        self.asked_s.append(clock.monotonic())
        self.calls.put((call, context))
        if isinstance(turn, GymError):
            raise turn
        if isinstance(turn, Hang):
            try:
                await anyio.sleep_forever()
            finally:
                self.cancelled.put(context)
        assert isinstance(turn, ModelAnswer)
        return turn


# -- one verdict --------------------------------------------------------------------------------------


async def verify(
    environment: LoadedEnvironment | Environment,
    row: bytes,
    *reply: Item | str,
    roles: Mapping[str, Sequence[Scripted]] | None = None,
) -> Verdict | Pending:
    """An environment's verdict on a reply, as a worker reaches it, without a model, an agent or a broker.

    >>> async def short(task: Task, reply: Reply) -> Verdict:
    ...     return Verdict(float(len(reply.text) < 3))
    >>> from gym_runtime import Environment, Reply, Task, Verdict
    >>> anyio.run(verify, Environment(resource=short, description="Short."), row(), "4").reward
    1.0

    Args:
        reply: the output items of the model; a string is a message. Its tool calls are repeated.
        roles: the answers of the models in roles, question by question.

    Returns:
        `Pending` where the reward comes from the comparison of a whole group.

    Raises:
        GymError: the row is not one of the environment's, or its verifier failed.
        UsageError: a role's answers are one text, and not a list.
    """
    for role, answers in (roles or {}).items():
        if isinstance(answers, str):
            raise UsageError(f"roles: the answers of '{role}' are a list: [{answers!r}]")
    known = (
        environment
        if isinstance(environment, LoadedEnvironment)
        else catalogue.loaded(environment, Path("sample.py"))
    )
    models = ScriptedAnswers(roles or {}).models(known.resource.roles)
    return await judge_recorded(known, row, make_response(*reply), models)


# -- a small system -------------------------------------------------------------------------------------


def rollout_spec(
    row: bytes, *, run: str = "run", task: int = 0, rollout: int = 0, agent: str = "tool_loop", **more: Any
) -> RolloutSpec:
    """One rollout of a row, to be published as it is; ``more`` are further fields of the spec."""
    more = {"environment": "sample", **more}
    return RolloutSpec(run=run, task_index=task, rollout_index=rollout, row=Raw(row), agent=agent, **more)


def environment(definition: Environment, name: str = "sample") -> LoadedEnvironment:
    """An environment without a module, under this name."""
    return catalogue.loaded(definition, Path(f"{name}.py"))


def row(**fields: Any) -> bytes:
    """A dataset row with these fields besides its prompt."""
    return msgspec.json.encode({"responses_create_params": {"input": "hi"}, **fields})


class SmallSystem:
    """Workers of each kind on one in-memory broker, each with its own connection.

    Attributes:
        broker: holds the stored records; a test can cut and freeze connections there.
        bus: the client's connection.
        client: makes rollouts on this system.
    """

    def __init__(self, broker: MemoryBroker, bus: MemoryBus, tasks: TaskGroup) -> None:
        self.broker = broker
        self.bus = bus
        self.client = Client(bus, tasks)
        self._tasks = tasks
        self._scopes: dict[str, anyio.CancelScope] = {}
        self._agents: dict[str, AgentWorker] = {}
        self._served: dict[str, set[str]] = {"environment": set(), "agent": set()}

    async def add_agent(
        self,
        agents: Mapping[str, Agent] | None = None,
        *,
        name: str = "agent-1",
        slots: int = 8,
        before: Before = FIRST,
    ) -> AgentWorker:
        """Start an agent worker with these agents by name; by default with the tool loop.

        ``before`` is the worker that it replaces.
        """
        known = agents or {"tool_loop": cast("Agent", catalogue.load_class("agents", "tool_loop")())}

        def make(bus: Bus) -> AgentWorker:
            return AgentWorker(bus, worker=name, agents=known, slots=slots, before=before)

        self._served["agent"].update(known)
        worker = self._agents[name] = await self._add(make, "agent", name, list(known))
        return worker

    async def add_resource(
        self, *environments: LoadedEnvironment, name: str = "resource-1", capacity: int = 100
    ) -> ResourceWorker:
        """Start a resource worker with these environments."""
        by_name = {environment.name: environment for environment in environments}
        self._served["environment"].update(by_name)

        def make(bus: Bus) -> ResourceWorker:
            return ResourceWorker(bus, worker=name, environments=by_name, capacity=capacity)

        return await self._add(make, "resource", name, list(by_name))

    async def add_model(
        self,
        adapter: Adapter,
        *,
        name: str = "model-1",
        capacity: int = 100,
        pool: str = "policy",
        per_minute: float = 0.0,
    ) -> ModelWorker:
        """Start a model worker; an adapter that needs it must be entered by the caller."""

        def make(bus: Bus) -> ModelWorker:
            return ModelWorker(
                bus,
                worker=name,
                pools=[pool],
                adapter=adapter,
                capacity=capacity,
                per_minute=per_minute,
            )

        return await self._add(make, "model", name, [pool])

    async def _add(self, make: Callable[[Bus], W], kind: str, name: str, pools: Sequence[str]) -> W:
        made: list[W] = []
        ready = anyio.Event()

        async def live() -> None:
            with anyio.CancelScope() as scope:
                self._scopes[name] = scope
                async with self.broker.connect(name) as bus:
                    made.append(make(bus))
                    heartbeat = Heartbeat(worker=name, kind=kind, pools=list(pools), capacity=100)

                    def current() -> Heartbeat:
                        worker = made[0]
                        held = worker.held if isinstance(worker, ModelWorker) else ""
                        return msgspec.structs.replace(
                            heartbeat, figures=worker.meter.figures(), detail={"held": held} if held else {}
                        )

                    async with background(lambda: announce(bus, current)):
                        await made[0].run(ready=ready.set)

        announced = anyio.Event()
        async with self.bus.serve(f"join.{kind}.{name}", lambda _: announced.set()):
            self._tasks.start_soon(live)
            with anyio.fail_after(SOON_S):
                await ready.wait()
                await announced.wait()
        return made[0]

    def stop(self, name: str) -> None:
        """Cancel a worker, as its process does at the end."""
        if name in self._agents:
            self._agents[name].stop()
        self._scopes[name].cancel()

    def kill(self, name: str) -> None:
        """End a worker as SIGKILL does: none of its later messages arrive."""
        self.broker[name].cut()
        self._scopes[name].cancel()

    async def enqueue(self, *tasks: RolloutSpec) -> None:
        for task in tasks:
            subject = f"task.{task.agent}.{task.environment}.{task.run}"
            await self.bus.enqueue(subject, encode_spec(task))

    async def records(self, count: int, run: str = "run", within_s: float = 7200) -> list[RolloutRecord]:
        """The first records of a run, in the order of their commits."""
        found: list[RolloutRecord] = []
        with anyio.fail_after(within_s):
            async with aclosing(self.bus.records(f"rollout.{run}.>")) as records:
                async for record in records:
                    found.append(read_record(record.payload))
                    if len(found) == count:
                        break
        return found

    async def make(self, *tasks: RolloutSpec) -> list[RolloutRecord]:
        """Publish rollouts and wait for their records.

        Raises:
            UsageError: none of the workers added so far serves a rollout's environment or agent; with the
                nearest name. Before the first worker of a kind, rollouts wait for one.
        """
        for task in tasks:
            for kind, name in (("environment", task.environment), ("agent", task.agent)):
                if (served := self._served[kind]) and name not in served:
                    there = catalogue.unknown(name, sorted(served))
                    raise UsageError(f"no worker of this system serves the {kind} '{name}'{there}")
        await self.enqueue(*tasks)
        return await self.records(len(tasks), tasks[0].run)


@asynccontextmanager
async def small_system(faults: Faults = NO_FAULTS) -> AsyncGenerator[SmallSystem]:
    """An empty system, until the context ends."""
    broker = MemoryBroker(faults=faults)
    async with broker.connect("client") as bus, hosting() as tasks:
        yield SmallSystem(broker, bus, tasks)
