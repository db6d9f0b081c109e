"""The agent worker: outcomes, attempts, deliveries, cancelling and draining, on whole small systems."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from functools import partial
from random import Random
from typing import Any

import anyio
import msgspec
import pytest
from gym_runtime import Environment, Reply, Rollout, Session, Task, Verdict, clock, tool
from gym_runtime.bus.interface import QueueDepth
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.errors import Fenced, ModelRefused, ModelUnavailable
from gym_runtime.messages.items import FunctionCall
from gym_runtime.messages.outcomes import Cancelled, Completed, Failed, Outcome, RolloutRecord, Truncated
from gym_runtime.messages.rollout_spec import encode_spec
from gym_runtime.messages.run_info import RunInfo, encode_run
from gym_runtime.rollout.agent import Agent
from gym_runtime.rpc.announcing import announce
from gym_runtime.rpc.registry import Heartbeat
from gym_runtime.rpc.retry_budget import RETRIES
from gym_runtime.testing.background import Mailbox, background, settled
from gym_runtime.testing.memory import Fate, Passing
from gym_runtime.testing.small_system import (
    Engine,
    Hang,
    SmallSystem,
    Turn,
    answer,
    environment,
    function_call,
    rollout_spec,
    row,
    small_system,
)
from gym_runtime.testing.virtual_clock import BACKEND
from gym_runtime.timing import JOURNAL_FRESH_S
from gym_runtime.workers.suspect_places import MAX_LOSSES

pytestmark = pytest.mark.anyio

NOTHING = QueueDepth(waiting=0, in_flight=0)
INCOMPLETE = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return BACKEND


class DeskTask(Task):
    wanted: str = "done"


class Desk(Session[DeskTask]):
    """Notes what happens to it where the test sees it."""

    ledger: Mailbox[str]

    async def open(self) -> None:
        self.ledger.put("open")

    @tool
    def work(self) -> str:
        self.ledger.put("work")
        return "worked"

    @tool
    async def hang(self) -> None:
        self.ledger.put("hang")
        await anyio.sleep_forever()

    async def verify(self, reply: Reply) -> Verdict:
        if reply.text == "crash":
            raise ZeroDivisionError("in the verifier")
        if reply.text == "nan":
            return Verdict(float("nan"))
        if reply.text == "wait":
            await anyio.sleep_forever()
        return Verdict(float(reply.text == self.task.wanted), fields={"text": reply.text})

    async def close(self) -> None:
        self.ledger.put("close")


@pytest.fixture
def ledger() -> Mailbox[str]:
    return Mailbox()


@pytest.fixture
def desk(ledger: Mailbox[str]) -> LoadedEnvironment:
    noted = type("NotedDesk", (Desk,), {"ledger": ledger})
    return environment(Environment(resource=noted, description="a desk"), "sample")


@pytest.fixture
async def system(desk: LoadedEnvironment) -> AsyncGenerator[SmallSystem]:
    """A resource worker is there; tests add the others."""
    async with small_system() as system:
        await system.add_resource(desk)
        yield system


async def make(system: SmallSystem, *turns: Turn, **more: Any) -> RolloutRecord:
    """One rollout with one worker of each kind."""
    await system.add_model(Engine(*turns))
    await system.add_agent()
    (record,) = await system.make(rollout_spec(row(), **more))
    await settled_depth(system)
    return record


async def settled_depth(system: SmallSystem, expected: QueueDepth = NOTHING) -> None:
    with anyio.fail_after(10):
        while await system.bus.depth("agent-tool_loop") != expected:
            await anyio.sleep(0.01)


def row_of(record: RolloutRecord) -> dict[str, Any]:
    return msgspec.json.decode(record.row)


def fault_of(record: RolloutRecord) -> tuple[str, str, bool]:
    assert isinstance(record.outcome, Failed)
    return record.outcome.fault.kind, record.outcome.fault.stage, record.outcome.fault.retryable


def message_of(record: RolloutRecord) -> str:
    assert isinstance(record.outcome, Failed)
    return record.outcome.fault.message


# -- outcomes -----------------------------------------------------------------------------------------


async def test_a_rollout_that_is_done_is_completed_with_its_reward(
    system: SmallSystem, ledger: Mailbox[str]
) -> None:
    record = await make(system, answer(function_call("work")), answer("done"))
    assert record.outcome == Completed()
    assert (record.reward, record.attempt, record.turns, record.tool_calls) == (1.0, 1, 2, 1)
    assert record.worker == "agent-1"
    assert row_of(record)["reward"] == 1.0
    assert await ledger.until(3) == ["open", "work", "close"]


@pytest.mark.parametrize(
    ("turns", "more", "reason"),
    [
        ([answer(function_call("work"))], {"max_turns": 3}, "max_turns"),
        ([answer("do", **INCOMPLETE)], {}, "max_output_tokens"),
    ],
)
async def test_a_rollout_that_a_limit_ends_is_truncated_and_judged_all_the_same(
    system: SmallSystem, turns: list[Turn], more: dict[str, Any], reason: str
) -> None:
    record = await make(system, *turns, **more)
    assert record.outcome == Truncated(reason=reason)
    assert record.reward == row_of(record)["reward"] == 0.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("turns", "fault", "transcript"),
    [
        ([answer(function_call("work")), answer("crash")], ("resource", "verify", False), 3),
        ([answer(function_call("work")), answer("nan")], ("resource", "verify", False), 3),
        ([answer(function_call("work")), answer("wait")], ("deadline", "resource", False), 3),
        ([answer(function_call("work")), ModelRefused("bad key")], ("model", "model", False), 2),
        ([ModelUnavailable("overloaded")], ("model", "model", True), 0),
        ([answer(function_call("hang"))], ("deadline", "resource", False), 1),
        ([answer(function_call("work")), Hang()], ("deadline", "model", False), 2),
    ],
)
async def test_a_failure_has_a_cause_and_a_partial_transcript_and_no_reward(
    system: SmallSystem, turns: list[Turn], fault: tuple[str, str, bool], transcript: int
) -> None:
    record = await make(system, *turns, timeout_s=1000)
    assert fault_of(record) in [fault, (fault[0], "agent", fault[2])]
    row = row_of(record)
    assert record.reward is None
    assert "reward" not in row
    assert "reward" not in record.numbers
    assert len(row["response"]["output"]) == transcript
    assert row["_gym"]["outcome"]["type"] == "failed"


async def test_a_row_that_does_not_fit_fails_as_the_tasks_fault_at_once(system: SmallSystem) -> None:
    await system.add_model(Engine(answer("done")))
    await system.add_agent()
    rows = [row(wanted=5), b'{"wanted": "done"}', b'{"responses_create_params": {"inputs": []}}']
    records = await system.make(*[rollout_spec(row, task=task) for task, row in enumerate(rows)])
    assert {fault_of(record)[0] for record in records} == {"task"}
    assert {record.attempt for record in records} == {1}


async def test_an_agents_bug_fails_its_rollout_and_no_other(
    system: SmallSystem, capsys: pytest.CaptureFixture[str]
) -> None:
    class Careless:
        async def run(self, rollout: Rollout) -> None:
            await rollout.respond()
            if rollout.task.task_index == 0:
                raise KeyError("plan")

    await system.add_model(Engine(answer("done")))
    await system.add_agent({"tool_loop": Careless()})
    records = await system.make(*[rollout_spec(row(), task=task) for task in range(3)])
    failed, *others = sorted(records, key=lambda record: record.task_index)
    assert fault_of(failed) == ("runtime", "agent", False)
    assert "KeyError: 'plan'" in message_of(failed)
    assert len(row_of(failed)["response"]["output"]) == 1
    assert [record.outcome for record in others] == [Completed()] * 2


async def test_a_deadline_ends_a_rollout_on_time_and_closes_its_session_at_once(
    system: SmallSystem, ledger: Mailbox[str]
) -> None:
    started_s = clock.now()
    record = await make(system, answer(function_call("work")), Hang(), timeout_s=50)
    assert fault_of(record)[0] == "deadline"
    assert "50 s" in message_of(record) or "deadline passed" in message_of(record)
    assert clock.now() - started_s == pytest.approx(50, abs=1)
    await settled(lambda: ledger.items == ["open", "work", "close"], within_s=1)


async def test_an_agent_that_waits_for_ever_is_ended_by_the_deadline_too(system: SmallSystem) -> None:
    class Sleeper:
        async def run(self, rollout: Rollout) -> None:
            await anyio.sleep_forever()

    await system.add_agent({"tool_loop": Sleeper()})
    (record,) = await system.make(rollout_spec(row(), timeout_s=20))
    assert fault_of(record) == ("deadline", "agent", False)
    assert record.duration_s == pytest.approx(20, abs=0.1)


# -- attempts -----------------------------------------------------------------------------------------


async def test_what_may_pass_is_tried_again_with_a_fresh_session(
    system: SmallSystem, ledger: Mailbox[str]
) -> None:
    done = [answer(function_call("work")), answer("done")]
    engine = Engine(*done, by_attempt={1: [*done[:1], ModelUnavailable("overloaded")]})
    await system.add_model(engine)
    await system.add_agent()
    (record,) = await system.make(rollout_spec(row(), durability="result"))
    assert record.outcome == Completed()
    assert (record.attempt, record.turns, record.tool_calls) == (2, 2, 1)
    assert await ledger.until(6) == ["open", "work", "close"] * 2


@pytest.mark.parametrize("max_attempts", [1, 3])
async def test_the_number_of_attempts_is_bounded(system: SmallSystem, max_attempts: int) -> None:
    engine = Engine(ModelUnavailable("overloaded"))
    await system.add_model(engine)
    await system.add_agent()
    (record,) = await system.make(rollout_spec(row(), max_attempts=max_attempts, timeout_s=3600))
    assert fault_of(record) == ("model", "model", True)
    assert record.attempt == max_attempts
    assert {context.attempt for _, context in engine.calls.items} == set(range(1, max_attempts + 1))


async def test_attempts_go_on_counting_from_where_an_interrupted_run_stopped(system: SmallSystem) -> None:
    record = await make(system, answer("done"), attempt_base=4)
    assert record.attempt == 5


class Unlucky:
    """An agent between whose tool calls the worker that holds its session dies, once."""

    def __init__(self, system: SmallSystem, desk: LoadedEnvironment) -> None:
        self.system = system
        self.desk = desk
        self.killed = False

    async def run(self, rollout: Rollout) -> None:
        turn = await rollout.respond()
        await rollout.call_tools(turn.function_calls)
        if not self.killed:
            self.killed = True
            await self.system.add_resource(self.desk, name="resource-2")
            self.system.kill("resource-1")
        await rollout.call_tools(turn.function_calls)


async def test_a_session_that_is_lost_makes_a_new_attempt_at_another_worker(
    system: SmallSystem, desk: LoadedEnvironment, ledger: Mailbox[str]
) -> None:
    await system.add_model(Engine(answer(function_call("work"))))
    await system.add_agent({"tool_loop": Unlucky(system, desk)})
    (record,) = await system.make(rollout_spec(row(), replayable=False))
    assert record.outcome == Completed()
    assert (record.attempt, record.tool_calls) == (2, 2)
    (why,) = row_of(record)["_gym"]["started_anew"]
    assert why == "SessionLost: worker resource-1 of resource 'sample' is gone, and the session with it"


async def test_what_may_pass_is_tried_again_from_where_it_was(
    system: SmallSystem, ledger: Mailbox[str]
) -> None:
    first = answer(function_call("work"))
    engine = Engine(first, by_attempt={1: [first, ModelUnavailable("overloaded")], 2: [answer("done")]})
    await system.add_model(engine)
    await system.add_agent()
    (record,) = await system.make(rollout_spec(row()))
    assert record.outcome == Completed()
    assert (record.attempt, record.turns, record.tool_calls) == (2, 2, 1)
    assert row_of(record)["_gym"]["resumed_turns"] == 1
    assert await ledger.until(3) == ["open", "work", "close"]


async def test_a_verifier_that_fails_for_a_reason_that_may_pass_is_asked_again() -> None:
    class Judged(Session[Task]):
        asked = 0

        @tool
        def work(self) -> None:
            """So that its rollout knows where the session is."""

        async def verify(self, reply: Reply) -> Verdict:
            self.asked += 1
            if self.asked == 1:
                raise ModelUnavailable("the judge is overloaded")
            return Verdict(float(self.asked))

    async with small_system() as system:
        await system.add_resource(environment(Environment(resource=Judged, description="a judge"), "sample"))
        engine = Engine(answer(function_call("work")), answer("done"))
        await system.add_model(engine)
        await system.add_agent()
        (record,) = await system.make(rollout_spec(row()))
    assert record.outcome == Completed()
    assert (record.attempt, record.reward, len(engine.calls.items)) == (2, 2.0, 2)


async def test_a_session_that_is_lost_is_rebuilt_by_repeating_its_calls(
    system: SmallSystem, desk: LoadedEnvironment, ledger: Mailbox[str]
) -> None:
    await system.add_model(Engine(answer(function_call("work"))))
    await system.add_agent({"tool_loop": Unlucky(system, desk)})
    (record,) = await system.make(rollout_spec(row()))
    assert record.outcome == Completed()
    assert (record.attempt, record.tool_calls) == (1, 2)
    assert row_of(record)["_gym"]["rebuilt_sessions"] == 1
    assert [entry for entry in ledger.items if entry == "work"] == ["work"] * 3


class Changed:
    """An agent whose code was changed: it makes a call before it asks."""

    async def run(self, rollout: Rollout) -> None:
        await rollout.call_tools([FunctionCall(call_id="new", name="work", arguments="{}")])
        await rollout.respond()


class Shorter:
    """An agent whose code was changed: it stops where the other went on."""

    async def run(self, rollout: Rollout) -> None:
        rollout.truncate("nothing is asked")


@pytest.mark.parametrize(
    ("agent", "outcome", "opened"),
    [(Changed(), Completed(), 2), (Shorter(), Truncated(reason="nothing is asked"), 2)],
)
async def test_a_journal_of_another_agents_code_leads_to_a_fresh_start_and_the_row_says_so(
    system: SmallSystem, ledger: Mailbox[str], agent: Agent, outcome: Outcome, opened: int
) -> None:
    engine = Engine(answer(function_call("work")), Hang(), by_attempt={3: [answer("done")]})
    await system.add_model(engine)
    await system.add_agent()
    await system.enqueue(rollout_spec(row()))
    await engine.calls.until(2)
    await system.add_agent({"tool_loop": agent}, name="agent-2")
    system.kill("agent-1")
    (record,) = await system.records(1)
    assert record.outcome == outcome
    about = row_of(record)["_gym"]
    assert (record.attempt, about["resumed_turns"], about["rebuilt_sessions"]) == (3, 0, 0)
    (why,) = about["started_anew"]
    assert why.startswith("JournalMismatch: the agent makes a tool call that its journal does not have")
    await settled(lambda: ledger.items.count("close") == ledger.items.count("open") == opened)


# -- deliveries ---------------------------------------------------------------------------------------


async def test_a_task_that_kills_its_workers_ends_as_failed_and_not_in_silence(system: SmallSystem) -> None:
    begun: Mailbox[int] = Mailbox()

    class Poisoned:
        async def run(self, rollout: Rollout) -> None:
            begun.put(rollout.attempt)
            await anyio.sleep_forever()

    await system.enqueue(rollout_spec(row(), max_attempts=2))
    # Of the first one nothing is known: it may never have had the task.
    lost = MAX_LOSSES + 1
    for delivery in range(1, lost + 1):
        name = f"agent-{delivery}"
        await system.add_agent({"tool_loop": Poisoned()}, name=name)
        await begun.until(delivery)
        system.kill(name)
    await system.add_agent(name="last")
    (record,) = await system.records(1)
    assert fault_of(record)[0] == "runtime"
    assert f"{MAX_LOSSES} agent workers in a row were lost" in message_of(record)
    assert begun.items == list(range(1, lost + 1))
    assert record.attempt == lost + 1
    await settled_depth(system)


async def test_workers_that_drain_are_not_lost(system: SmallSystem) -> None:
    begun: Mailbox[int] = Mailbox()

    class Waiting:
        async def run(self, rollout: Rollout) -> None:
            begun.put(rollout.attempt)
            await anyio.sleep_forever()

    await system.add_model(Engine(answer("done")))
    await system.enqueue(rollout_spec(row()))
    for delivery in range(1, 3 * MAX_LOSSES):
        name = f"agent-{delivery}"
        await system.add_agent({"tool_loop": Waiting()}, name=name)
        await begun.until(delivery)
        system.stop(name)
    await system.add_agent(name="last")
    (record,) = await system.records(1)
    assert record.outcome == Completed()


async def test_a_worker_that_missed_the_end_of_a_run_leaves_nothing_of_it(system: SmallSystem) -> None:
    begun: Mailbox[int] = Mailbox()

    class Waiting:
        async def run(self, rollout: Rollout) -> None:
            begun.put(rollout.attempt)
            await anyio.sleep_forever()

    await system.add_agent({"tool_loop": Waiting()}, name="agent")
    await system.enqueue(rollout_spec(row()))
    await begun.until(1)
    await anyio.sleep(2 * JOURNAL_FRESH_S)
    # No signal says so: the worker was cut off.
    closed = RunInfo(run="run", total=1, state="finished", closed=True)
    await system.bus.append("runs.run", encode_run(closed))
    await system.bus.forget("journal.run.>")
    stored: list[str] = []

    async def watch() -> None:
        async for record in system.bus.records("journal.run.>"):
            stored.append(record.subject)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        system.stop("agent")
        await settled(lambda: stored, within_s=5)
        tasks.cancel_scope.cancel()
    with anyio.fail_after(5):
        while await system.bus.counts("journal.run.>"):
            await anyio.sleep(0.1)


async def test_a_client_that_comes_and_goes_costs_no_rollout(system: SmallSystem) -> None:
    begun: Mailbox[int] = Mailbox()
    gate = anyio.Event()

    class Gated:
        async def run(self, rollout: Rollout) -> None:
            begun.put(rollout.attempt)
            await gate.wait()
            await rollout.respond()

    member = Heartbeat(worker="run", kind="client", pools=[])

    async def be_there() -> None:
        await announce(system.bus, lambda: member)

    await system.add_model(Engine(answer("done")))
    await system.add_agent({"tool_loop": Gated()})
    await system.enqueue(rollout_spec(row(), attached=True))
    for delivery in range(1, 3 * MAX_LOSSES):
        async with background(be_there):
            with anyio.fail_after(60):
                while len(begun.items) < delivery:
                    await anyio.sleep(0.1)
        await anyio.sleep(3)
    gate.set()
    async with background(be_there):
        (record,) = await system.records(1)
    assert record.outcome == Completed()


# -- one deadline, one budget, one number of tries ------------------------------------------------------


async def lost_often(system: SmallSystem, agent: Agent, each_s: float) -> None:
    """Workers with this agent, one after the other; each is killed after a while."""
    delivery = 0
    while not await system.bus.counts("rollout.run.>"):
        delivery += 1
        name = f"agent-{delivery}"
        await system.add_agent({"tool_loop": agent}, name=name)
        with anyio.move_on_after(each_s):
            await system.records(1)
        system.kill(name)


async def test_the_tries_of_a_rollout_are_counted_over_its_deliveries(system: SmallSystem) -> None:
    begun: Mailbox[Rollout] = Mailbox()

    class Failing:
        async def run(self, rollout: Rollout) -> None:
            begun.put(rollout)
            if rollout.attempt % 2:
                raise ModelUnavailable("503")
            await anyio.sleep_forever()

    await system.enqueue(rollout_spec(row(), max_attempts=3))
    with anyio.fail_after(600):
        await lost_often(system, Failing(), 5.0)
    (record,) = await system.records(1)
    assert fault_of(record)[0] == "model"
    # 1, 3 and 5 failed; 2 and 4 were lost with their workers.
    assert [rollout.attempt for rollout in begun.items] == [1, 2, 3, 4, 5]


async def test_the_retries_of_a_rollout_are_counted_over_its_deliveries(system: SmallSystem) -> None:
    left: list[int] = []

    class Spending:
        async def run(self, rollout: Rollout) -> None:
            budget = rollout._budget  # pyright: ignore[reportPrivateUsage]
            left.append(budget.left)
            budget.take(10)
            raise ModelUnavailable("503")

    await system.enqueue(rollout_spec(row(), max_attempts=2))
    await system.add_agent({"tool_loop": Spending()}, name="a")
    await settled(lambda: len(left) == 1)
    system.stop("a")
    await system.add_agent({"tool_loop": Spending()}, name="b")
    await system.records(1)
    assert left == [RETRIES, RETRIES - 10]


async def test_the_time_of_a_rollout_is_counted_over_its_attempts(system: SmallSystem) -> None:
    left: list[float] = []

    class Failing:
        async def run(self, rollout: Rollout) -> None:
            left.append(rollout.deadline_s - clock.now())
            await anyio.sleep(6)
            raise ModelUnavailable("503")

    await system.add_agent({"tool_loop": Failing()})
    began_s = clock.now()
    (record,) = await system.make(rollout_spec(row(), timeout_s=10, max_attempts=9))
    assert fault_of(record)[0] == "deadline"
    assert clock.now() == pytest.approx(began_s + 10, abs=0.5)
    assert left == pytest.approx([10, 4], abs=0.5)


async def test_the_time_of_a_rollout_is_counted_over_its_deliveries_and_not_between_them(
    system: SmallSystem,
) -> None:
    left: Mailbox[float] = Mailbox()

    class Waiting:
        async def run(self, rollout: Rollout) -> None:
            left.put(rollout.deadline_s - clock.now())
            await anyio.sleep_forever()

    await system.enqueue(rollout_spec(row(), timeout_s=32, durability="result"))
    for delivery, end in enumerate((system.stop, system.kill), 1):
        await system.add_agent({"tool_loop": Waiting()}, name=f"agent-{delivery}")
        await left.until(delivery)
        await anyio.sleep(10)
        end(f"agent-{delivery}")
        await anyio.sleep(100)
    await system.add_agent({"tool_loop": Waiting()}, name="last")
    await left.until(3)
    began_s = clock.now()
    (record,) = await system.records(1)
    assert fault_of(record)[0] == "deadline"
    # What is not noted by a worker that is lost is a sixteenth of the whole, and a look each second.
    assert left.items == pytest.approx([32, 22, 12], abs=0.01) or left.items[2] < 12 + 32 / 16 + 1
    assert clock.now() == pytest.approx(began_s + left.items[2], abs=0.5)


# -- what an agent raises in a task group of its own ----------------------------------------------------


class Grouped:
    """Raises in nested task groups, beside a task that is cancelled for it; then it asks the model."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = errors
        self.asked = 0

    async def run(self, rollout: Rollout) -> None:
        self.asked += 1
        if self.asked == 1:
            raise BaseExceptionGroup("outer", [BaseExceptionGroup("inner", list(self.errors))])
        await rollout.respond()


