"""The resource worker: environments behind a service, and the life of their sessions."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from gym_runtime import Environment, Episode, Reply, Session, Step, Task, Verdict, tool
from gym_runtime.bus.interface import Bus
from gym_runtime.environment import catalogue
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.environment.verdict import make_response
from gym_runtime.messages import calls
from gym_runtime.messages.responses import NULL
from gym_runtime.testing.background import Mailbox, background
from gym_runtime.testing.memory import MemoryBroker
from gym_runtime.testing.small_system import environment, row
from gym_runtime.testing.virtual_clock import BACKEND
from gym_runtime.timing import SESSION_KEPT_S, SESSIONS_SWEPT_S
from gym_runtime.workers.resource_worker import ResourceWorker
from msgspec import Raw
from runtime.workers.hosting import at_work, call, request

pytestmark = pytest.mark.anyio

ANSWER = Raw(make_response("42"))
ROW = Raw(row(start=3))


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return BACKEND


class CounterTask(Task):
    start: int


class Counter(Session[CounterTask]):
    """Counts; notes its openings and closings in a ledger that a test puts there."""

    ledger: Mailbox[str]

    async def open(self) -> None:
        self.count = self.task.start
        self.ledger.put("open")

    @tool
    def add(self, amount: int) -> dict[str, int]:
        self.count += amount
        return {"count": self.count}

    @tool
    async def hang(self) -> str:
        self.ledger.put("hang")
        await anyio.sleep(3600)
        return "woken"

    async def verify(self, reply: Reply) -> Verdict:
        if reply.text == "crash":
            raise ZeroDivisionError("in the verifier")
        if reply.text == "nan":
            return Verdict(float("nan"))
        if reply.text == "object":
            return Verdict(1.0, fields={"extracted": object()})
        return Verdict(float(reply.text == str(self.count)), fields={"count": self.count})

    async def close(self) -> None:
        self.ledger.put("close")


class Dice(Episode[Task]):
    async def reset(self) -> str:
        return "roll"

    async def step(self, reply: Reply) -> Step:
        reward = float("nan") if reply.text == "nan" else 0.5
        return Step(observation="again", reward=reward, terminated=reply.text == "stop")


async def judge(task: CounterTask, reply: Reply) -> Verdict:
    return Verdict(float(reply.text == str(task.start)))


@pytest.fixture
def ledger() -> Mailbox[str]:
    return Mailbox()


@pytest.fixture
def environments(ledger: Mailbox[str]) -> dict[str, LoadedEnvironment]:
    noted = type("NotedCounter", (Counter,), {"ledger": ledger})
    return {
        "counter": environment(Environment(resource=noted, description="counts"), "counter"),
        "dice": environment(Environment(resource=Dice, description="rolls"), "dice"),
        "judge": environment(Environment(resource=judge, description="judges"), "judge"),
    }


class RunningWorker:
    """A resource worker called ``one``, and calls to it."""

    def __init__(self, bus: Bus, worker: ResourceWorker) -> None:
        self.bus = bus
        self.worker = worker
        self._keys = 0

    async def reply(
        self, body: calls.ResourceCall, *, pool: str = "counter", key: str | None = None, within_s: float = 60
    ) -> calls.RpcReply:
        self._keys += 1
        asked = request(body, key=str(self._keys) if key is None else key, within_s=within_s)
        return await call(self.bus, f"resource.{pool}.one", asked)

    async def tool(self, name: str, arguments: str = "{}", *, task: Raw = NULL, **more: Any) -> str:
        body = calls.CallTool(session="s", task=task, name=name, arguments=arguments)
        reply = await self.reply(body, **more)
        assert reply.fault is None, reply.fault
        return calls.decode_tool_answer(reply.body).output

    async def judged(self, text: str, *, task: Raw = NULL, session: str = "s", **more: Any) -> dict[str, Any]:
        body = calls.Verify(session=session, task=task, response=Raw(make_response(text)))
        reply = await self.reply(body, **more)
        assert reply.fault is None, reply.fault
        return msgspec.json.decode(reply.body)


@asynccontextmanager
async def working(
    environments: dict[str, LoadedEnvironment], capacity: int = 100
) -> AsyncGenerator[RunningWorker]:
    async with MemoryBroker().connect() as bus:
        worker = ResourceWorker(bus, worker="one", environments=environments, capacity=capacity)
        async with at_work(worker):
            yield RunningWorker(bus, worker)


@pytest.fixture
async def running(environments: dict[str, LoadedEnvironment]) -> AsyncGenerator[RunningWorker]:
    async with working(environments) as running:
        yield running


def fault(reply: calls.RpcReply) -> tuple[str, str, str]:
    assert reply.fault is not None
    return reply.fault.kind, reply.fault.name, reply.fault.stage


# -- the way of a session -----------------------------------------------------------------------------


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


# -- whose fault it is --------------------------------------------------------------------------------


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


# -- no session is left behind ------------------------------------------------------------------------


async def test_a_session_whose_first_call_fails_is_closed_because_nobody_knows_of_it(
    running: RunningWorker, ledger: Mailbox[str]
) -> None:
    await running.reply(calls.Verify(session="s", task=ROW, response=Raw(make_response("crash"))))
    assert ledger.items == ["open", "close"]
    assert len(running.worker.sessions) == 0


async def test_a_session_whose_later_call_fails_is_left_to_its_rollout(
    running: RunningWorker, ledger: Mailbox[str]
) -> None:
    await running.tool("add", '{"amount": 1}', task=ROW)
    await running.reply(calls.Verify(session="s", response=Raw(make_response("crash"))))
    assert ledger.items == ["open"]


async def test_a_session_whose_first_call_is_aborted_is_closed(
    running: RunningWorker, ledger: Mailbox[str]
) -> None:
    async with background(partial(running.tool, "hang", task=ROW, key="run.1")):
        await ledger.until(2)
        await running.bus.publish("abort.one", b"run.1")
        assert await ledger.until(3) == ["open", "hang", "close"]
    assert len(running.worker.sessions) == 0


async def test_a_session_is_closed_also_by_a_worker_that_is_full(
    environments: dict[str, LoadedEnvironment], ledger: Mailbox[str]
) -> None:
    async with working(environments, capacity=1) as running:
        await running.tool("add", '{"amount": 1}', task=ROW)
        body = calls.CallTool(session="other", task=ROW, name="hang", arguments="{}")
        async with background(partial(running.reply, body)):
            await ledger.until(3)
            close = request(calls.CloseSession(session="s"))
            await running.bus.publish("resource.counter.one", calls.encode(close))
            assert await ledger.until(4) == ["open", "open", "hang", "close"]


async def test_a_session_that_nobody_closes_ends_soon_after_its_rollouts_deadline(
    running: RunningWorker, ledger: Mailbox[str]
) -> None:
    await running.tool("add", '{"amount": 1}', task=ROW, within_s=100)
    await anyio.sleep(100 + SESSION_KEPT_S - 1)
    assert ledger.items == ["open"]
    await anyio.sleep(SESSIONS_SWEPT_S + 2)
    assert ledger.items == ["open", "close"]


async def test_a_worker_that_stops_closes_all_its_sessions(
    environments: dict[str, LoadedEnvironment], ledger: Mailbox[str]
) -> None:
    async with working(environments) as running:
        for number in range(20):
            await running.reply(calls.OpenSession(session=str(number), task=ROW))
    assert ledger.items.count("close") == 20


# -- heavy verification -------------------------------------------------------------------------------

HEAVY = """
import os
from gym_runtime import Environment, Reply, Task, Verdict

def verify(task: Task, reply: Reply) -> Verdict:
    return Verdict(float(reply.text == "42"), fields={"pid": os.getpid()})

environment = Environment(resource=verify, description="slow", isolated=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": True})])
async def test_heavy_verification_never_happens_in_the_worker(tmp_path: Path, ledger: Mailbox[str]) -> None:
    module = tmp_path / "slow_judge.py"
    module.write_text(HEAVY)
    loaded = catalogue.environment(str(module))
    async with working({"heavy": loaded}) as running:
        at_once = await running.judged("42", task=ROW, pool="heavy")
        # A model may call a tool that is not there, which opens a session.
        assert await running.tool("search", task=ROW, pool="heavy") == '{"detail":"Not Found"}'
        with_session = await running.judged("42", pool="heavy")
    for verdict in (at_once, with_session):
        assert verdict["reward"] == 1.0
        assert verdict["fields"]["pid"] != os.getpid()
