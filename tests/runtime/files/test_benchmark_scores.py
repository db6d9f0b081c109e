"""The scores of a run's benchmarks, from its rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gym_runtime.environment import catalogue
from gym_runtime.files.recorded_run import benchmark_scores
from gym_runtime.files.run_metrics import Metrics
from gym_runtime.files.sample import sample_row
from tables import table

PHYSICS, MEDICINE = "Physics", "Medicine"


def stored(agent: str, task: int, rollout: int, reward: float | None, /, **fields: object) -> bytes:
    keys = {"_ng_task_index": task, "_ng_rollout_index": rollout}
    return json.dumps({"agent_ref": {"name": agent}, **keys, "reward": reward, **fields}).encode() + b"\n"


ROWS = [
    stored("gpqa", 0, 0, 1.0, domain=PHYSICS),
    stored("gpqa", 0, 1, 0.0, domain=PHYSICS),
    stored("gpqa", 1, 0, 1.0, domain=MEDICINE),
    stored("gpqa", 1, 1, 1.0, domain=MEDICINE),
    stored("mcqa", 2, 0, 0.0),
    stored("gpqa_simple_agent", 3, 0, 0.0),
    stored("of_a_stranger", 4, 0, 0.0),
]


def test_each_agents_rows_have_their_benchmarks_score(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"".join(ROWS))
    agents = ["gpqa", "mcqa", "gpqa_simple_agent", "of_a_stranger"]
    assert benchmark_scores(path, agents) == {
        "gpqa": {
            "mean@2": 75.0,
            MEDICINE: 100.0,
            PHYSICS: 50.0,
            "spread over repeats": pytest.approx(50 / 2**0.5),  # of 100 and 50
        },
        "gpqa_simple_agent": {"accuracy": 0.0},  # its row has no domain
    }


def test_a_rollout_counts_once_and_a_row_without_a_verdict_or_a_name_not_at_all(tmp_path: Path) -> None:
    """As in the means beside them: `Progress.read`."""
    path = tmp_path / "rows.jsonl"
    nameless = json.dumps({"_ng_task_index": 5, "_ng_rollout_index": 0, "reward": 1.0}).encode() + b"\n"
    unjudged = stored("gpqa", 6, 0, None, domain=PHYSICS)
    again = stored("gpqa", 0, 1, 1.0, domain=PHYSICS)
    path.write_bytes(b"".join([*ROWS[:4], ROWS[0], again, nameless, unjudged]))
    once = tmp_path / "once.jsonl"
    once.write_bytes(b"".join(ROWS[:4]))
    assert benchmark_scores(path, ["gpqa", ""]) == benchmark_scores(once, ["gpqa"])


def test_without_a_benchmark_the_rows_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"no rows")
    assert benchmark_scores(path, ["mcqa"]) == {}
    assert benchmark_scores(tmp_path / "missing.jsonl", ["gpqa"]) == {}


def test_the_score_stands_in_the_aggregate_and_in_the_summary_of_its_agent(tmp_path: Path) -> None:
    metrics = Metrics()
    for line in (ROWS[0], ROWS[4]):
        metrics.add_sample(sample_row(line))
    path = tmp_path / "rows.jsonl"
    path.write_bytes(ROWS[0])
    metrics.scores = benchmark_scores(path, metrics.agents)
    found = {entry["agent_ref"]["name"]: entry for entry in json.loads(b"".join(metrics.aggregate()))}
    assert found["gpqa"]["score"] == {"accuracy": 100.0, PHYSICS: 100.0}
    assert "score" not in found["mcqa"]
    assert metrics.summary("gpqa").score == found["gpqa"]["score"]
    assert metrics.summary().score == metrics.summary("mcqa").score == {}


@table(
    "name",
    [one for one in catalogue.names("environments") if catalogue.environment(one).definition.benchmark],
)
def test_every_score_takes_rollouts_of_the_environments_own_rows(name: str, tmp_path: Path) -> None:
    """With fields as its verdicts have them, of right and of wrong rollouts. Of two environments only the
    published rows have the field, and not the examples."""
    benchmark = catalogue.environment(name).definition.benchmark
    assert benchmark is not None
    verdicts = {
        "reward_answer": 1.0, "category": "Age", "context_condition": "ambig",
        "extracted_answer": "B", "is_correct": True, "is_incorrect": False, "is_not_attempted": False,
        "confidence": 80.0, "follow_all_instructions": True, "follow_all_instructions_loose": True,
        "follow_instruction_list": [True], "follow_instruction_list_loose": [True, False],
        "arena_verdicts": [0.75, None], "field": "general", "answer_f1": 0.5, "grade_off": 1, "kind": "safe",
        "points_share": 0.5, "predicted": True, "expected": True, "is_partial": False, "is_abstained": False,
        "right": True, "right_by_length": False, "num_steps_passed": 1, "num_steps_total": 2,
        "knowledge_range": 1.0, "style_compliance": 0.0, "nested_instruction": None,
        "multi_turn_instruction": None, "instruction_priority": None,
        "languages": "en-de", "bleu_counts": [4, 3, 2, 1, 4, 3, 2, 1, 4, 4],
    }  # fmt: skip
    examples = [json.loads(line) for line in catalogue.environment(name).examples.read_bytes().splitlines()]
    path = tmp_path / "rows.jsonl"
    path.write_bytes(
        b"".join(
            stored(name, task, rollout, float(rollout), **{**verdicts, **example, "gold": None})
            for task, example in enumerate(examples)
            for rollout in range(2)
        )
    )
    score = benchmark_scores(path, [name])[name]
    assert score
    assert all(0 <= figure <= 100 for figure in score.values())
    published = {"xstest": {"kind"}, "finance_sec_search": {"question_type"}}.get(name, set())
    missing = [field for field in benchmark.fields if field not in {*verdicts, *examples[0], *published}]
    assert not missing
