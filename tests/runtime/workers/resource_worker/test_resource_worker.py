"""The calls of a session, and whose fault it is."""

from __future__ import annotations

import anyio
import pytest
from gym_runtime import Environment, Session, tool
from gym_runtime.bus.interface import Bus
from gym_runtime.environment.verdict import make_response
from gym_runtime.messages import calls
from gym_runtime.messages.responses import NULL
from gym_testing.background import Mailbox
from gym_testing.small_system import environment, row
from msgspec import Raw
from msgspec.structs import replace
from runtime.workers.hosting import call, request
from runtime.workers.resource_worker.resource_calls import ROW, Counter, CounterTask, RunningWorker, working

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


ANSWER = Raw(make_response("42"))


def fault(reply: calls.RpcReply) -> tuple[str, str, str]:
    assert reply.fault is not None
    return reply.fault.kind, reply.fault.name, reply.fault.stage


async def test_the_first_call_opens_a_session_and_later_ones_find_its_state(
    running: RunningWorker, ledger: Mailbox[str]
) -> None:
    assert await running.tool("add", '{"amount": 2}', task=ROW) == '{"count":5}'
    assert await running.tool("add", '{"amount": 4}') == '{"count":9}'
    assert await running.judged("9") == {"reward": 1.0, "fields": {"count": 9}}
    assert ledger.items == ["open"]
    await running.reply(calls.CloseSession(session="s"))
    assert ledger.items == ["open", "close"]
    assert len(running.worker.sessions) == 0


async def test_what_a_model_may_get_wrong_is_an_answer(running: RunningWorker) -> None:
    assert await running.tool("subtract", "{}", task=ROW) == '{"detail":"Not Found"}'
    assert "amount" in await running.tool("add", "{}")
    assert "detail" in await running.tool("add", "[1]")


async def test_a_repeated_call_is_executed_once(running: RunningWorker) -> None:
    for _ in range(3):
        assert await running.tool("add", '{"amount": 1}', task=ROW, key="7") == '{"count":4}'
    assert await running.tool("add", '{"amount": 1}', key="8") == '{"count":5}'


class Slow(Session[CounterTask]):
    """Saves after each call."""

    @tool
    async def work(self) -> str:
        await anyio.sleep(10)
        return "done"

    async def save(self) -> int:
        return self.task.start


async def test_a_call_that_is_repeated_while_it_is_executed_is_saved() -> None:
    """Another attempt repeats what the one before it has begun; without the state its rollout began again."""
    body = calls.CallTool(session="s", task=ROW, name="work", arguments="{}")
    asked = replace(request(body, key="7"), rollout="run.0.0", durable=True)
    replies: list[calls.RpcReply] = []

    async def ask(bus: Bus, after_s: float) -> None:
        await anyio.sleep(after_s)
        replies.append(await call(bus, "resource.slow.one", asked))

    slow = environment(Environment(resource=Slow, description="takes time"), "slow")
    async with working({"slow": slow}) as running, anyio.create_task_group() as tasks:
        for after_s in (0, 5):
            tasks.start_soon(ask, running.bus, after_s)
    assert [bytes(calls.decode_tool_answer(reply.body).saved) for reply in replies] == [b"3", b"3"]


class SlowToSave(Counter):
    ledger = Mailbox()

    async def save(self) -> int:
        await anyio.sleep(10)
        return self.count


async def test_a_call_that_is_aborted_while_it_is_saved_has_its_effect_once() -> None:
    """An attempt ends in that moment, and the next one repeats the call."""
    named = environment(Environment(resource=SlowToSave, description="counts"), "counter")
    answers: list[str] = []

    async def ask(bus: Bus, key: str, task: Raw = NULL) -> None:
        body = calls.CallTool(session="s", task=task, name="add", arguments='{"amount": 1}')
        asked = replace(request(body, key=key), rollout="run.0.0", durable=True)
        reply = await call(bus, "resource.counter.one", asked)
        answers.append(str(calls.decode_tool_answer(reply.body).output))

    async with working({"counter": named}) as running, anyio.create_task_group() as tasks:
        await ask(running.bus, "6", ROW)
        tasks.start_soon(ask, running.bus, "7")
        await anyio.sleep(5)
        await running.bus.publish("abort.one", b"7")
        await anyio.sleep(1)
        await ask(running.bus, "7")
        tasks.cancel_scope.cancel()  # an aborted call has no answer
    assert answers == ['{"count":4}', '{"count":5}']