@pytest.mark.parametrize(
    "errors",
    [
        [ModelUnavailable("503")],
        [ModelUnavailable("503"), asyncio.CancelledError()],
        [asyncio.CancelledError(), ExceptionGroup("more", [ModelUnavailable("503"), ValueError("x")])],
    ],
)
async def test_an_error_in_an_agents_task_group_is_as_retryable_as_alone(
    system: SmallSystem, errors: list[BaseException]
) -> None:
    await system.add_model(Engine(answer("done")))
    await system.add_agent({"tool_loop": Grouped(*errors)})
    (record,) = await system.make(rollout_spec(row()))
    assert (record.outcome, record.attempt) == (Completed(), 2)


@pytest.mark.parametrize(
    ("errors", "kind", "said"),
    [
        ([ModelUnavailable("503"), ModelRefused("no")], "model", "no"),
        ([ValueError("a bug"), asyncio.CancelledError()], "runtime", "a bug"),
        ([asyncio.CancelledError()], "runtime", "the agent cancelled itself"),
    ],
)
async def test_an_agents_group_of_errors_fails_its_rollout_by_the_one_that_matters(
    system: SmallSystem, errors: list[BaseException], kind: str, said: str
) -> None:
    worker = await system.add_agent({"tool_loop": Grouped(*errors)})
    (record,) = await system.make(rollout_spec(row()))
    assert fault_of(record)[0] == kind
    assert said in message_of(record)
    assert worker.in_use == 0
    # The worker goes on.
    (record,) = await system.make(rollout_spec(b"{}", run="second"))
    assert fault_of(record)[0] == "task"


