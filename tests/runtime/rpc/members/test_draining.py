"""Which workers a name means, and what they answer when they are asked to leave."""

from __future__ import annotations

import anyio
import pytest
from gym_runtime.errors import DeadlineExceeded, UsageError
from gym_runtime.messages import calls
from gym_runtime.rpc.members import Heartbeat, drain, drained_on_request, named
from gym_testing.background import background
from gym_testing.memory import MemoryBroker
from gym_testing.virtual_clock import BACKEND
from tables import table

AGENT = Heartbeat(worker="agent-1", kind="agent", pools=["tool_loop", "step_loop"], host="n1", in_use=3)
OTHER = Heartbeat(worker="agent-2", kind="agent", pools=["tool_loop"], host="n2")
MODEL = Heartbeat(worker="model-1", kind="model", pools=["policy"], host="n1")
ALL = [AGENT, OTHER, MODEL]


@pytest.fixture
def anyio_backend() -> object:
    return BACKEND


@table(
    ("names", "expected"),
    [
        (["agent-1"], [AGENT]),
        (["agent"], [AGENT, OTHER]),
        (["agent:step_loop"], [AGENT]),
        (["tool_loop"], [AGENT, OTHER]),
        (["n1"], [AGENT, MODEL]),
        (["n1", "agent", "agent-1"], [AGENT, MODEL, OTHER]),
        ([], []),
    ],
)
def test_a_worker_a_kind_a_pool_or_a_host_is_named(names: list[str], expected: list[Heartbeat]) -> None:
    assert named(ALL, names) == expected


@pytest.mark.parametrize(
    ("name", "hint"), [("agnet", "did you mean 'agent'"), ("zzz", "'gym-runtime status' lists the workers")]
)
def test_a_name_of_nobody_is_refused_with_a_hint(name: str, hint: str) -> None:
    with pytest.raises(UsageError, match=hint):
        named(ALL, ["agent", name])


@pytest.mark.anyio
async def test_workers_answer_and_one_that_has_left_is_left_out() -> None:
    broker = MemoryBroker()
    left: list[str] = []
    async with (
        broker.connect("client") as client,
        broker.connect("worker") as bus,
        background(lambda: drained_on_request(bus, lambda: AGENT, 25.0, lambda: left.append(AGENT.worker))),
    ):
        await anyio.sleep(0.1)
        # No client's: JetStream delivers answers, without a subject to answer to, wherever a request says.
        await client.publish(f"drain.{AGENT.name}", b"{}")
        for _ in range(2):
            answers = await drain(client, [AGENT, OTHER])
            assert answers == {"agent-1": calls.Draining(in_flight=3, within_s=25.0)}
    assert left == ["agent-1", "agent-1"]


@pytest.mark.anyio
async def test_one_that_is_frozen_is_named_and_the_others_drain_all_the_same() -> None:
    broker = MemoryBroker()
    left: list[str] = []
    async with (
        broker.connect("client") as client,
        broker.connect("worker") as bus,
        background(lambda: drained_on_request(bus, lambda: AGENT, 25.0, lambda: left.append("agent-1"))),
        bus.serve(f"drain.{OTHER.name}", lambda _: None),
    ):
        await anyio.sleep(0.1)
        with pytest.raises(DeadlineExceeded, match="agent-2 on n2 did not answer within 5 s"):
            await drain(client, ALL[:2])
    assert left == ["agent-1"]
