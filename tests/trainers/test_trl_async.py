"""The rollout worker and the weight transfer of TRL's AsyncGRPOTrainer, against TRL's own queue and types.

The trainer itself needs CUDA. See `test_trl_trainer` for how to install TRL for these tests.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import numpy as np
import pytest
from gym_runtime.client import SyncClient
from gym_runtime.errors import GymError, UsageError
from gym_runtime.messages.outcomes import RolloutRecord
from gym_trainers.trl import GymSpec
from gym_trainers.trl_async import RolloutWorker, sample_fields
from trainers.trainers_engine import COUNTER, counter_row

SIZE = 4


def arguments(**more: Any) -> Any:
    """What the worker reads of ``AsyncGRPOConfig``."""
    sampling = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": None, "max_completion_length": 64}
    return SimpleNamespace(num_generations=SIZE, max_inflight_tasks=16, seed=3, **sampling, **more)


@pytest.mark.slow
def test_samples_are_whole_sequences_with_the_advantages_of_their_group(system: SyncClient) -> None:
    rows = [counter_row(4), counter_row(5)]
    records = list(system.rollouts(rows, return_token_ids=True, ordered=True, repeats=2))
    failed = RolloutRecord(run="r", task_index=0, rollout_index=9, environment=COUNTER, **_failed())
    first, *others = sample_fields([*records, failed], group=7, version=3)
    assert len(others) == 3
    (sequence,) = records[0].sequences()
    length = len(sequence.prompt_ids)
    assert first["input_ids"].tolist() == [*sequence.prompt_ids, *sequence.completion_ids]
    assert first["completion_mask"].tolist() == [0] * length + sequence.mask.astype(int).tolist()
    assert first["old_log_probs"][length:].tolist() == sequence.log_probs.tolist()
    assert not first["old_log_probs"][:length].any()
    assert [first[name].dtype for name in ("input_ids", "completion_mask", "old_log_probs")] == [
        np.int64,
        np.int64,
        np.float32,
    ]
    # Rewards are 1, 1, 0, 0; the failed one does not count.
    assert [one["advantage"] for one in (first, *others)] == pytest.approx([1.0, 1.0, -1.0, -1.0])
    assert first["metrics"] == {"reward": 1.0, "reward_std": 0.5, "rewards/gym_reward": 1.0}
    assert [one["role"] for one in first["prompt"]] == ["user"]
    assert [one["role"] for one in first["completion"]] == ["assistant", "tool", "assistant"]
    assert (first["group_id"], first["model_version"]) == (7, 3)


def _failed() -> dict[str, Any]:
    from gym_runtime.errors import RuntimeFault
    from gym_runtime.messages.outcomes import Failed
    from gym_runtime.messages.responses import NULL

    return {"outcome": Failed(fault=RuntimeFault("no").fault()), "row": NULL, "attempt": 1}


def test_a_worker_that_cannot_go_on_says_so_to_the_trainer(system: SyncClient) -> None:
    worker = GymSpec(system, [{"no": "row"}], environment=COUNTER).rollout_worker(arguments())
    worker.start()
    assert worker._thread is not None
    worker._thread.join()
    with pytest.raises(GymError, match=r"no more rollouts are run: .*responses_create_params"):
        worker.check_health(60.0)
    worker.stop()
    idle = GymSpec(system, [counter_row()]).rollout_worker(arguments())
    idle.check_health(60.0)
    with pytest.raises(GymError, match="no group of rollouts with a reward came for 0 s"):
        idle.check_health(0.0)
    with pytest.raises(UsageError, match="there are no rows"):
        GymSpec(system, []).rollout_worker(arguments())
    with pytest.raises(UsageError, match="weights=FOLDER"):
        GymSpec(system, []).weight_transfer("a model")


def test_the_time_of_a_long_step_is_no_silence(system: SyncClient) -> None:
    worker = GymSpec(system, [counter_row()]).rollout_worker(arguments())

    async def main() -> None:
        for _ in range(16):
            worker.rollout_buffer.put_nowait("sample")
        worker._made_s -= 1000.0
        worker.rollout_buffer.taken = worker._look_again
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker._is_over)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(GymError, match="came for 1000 s"):
                worker.check_health(300.0)
            worker.rollout_buffer.get()

    anyio.run(main)
    worker.check_health(300.0)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")
def test_trl_takes_samples_and_sends_weights(system: SyncClient, tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="needs pip install 'gym-runtime[trl]', in its own environment")
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
    from trl.experimental.async_grpo.async_grpo_trainer import RolloutQueueDataset

    shape = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2
    )
    model = LlamaForCausalLM(shape)
    shape.save_pretrained(tmp_path / "model")
    spec = GymSpec(system, [counter_row(4), counter_row(5)], weights=tmp_path / "weights")
    worker = spec.rollout_worker(arguments())
    transfer = spec.weight_transfer(str(tmp_path / "model"))
    metrics: dict[str, list[float]] = defaultdict(list)
    versions = [0]
    transfer.init_weight_transfer()
    found: list[Any] = []
    for step in range(2):
        transfer.pause()
        transfer.send_weights((name, value.detach()) for name, value in model.named_parameters())
        transfer.resume()
        versions[0] += 1
        worker.update_model_version(versions[0])
        if not step:
            worker.start()
        dataset = RolloutQueueDataset(
            worker.rollout_buffer, lambda: versions[0], worker.check_health, 60.0, metrics, max_staleness=1
        )
        found += islice(dataset, 40)
    worker.stop()
    transfer.destroy()
    worker.check_health(60.0)
    assert len(found) == 80
    assert len({one["group_id"] for one in found}) >= 80 // SIZE
    assert max(metrics["sample/staleness_max"]) <= 1.0
    assert metrics["sample/dropped_stale_total"] == []
    assert worker.rollout_buffer.qsize() <= 16 + 16
    assert isinstance(worker, RolloutWorker)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "weights" / "0")
    for (name, one), (_, other) in zip(loaded.named_parameters(), model.named_parameters(), strict=True):
        assert one.bfloat16().equal(other.bfloat16()), name
