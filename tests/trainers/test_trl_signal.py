"""TRL gets groups with signal only, whatever prompts it draws: nothing here needs TRL."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from gym_runtime.client import SyncClient, connect_sync
from gym_runtime.errors import UsageError
from gym_trainers.trl import GymSpec
from trainers.test_trl import FakeTrainer
from trainers.test_trl_async import arguments

COIN = str(Path(__file__).with_name("coin.py"))
ROWS = [
    {"responses_create_params": {"input": f"{n}"}, "number": n, "wins": [0.0, 0.5, 1.0][n % 3]}
    for n in range(30)
]
SIZE = 4


@pytest.fixture(scope="module")
def gym() -> Iterator[SyncClient]:
    with connect_sync(model="scripted/message", environments=[COIN]) as gym:
        yield gym


@pytest.mark.slow
def test_a_batch_of_the_trainer_is_filled_with_groups_that_differ(gym: SyncClient) -> None:
    spec = GymSpec(gym, ROWS, environment="coin", signal={"curriculum": "posterior"})
    trainer, prompts = FakeTrainer(SIZE), list(spec._rows[0:1]) * (3 * SIZE)
    for _ in range(3):
        columns = spec.rollout_func(prompts, trainer)
        rewards = columns["gym_reward"]
        assert len(rewards) == len(columns["completion_ids"]) == 3 * SIZE
        assert all(sum(rewards[start : start + SIZE]) == 2.0 for start in range(0, 3 * SIZE, SIZE))
        assert all(fields["wins"] == 0.5 for fields in columns["gym_fields"])
    with pytest.raises(UsageError, match="batch of 2 groups of 4 follows one of 3 of 4"):
        spec.rollout_func(prompts[: 2 * SIZE], trainer)
    with pytest.raises(UsageError, match="13 prompts, which are no whole groups of 4"):
        spec.rollout_func([*prompts, prompts[0]], trainer)
    trainer.model.training = False
    evaluated = spec.rollout_func([spec._rows[0], spec._rows[2]], trainer)
    assert evaluated["gym_reward"] == [0.0, 1.0], "an evaluation keeps its prompts"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["", "several-processes"])
def test_each_process_draws_its_own_tasks_and_stores_its_own_curriculum(gym: SyncClient, name: str) -> None:
    rows = [{**row, "wins": 0.5} for row in ROWS]
    signal = {"curriculum": "uniform", "name": name}
    specs = [GymSpec(gym, rows, environment="coin", signal=signal) for _ in range(2)]
    drawn: list[list[float]] = []
    for process in (0, 1, 0, 1):
        trainer = FakeTrainer(SIZE)
        trainer.accelerator = SimpleNamespace(process_index=process)
        columns = specs[process].rollout_func(list(specs[process]._rows[0:1]) * (4 * SIZE), trainer)
        drawn.append([fields["number"] for fields in columns["gym_fields"]])
    assert drawn[0] != drawn[1]


@pytest.mark.slow
@pytest.mark.parametrize(("options", "ahead"), [({}, 0), ({"staleness": 1}, 2)])
def test_without_a_setting_nothing_is_sampled_from_weights_that_will_be_old(
    gym: SyncClient, options: dict[str, Any], ahead: int
) -> None:
    spec = GymSpec(gym, [{**row, "wins": 0.5} for row in ROWS], environment="coin", signal=options)
    spec.rollout_func(list(spec._rows[0:1]) * (2 * SIZE), FakeTrainer(SIZE))
    assert spec._steps is not None
    assert spec._steps._batches is not None
    plan = spec._steps._batches._plan
    assert len(plan.running) + len(plan.ready) == ahead, "groups that the next batch would take"


@pytest.mark.parametrize(
    ("options", "message"),
    [({"want": 3}, "takes no want here"), ({"waves": (2, 2)}, "cannot weight a group")],
)
def test_what_the_trainer_decides_or_cannot_do_is_refused(
    gym: SyncClient, options: dict[str, Any], message: str
) -> None:
    spec = GymSpec(gym, ROWS, environment="coin", signal=options)
    with pytest.raises(UsageError, match=message):
        spec.rollout_func(["{}"] * SIZE, FakeTrainer(SIZE))


def test_signal_is_not_combined_with_the_next_step_or_other_groups(gym: SyncClient) -> None:
    with pytest.raises(UsageError, match="leave asynchronous out"):
        GymSpec(gym, ROWS, signal={}, asynchronous=True)
    with pytest.raises(UsageError, match="num_generations"):
        GymSpec(gym, ROWS, signal={"repeats": 2}).rollout_worker(arguments())


@pytest.fixture
def samples_of_trl(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = ["trl", "experimental", "async_grpo", "async_rollout_worker"]
    for length in range(1, len(parts) + 1):
        module = ModuleType(".".join(parts[:length]))
        module.__path__ = []
        vars(module)["RolloutSample"] = SimpleNamespace
        monkeypatch.setitem(sys.modules, module.__name__, module)


@pytest.mark.slow
@pytest.mark.usefixtures("samples_of_trl")
def test_a_worker_goes_on_in_the_rows_when_its_trainer_resumes(gym: SyncClient) -> None:
    spec = GymSpec(gym, ROWS, environment="coin")
    found: list[dict[int, str]] = []
    for start in (0, 25):
        worker = spec.rollout_worker(arguments(), start=start)
        worker.start()
        samples = [worker.rollout_buffer.get(timeout=60) for _ in range(40 * SIZE)]
        worker.stop()
        found.append({one.group_id: one.prompt[0]["content"] for one in samples})
    both = found[0].keys() & found[1].keys()
    assert len(both) > 5
    assert min(found[1]) == 25
    assert [found[0][group] for group in both] == [found[1][group] for group in both]
    with pytest.raises(UsageError, match="start is -1"):
        spec.rollout_worker(arguments(), start=-1)
    with pytest.raises(UsageError, match="give the curriculum a name"):
        GymSpec(gym, ROWS, signal={}).rollout_worker(arguments(), start=1)


@pytest.mark.usefixtures("samples_of_trl")
@pytest.mark.slow
def test_the_asynchronous_trainers_queue_gets_groups_that_differ(gym: SyncClient) -> None:
    spec = GymSpec(gym, ROWS, environment="coin", signal={"curriculum": "uniform", "want": 2})
    worker = spec.rollout_worker(arguments())
    worker.start()
    samples = [worker.rollout_buffer.get(timeout=60) for _ in range(6 * SIZE)]
    worker.stop()
    worker.check_health(60.0)
    for group in range(6):
        advantages = [one.advantage for one in samples if one.group_id == group]
        assert sorted(advantages) == pytest.approx([-1.0, -1.0, 1.0, 1.0])
