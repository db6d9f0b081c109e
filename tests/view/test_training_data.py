"""Rollouts as Parquet: which ones are taken, what the columns hold, and what strange rows do."""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from gym_runtime.errors import UsageError
from gym_runtime.files.stored_images import ImageStore
from gym_view import parquet, training_data
from gym_view.row_messages import Unusable, completion, prompt, tools
from gym_view.training_data import export
from hypothesis import given
from hypothesis import strategies as st

CALL = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'}
ANSWER = {"type": "function_call_output", "call_id": "c1", "output": "2"}


def said(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def row(task: int, rollout: int, reward: Any, output: list[Any] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "responses_create_params": {"input": [{"role": "user", "content": f"question {task}"}]},
        "response": {"model": "m", "output": [said(f"answer {rollout}")] if output is None else output},
        "reward": reward,
        "_ng_task_index": task,
        "_ng_rollout_index": rollout,
        "agent_ref": {"name": "quiz"},
        "expected": "B",
        **more,
    }


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in rows))
    return path


@pytest.fixture
def quiz(tmp_path: Path) -> Path:
    """Two tasks with differing rewards, not in the order of their rollouts; one in which all are equal."""
    rewards = {0: [0.0, 0.5, 1.0, 1.0], 1: [0.25, 0.0, 0.0, 0.75], 2: [1.0, 1.0]}
    rows = [row(task, k, reward) for task, all_ in rewards.items() for k, reward in enumerate(all_)]
    return write(tmp_path / "quiz.jsonl", *reversed(rows))


def taken(path: Path) -> list[tuple[int, int]]:
    return [(one["_ng_task_index"], one["_ng_rollout_index"]) for one in pq.read_table(path).to_pylist()]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 10),
        ({"best_of": 1}, {(0, 0), (1, 0), (2, 0)}),
        ({"best_of": 3}, {(0, 2), (1, 0), (2, 0)}),
        ({"best_of": 4}, {(0, 2), (1, 3), (2, 0)}),
        ({"min_reward": 0.75}, {(0, 2), (0, 3), (1, 3), (2, 0), (2, 1)}),
        ({"best_of": 4, "min_reward": 1.0}, {(0, 2), (2, 0)}),
    ],
)
def test_rejection_sampling_takes_the_best(
    quiz: Path, tmp_path: Path, options: dict[str, Any], expected: set[tuple[int, int]] | int
) -> None:
    found = taken(Path(export([quiz], tmp_path / "a.parquet", **options).files[0]))
    assert len(found) == len(set(found))
    assert (len(found) if isinstance(expected, int) else set(found)) == expected


def test_rollouts_hold_all_of_a_row_also_stored_images(tmp_path: Path) -> None:
    header = bytes.fromhex("0000000d49484452000000010000000108060000001f15c489")
    picture = b64encode(b"\x89PNG\r\n\x1a\n" + header)
    part = {"type": "input_image", "image_url": f"data:image/png;base64,{picture.decode()}"}
    screen = {"type": "function_call_output", "call_id": "c1", "output": [part]}
    ref = {"type": "responses_api_agents", "name": "quiz"}
    whole = row(0, 0, 1.0, [CALL, screen, said("done")], agent_ref=ref)
    path = tmp_path / "quiz.jsonl"
    stored = ImageStore(path, "files").stored(json.dumps(whole).encode())
    assert picture not in stored
    write(path, stored.decode())
    export([path], tmp_path / "a.parquet")
    (found,) = pq.read_table(tmp_path / "a.parquet").to_pylist()
    nested = {name: json.loads(found[name]) for name in ("responses_create_params", "response")}
    fields = json.loads(found["fields"])
    numbers = {name: found[name] for name in ("reward", "_ng_task_index", "_ng_rollout_index")}
    assert {**nested, **fields, **numbers} == whole


def test_a_pair_is_the_best_and_the_worst_of_a_task(quiz: Path, tmp_path: Path) -> None:
    export([quiz], tmp_path / "a.parquet", form="pairs")
    found = {one["_ng_task_index"]: one for one in pq.read_table(tmp_path / "a.parquet").to_pylist()}
    assert set(found) == {0, 1}
    pair = found[1]
    assert (pair["score_chosen"], pair["score_rejected"]) == (0.75, 0.0)
    assert pair["prompt"][0]["content"] == "question 1"
    assert [pair[name][0]["content"] for name in ("chosen", "rejected")] == ["answer 3", "answer 1"]
    with pytest.raises(UsageError, match="no task has rollouts with different rewards"):
        export([quiz], tmp_path / "b.parquet", form="pairs", min_reward=2.0)
    assert not list(tmp_path.glob("*b.parquet*"))


