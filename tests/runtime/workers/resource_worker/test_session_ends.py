"""No session is left behind; heavy verification stays out of the worker."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import anyio
import pytest
from gym_runtime import Environment, Session, Task
from gym_runtime.environment import catalogue
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.environment.verdict import make_response
from gym_runtime.messages import calls
from gym_runtime.timing import SESSIONS_SWEPT_S
from gym_runtime.workers.resource_worker import SESSION_KEPT_S
from gym_testing.background import Mailbox, background
from gym_testing.small_system import environment
from msgspec import Raw
from runtime.workers.hosting import request
from runtime.workers.resource_worker.resource_calls import ROW, Counter, RunningWorker, working

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


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
            await running.bus.publish("resource.counter.one", calls.encode_request(close))
            assert await ledger.until(4) == ["open", "open", "hang", "close"]


async def test_sessions_that_are_closed_together_do_not_wait_for_each_other(ledger: Mailbox[str]) -> None:
    class Slow(Counter):
        async def close(self) -> None:
            self.ledger.put("closing")
            await anyio.sleep(1)
            self.ledger.put("closed")

    class Light(Session[Task]):
        pass

    Slow.ledger = ledger
    environments = {
        "slow": environment(Environment(resource=Slow, description="closes slowly"), "slow"),
        "light": environment(Environment(resource=Light, description="has nothing to close"), "light"),
    }
    async with working(environments) as running:
        for pool, name in (("slow", "s"), ("light", "t"), ("slow", "u"), ("light", "v")):
            await running.reply(calls.OpenSession(session=name, task=ROW), pool=pool)
        assert len(running.worker.sessions) == 4
        await running.reply(calls.CloseSession(session="s", more=["t", "u", "unknown"]), pool="slow")
        assert ledger.items == ["open", "open", "closing", "closing", "closed", "closed"]
        assert len(running.worker.sessions) == 1


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
