"""Records of published files, and rows made of them."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gym_data.prepare.records import make_rows, read_records
from gym_runtime.errors import UsageError

RECORDS = [{"name": "ä, b", "text": "one\ntwo"}, {"name": "c", "text": ""}]
LINES = "".join(json.dumps(one) + "\n" for one in RECORDS).encode()
CSV = '\ufeffname,text\n"ä, b","one\ntwo"\nc,\n'.encode()


def parquet(folder: Path) -> bytes:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = folder / "made.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(RECORDS), path)
    return path.read_bytes()


def test_a_json_file_may_be_one_object(tmp_path: Path) -> None:
    path = tmp_path / "blob"
    path.write_text(json.dumps(RECORDS[0], indent=2))
    assert list(read_records("a.json", path)) == [RECORDS[0]]


@pytest.mark.parametrize("name", ["a.md", "a.txt.gz"])
def test_a_text_is_one_record(name: str, tmp_path: Path) -> None:
    path, content = tmp_path / "blob", "# Ä\n\nb".encode()
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert list(read_records(name, path)) == [{"text": "# Ä\n\nb"}]


@pytest.mark.parametrize(
    "name", ["a.jsonl", "a.json", "list.json", "a.csv", "a.parquet", "a.jsonl.gz", "a.csv.gz"]
)
def test_every_format_gives_the_same_records(name: str, tmp_path: Path) -> None:
    content = {"list.json": json.dumps(RECORDS, indent=1).encode(), "a.csv": CSV, "a.csv.gz": CSV}.get(
        name, LINES
    )
    if name == "a.parquet":
        content = parquet(tmp_path)
    path = tmp_path / "blob"  # the cache of the hub names files by their content
    path.write_bytes(gzip.compress(content, mtime=0) if name.endswith(".gz") else content)
    assert list(read_records(name, path)) == RECORDS


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.jsonl", b'{"name": ', "a.jsonl is not what its name says"),
        ("a.jsonl", b"[1]\n", "a.jsonl is not what its name says"),
        ("a.jsonl", b'{"a":' * 50_000 + b"1" + b"}" * 50_000, "a.jsonl is not what its name says"),
        ("a.csv", b'name\n"open', "a.csv is not what its name says"),
        ("a.csv", b"name\n\xff", "a.csv is not what its name says"),
        ("a.jsonl.gz", LINES, "a.jsonl.gz is not what its name says"),
        ("a.jsonl.gz", gzip.compress(LINES, mtime=0)[:-9], "a.jsonl.gz is not what its name says"),
        ("a.parquet", LINES, "a.parquet is not what its name says"),
        ("a.zip", LINES, "a.zip is not what its name says"),
        ("a.arrow", LINES, "a.arrow is not what its name says"),
        (
            "a.pkl",
            LINES,
            "records are read from .jsonl, .json, .csv, .tsv, .zip, .md, .txt, .parquet and .arrow only",
        ),
    ],
)
def test_what_is_of_another_format_is_one_line(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    if name.endswith(("parquet", "arrow")):
        pytest.importorskip("pyarrow")
    path = tmp_path / "blob"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=said) as refused:
        list(read_records(name, path))
    assert "\n" not in refused.value.message


def test_a_long_field_is_read_and_other_readers_keep_their_limit(tmp_path: Path) -> None:
    path = tmp_path / "blob"
    path.write_text(f"text\n{'x' * 200_000}\n")
    limit = csv.field_size_limit()
    (record,) = read_records("a.csv", path)
    assert len(record["text"]) == 200_000
    assert csv.field_size_limit() == limit


def test_rows_are_made_of_several_files_and_a_record_that_does_not_fit_is_named(tmp_path: Path) -> None:
    questions, answers, rows = (tmp_path / name for name in ("q", "a", "rows.jsonl"))
    questions.write_text('{"id": 1, "question": "?"}\n{"id": 2, "question": "!"}\n')
    answers.write_text('{"id": 1, "answer": 7}\n')
    files = [("q.jsonl", questions), ("a.jsonl", answers)]

    def made(asked: Iterator[dict[str, Any]], known: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        right = {one["id"]: one["answer"] for one in known}
        for one in asked:
            yield {"question": one["question"], "answer": right[one["id"]]}

    with pytest.raises(UsageError, match=r"record 2 of q\.jsonl, record 1 of a\.jsonl: .*KeyError: 2"):
        make_rows(made, files, rows)
    assert not rows.exists()
    answers.write_text('{"id": 1, "answer": 7}\n{"id": 2, "answer": 8}\n')
    make_rows(made, files, rows)
    assert [json.loads(line) for line in rows.read_text().splitlines()] == [
        {"question": "?", "answer": 7},
        {"question": "!", "answer": 8},
    ]