def test_a_conversation_with_tools_is_a_chat() -> None:
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "add them"}]}
    made = row(0, 0, 1.0, [thought, CALL, ANSWER, said("It is 2.")])
    made["responses_create_params"]["instructions"] = "Be brief."
    made["responses_create_params"]["tools"] = [
        {"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": None}
    ]
    assert [message["role"] for message in prompt(made)] == ["system", "user"]
    function = {"name": "add", "arguments": '{"a": 1}'}
    calls = [{"id": "c1", "type": "function", "function": function}]
    assert completion(made) == [
        {"role": "assistant", "content": "", "reasoning_content": "add them", "tool_calls": calls},
        {"role": "tool", "content": "2", "tool_call_id": "c1"},
        {"role": "assistant", "content": "It is 2."},
    ]
    declared = json.loads(tools(made) or "")
    expected = {"name": "add", "parameters": {"type": "object"}}
    assert declared == [{"type": "function", "function": expected}]


def test_everything_of_a_row_is_in_its_columns(tmp_path: Path) -> None:
    made = row(3, 1, 0.5, _gym={"turns": 2, "outcome": {"type": "truncated"}}, reward_components={"a": 1})
    export([write(tmp_path / "a.jsonl", made)], tmp_path / "a.parquet")
    (found,) = pq.read_table(tmp_path / "a.parquet").to_pylist()
    assert (found["outcome"], found["turns"], found["model"]) == ("truncated", 2, "m")
    nested = ("response", "responses_create_params", "reward_components", "_gym")
    again = {name: json.loads(found[name]) for name in nested} | json.loads(found["fields"])
    again |= {name: found[name] for name in ("reward", "_ng_task_index", "_ng_rollout_index")}
    assert again | {"agent_ref": {"name": found["environment"]}} == made


def test_strange_rows_are_left_out_and_said(tmp_path: Path) -> None:
    image = {"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}
    rows = write(
        tmp_path / "a.jsonl",
        row(0, 0, 1.0),
        "no json",
        "[1]",
        row(1, 0, None),
        row(2, 0, "high"),
        row(3, 0, 1.0, []),
        row(4, 0, 1.0, responses_create_params={"input": [image]}),
        row(5, 0, 1.0, [said("x"), {"type": "web_search_call"}]),
        row(6, 0, 1.0, _gym=3, response={"output": [said("\ud800")]}),
        row(7, 0, 1.0, _ng_task_index=10**30),
        json.dumps(row(8, 0, 1.0))[:-20],
    )
    done = export([rows], tmp_path / "a.parquet", form="messages")
    assert done.rows == 2
    assert done.left_out[training_data.NO_ROW] == 4
    assert sum(done.left_out.values()) == 7
    assert any("image" in reason for reason in done.left_out)
    assert pq.read_table(tmp_path / "a.parquet")["_ng_task_index"].to_pylist() == [0, None]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["type", "role", "content", "text", "output"]), inner, max_size=3
            )
        ),
        max_leaves=12,
    )
)
def test_items_of_any_shape_are_a_chat_or_unusable(item: Any) -> None:
    for made in ({"response": {"output": [item]}}, {"responses_create_params": {"input": item}}):
        for read in (prompt, completion):
            try:
                assert all(isinstance(message["content"], str) for message in read(made))
            except Unusable:
                continue


def test_a_target_that_is_there_is_kept(quiz: Path, tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("mine")
    with pytest.raises(UsageError, match="is there already"):
        export([quiz], tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").read_text() == "mine"


def test_without_pyarrow_the_error_says_what_to_install(
    quiz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"gym-runtime\[parquet\]"):
        export([quiz], tmp_path / "a.parquet")


def test_groups_and_shards_are_bounded(quiz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "GROUP_BYTES", 700)
    monkeypatch.setattr(parquet, "SHARD_BYTES", 1400)
    done = export([quiz, quiz], tmp_path / "folder")
    assert done.rows == 20
    assert len(done.files) > 3
    assert sum(pq.read_metadata(path).num_rows for path in done.files) == 20


@pytest.mark.slow
def test_the_datasets_library_reads_a_folder(quiz: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "gym_runtime.cli.main",
        "export",
        str(quiz),
        "-o",
        str(tmp_path / "data"),
    ]
    done = subprocess.run([*command, "--format", "messages", "--json"], check=True, capture_output=True)
    assert json.loads(done.stdout)["rows"] == 10
    script = (
        "import datasets, sys\n"
        "found = datasets.load_dataset(sys.argv[1], split='train', cache_dir=sys.argv[2])\n"
        "print(len(found), found[0]['messages'][0]['role'])"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "data"), str(tmp_path / "cache")],
        check=True, capture_output=True, env={"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert loaded.stdout.split() == [b"10", b"user"]
