"""Rows of benchmarks with several turns, made of records in their published form."""

from __future__ import annotations

import json
from pathlib import Path

from gym_resources.mini_swe_agent import MiniSweTask
from gym_runtime.environment import catalogue
from resources.benchmarks.test_published_rows import prepared


def test_conversations_have_calls_that_are_read_and_functions_that_come_later(tmp_path: Path) -> None:
    rows = {row["category"]: row for row in prepared("bfcl_multi_turn", tmp_path)}
    assert list(rows) == ["base", "miss_func", "miss_param", "long_context"]
    names = {
        category: [tool["name"] for tool in row["responses_create_params"]["tools"]]
        for category, row in rows.items()
    }
    assert (names["base"], names["miss_func"]) == (["post_tweet", "cd", "sort"], ["post_tweet", "cd"])
    assert [tool["name"] for tool in rows["miss_func"]["added_tools"]["1"]] == ["sort"]
    assert [rows[name]["scenario"]["long_context"] for name in ("base", "long_context")] == [False, True]
    assert [[call["name"] for call in turn] for turn in rows["base"]["expected"]] == [
        ["cd"],
        ["sort"],
        ["post_tweet"],
    ]
    assert rows["base"]["expected"][1][0]["positional"] == ["b.txt"]


def test_issues_keep_their_tests_and_lose_their_hints(tmp_path: Path) -> None:
    [row] = prepared("swebench_verified", tmp_path)
    assert "hints_text" not in row
    assert "A hint" not in json.dumps(row)
    task = catalogue.environment("swebench_verified").resource.task(json.dumps(row).encode())
    assert isinstance(task, MiniSweTask)
    assert task.image == "docker.io/swebench/sweb.eval.x86_64.own_1776_abacus-1:latest"
    assert (task.fail_to_pass, task.version, row["difficulty"]) == (
        ["test_a.py::test_x"],
        "1.0",
        "<15 min fix",
    )
    assert "It is {wrong}." in row["responses_create_params"]["input"][1]["content"]
