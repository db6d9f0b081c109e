"""Weights that change while conversations go on."""

from __future__ import annotations

import msgspec
import pytest
from gym_runtime import clock
from gym_runtime.errors import ModelRefused
from gym_runtime.messages import calls
from gym_runtime.messages.outcomes import Completed, Failed
from gym_runtime.rollout.attempts import staleness
from gym_testing.small_system import (
    Engine,
    SmallSystem,
    answer,
    rollout_spec,
    row,
)
from runtime.workers.desk import about, desk, int32, with_tokens, working
from runtime.workers.hosting import announced
from tables import table

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


@table(
    ("used", "current", "lag"),
    [
        (["7"], ["7"], 0),
        (["7", "8"], ["10"], 3),
        (["step-9"], ["step-10", "step-11"], 2),
        (["12"], ["9"], 0),
        (["base"], ["base"], 0),
        (["base"], ["other"], 1),
        (["base"], ["7"], 7),
        (["base", "6"], ["7"], 7),
        (["7"], ["base", "8"], 1),
        (["7"], [], 0),
        (["7"], [""], 0),
        ([], ["7"], 0),
    ],
)
def test_how_far_weights_lie_behind(used: list[str], current: list[str], lag: int) -> None:
    assert staleness(used, current) == lag


async def test_a_row_names_the_weights_that_answered() -> None:
    spans = [calls.WeightSpan(version="v1", start=0, end=1), calls.WeightSpan(version="v2", start=1, end=2)]
    first = msgspec.structs.replace(working(1)[0], weight_version="v1")
    second = with_tokens(answer("done"), int32(1), int32(2, 3), weights=spans)
    async with desk() as system:
        await system.add_model(Engine(first, second))
        (record,) = await system.make(rollout_spec(row()))
    assert about(record)["weight_versions"] == ["v1", "v2"]


@pytest.mark.parametrize(("allowed", "asked"), [(2, 1), (None, 1), (1, 3)])
async def test_a_rollout_from_weights_older_than_its_run_allows_is_made_anew(
    allowed: int | None, asked: int
) -> None:
    engine = Engine(msgspec.structs.replace(answer("done"), weight_version="5"))
    async with desk() as system:
        await system.add_model(engine)
        async with announced(
            system.bus, "model", "newer", ["policy"], draining=True, detail={"weight_version": "7"}
        ):
            (record,) = await system.make(rollout_spec(row(), max_staleness=allowed))
    assert len(engine.calls.items) == asked
    if asked == 1:
        assert record.outcome == Completed()
    else:
        assert isinstance(record.outcome, Failed)
        assert record.outcome.fault.name == "StaleWeights"
        assert "2 versions old" in record.outcome.fault.message


async def test_a_trainer_that_goes_on_from_an_older_checkpoint_gets_its_rollouts() -> None:
    """Agents learn of an update a moment later: until then the weights before it seem to be newer ones."""
    engine = Engine(msgspec.structs.replace(answer("done"), weight_version="2"))
    detail = {"weight_version": "9"}
    async with desk() as system:
        await system.add_model(engine)
        async with announced(system.bus, "model", "other", ["policy"], draining=True, detail=detail):
            detail["weight_version"] = "2"
            (record,) = await system.make(rollout_spec(row(), max_staleness=1))
    assert record.outcome == Completed()
    assert len(engine.calls.items) == 1


class Weighted(Engine):
    """An engine whose weights can be changed."""

    def __init__(self) -> None:
        super().__init__(answer("done"))
        self.state = calls.ControlAnswer(version="1")

    async def control(self, command: calls.Control) -> calls.ControlAnswer:
        if command.op == "update" and not command.path:
            raise ModelRefused("no path")
        if command.op in ("pause", "resume"):
            self.state = msgspec.structs.replace(self.state, paused=command.op == "pause")
        if command.version:
            self.state = msgspec.structs.replace(self.state, version=command.version)
        return self.state


async def control(system: SmallSystem, command: object) -> calls.RpcReply:
    body = calls.encode(command)
    answered = await system.bus.request("control.model-1", body, deadline_s=clock.monotonic() + 60)
    return calls.decode_reply(answered)


async def test_weights_are_changed_through_the_worker() -> None:
    async with desk() as system:
        worker = await system.add_model(Weighted())
        assert worker.weight_version == "1"
        paused = await control(system, calls.Control(op="pause"))
        assert worker.paused
        assert calls.decode_control_answer(paused.body) == calls.ControlAnswer(paused=True, version="1")
        await control(system, calls.Control(op="update", version="2", path="/weights"))
        await control(system, calls.Control(op="resume"))
        assert (worker.paused, worker.weight_version) == (False, "2")
        refused = await control(system, calls.Control(op="update"))
        assert refused.fault is not None
        assert refused.fault.message == "no path"


async def test_an_adapter_without_weights_says_so_and_serves_on() -> None:
    async with desk() as system:
        await system.add_model(Engine(answer("done")))
        refused = await control(system, calls.Control(op="pause"))
        assert refused.fault is not None
        assert "cannot change weights" in refused.fault.message
        unreadable = await control(system, {"op": "dance"})
        assert unreadable.fault is not None
        assert "use one version of gym-runtime" in unreadable.fault.message
        (record,) = await system.make(rollout_spec(row()))
    assert record.outcome == Completed()
