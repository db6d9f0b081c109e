"""Datasets from files: checked whole, then streamed, whatever shape the file has."""

from __future__ import annotations

import gzip
import io
import os
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gym_runtime.errors import UsageError
from gym_runtime.files import dataset as module
from gym_runtime.files.dataset import Source, open_dataset
from gym_runtime.files.rows import expand
from hypothesis import given
from hypothesis import strategies as st

Line = Callable[..., bytes]
Write = Callable[..., Path]


def counts(path: Path | str, **options: int) -> list[int]:
    with open_dataset(path, environment="counting", **options) as dataset:
        return [int(row.line.split(b'"expected_count":')[1].split(b"}")[0]) for row in dataset.read()]


def test_rows_stream_in_order_as_often_as_asked(line: Line, write_lines: Write) -> None:
    path = write_lines(*(line(count) for count in range(5)))
    with open_dataset(path, environment="counting") as dataset:
        assert [row.line for row in dataset.read()] == [line(count) for count in range(5)]
        assert [row.line for row in dataset.read()] == [line(count) for count in range(5)]
        assert dataset.rows == 5
        assert dataset.environments == {"counting": 5}


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\n\n  \n"])
def test_line_ends_blank_lines_and_a_bom_do_not_matter(end: bytes, line: Line, write_lines: Write) -> None:
    path = write_lines(b"\xef\xbb\xbf" + line(1), line(2), end=end)
    assert counts(path) == [1, 2]
    path.write_bytes(path.read_bytes().rstrip())
    assert counts(path) == [1, 2]


def test_the_limit_leaves_the_rest_unread(line: Line, write_lines: Write) -> None:
    path = write_lines(line(1), line(2), b"nonsense")
    assert counts(path, limit=2) == [1, 2]
    with pytest.raises(UsageError, match=r"rows\.jsonl:3: not JSON"):
        counts(path)
    with pytest.raises(UsageError, match="at least 1"):
        counts(path, limit=0)


def test_all_bad_rows_are_listed_up_to_a_limit(line: Line, write_lines: Write) -> None:
    path = write_lines(*([line(), b"[]", b"{"] * 15))
    with pytest.raises(UsageError) as caught:
        counts(path)
    problems = caught.value.message.splitlines()
    assert len(problems) == 6
    assert problems[0].endswith(
        "rows.jsonl:2: expected object, got array; a row is one JSON object on one line"
    )
    assert problems[1].endswith("rows.jsonl:3: the line ends before its JSON does")
    assert problems[-1] == "… and 25 more bad rows"


def test_lines_are_counted_with_blank_ones(line: Line, write_lines: Write) -> None:
    with pytest.raises(UsageError, match=r"rows\.jsonl:4:"):
        counts(write_lines(line(), b"", b"", b"x"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no rows"),
        (b"\n \n", "has no rows"),
        (gzip.compress(b"{}", mtime=0), "compressed with gzip"),
        ("{}".encode("utf-16"), "UTF-16"),
        (b"PAR1....", "Parquet"),
        (b'[{"responses_create_params": {}}]\n', "rows.jsonl is a JSON array; make it JSONL"),
        (b'[\n  {"responses_create_params": {}}\n]\n', "rows.jsonl is a JSON array; make it JSONL"),
        (b'{\n  "responses_create_params": {}\n}\n', "has a JSON object over several lines"),
        (b'{"a": "\xff"}', "rows.jsonl:1: byte 0xff"),
    ],
)
def test_files_that_are_no_rows(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(content)
    with pytest.raises(UsageError, match=message):
        counts(tmp_path / "rows.jsonl")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "'responses_create_params.input': it is empty, so there is nothing to answer"),
        (
            {"role": "user", "content": "x"},
            "'responses_create_params.input': expected str | array, got object",
        ),
        ([{"role": "tool", "content": "x"}], "input[0].role': a message's role is one of user, assistant,"),
        ([{"type": "message", "content": "x"}], "system, developer, not missing"),
        ([{"content": "x"}], "input[0]': an input item has a 'role' or a 'type'"),
        (
            [{"type": "function_call", "name": "f", "arguments": "{}"}],
            "'call_id' is missing in 'responses_create_params.input[0]'",
        ),
        (
            [{"role": "user", "content": [{"type": "input_text", "text": 7}]}],
            "'responses_create_params.input[0].content[0].text': expected str | null, got int",
        ),
    ],
)
def test_an_input_that_no_engine_takes_is_one_line(
    given: Any, message: str, write_lines: Write, line: Line
) -> None:
    bad = line(responses_create_params={"input": given})
    with pytest.raises(UsageError) as caught:
        counts(write_lines(line(), bad))
    assert message in caught.value.message
    assert ":2:" in caught.value.message
    assert "\n" not in caught.value.message