async def test_an_attempt_that_is_fenced_in_a_task_group_stops_in_silence(system: SmallSystem) -> None:
    begun: Mailbox[int] = Mailbox()

    class Overtaken:
        async def run(self, rollout: Rollout) -> None:
            begun.put(rollout.attempt)
            raise ExceptionGroup("group", [ModelRefused("no"), ExceptionGroup("inner", [Fenced("gone")])])

    worker = await system.add_agent({"tool_loop": Overtaken()})
    await system.enqueue(rollout_spec(row()))
    await begun.until(1)
    await settled(lambda: worker.in_use == 0)
    assert await system.bus.counts("rollout.run.>") == {}


async def test_a_cancellation_from_outside_beats_what_an_agents_group_raises(system: SmallSystem) -> None:
    begun: Mailbox[int] = Mailbox()

    class Cleaning:
        async def run(self, rollout: Rollout) -> None:
            async def fails_when_stopped() -> None:
                try:
                    await anyio.sleep_forever()
                finally:
                    raise ModelUnavailable("the engine hung up")

            begun.put(rollout.attempt)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(fails_when_stopped())

    await system.add_agent({"tool_loop": Cleaning()})
    await system.enqueue(rollout_spec(row()))
    await begun.until(1)
    await system.bus.publish("cancel.run", b"")
    (record,) = await system.records(1)
    assert record.outcome == Cancelled()
    assert begun.items == [1]


