"""A system's figures from two readings, and the sentence that says which hop is the limit."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from gym_runtime import clock
from gym_runtime.bus.interface import QueueDepth
from gym_runtime.client.status import RunProgress, Status, look
from gym_runtime.messages import metric_names as names
from gym_runtime.messages.run_control import RunControl, control_subject
from gym_runtime.messages.stored_records import RunInfo
from gym_runtime.rpc.members import Heartbeat
from gym_runtime.rpc.meter import Meter
from gym_testing.memory import MemoryBroker
from gym_view.limit import limit
from gym_view.live import Reading, View, view
from gym_view.system_tables import engines
from tables import table

MODEL = ("chat", "openai", "m")


def worker(kind: str, pool: str, *, in_use: int = 0, cpu_s: float = 0.0, **changes: Any) -> Heartbeat:
    meter: Meter = changes.pop("meter", Meter())
    figures = meter.figures()
    figures = type(figures)(counts=figures.counts, distributions=figures.distributions, cpu_s=cpu_s)
    known = {"capacity": 100, "started_s": 1.0, "load": in_use / 100, **changes}
    return Heartbeat(worker=f"{kind}-1", kind=kind, pools=[pool], in_use=in_use, figures=figures, **known)


def status(*workers: Heartbeat, waiting: int = 0, state: str = "active") -> Status:
    run = RunInfo(run="r", total=1000, environments=["quiz"], agents=["loop"], state=state, model="openai/m")
    meter = Meter()
    meter.add(names.ROLLOUTS, "quiz", "completed", "", "", by=90)
    meter.add(names.ROLLOUTS, "quiz", "truncated", "", "", by=7)
    meter.add(names.ROLLOUTS, "quiz", "failed", "ModelUnavailable", "model", by=3)
    for reward in (0.0, 1.0, 0.5):
        meter.observe(names.ROLLOUT_REWARD, reward, "quiz")
    progress = RunProgress(done=100, failed=3, rate_per_s=10.0, left_s=90.0, figures=meter.figures())
    queues = {"loop": QueueDepth(waiting=waiting, in_flight=5)}
    return Status(workers=list(workers), queues=queues, runs=[run], progress={"r": progress})


def hops(meter: Meter, **seconds: float) -> Meter:
    for hop, spent_s in seconds.items():
        meter.observe(names.HOP_DURATION, spent_s, hop, "quiz")
    return meter


def test_rates_and_latencies_are_those_between_two_readings() -> None:
    meter = Meter()
    for _ in range(50):
        meter.observe(names.ENGINE_DURATION, 60.0, *MODEL, "")
    before = Reading(10.0, status(worker("model", "policy", meter=meter, cpu_s=5.0)))
    for _ in range(20):
        meter.observe(names.ENGINE_DURATION, 0.3, *MODEL, "")
    meter.observe(names.ENGINE_DURATION, 0.3, *MODEL, "timeout")
    meter.add(names.RETRIES, "model", "timeout")
    now = Reading(12.0, status(worker("model", "policy", meter=meter, cpu_s=6.0)))
    (found,) = view(now, before).workers
    assert found.calls_per_s == 10.5
    assert found.busy == 0.5
    assert found.p50_s is not None
    assert found.p99_s is not None
    assert 0.16 < found.p50_s <= found.p99_s <= 0.32
    assert found.failures == 2
    again = worker("model", "policy", meter=Meter(), started_s=11.0)
    (restarted,) = view(Reading(12.0, status(again)), before).workers
    assert restarted.calls_per_s is None, "a worker that began anew has no rate yet"


def test_a_run_has_what_its_client_counted() -> None:
    found = view(Reading(0.0, status()))
    (run,) = found.runs
    assert (run.done, run.failed, run.truncated, run.mean_reward, run.left_s) == (100, 3, 7, 0.5, 90.0)
    (failure,) = found.failures
    assert (failure.count, failure.error, failure.stage) == (3, "ModelUnavailable", "model")


FULL, FREE = {"in_use": 100}, {"in_use": 10}
WAITS = hops(Meter(), model=9.0, tool=0.5, verify=0.5)


def parts(model: dict[str, Any], resource: dict[str, Any], agent: dict[str, Any]) -> list[Heartbeat]:
    return [
        worker("model", "policy", **model),
        worker("resource", "quiz", **resource),
        worker("agent", "loop", **agent),
    ]


@table(
    ("workers", "waiting", "expected"),
    [
        ([], 5, "No worker is alive"),
        ([worker("agent", "loop"), worker("model", "policy")], 5, "No worker serves environment 'quiz'"),
        (
            parts(FREE, FREE, FULL)[1:],
            5,
            "No worker serves model 'policy', for which rollouts wait: gym",
        ),
        (parts(FULL, FREE, FULL), 5, "The engines of model 'policy' are the limit, 100 of 100"),
        (parts({**FREE, "load": 1.0}, FREE, FULL), 5, "The engines of model 'policy' are the limit"),
        (parts(FREE, FULL, FULL), 5, "The workers of environment 'quiz' are the limit"),
        (parts(FREE, FREE, {**FULL, "meter": WAITS}), 5, "90% of the time they wait for the model"),
        (parts(FREE, FREE, FULL), 5, "The agents are the limit, 100 of 100"),
        (
            parts(FREE, FREE, {**FULL, "detail": {"suspects": "90"}}),
            5,
            "90 rollouts wait to start again after the loss of an agent worker",
        ),
        (parts(FREE, FREE, {**FULL, "detail": {"suspects": "9"}}), 5, "The agents are the limit, 100 of 100"),
        (parts(FREE, FREE, {**FULL, "detail": {"suspects": "²"}}), 5, "The agents are the limit, 100 of 100"),
        (parts(FREE, FREE, FREE), 0, "The client is the limit"),
        (parts(FREE, FREE, FREE), 1234, "1,234 rollouts wait"),
        (parts(FREE, FREE, FREE), 1, "1 rollout waits"),
        (
            parts(FREE, FREE, {**FREE, "round_trip_s": 1.24}),
            9,
            "agent worker agent-1 on  to the broker is slow, 1.2",
        ),
        (parts(FREE, {**FREE, "refused": "no space"}, FULL), 5, "The broker stores nothing (no space): make"),
        (parts({**FREE, "detail": {"paused": "true"}}, FREE, FULL), 5, "Model 'policy' is paused"),
        (
            parts({**FREE, "detail": {"held": "9 calls wait"}}, FREE, FULL),
            5,
            "Rollouts wait for the engines of model 'policy': 9 calls wait.",
        ),
    ],
)
def test_one_sentence_says_which_hop_is_the_limit(
    workers: list[Heartbeat], waiting: int, expected: str
) -> None:
    assert expected in limit(view(Reading(0.0, status(*workers, waiting=waiting))))


def test_the_concurrency_that_was_set_for_a_run_is_the_limit() -> None:
    for most, expected in (
        (5, "9 rollouts wait: run 'r' may have 5 rollouts in progress"),
        (50, "free places"),
    ):
        now = status(*parts(FREE, FREE, FREE), waiting=9)
        control = RunControl(run="r", concurrency=most)
        progress = {"r": msgspec.structs.replace(now.progress["r"], control=control)}
        assert expected in limit(view(Reading(0.0, msgspec.structs.replace(now, progress=progress))))


def test_a_full_core_is_the_limit() -> None:
    before = Reading(0.0, status(*parts(FREE, FREE, {**FULL, "cpu_s": 1.0})))
    now = Reading(10.0, status(*parts(FREE, FREE, {**FULL, "cpu_s": 10.8})))
    assert "agent worker agent-1 uses 98% of a core" in limit(view(now, before))


def test_a_queue_before_agents_that_are_not_full_is_put_down_to_the_processor_if_that_is_known() -> None:
    before = Reading(0.0, status(*parts(FREE, FREE, {"in_use": 93, "cpu_s": 1.0}), waiting=36_409))
    agents = {"in_use": 93, "cpu_s": 10.7}
    now = Reading(10.0, status(*parts(FREE, FREE, agents), waiting=36_409))
    assert limit(view(now, before)).startswith("The processor is the limit: agent worker agent-1 uses 97% of")
    now = Reading(10.0, status(*parts(FREE, FREE, {**agents, "cpu_s": 7.0}), waiting=36_409))
    assert limit(view(now, before)) == (
        "36,409 rollouts wait while the agents have free places, 93 of 100 places taken. The busiest "
        "process is agent worker agent-1, at 60% of a core."
    )
    assert limit(view(now)) == (
        "36,409 rollouts wait while the agents have free places, 93 of 100 places taken."
    )


def test_without_a_run_nothing_waits() -> None:
    idle: View = view(Reading(0.0, status(*parts(FREE, FREE, FREE), state="finished")))
    assert limit(idle) == "Nothing waits: no run is active."


def test_a_run_whose_rollouts_are_finished_waits_for_nothing_but_its_client() -> None:
    found = status(*parts(FREE, FREE, FREE))
    found.progress["r"] = RunProgress(done=1000)
    assert limit(view(Reading(0.0, found))) == (
        "Nothing waits: every rollout is finished; 'gym-runtime collect r -o FILE' fetches them."
    )


def test_a_worker_behind_a_slow_link_is_named() -> None:
    shown = view(Reading(0.0, status(*parts({**FREE, "round_trip_s": 1.24}, FREE, FREE))))
    (model,) = [one for one in shown.workers if one.kind == "model"]
    (row,) = engines(shown)
    assert (model.state, model.about, row.bad) == ("slow link", "1.2 s to the broker and back", True)


@pytest.mark.anyio
@pytest.mark.parametrize(("paused", "left_s"), [(True, None), (False, pytest.approx(90, abs=30))])
async def test_nothing_is_said_of_the_time_that_a_paused_run_takes(paused: bool, left_s: object) -> None:
    run = RunInfo(run="r", total=100, created_s=clock.now() - 10.0)
    async with MemoryBroker().connect() as bus:
        for number in range(10):
            await bus.commit(f"rollout.r.{number}.0", b"")
        control = RunControl(run="r", paused=paused)
        await bus.append(control_subject("r"), msgspec.json.encode(control))
        found = (await look(bus, [run]))["r"]
    assert (found.done, found.left_s) == (10, left_s)