def test_paths_that_are_no_files(tmp_path: Path, line: Line) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        counts(tmp_path / "none.jsonl")
    with pytest.raises(UsageError, match="an address is not fetched: download it, or pipe it"):
        counts(Path("https://127.0.0.1/rows.jsonl"))
    (tmp_path / "a.jsonl").write_bytes(line())
    with pytest.raises(UsageError, match=r"is a directory; name a JSONL file, such as .*a\.jsonl"):
        counts(tmp_path)


def test_standard_input_is_read_twice(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BytesIO(line(1) + b"\n" + line(2))

    monkeypatch.setattr("sys.stdin", Stdin)
    assert counts("-") == [1, 2]


def test_a_pipe_is_read_twice(line: Line, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    feeder = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(line(1) + b"\n" + line(2)))
    feeder.start()
    assert counts(tmp_path / "pipe") == [1, 2]
    feeder.join()


def test_a_file_that_changes_meanwhile_is_refused(line: Line, write_lines: Write) -> None:
    path = write_lines(line(1), line(2))
    with open_dataset(path, environment="counting") as dataset:
        with path.open("ab") as file:
            file.write(line(3))
        with pytest.raises(UsageError, match="changed while it was being read"):
            list(dataset.read())


def test_a_line_without_end_is_refused(write_lines: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LINE_BYTES", 2**20)
    with pytest.raises(UsageError, match="longer than 1 MiB; is this JSONL"):
        counts(write_lines(b"x" * 2**21))


def test_the_digest_is_of_the_rows_not_of_the_file(line: Line, write_lines: Write) -> None:
    def digest(*lines: bytes, end: bytes = b"\n", environment: str | None = None) -> str:
        source = Source(str(write_lines(*lines, end=end)), environment)
        with open_dataset(source) as dataset:
            return dataset.digest

    first = digest(line(1), line(2), environment="counting")
    assert digest(line(1), line(2), end=b"\r\n", environment="counting") == first
    assert digest(line(2), line(1), environment="counting") != first
    assert digest(line(1), environment="counting") != first


def test_rows_are_located_for_messages(line: Line, write_lines: Write) -> None:
    one = write_lines(line(1), b"", line(2), name="one.jsonl")
    two = write_lines(line(3), name="two.jsonl")
    with open_dataset(one, two, environment="counting") as dataset:
        assert [dataset.locate(row).rsplit("/", 1)[1] for row in range(3)] == [
            "one.jsonl:1",
            "one.jsonl:3",
            "two.jsonl:1",
        ]
        assert [row.line for row in dataset.read()] == [line(1), line(2), line(3)]


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 4), st.none() | st.integers(0, 3)), min_size=1, max_size=25))
def test_two_passes_number_as_one_pass_does(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int | None]]
) -> None:
    own = all(index is not None for _, index in rows)
    lines = [
        b'{"responses_create_params":{},"expected_count":%d%b}'
        % (count, b"" if index is None or not own else b',"_ng_task_index":%d' % index)
        for count, index in rows
    ]
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    path.write_bytes(b"\n".join(lines))
    with open_dataset(path, environment="counting") as dataset:
        two = [
            (task.task_index, task.rollout_index)
            for task in expand(dataset.read(), run="r", repeats=2, numbering=dataset.numbering())
        ]
    one = [
        (task.task_index, task.rollout_index)
        for task in expand(lines, run="r", environment="counting", repeats=2)
    ]
    assert two == one


def test_own_indices_never_meet_given_ones(line: Line, write_lines: Write) -> None:
    path = write_lines(line(1), line(2, _ng_task_index=0), line(3), line(1))
    with open_dataset(path, environment="counting") as dataset:
        tasks = expand(dataset.read(), run="r", numbering=dataset.numbering())
        assert [(task.task_index, task.rollout_index) for task in tasks] == [(1, 0), (0, 0), (2, 0), (1, 1)]


@pytest.mark.slow
@pytest.mark.soak
def test_a_large_dataset_streams(line: Line, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with path.open("wb") as file:
        for index in range(100_000):
            file.write(line(index, padding="x" * 200) + b"\n")
    tracemalloc.start()
    with open_dataset(path, environment="counting") as dataset:
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        tasks = expand(dataset.read(), run="r", repeats=2, numbering=dataset.numbering())
        count = sum(1 for _ in tasks)
        _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 200_000
    assert max(kept, peak) < 6 * 2**20