class LoseAcks:
    """Loses the first acknowledgement."""

    def __init__(self) -> None:
        self.lost = 0

    def fate(self, passing: Passing, dice: Random) -> Fate:
        if passing.kind == "ack" and not self.lost:
            self.lost += 1
            return Fate(drop=True)
        return Fate()


async def test_a_task_whose_result_is_there_is_acked_without_work(desk: LoadedEnvironment) -> None:
    faults = LoseAcks()
    engine = Engine(answer("done"))
    async with small_system(faults) as system:
        await system.add_resource(desk)
        await system.add_model(engine)
        await system.add_agent()
        await system.make(rollout_spec(row()))
        await anyio.sleep(60)
        assert faults.lost == 1
        assert len(engine.calls.items) == 1
        assert await system.bus.counts("rollout.run.>") == {"rollout.run.0.0": 1}
        await settled_depth(system)


async def test_of_two_attempts_at_once_one_result_stands(system: SmallSystem) -> None:
    begun: Mailbox[str] = Mailbox()
    gate = anyio.Event()

    class Slow:
        async def run(self, rollout: Rollout) -> None:
            begun.put("slow")
            await gate.wait()
            await rollout.respond()

    await system.add_model(Engine(answer("done")))
    await system.add_agent({"tool_loop": Slow()}, name="slow")
    await system.enqueue(rollout_spec(row()))
    await begun.until(1)
    # Frozen for longer than its delivery is waited for, so that somebody else gets the task.
    system.broker["slow"].freeze()
    await system.add_agent(name="quick")
    (record,) = await system.records(1)
    system.broker["slow"].thaw()
    gate.set()
    await anyio.sleep(60)
    assert record.worker == "quick"
    assert await system.bus.counts("rollout.run.>") == {"rollout.run.0.0": 1}
    await settled_depth(system)


