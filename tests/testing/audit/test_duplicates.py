"""Prompts that occur twice: within a file, and in another one."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from gym_runtime.errors import UsageError
from gym_testing.audit.duplicates import ALIKE, SHINGLE, alike, duplicates

WORDS = [f"word{number}" for number in range(400)]


def write(path: Path, prompts: list[object]) -> Path:
    lines = [json.dumps({"responses_create_params": {"input": prompt}}) for prompt in prompts]
    path.write_text("\n".join([*lines, "", ""]))
    return path


def test_the_filter_leaves_no_pair_out() -> None:
    chance = random.Random(0)
    texts: list[list[str]] = []
    for _ in range(60):
        text = chance.choices(WORDS, k=chance.randrange(1, 80))
        texts += [text, [*text, "more"], [*text[: len(text) // 2], "other", *text[len(text) // 2 :]]]

    def grams(text: list[str]) -> set[tuple[str, ...]]:
        return {tuple(text[start : start + SHINGLE]) for start in range(max(1, len(text) - SHINGLE + 1))}

    sets = [grams(text) for text in texts]
    pairs = {
        (one, other)
        for other in range(len(sets))
        for one in range(other)
        if len(sets[one] & sets[other]) >= ALIKE * len(sets[one] | sets[other])
    }
    assert len(pairs) > 60
    assert set(alike(texts)) == pairs


def test_rows_that_another_file_has(tmp_path: Path) -> None:
    chance = random.Random(1)
    long, other = (" ".join(chance.choices(WORDS, k=60)) for _ in range(2))
    items = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"text": long.upper()}]},
    ]
    rows = write(tmp_path / "rows.jsonl", [long, "What is 2 + 2?", items, other, f"{other[:200]} and more"])
    test = write(tmp_path / "test.jsonl", [f"Please: {long}", "what is  2 + 2?"])
    found = duplicates(rows, [test])
    assert (found.prompts, found.within, found.pairs) == (5, 2, [[1, 3]])
    [overlap] = found.against.values()
    assert (overlap.contains, overlap.touches, overlap.rows) == (3, 3, [1, 2, 3])


def test_the_benchmarks_of_the_catalogue_that_are_here_are_compared(tmp_path: Path) -> None:
    chance = random.Random(2)
    prompts: list[object] = [" ".join(chance.choices(WORDS, k=20)) for _ in range(4)]
    rows = write(tmp_path / "rows.jsonl", prompts)
    published = {
        "has_two": write(tmp_path / "two.jsonl", [prompts[3], "Other.", prompts[0]]),
        "has_none": write(tmp_path / "none.jsonl", ["Other."]),
        "itself": rows,
        "absent": tmp_path / "absent.jsonl",
        "broken": tmp_path / "broken.jsonl",
    }
    published["broken"].write_text("{")
    found = duplicates(rows, published=published)
    assert {name: one.rows for name, one in found.against.items()} == {"has_two": [1, 4], "has_none": []}
    assert found.not_compared["itself"] == "these are its rows"
    assert found.not_compared["absent"] == "its rows are not here: gym-runtime prepare absent"
    assert "broken.jsonl:1: not a row" in found.not_compared["broken"]
    late = duplicates(rows, published=published, seconds=0)
    assert not late.against
    assert late.not_compared["has_two"].startswith("the time was over")


@pytest.mark.slow
def test_very_many_equal_prompts_take_no_square_of_time(tmp_path: Path) -> None:
    found = duplicates(write(tmp_path / "rows.jsonl", ["Say something, please, in a few words."] * 5_000))
    assert found.within == 5_000


def test_what_is_no_row_is_said(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"a": 1}')
    rows = write(tmp_path / "rows.jsonl", ["What?"])
    with pytest.raises(UsageError, match=r"bad.jsonl:1: not a row"):
        duplicates(rows, [tmp_path / "bad.jsonl"])
    with pytest.raises(UsageError, match="there is no file"):
        duplicates(rows, [tmp_path / "none.jsonl"])
