"""Attempts: what is repeated, and what is not."""

from __future__ import annotations

import msgspec
import pytest
from gym_runtime import Environment, Reply, Session, Task, Verdict, clock, tool
from gym_runtime.adapters import Rollout
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.errors import ModelUnavailable, SessionLost
from gym_runtime.messages import calls
from gym_runtime.messages.outcomes import Completed, Outcome, Truncated
from gym_runtime.messages.responses import NULL, FunctionCall
from gym_runtime.rollout.journal import journal_subject
from gym_runtime.rollout.rollout import Agent
from gym_runtime.rpc.ask import Router
from gym_runtime.rpc.retry_budget import RetryBudget
from gym_testing.background import Mailbox, settled
from gym_testing.small_system import (
    Engine,
    Hang,
    SmallSystem,
    answer,
    environment,
    function_call,
    rollout_spec,
    row,
    small_system,
)
from runtime.workers.agent_worker.agents import fault_of, make, message_of, row_of

pytestmark = pytest.mark.anyio


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


@pytest.mark.parametrize(
    "broken",
    [
        answer({"type": 1}),
        answer(function_call("work", arguments=1)),  # type: ignore[arg-type]
        answer("done", usage={"input_tokens": 10**30}),
        answer("done", usage={"output_tokens": -1}),
        answer("done", usage={"input_tokens_details": {"cached_tokens": 2**53 + 1}}),
    ],
)
async def test_an_answer_that_is_no_response_is_not_kept_for_the_next_attempt(
    system: SmallSystem, broken: calls.ModelAnswer
) -> None:
    engine = Engine(answer("done"), by_attempt={1: [broken]})
    await system.add_model(engine)
    await system.add_agent()
    (record,) = await system.make(rollout_spec(row()))
    assert record.outcome == Completed(), message_of(record)
    assert record.attempt == 2


@pytest.mark.parametrize("max_attempts", [1, 3])
async def test_the_number_of_attempts_is_bounded(system: SmallSystem, max_attempts: int) -> None:
    engine = Engine(ModelUnavailable("overloaded"))
    await system.add_model(engine)
    await system.add_agent()
    (record,) = await system.make(rollout_spec(row(), max_attempts=max_attempts, timeout_s=3600))
    assert fault_of(record) == ("model", "model", True)
    assert record.attempt == max_attempts
    assert {context.attempt for _, context in engine.calls.items} == set(range(1, max_attempts + 1))


async def test_a_rollout_that_runs_out_of_time_says_what_its_last_attempt_failed_of(
    system: SmallSystem,
) -> None:
    await system.add_model(Engine(by_attempt={1: [ModelUnavailable("a page in HTML")], 2: [Hang()]}))
    await system.add_agent()
    (record,) = await system.make(rollout_spec(row(), timeout_s=200))
    assert fault_of(record) == ("deadline", "model", False)
    assert message_of(record).endswith("; attempt 1 had failed: a page in HTML")


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


class Overtaken(Unlucky):
    """As `Unlucky`, while another attempt knows the session by the name that it had at first."""

    async def run(self, rollout: Rollout) -> None:
        await super().run(rollout)
        task = rollout.task
        (turn,) = await self.system.bus.latest(journal_subject(task.run, task.task_index, task.rollout_index))
        known = calls.Verify(session=msgspec.json.decode(turn.payload)["session"], response=NULL)
        request = calls.Request(
            body=known, deadline_s=clock.monotonic() + 5, key="x.3", rollout=task.rollout_id
        )
        with pytest.raises(SessionLost):
            await Router(self.system.bus, "resource", watches=False).ask_session(
                task.environment, "resource-2", request, RetryBudget()
            )


async def test_another_attempt_does_not_find_a_session_that_is_being_rebuilt(
    system: SmallSystem, desk: LoadedEnvironment, ledger: Mailbox[str]
) -> None:
    await system.add_model(Engine(answer(function_call("work"))))
    await system.add_agent({"tool_loop": Overtaken(system, desk)})
    (record,) = await system.make(rollout_spec(row()))
    assert record.outcome == Completed()
    assert row_of(record)["_gym"]["rebuilt_sessions"] == 1
    await settled(lambda: ledger.items.count("close") == 1)


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