async def test_sessions_are_apart(running: RunningWorker) -> None:
    for session in ("run.0.0.1", "run.0.0.2"):
        body = calls.CallTool(session=session, task=ROW, name="add", arguments='{"amount": 1}')
        reply = await running.reply(body)
        assert calls.decode_tool_answer(reply.body).output == '{"count":4}'
    assert len(running.worker.sessions) == 2


async def test_a_session_that_is_not_here_is_lost_and_may_be_tried_anew(
    running: RunningWorker,
) -> None:
    reply = await running.reply(calls.CallTool(session="gone", name="add", arguments="{}"))
    assert fault(reply) == ("resource", "SessionLost", "resource")
    assert reply.fault is not None
    assert reply.fault.retryable


async def test_an_episode_goes_step_by_step(running: RunningWorker) -> None:
    opened = await running.reply(calls.OpenSession(session="s", task=ROW), pool="dice")
    assert [bytes(item) for item in calls.decode_step_answer(opened.body).items] == [
        b'{"role":"user","content":"roll"}'
    ]
    step = await running.reply(calls.StepCall(session="s", response=ANSWER), pool="dice")
    assert calls.decode_step_answer(step.body).reward == 0.5
    last = await running.reply(calls.StepCall(session="s", response=Raw(make_response("stop"))), pool="dice")
    assert calls.decode_step_answer(last.body).terminated
    assert (await running.judged("", pool="dice"))["reward"] == 1.0


async def test_a_stateless_verdict_leaves_no_session(running: RunningWorker) -> None:
    assert await running.judged("3", task=ROW, pool="judge") == {"reward": 1.0}
    assert len(running.worker.sessions) == 0


async def test_a_row_that_does_not_fit_is_the_tasks_fault(running: RunningWorker) -> None:
    reply = await running.reply(calls.OpenSession(session="s", task=Raw(row(start="three"))))
    assert fault(reply) == ("task", "TaskError", "resource")
    assert reply.fault is not None
    assert "start" in reply.fault.message
    assert len(running.worker.sessions) == 0


@pytest.mark.parametrize(
    ("text", "message"), [("crash", "ZeroDivisionError"), ("nan", "finite"), ("object", "not JSON")]
)
async def test_a_broken_verifier_is_the_environments_fault(
    running: RunningWorker, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    reply = await running.reply(calls.Verify(session="s", task=ROW, response=Raw(make_response(text))))
    assert fault(reply) == ("resource", "ResourceError", "verify")
    assert reply.fault is not None
    assert message in reply.fault.message


async def test_a_step_whose_reward_is_not_a_number_is_the_environments_fault(
    running: RunningWorker,
) -> None:
    await running.reply(calls.OpenSession(session="s", task=ROW), pool="dice")
    reply = await running.reply(calls.StepCall(session="s", response=Raw(make_response("nan"))), pool="dice")
    assert fault(reply) == ("resource", "ResourceError", "step")


async def test_steps_of_what_has_none_are_the_environments_fault(running: RunningWorker) -> None:
    reply = await running.reply(calls.StepCall(session="s", task=ROW, response=ANSWER))
    assert fault(reply) == ("resource", "ResourceError", "step")


async def test_a_pool_that_it_does_not_serve_is_a_fault(running: RunningWorker) -> None:
    reply = await running.reply(calls.OpenSession(session="s", task=ROW), pool="other")
    assert fault(reply)[:2] == ("runtime", "RuntimeFault")