async def test_a_task_that_cannot_be_read_is_dropped_and_the_next_is_made(
    system: SmallSystem, capsys: pytest.CaptureFixture[str]
) -> None:
    await system.add_model(Engine(answer("done")))
    await system.add_agent()
    await system.bus.enqueue("task.tool_loop.sample.run", b"[]")
    (record,) = await system.make(rollout_spec(row()))
    assert record.outcome == Completed()
    await settled_depth(system)


async def test_a_rollout_whose_task_cannot_be_read_has_failed(system: SmallSystem) -> None:
    await system.add_model(Engine(answer("done")))
    await system.add_agent()
    unreadable = json.loads(encode_spec(rollout_spec(row(), task=7))) | {"max_turns": "five"}
    await system.bus.enqueue("task.tool_loop.sample.run", json.dumps(unreadable).encode())
    (record,) = await system.records(1)
    assert (record.task_index, record.environment, record.reward) == (7, "sample", None)
    assert fault_of(record)[0] == "runtime"
    assert "max_turns" in message_of(record)
    await settled_depth(system)


async def test_no_more_rollouts_run_than_there_are_slots(system: SmallSystem) -> None:
    engine = Engine(Hang())
    await system.add_model(engine)
    worker = await system.add_agent(slots=3)
    await system.enqueue(*[rollout_spec(row(), task=task, timeout_s=100) for task in range(7)])
    await engine.calls.until(3)
    await anyio.wait_all_tasks_blocked()
    assert (len(engine.calls.items), worker.in_use, worker.load) == (3, 3, 1.0)
    assert await system.bus.depth("agent-tool_loop") == QueueDepth(waiting=4, in_flight=3)
    records = await system.records(7)
    assert {fault_of(record)[0] for record in records} == {"deadline"}


