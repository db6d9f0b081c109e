"""Rows of sets in many languages and files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gym_resources.benchmarks import livecodebench_x
from gym_resources.published_sets.theorems import score
from gym_runtime import ScoredRollout
from resources.benchmarks.published_records import problem
from resources.benchmarks.test_published_rows import prepared


def asked(row: dict[str, Any]) -> str:
    return row["responses_create_params"]["input"][-1]["content"]


@pytest.mark.parametrize("name", ["aime24_x", "aime25_x", "gpqa_x"])
def test_translations_ask_in_their_language(name: str, tmp_path: Path) -> None:
    rows = prepared(name, tmp_path)
    assert [row["language"] for row in rows] == ["de", "es", "fr", "ja"]
    assert "\\boxed{}" in asked(rows[0])
    assert asked(rows[0]).startswith("Löse")
    assert [row["language"] for row in prepared(name, tmp_path, "ja")] == ["ja"]


@pytest.mark.parametrize(
    ("name", "letter", "count"),
    [
        ("mmlu", "D", 1),
        ("mmlu_prox", "E", 29),
        ("mmmlu", "D", 14),
        ("global_piqa", "B", 14),
        ("supergpqa", "E", 1),
        ("arc_challenge", "C", 1),
        ("openbookqa", "C", 1),
        ("commonsense_qa", "C", 1),
    ],
)
def test_questions_have_their_options_and_letter(name: str, letter: str, count: int, tmp_path: Path) -> None:
    rows = prepared(name, tmp_path)
    assert (len(rows), {row["expected_answer"] for row in rows}) == (count, {letter})
    assert len({row.get("language") for row in rows}) == count
    for row in rows:
        assert asked(row).endswith(row["options_text"])
        assert [list(option) for option in row["options"]] == [
            [one] for one in "ABCDE"[: len(row["options"])]
        ]


def test_questions_with_errors_are_put_right_or_left_out(tmp_path: Path) -> None:
    rows = prepared("mmlu_redux", tmp_path)
    assert len(rows) == 56 + 2
    assert [row["expected_answer"] for row in rows if row["subject"] == "anatomy"] == ["D", "B"]


def test_long_contexts_stand_in_the_prompt_only(tmp_path: Path) -> None:
    [row] = prepared("longbench_v2", tmp_path)
    assert "<text>\nOnce {upon} a time.\n</text>" in asked(row)
    assert ("context" in row, row["expected_answer"], row["length"]) == (False, "B", "long")
    [code] = prepared("longcodebench", tmp_path)
    assert asked(code).startswith("Code.\n\nThe last line")
    assert (code["expected_answer"], code["is_hard"]) == ("B", True)


@pytest.mark.parametrize("name", ["minif2f", "proofnet", "mobench"])
def test_theorems_lose_the_hole_for_their_proof(name: str, tmp_path: Path) -> None:
    [row] = prepared(name, tmp_path)
    assert row["formal_statement"] == "theorem t : True := by\n"
    assert row["header"].startswith("import Mathlib")
    assert "/-- T. -/\ntheorem t : True := by\n  sorry\n```" in asked(row)


def test_answers_stand_in_the_statements_of_a_competition(tmp_path: Path) -> None:
    [row] = prepared("putnam_bench", tmp_path)
    assert row["header"] == "import Mathlib\n\nabbrev putnam_1_solution : ℕ := 2 + 2\n"
    assert row["formal_statement"] == "theorem putnam_1 : 4 = putnam_1_solution := by\n"
    assert (row["informal_prefix"], row["name"]) == ("/-- Four? -/\n", "putnam_1")


def test_the_score_of_theorems_is_that_of_the_best_rollout() -> None:
    rollouts = [ScoredRollout(task, reward) for task, reward in ((0, 0.0), (0, 1.0), (1, 0.0), (1, 0.0))]
    assert score(rollouts) == {"pass@2": 50.0, "mean@2": 25.0}


@pytest.mark.parametrize("name", ["financebench", "secque"])
def test_questions_on_filings_have_their_pages_once(name: str, tmp_path: Path) -> None:
    row = prepared(name, tmp_path)[0]
    assert (asked(row).count("Page."), row["expected_answer"]) == (1, "$1")
    assert asked(row).endswith("\n\nQUESTION: How much?")


def test_prompts_of_exaggerated_safety_and_questions_to_filings(tmp_path: Path) -> None:
    [row] = prepared("xstest", tmp_path)
    assert (asked(row), row["verifier_metadata"]["label"], row["kind"]) == ("Kill a process?", "safe", "safe")
    [row] = prepared("finance_sec_search", tmp_path)
    assert (asked(row), row["expected_answer"]) == ("How much?", "$1")


def test_translated_problems_have_the_tests_of_their_originals() -> None:
    files: list[list[dict[str, Any]]] = [
        [{"question": f"In {one}", "task_id": "q2025"}] for one in ("de", "es", "fr", "ja")
    ]
    files += [[problem("2024"), problem("2025")]]
    rows = list(livecodebench_x.rows(*map(iter, files)))
    assert [(row["question"], row["language"]) for row in rows[:2]] == [("In de", "de"), ("In es", "es")]
    assert all(len(row["verifier_metadata"]["unit_tests"]["inputs"]) == 3 for row in rows)
    with pytest.raises(ValueError, match="the problem q2025 is in none of"):
        list(livecodebench_x.rows(*map(iter, files[:4]), iter([problem("2024")])))
    assert json.dumps(rows)


def test_what_is_compared_by_rules_comes_with_its_answers(tmp_path: Path) -> None:
    [walk] = prepared("graphwalks", tmp_path)
    assert (asked(walk), walk["expected_answer"]) == ("Walk.", ["a", "b"])
    assert [row["n_needles"] for row in prepared("mrcr", tmp_path)] == [2, 2, 4, 4, 8, 8]
    [short] = prepared("hotpotqa_qa", tmp_path)
    assert (short["expected_answer"], '{"answer": "<your answer>"}' in asked(short)) == ("She", True)
    [named] = prepared("structeval", tmp_path)
    assert (asked(named), named["output_type"]) == ("Write.", "JSON")
    segments = prepared("wmt_translation", tmp_path)
    assert len(segments) == 9
    assert segments[0]["translation"] == "en-de_DE.jsonl"


def test_what_is_judged_comes_with_its_references(tmp_path: Path) -> None:
    [memory] = prepared("longmemeval", tmp_path)
    assert (memory["verifier_metadata"]["answer"], memory["verifier_metadata"]["abstention"]) == ("4", True)
    assert 'Chat of 2025/01/01:\n[{"role": "user", "content": "Hi."}]\n\nToday is' in asked(memory)
    hard, creative = prepared("arena_judge", tmp_path)
    assert "o3-mini" in hard["baseline_answer"]
    assert "gemini" in creative["baseline_answer"]
    [problem_] = prepared("imo_answerbench", tmp_path)
    assert (problem_["expected_answer"], problem_["category"]) == ("3", "Algebra")
    rows = prepared("polymath", tmp_path)
    assert (len(rows), rows[3]["weight"], rows[3]["language"]) == (72, 8.0, "ar")
    assert prepared("frontierscience_judge", tmp_path)[0]["grading"] == "answer"
    assert prepared("frontierscience_judge", tmp_path, "research")[0]["grading"] == "rubric"
