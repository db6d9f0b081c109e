"""What a new run is told of the system that it joins."""

from __future__ import annotations

from gym_runtime.client.row_sources import served_model
from gym_runtime.rpc.members import Heartbeat

WORKERS = [
    Heartbeat(worker="a", kind="agent", pools=["tool_loop"]),
    Heartbeat(worker="r", kind="resource", pools=["mcqa"]),
    Heartbeat(worker="m", kind="model", pools=["policy"], detail={"model": "openai/Qwen/Qwen3-4B"}),
]


def test_the_model_that_a_system_serves() -> None:
    found = served_model(WORKERS, "policy")
    assert found is not None
    assert (found.provider, found.name) == ("openai", "Qwen/Qwen3-4B")
    assert served_model(WORKERS[:2], "policy") is None
    other = Heartbeat(worker="j", kind="model", pools=["judge"], detail={"model": "scripted/echo"})
    assert served_model([other], "policy") is None