# -- cancelling ---------------------------------------------------------------------------------------


def all_tasks() -> list[Any]:
    return [rollout_spec(row(), task=task, rollout=rollout) for task in (1, 10) for rollout in (0, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("slots", [8, 1], ids=["running", "waiting"])
@pytest.mark.parametrize(
    ("subject", "cancelled"),
    [
        ("cancel.run", {(1, 0), (1, 1), (10, 0), (10, 1)}),
        ("cancel.run.1", {(1, 0), (1, 1)}),
        ("cancel.run.1.1", {(1, 1)}),
        ("cancel.run.10.0", {(10, 0)}),
        ("cancel.ru", set[tuple[int, int]]()),
    ],
)
async def test_cancelling_ends_a_run_a_group_or_a_rollout_and_nothing_else(
    system: SmallSystem, slots: int, subject: str, cancelled: set[tuple[int, int]]
) -> None:
    engine = Engine(Hang())
    await system.add_model(engine)
    await system.add_agent(slots=slots)
    await system.enqueue(*[msgspec.structs.replace(task, timeout_s=500) for task in all_tasks()])
    await engine.calls.until(min(slots, 4))
    await system.bus.publish(subject, b"")
    records = await system.records(4)
    outcomes = {(record.task_index, record.rollout_index): type(record.outcome) for record in records}
    assert outcomes == {key: Cancelled if key in cancelled else Failed for key in outcomes}
    assert len(outcomes) == 4
    assert all("reward" not in row_of(record) for record in records)
    await settled_depth(system)


async def test_cancelling_reaches_the_engine_at_once(system: SmallSystem) -> None:
    engine = Engine(Hang())
    await system.add_model(engine)
    await system.add_agent()
    await system.enqueue(rollout_spec(row()))
    await engine.calls.until(1)
    cancelled_s = clock.now()
    await system.bus.publish("cancel.run", b"")
    await engine.cancelled.until(1)
    assert clock.now() - cancelled_s < 0.1


@pytest.mark.parametrize("calls", [1, 2], ids=["first", "later"])
async def test_cancelling_in_the_middle_of_a_tool_closes_its_session(
    system: SmallSystem, ledger: Mailbox[str], calls: int
) -> None:
    await system.add_model(Engine(answer(*[function_call("work")] * (calls - 1), function_call("hang"))))
    await system.add_agent()
    await system.enqueue(rollout_spec(row()))
    await settled(lambda: "hang" in ledger.items)
    await system.bus.publish("cancel.run", b"")
    (record,) = await system.records(1)
    assert record.outcome == Cancelled()
    await settled(lambda: ledger.items[-1] == "close", within_s=1)


# -- stopping -----------------------------------------------------------------------------------------


async def test_draining_finishes_what_is_in_flight_and_takes_nothing_new(system: SmallSystem) -> None:
    begun: Mailbox[int] = Mailbox()
    gate = anyio.Event()

    class Gated:
        async def run(self, rollout: Rollout) -> None:
            begun.put(rollout.task.task_index)
            await gate.wait()
            await rollout.respond()

    await system.add_model(Engine(answer("done")))
    worker = await system.add_agent({"tool_loop": Gated()}, slots=2)
    await system.enqueue(*[rollout_spec(row(), task=task) for task in range(5)])
    await begun.until(2)
    drained: list[int] = []

    async def drain() -> None:
        await worker.drain()
        drained.append(worker.in_use)

    async with background(drain):
        await anyio.sleep(5)
        assert not drained
        gate.set()
        records = await system.records(2)
        await settled(lambda: drained == [0])
    assert [record.outcome for record in records] == [Completed()] * 2
    assert {record.task_index for record in records} == set(begun.items)
    assert await system.bus.depth("agent-tool_loop") == QueueDepth(waiting=3, in_flight=0)


async def test_a_worker_that_is_stopped_gives_its_tasks_back_and_closes_its_sessions(
    system: SmallSystem, ledger: Mailbox[str]
) -> None:
    engine = Engine(answer(function_call("work")), Hang())
    await system.add_model(engine)
    await system.add_agent(name="first")
    await system.enqueue(rollout_spec(row()))
    await engine.calls.until(2)
    stopped_s = clock.now()
    system.stop("first")
    await settled(lambda: ledger.items == ["open", "work", "close"], within_s=1)
    await system.add_agent(name="second")
    await engine.calls.until(3)
    assert clock.now() - stopped_s < 1


async def test_agents_of_one_worker_share_its_slots(system: SmallSystem) -> None:
    begun: Mailbox[str] = Mailbox()

    class Named:
        def __init__(self, name: str) -> None:
            self._name = name

        async def run(self, rollout: Rollout) -> None:
            begun.put(self._name)
            await anyio.sleep(1)

    worker = await system.add_agent({name: Named(name) for name in ("tool_loop", "other")}, slots=4)
    tasks = [
        rollout_spec(row(), run=run, task=task, agent=agent)
        for run, agent in (("run", "tool_loop"), ("run2", "other"))
        for task in range(4)
    ]
    await system.enqueue(*tasks)
    assert await begun.until(4) == ["tool_loop"] * 4
    assert worker.load == 1.0
    async with anyio.create_task_group() as group:
        for run in ("run", "run2"):
            group.start_soon(partial(system.records, 4, run))
