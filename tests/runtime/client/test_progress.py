"""How far runs are, as another client sees it: attached, published, cancelled and finished ones."""

from __future__ import annotations

from contextlib import aclosing

import anyio
import msgspec
import pytest
from gym_runtime.client import Counter, RunInfo, RunProgress
from gym_runtime.client.status import in_progress
from gym_runtime.files.rows import expand
from gym_runtime.messages import metric_names
from gym_runtime.messages.calls import ModelAnswer, ModelCall
from gym_runtime.messages.outcomes import Failed
from gym_runtime.rpc.members import Heartbeat, decode_heartbeat, encode_heartbeat
from gym_runtime.workers.adapter import CallContext
from gym_testing.background import settled
from gym_testing.small_system import Engine
from runtime.client.running_client import COUNT, NAME, RunningClient, rows, running_client

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


class OneHangs(Engine):
    """The second task's rollouts are never answered."""

    async def respond(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        if context.rollout.split(".")[1] == "1":
            await anyio.sleep_forever()
        return await super().respond(call, context)


async def progress(here: RunningClient, run: str) -> RunProgress:
    async with here.another() as other:
        status = await other.status()
        return status.progress[run]


async def test_an_attached_run_says_how_far_it_is_and_its_summary_stays() -> None:
    async with running_client(engine=OneHangs(*COUNT)) as here:
        async with aclosing(here.rollouts(2)) as records:
            record = await anext(records)
            [info] = await here.gym.runs()
            assert (info.state, info.total, info.model) == ("active", 2, "policy")
            await anyio.sleep(10)
            doing = await in_progress(here.gym.driver.bus, here.gym.workers, "policy")
            assert (doing.answers, doing.tokens) == (2, 2)
            found = await progress(here, info.run)
            assert found.figures is not None
            assert found.figures.total(metric_names.ROLLOUTS, {"gym.environment": NAME}) == 1
            failed = int(isinstance(record.outcome, Failed))
            assert (found.done, found.failed) == (1, failed)
            assert found.rate_per_s is not None
            assert 0 < found.rate_per_s < 1
            assert found.left_s == pytest.approx(1 / found.rate_per_s, rel=0.01)

        async def over() -> bool:
            [info] = await here.gym.runs()
            return info.state == "cancelled"

        with anyio.fail_after(30):
            while not await over():
                await anyio.sleep(0.5)
        [info] = await here.gym.runs()
        assert (info.done, info.failed) == (1, failed)
        assert info.figures is not None
        assert info.figures.total(metric_names.ROLLOUTS) == 1
        assert await progress(here, info.run) == RunProgress(done=1, failed=failed, figures=info.figures)


async def test_a_published_run_is_counted_at_the_broker() -> None:
    async with running_client(engine=OneHangs(*COUNT)) as here:
        info = RunInfo(run="one", total=2, environments=[NAME], created_s=anyio.current_time())
        await here.gym.driver.open_run(info)
        lines = [msgspec.json.encode(row) for row in rows(2)]
        await here.gym.driver.publish(expand(lines, run="one", environment=NAME))
        async for _ in here.gym.driver.bus.records("rollout.one.>"):
            break
        assert (await progress(here, "one")).done == 1
        await here.gym.cancel("one")
        await settled(lambda: not len(here.resource.sessions), within_s=10)
        found = await progress(here, "one")
        assert found.done is not None
        assert 1 <= found.done <= 2
        assert (found.failed, found.rate_per_s) == (None, None)


def test_a_heartbeat_carries_it() -> None:
    detail = Counter().detail()
    sent = Heartbeat(worker="run", kind="client", pools=[], detail=detail)
    assert decode_heartbeat(encode_heartbeat(sent)).detail == {"done": "0", "failed": "0", "rate": "0"}
