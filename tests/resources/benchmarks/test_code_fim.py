"""Code with a gap: what counts as the missing piece, and rows of the published files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gym_resources.benchmarks import code_fim
from gym_resources.code.fenced_programs import between, closed_block
from resources.benchmarks.test_published_rows import prepared
from resources.judging import judge, row, usable

pytestmark = pytest.mark.anyio
ROWS = [json.loads(line) for line in Path(code_fim.__file__).with_suffix(".jsonl").read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "said", "reward"),
    [
        (0, "Well:\n```python\n        if best < gap:\n```", 1.0),
        (0, "```python\n    for gap in gaps:\n        if best < gap:\n```", 1.0),
        (0, "```python\n        if best < gap:\n            best = gap\n    return best\n```", 1.0),
        (0, "```python\nif best < gap:\n```", 0.0),
        (0, "        if best < gap:\n", 0.0),
        (0, "```python\n        if best < gap:\n", 0.0),
        (3, "```python\n(items[place], items[place + 1])```", 1.0),
        (3, "```python\n(items[place], items[place + 1]))\n    return found\n```", 1.0),
        (3, "```python\nitems[place]```", 0.0),
        (1, "```python\n''\nraise SystemExit(0)\n```", 0.0),
        (1, "<think>```python\nx```</think>```\n''.join(part[0] for part in parts).upper()```", 1.0),
    ],
)
async def test_what_is_the_missing_piece(number: int, said: str, reward: float) -> None:
    usable("code_fim")
    metadata = ROWS[number]["verifier_metadata"]
    assert (await judge("code_fim", row(verifier_metadata=metadata), said)).reward == reward


@pytest.mark.parametrize(
    ("text", "block"),
    [
        ("no block", None),
        ("```", None),
        ("```py\nx\n``` ```", "x\n"),
        ("```x```", "x"),
        ("```\na```b```\nc```", "c"),
    ],
)
def test_the_last_closed_block(text: str, block: str | None) -> None:
    assert closed_block(text) == block


def test_what_repeats_the_context_is_taken_off_in_linear_time() -> None:
    assert between("ab", "abc", "cd") == ["abc", "ab", "c", ""]
    assert between("", "x", "") == ["x"]
    assert between("a" * 100_000 + "b", "a" * 100_000, "a")[-1] == "a" * 99_999


def test_rows_have_the_original_benchmarks_tests() -> None:
    plus: dict[str, Any] = {
        "task_id": "HumanEval/7",
        "entry_point": "double",
        "prompt": "def double(x):\n",
        "canonical_solution": "    return 2 * x\n",
        "test": "inputs = [[1], [2], [9]]\nresults = [2, 4, 18]\n"
        "for i, (inp, exp) in enumerate(zip(inputs, results)):\n    assertion(candidate(*inp), exp, 0)\n",
    }
    original = {"task_id": "HumanEval/7", "test": "def check(candidate):\n    assert candidate(9) == 18\n"}
    gap = {"task_id": "SingleLineInfilling/HumanEval/7/L0", "prompt": "def double(x):\n", "suffix": ""}
    [made] = code_fim.rows(iter([gap]), iter([plus]), iter([original]))
    assert made["prefix"] == "def double(x):\n"
    assert made["verifier_metadata"]["inputs"] == [[9]]
    assert made["verifier_metadata"]["outputs"] == [18]
    assert made["verifier_metadata"]["task_id"] == gap["task_id"]


def test_the_published_files_become_rows_with_the_prompt(tmp_path: Path) -> None:
    [made] = prepared("code_fim", tmp_path)
    assert "Prefix:\n```python\ndef half(n):" in made["responses_create_params"]["input"][0]["content"]
    assert made["verifier_metadata"]["inputs"] == [[1], [-3]]
