"""The index of result rows: what it says of any line, and that it never lies about the file."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gym_runtime.files import sample_row
from gym_view.index import (
    HEADER_BYTES,
    RECORD_BYTES,
    IndexedRow,
    IndexFile,
    index_path,
    read_index,
)
from gym_view.index_entry import OUTCOMES, IndexEntry, pattern, read_entry
from gym_view.indexing import complete_index, index_of, indexed
from hypothesis import given
from hypothesis import strategies as st
from tables import table

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The indices of these tests, apart from the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GYM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


ROW: dict[str, Any] = {
    "responses_create_params": {"input": [{"role": "user", "content": "2 + 2?"}]},
    "response": {"id": "r", "created_at": 1790000000.5, "usage": {"input_tokens": 7, "output_tokens": 9}},
    "reward": 0.5,
    "_ng_task_index": 3,
    "_ng_rollout_index": 1,
    "agent_ref": {"name": "mcqa"},
    "_gym": {"attempt": 2, "outcome": {"type": "completed"}, "turns": 4, "tool_calls": 3, "duration_s": 1.5},
}


def line(**changes: Any) -> bytes:
    return json.dumps({**ROW, **changes}).encode()


def entries(rows: Path) -> list[IndexedRow]:
    return list(read_index(index_path(rows).read_bytes()[HEADER_BYTES:]))


def index(rows: Path) -> list[IndexedRow]:
    for _ in complete_index(rows):
        pass
    return entries(rows)


def test_an_entry_says_what_one_filters_by() -> None:
    assert read_entry(line(), 0) == IndexEntry(
        task=3,
        rollout=1,
        environment="mcqa",
        outcome=OUTCOMES.index("completed"),
        reward=0.5,
        attempt=2,
        turns=4,
        tool_calls=3,
        input_tokens=7,
        output_tokens=9,
        duration_s=1.5,
        created_s=1790000000,
        key=read_entry(line(), 0).key,
    )


def test_a_failure_has_no_reward_and_says_whose_fault_it_was() -> None:
    fault = {"kind": "model", "stage": "turn", "message": "no answer from 10.0.0.7:8000 after 30.5 s"}
    entry = read_entry(line(_ng_failure_class="model", _ng_failure=fault), 0)
    assert OUTCOMES[entry.outcome] == "failed"
    assert math.isnan(entry.reward)
    assert entry.fault == "model\x1fturn\x1fno answer from … after … s"


def test_names_of_any_length_are_cut() -> None:
    fault = {"kind": "k" * 100_000, "stage": "s" * 100_000, "message": "m" * 100_000}
    row = line(_ng_failure_class="model", _ng_failure=fault, agent_ref={"name": "n" * 100_000})
    entry = read_entry(row, 0)
    assert entry.environment == "n" * 500
    assert [len(part) for part in entry.fault.split("\x1f")] == [500, 500, 160]


def test_a_row_of_nemo_gym() -> None:
    theirs = {name: ROW[name] for name in ("responses_create_params", "response", "reward", "agent_ref")}
    theirs["response"]["output"] = [{"type": "function_call_output", "call_id": "c", "output": "4"}]
    theirs["response"]["incomplete_details"] = {"reason": "max_output_tokens"}
    entry = read_entry(json.dumps(theirs).encode(), 17)
    assert (entry.task, entry.rollout, entry.tool_calls) == (17, 0, 1)
    assert (OUTCOMES[entry.outcome], entry.fault) == ("truncated", "limit\x1f\x1fmax_output_tokens")
    judged = {**theirs, "_ng_failure_class": "judge_failed", "_ng_failure_judge_error": "no verdict in it"}
    assert read_entry(json.dumps(judged).encode(), 0).fault == "judge_failed\x1f\x1fno verdict in it"


@table("reward", [True, False])
def test_a_reward_that_is_a_boolean_is_a_number_as_in_metrics(reward: bool) -> None:
    line = json.dumps({**ROW, "reward": reward}).encode()
    assert read_entry(line, 0).reward == sample_row(line).reward == float(reward)


def test_the_key_of_a_prompt_does_not_depend_on_its_layout() -> None:
    prompt = {"input": [{"role": "user", "content": 'é "2 + 2"?'}]}
    layouts = [
        json.dumps(prompt),
        json.dumps(prompt, ensure_ascii=False),
        json.dumps(prompt, separators=(",", ":")),
        json.dumps(prompt, indent=1),
    ]
    keys = {read_entry(b'{"responses_create_params":%s}' % one.encode(), 0).key for one in layouts}
    assert len(keys) == 1
    other = {"input": [{"role": "user", "content": 'é "2 - 2"?'}]}
    assert read_entry(line(responses_create_params=other), 0).key not in keys


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("task 17 of run 'abc': no answer", "task … of run …: no answer"),
        ("deadline after 30.5 s", "deadline after … s"),
        ("request 0af3bb9e-1111-2222-3333-0123456789ab failed", "request … failed"),
        ("the verifier raised KeyError", "the verifier raised KeyError"),
    ],
)
def test_equal_failures_have_equal_patterns(message: str, expected: str) -> None:
    assert pattern(message) == expected


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(
    changes=st.dictionaries(st.sampled_from([*ROW, "_ng_failure_class", "_ng_failure"]), ANYTHING),
    position=st.integers(0, 2**40),
)
def test_any_row_has_an_entry_that_fits_a_record(
    changes: dict[str, Any], position: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = line(**changes)
    entry = read_entry(text, position)
    assert 0 <= entry.task < 2**32
    rows = tmp_path_factory.mktemp("any") / "rows.jsonl"
    rows.write_bytes(text + b"\n")
    (found,) = index(rows)
    assert (found.offset, found.size) == (0, len(text) + 1)


@given(data=st.binary(max_size=300))
def test_any_bytes_can_be_indexed(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    rows = tmp_path_factory.mktemp("any") / "rows.jsonl"
    rows.write_bytes(line() + b"\n" + data)
    found = index(rows)
    whole = line() + b"\n" + data
    for row in found:
        assert whole[: row.offset].endswith(b"\n") or row.offset == 0
        assert whole[row.offset : row.offset + row.size].strip()


def test_an_index_that_is_continued_is_as_one_made_at_once(tmp_path: Path) -> None:
    rows = tmp_path / "out.jsonl"
    for task in range(9):
        with rows.open("ab") as file:
            file.write(line(_ng_task_index=task, agent_ref={"name": f"environment-{task // 2}"}) + b"\n")
        index(rows)
    assert index_path(rows).read_bytes()[HEADER_BYTES:] == index_of(rows)
    assert [row.entry.task for row in indexed(rows)] == list(range(9))


def test_a_broken_index_is_continued_or_made_again(tmp_path: Path) -> None:
    rows = tmp_path / "out.jsonl"
    rows.write_bytes(b"".join(line(_ng_task_index=number) + b"\n" for number in range(10)))
    whole = index(rows)
    path = index_path(rows)
    data = path.read_bytes()
    for size in (0, 10, HEADER_BYTES, HEADER_BYTES + RECORD_BYTES, len(data) - 30):
        path.write_bytes(data[:size])
        assert index(rows) == whole
    path.write_bytes(b"\0" * len(data))
    assert index(rows) == whole


def test_rows_that_a_crash_took_leave_the_index(tmp_path: Path) -> None:
    rows = tmp_path / "out.jsonl"
    lines = [line(_ng_task_index=number) + b"\n" for number in range(10)]
    rows.write_bytes(b"".join(lines))
    index(rows)
    rows.write_bytes(b"".join(lines[:6]) + lines[6][:20])
    assert [row.entry.task for row in index(rows)] == list(range(6))


def test_another_file_under_the_name_is_indexed_anew(tmp_path: Path) -> None:
    rows = tmp_path / "out.jsonl"
    rows.write_bytes(line(_ng_task_index=1) + b"\n")
    index(rows)
    rows.write_bytes(line(_ng_task_index=2, agent_ref={"name": "xstest"}) + b"\n")
    assert [(row.entry.task, row.entry.environment) for row in index(rows)] == [(2, "xstest")]


def test_rows_that_changed_in_place_are_indexed_anew(tmp_path: Path) -> None:
    """The beginning, the size and the last row are the same."""
    rows = tmp_path / "out.jsonl"
    lines = [line(_ng_task_index=number, reward=0.0, note="x" * 5000) + b"\n" for number in range(3)]
    rows.write_bytes(b"".join(lines))
    index(rows)
    lines[1] = lines[1].replace(b'"reward": 0.0', b'"reward": 1.0')
    rows.write_bytes(b"".join(lines))
    os.utime(rows, ns=(0, 10**9))
    assert [row.entry.reward for row in index(rows)] == [0.0, 1.0, 0.0]


def test_one_process_at_a_time_writes_an_index(tmp_path: Path) -> None:
    rows = tmp_path / "out.jsonl"
    rows.write_bytes(line() + b"\n")
    writing = IndexFile.open(rows)
    assert writing is not None
    assert IndexFile.open(rows) is None
    assert list(complete_index(rows)) == []
    writing.close()
    assert len(index(rows)) == 1


def test_a_reader_keeps_the_index_that_it_has_open(tmp_path: Path) -> None:
    rows = tmp_path / "out.jsonl"
    rows.write_bytes(line(_ng_task_index=1) + b"\n")
    index(rows)
    with index_path(rows).open("rb") as reader:
        before = index_path(rows).read_bytes()
        rows.write_bytes(b"".join(line(_ng_task_index=number, reward=0.0) + b"\n" for number in range(9)))
        replaced = IndexFile.open(rows)
        assert replaced is not None
        # From the first moment on it is the new one, with no record of the old.
        assert len(index_path(rows).read_bytes()) == HEADER_BYTES
        replaced.close()
        assert len(index(rows)) == 9
        assert reader.read() == before
    assert not list(index_path(rows).parent.glob(f".{index_path(rows).name}*"))


def test_it_is_in_a_folder_of_this_user_alone(tmp_path: Path) -> None:
    rows = tmp_path / "out.jsonl"
    rows.write_bytes(line() + b"\n")
    index(rows)
    place = index_path(rows)
    assert place.is_relative_to(os.environ["GYM_CACHE"])
    assert place.stat().st_mode & 0o777 == 0o600
    assert place.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("trap", [Path.symlink_to, Path.hardlink_to])
def test_a_link_in_its_place_is_replaced_and_not_followed(
    tmp_path: Path, trap: Callable[[Path, Path], None]
) -> None:
    rows = tmp_path / "out.jsonl"
    rows.write_bytes(line() + b"\n")
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    index_path(rows).parent.mkdir(parents=True, exist_ok=True)
    trap(index_path(rows), victim)
    assert len(index(rows)) == 1
    assert victim.read_bytes() == b"precious"


def test_indices_that_nobody_uses_are_removed(tmp_path: Path) -> None:
    rows = tmp_path / "out.jsonl"
    rows.write_bytes(line() + b"\n")
    index(rows)
    old = index_path(rows).with_name("old.idx")
    old.touch()
    os.utime(old, (0, 0))
    rows.write_bytes(line(_ng_task_index=5) + b"\n" * 2)
    index(rows)
    assert not old.exists()


def test_a_torn_tail_is_left_out_and_a_missing_newline_is_not(tmp_path: Path) -> None:
    rows = tmp_path / "out.jsonl"
    rows.write_bytes(line(_ng_task_index=0) + b"\n" + line(_ng_task_index=1)[:-5])
    assert [row.entry.task for row in index(rows)] == [0]
    rows.write_bytes(line(_ng_task_index=0) + b"\n" + line(_ng_task_index=1))
    assert [row.entry.task for row in index(rows)] == [0, 1]
    with rows.open("ab") as file:
        file.write(b"\n" + line(_ng_task_index=2) + b"\n")
    assert [row.entry.task for row in index(rows)] == [0, 1, 2]


def test_many_names_are_told_apart_up_to_a_limit(tmp_path: Path) -> None:
    rows = tmp_path / "out.jsonl"
    names = [f"environment-{'x' * (number % 90)}-{number}" for number in range(300)]
    rows.write_bytes(b"".join(line(agent_ref={"name": name}) + b"\n" for name in names))
    found = [row.entry.environment for row in index(rows)]
    assert found[:255] == names[:255]
    assert set(found[255:]) == {"(others)"}


def test_a_duration_of_any_size_fits_its_record(tmp_path: Path) -> None:
    rows = tmp_path / "out.jsonl"
    rows.write_bytes(b"".join(line(_gym={"duration_s": one}) + b"\n" for one in (1e300, -1e300, 2)))
    assert [row.entry.duration_s for row in index(rows)][1:] == [0.0, 2.0]


def test_a_process_that_indexes_ends_in_silence_when_its_parent_is_gone(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_bytes((line() + b"\n") * 20_000)
    command = [sys.executable, "-m", "gym_view.indexing"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(json.dumps(str(rows)).encode() + b"\n")
        process.stdin.flush()
        process.stdout.close()
        assert (process.wait(20), process.stderr.read()) == (0, b"")
