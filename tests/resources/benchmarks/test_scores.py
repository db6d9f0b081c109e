"""What benchmarks' authors report, on rollouts made by hand."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest
from gym_resources.benchmarks import (
    bfcl,
    bfcl_multi_turn,
    browsecomp,
    hle,
    ifbench,
    ifeval,
    simpleqa,
    swebench_verified,
)
from gym_resources.benchmarks.scoring.calibration import BIN, calibration_error, half_width
from gym_resources.benchmarks.scoring.reliability import pass_hat
from gym_resources.benchmarks.scoring.shares import accuracy, accuracy_and_majority, by_category
from gym_runtime import ScoredRollout
from tables import table


def rollouts(*tasks: list[tuple[float, Mapping[str, Any]]]) -> list[ScoredRollout]:
    """Tasks as lists of rewards with fields."""
    return [
        ScoredRollout(index, reward, dict(fields))
        for index, task in enumerate(tasks)
        for reward, fields in task
    ]


def answers(*given: str | None, right: str = "7") -> list[tuple[float, Mapping[str, Any]]]:
    return [(float(answer == right), {"extracted_answer": answer}) for answer in given]


def test_each_task_counts_the_same_however_many_of_its_rollouts_have_a_verdict() -> None:
    found = rollouts([(1.0, {}), (1.0, {}), (0.0, {}), (0.0, {})], [(1.0, {})])
    assert accuracy(found) == {"mean@4": 75.0}
    assert accuracy(rollouts([(1.0, {})], [(0.0, {})])) == {"accuracy": 50.0}


@table(
    ("given", "majority"),
    [
        (("7", "7", "8"), 100.0),
        (("8", "8", "7"), 0.0),
        (("7", "8", "9"), pytest.approx(100 / 3)),  # equally frequent: their mean
        (("7", "8", None), 50.0),
        (("7", None, None), 100.0),  # who gives no answer has no vote
        ((None, None, None), 0.0),
    ],
)
def test_the_most_frequent_answer_decides(given: tuple[str | None, ...], majority: float) -> None:
    found = accuracy_and_majority(rollouts(answers(*given)))
    assert found == {"mean@3": pytest.approx(100 * given.count("7") / 3), "majority@3": majority}


def test_all_of_k_attempts_succeed() -> None:
    found = rollouts([(1.0, {})] * 3 + [(0.0, {})], [(1.0, {})] * 4, [(0.5, {})] * 4)
    assert pass_hat(found) == {
        "pass^1": pytest.approx(100 * (3 / 4 + 1) / 3),
        "pass^2": pytest.approx(100 * (3 / 6 + 1) / 3),
        "pass^3": pytest.approx(100 * (1 / 4 + 1) / 3),
        "pass^4": pytest.approx(100 / 3),
    }
    assert pass_hat(rollouts([(1.0, {})] * 2, [(1.0, {})])) == {"pass^1": 100.0}


def test_one_rollout_of_a_task_has_no_majority() -> None:
    assert accuracy_and_majority(rollouts(answers("7"))) == {"accuracy": 100.0}


def test_browsecomp_has_a_calibration_error_with_enough_answers() -> None:
    sure = [(1.0, {"confidence": 80.0})]
    assert browsecomp.score(rollouts(sure)) == {"accuracy": 100.0}
    found = browsecomp.score(rollouts(*[sure] * (2 * BIN)))
    assert found == {"accuracy": 100.0, "calibration error": pytest.approx(20 * 0.5**0.5)}


def test_categories_follow_the_whole() -> None:
    found = by_category(rollouts([(1.0, {"c": "b"})], [(0.0, {"c": "a"})], [(0.0, {"c": None})]), "c")
    assert list(found) == ["accuracy", "a", "b"]
    assert (found["accuracy"], found["a"], found["b"]) == (pytest.approx(100 / 3), 0.0, 100.0)


def test_categories_of_conversations_count_the_same() -> None:
    found = bfcl_multi_turn.score(
        rollouts(
            [(1.0, {"category": "base"})], [(0.0, {"category": "base"})], [(1.0, {"category": "miss_func"})]
        )
    )
    assert found == {"multi-turn": 75.0, "category base": 50.0, "category miss_func": 100.0}


def test_resolved_issues_are_counted_by_repository_and_difficulty() -> None:
    found = swebench_verified.score(
        rollouts(
            [(1.0, {"repo": "b/b", "difficulty": ">4 hours"})],
            [(0.0, {"repo": "a/a", "difficulty": None})],
            [(0.0, {"repo": "b/b", "difficulty": ">4 hours"})],
        )
    )
    assert list(found) == ["accuracy", "a/a", "b/b", "difficulty >4 hours"]
    assert (found["accuracy"], found["b/b"]) == (pytest.approx(100 / 3), 50.0)


def graded(correct: int, incorrect: int, not_attempted: int) -> list[ScoredRollout]:
    letters = "A" * correct + "B" * incorrect + "C" * not_attempted
    fields = [
        {name: letter == own for name, own in zip(simpleqa.SHARES, simpleqa.GRADES, strict=True)}
        for letter in letters
    ]
    return rollouts(*([(float(one["is_correct"]), one)] for one in fields))


def test_f1_joins_what_is_correct_and_what_is_correct_of_the_attempts() -> None:
    assert simpleqa.score(graded(3, 1, 6)) == {
        "f1": pytest.approx(2 * 75 * 30 / 105),
        "correct": 30.0,
        "incorrect": 10.0,
        "not attempted": 60.0,
        "correct given attempted": 75.0,
    }
    assert simpleqa.score(graded(0, 0, 2))["f1"] == simpleqa.score(graded(0, 2, 0))["f1"] == 0.0


def test_the_calibration_error_is_over_bins_of_a_hundred_but_the_last() -> None:
    # 100 answers that are sure of 0 % and right in 20, 100 sure of 60 % and right in 30, and a last bin.
    confidences = [0.0] * 100 + [60.0] * 100 + [90.0] * 150
    rewards = [1.0] * 20 + [0.0] * 80 + [1.0] * 30 + [0.0] * 70 + [0.0] * 150
    expected = ((100 * 20**2 + 100 * 30**2) / 350) ** 0.5
    assert calibration_error(confidences, rewards) == pytest.approx(expected)
    together = list(zip(confidences, rewards, strict=True))
    random.Random(1).shuffle(together)
    shuffled = calibration_error([sure for sure, _ in together], [right for _, right in together])
    assert shuffled is not None
    assert shuffled > 0
    assert calibration_error([50.0] * (2 * BIN - 1), [1.0] * (2 * BIN - 1)) is None
    assert calibration_error([50.0] * 2 * BIN, [1.0] * 2 * BIN) == pytest.approx((BIN * 50**2 / 200) ** 0.5)


def test_humanitys_last_exam_has_an_interval_and_its_categories() -> None:
    found = hle.score(
        rollouts(
            [(1.0, {"category": "Math", "confidence": 80.0})],
            [(0.0, {"category": "Chemistry", "confidence": 100.0})],
        )
    )
    assert list(found) == ["accuracy", "95 % interval ±", "Chemistry", "Math"]
    assert (found["accuracy"], found["Math"]) == (50.0, 100.0)
    assert found["95 % interval ±"] == half_width(50.0, 2) == pytest.approx(98 * 0.5**0.5)
    shown = hle.score(
        rollouts(
            *(
                [(reward, {"category": "Math", "confidence": 1.0, "has_image": image})]
                for reward, image in ((1.0, True), (0.0, True), (1.0, False))
            )
        )
    )
    assert (shown["with image"], shown["without image"]) == (50.0, 100.0)


def test_instructions_and_prompts_are_counted_apart() -> None:
    def followed(strict: list[bool], loose: list[bool]) -> list[tuple[float, Mapping[str, Any]]]:
        fields = {
            "follow_all_instructions": all(strict),
            "follow_all_instructions_loose": all(loose),
            ifeval.STRICT: strict,
            ifeval.LOOSE: loose,
        }
        return [(float(all(strict)), fields)]

    found = rollouts(followed([True, False, False], [True, True, True]), followed([True], [True]))
    assert ifeval.score(found) == {
        "prompt strict": 50.0,
        "instruction strict": 50.0,
        "prompt loose": 100.0,
        "instruction loose": 100.0,
    }
    assert next(iter(ifbench.score(found))) == "prompt loose"


def test_the_leaderboards_summaries_weigh_categories_or_rows() -> None:
    def of(category: str, *rewards: float) -> list[list[tuple[float, Mapping[str, Any]]]]:
        return [[(reward, {"category": category})] for reward in rewards]

    found = bfcl.score(
        rollouts(
            *of("simple", 1, 1, 0, 0),
            *of("multiple", 1),
            *of("live_simple", 1, 1, 1),
            *of("live_parallel", 0),
            *of("irrelevance", 1),
            *of("live_irrelevance", 0, 0, 0),
            *of("live_relevance", 1),
        )
    )
    assert list(found)[:3] == ["non-live AST", "live AST", "irrelevance"]
    assert (found["non-live AST"], found["live AST"], found["irrelevance"]) == (75.0, 75.0, 50.0)
    assert found["category live_relevance"] == 100.0
    languages = bfcl.score(
        rollouts(*of("simple", 1), *of("java", 0), *of("javascript", 1, 0), *of("multiple", 1))
    )
    assert languages["non-live AST"] == 75.0  # of simple in three languages, 50, and of multiple
    assert bfcl.score(rollouts(*of("live_relevance", 0))) == {"category live_relevance": 0.0}
