"""The page's filter language and sorting, against what Python selects from the same rows."""

from __future__ import annotations

import base64
import json
import math
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gym_view.index import read_index
from gym_view.indexing import index_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from view import node

SELECT = """
const { Columns } = await import(src + "/columns.js");
const { parse, select, sorted, withTerm } = await import(src + "/query.js");
const answer = ({ records, queries, sorts = [], replace = [] }) => {
  const columns = new Columns();
  columns.add(0, Uint8Array.from(atob(records), (c) => c.charCodeAt(0)).buffer);
  columns.supersede();
  return {
    found: queries.map((query) => parse(query).error || [...select(columns, parse(query).terms)]),
    sorted: sorts.map((by) => [...sorted(columns, select(columns, []), by)]),
    replaced: replace.map((args) => withTerm(...args)),
    texts: queries.map((query) => parse(query).texts),
  };
};
"""


def rows(count: int) -> list[dict[str, Any]]:
    return [
        {
            "responses_create_params": {"input": f"task {number // 4}"},
            "response": {
                "id": f"r{number}",
                "usage": {"input_tokens": 7, "output_tokens": (number * 37) % 101},
            },
            "reward": [0.0, 1.0, 0.1, None][number % 4],
            "_ng_task_index": number // 4,
            "_ng_rollout_index": number % 4,
            "agent_ref": {"name": ["mcqa", "x s test", "code_gen"][number % 3]},
            "_gym": {
                "outcome": [{"type": "completed"}, {"type": "truncated", "reason": "max_turns"}][number % 2],
                "turns": number % 5,
                "duration_s": number * 0.1,
            },
        }
        for number in range(count)
    ]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path: Path = tmp_path_factory.mktemp("query") / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows(60)))
    return index_of(path)


def ask(records: bytes, **given: Any) -> Any:
    return node.run(SELECT, {"records": base64.b64encode(records).decode(), "queries": [], **given})


def test_terms(records: bytes) -> None:
    made = [row.entry for row in read_index(records)]
    expected: dict[str, Callable[[Any], bool]] = {
        "": lambda row: True,
        "reward<1": lambda row: row.reward < 1,
        "reward=0.1": lambda row: row.reward == 0.1,
        "reward=none": lambda row: math.isnan(row.reward),
        "reward=0,1": lambda row: row.reward in (0, 1),
        "reward!=0": lambda row: row.reward != 0,
        "env=mcqa": lambda row: row.environment == "mcqa",
        "env=mcqa,code_gen turns>=2": lambda row: row.environment in ("mcqa", "code_gen") and row.turns >= 2,
        'env="x s test"': lambda row: row.environment == "x s test",
        "env!=c*": lambda row: row.environment != "code_gen",
        "outcome=truncated out>50": lambda row: row.outcome == 1 and row.output_tokens > 50,
        "fault=max_turns": lambda row: row.outcome == 1,
        "fault=limit": lambda row: row.outcome == 1,
        "time>=2s time<3000ms": lambda row: 2 <= round(row.duration_s, 3) < 3,
        "in=7 task=3": lambda row: row.task == 3,
        "size>1k": lambda row: False,
    }
    found = ask(records, queries=list(expected))["found"]
    for (query, test), numbers in zip(expected.items(), found, strict=True):
        assert numbers == [number for number, row in enumerate(made) if test(row)], query


def test_what_cannot_be_asked_is_said(records: bytes) -> None:
    unknown, no_number, name = ask(records, queries=["rewrd<1", "reward<one", "env<mcqa"])["found"]
    assert "no field “rewrd”" in unknown
    assert "reward" in unknown
    assert no_number == "“one” is not a number, which reward is compared with."
    assert name == "env is a name: use = or !=."


def test_words_are_texts(records: bytes) -> None:
    (texts,) = ask(records, queries=['reward<1 "a \\"b\\" c" word'])["texts"]
    assert texts == ['a "b" c', "word"]


def test_a_bar_replaces_its_own_term_only(records: bytes) -> None:
    replace = [
        ["reward<1 env=mcqa turns>3", "reward", "=1"],
        ["", "out", ">=5", "<6"],
        ["time>1 time<2", "time"],
    ]
    assert ask(records, replace=replace)["replaced"] == ["env=mcqa turns>3 reward=1", "out>=5 out<6", ""]


def test_sorting_is_stable_and_puts_missing_values_last(records: bytes) -> None:
    made = [row.entry for row in read_index(records)]
    numbers = range(len(made))
    keys: dict[str, Callable[[int], Any]] = {
        "out": lambda row: made[row].output_tokens,
        "-out": lambda row: -made[row].output_tokens,
        "-turns": lambda row: -made[row].turns,
        "reward": lambda row: (math.isnan(made[row].reward), made[row].reward),
        "-reward": lambda row: (math.isnan(made[row].reward), -made[row].reward),
        "-row": operator.neg,
    }
    keys["reward"] = lambda row: (1, 0) if math.isnan(made[row].reward) else (0, made[row].reward)
    keys["-reward"] = lambda row: (1, 0) if math.isnan(made[row].reward) else (0, -made[row].reward)
    for by, found in zip(keys, ask(records, sorts=list(keys))["sorted"], strict=True):
        assert found == sorted(numbers, key=keys[by]), by


@pytest.mark.slow
@given(query=st.text(max_size=40))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=15)
def test_any_text_is_a_query(query: str, records: bytes) -> None:
    (found,) = ask(records, queries=[query.encode(errors="replace").decode()])["found"]
    assert isinstance(found, (str, list))
