"""TRL's columns of rollouts, made without TRL."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from gym_runtime.errors import Fault, UsageError
from gym_runtime.messages.outcomes import Completed, Failed, Outcome, RolloutRecord, Truncated
from gym_testing.small_system import message
from gym_trainers.trl_columns import Batch, Columns
from msgspec import Raw


def turn(prompt: list[int], ids: list[int], version: str = "") -> dict[str, Any]:
    tokens = {"prompt_token_ids": prompt, "generation_token_ids": ids}
    spans = [{"version": version, "start": 0, "end": len(ids)}] if version else []
    return {
        **message("x"), **tokens, "generation_log_probs": [-0.5] * len(ids), "weight_versions": spans
    }  # fmt: skip


def record(
    *turns: dict[str, Any], outcome: Outcome | None = None, reward: float | None = 1.0
) -> RolloutRecord:
    row = {"responses_create_params": {"input": "hi"}, "response": {"output": list(turns)}}
    return RolloutRecord(
        run="r",
        task_index=0,
        rollout_index=0,
        environment="e",
        outcome=outcome or Completed(),
        row=Raw(msgspec.json.encode(row)),
        reward=reward,
        numbers={"closeness": 0.5},
    )


def columns_of(records: list[RolloutRecord], *, end: int) -> Columns:
    """Of groups of one rollout, which arrive in another order."""
    batch = Batch(end=end)
    for key, record in reversed(list(enumerate(records))):
        batch.add(key, [record])
    return batch.columns()


FAILED = Failed(fault=Fault(kind="model", message="the key is wrong"))


def test_rollouts_become_columns_in_their_order() -> None:
    two_turns = record(turn([1, 2], [3], "step-1"), turn([1, 2, 3, 8], [4], "step-2"))
    cut = record(turn([1], [2, 3], "step-2"), outcome=Truncated(reason="max_output_tokens"), reward=0.5)
    columns = columns_of([two_turns, cut], end=9)
    assert columns == {
        "prompt_ids": [[1, 2], [1]],
        "completion_ids": [[3, 8, 4], [2, 3]],
        "logprobs": [[-0.5, 0.0, -0.5], [-0.5, -0.5]],
        "env_mask": [[1, 0, 1], [1, 1]],
        "gym_reward": [1.0, 0.5],
        "gym_outcome": ["completed", "truncated"],
        "gym_fields": [{"closeness": 0.5}] * 2,
        "gym_versions": [["step-1", "step-2"], ["step-2"]],
    }


def test_a_failed_rollout_has_no_reward_and_trains_no_token(capfd: pytest.CaptureFixture[str]) -> None:
    columns = columns_of([record(turn([1], [2]), outcome=FAILED, reward=None)], end=9)
    assert (columns["prompt_ids"], columns["completion_ids"], columns["env_mask"]) == ([[9]], [[9]], [[0]])
    assert (columns["gym_reward"], columns["gym_outcome"]) == ([None], ["failed"])
    assert "the key is wrong" in "".join(capfd.readouterr())


def test_of_several_segments_the_last_one_is_trained_on_and_it_is_said(
    capfd: pytest.CaptureFixture[str],
) -> None:
    columns = columns_of([record(turn([1, 2], [3]), turn([1, 7], [4, 5]))], end=9)
    assert (columns["prompt_ids"], columns["completion_ids"]) == ([[1, 7]], [[4, 5]])
    assert "several sequences" in "".join(capfd.readouterr())


@pytest.mark.parametrize("lacking", [math.nan, -math.inf])
def test_a_rollout_without_all_log_probabilities_is_left_out(
    lacking: float, capfd: pytest.CaptureFixture[str]
) -> None:
    odd = record({**turn([1], [2, 3]), "generation_log_probs": [-0.5, lacking]})
    batch = Batch(end=9)
    batch.add(0, [record(turn([1], [4])), odd])
    columns = batch.columns()
    assert (columns["completion_ids"], columns["env_mask"]) == ([[4], [9]], [[1], [0]])
    assert (columns["gym_reward"], columns["gym_outcome"]) == ([1.0, None], ["completed", "failed"])
    assert "all log-probabilities" in "".join(capfd.readouterr())


def test_an_engine_without_log_probabilities_is_refused_where_they_are_read() -> None:
    silent = record({**turn([1], [2, 3]), "generation_log_probs": []})
    batch = Batch(end=9)
    batch.add(0, [silent, record(outcome=FAILED, reward=None)])
    with pytest.raises(UsageError, match="GRPOTrainer needs them"):
        batch.columns()
    batch = Batch(end=9, log_probs=False)
    batch.add(0, [silent])
    assert batch.columns()["completion_ids"] == [[2, 3]]
