"""Rows that are made of an asset's files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from gym_data.prepare.sources import Origins, Wanted, gather
from gym_runtime import Asset, DatasetSource, Environment, Reply, Task, Verdict
from gym_runtime.errors import UsageError
from gym_testing.small_system import environment

ASSET = Asset(
    name="numbers", description="numbers", licence="MIT", setting="GYM_NUMBERS", page="https://x.example"
)


def rows(records: Iterator[dict[str, Any]], text: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    unit = next(text)["text"]
    for one in records:
        yield {"number": f"{one['number']} {unit}"}


class Number(Task):
    number: str


async def verify(task: Number, reply: Reply) -> Verdict:
    return Verdict(0.0)


def wanted(folder: Path) -> tuple[Wanted, Origins]:
    source = DatasetSource(
        asset=ASSET, file="a.jsonl", further_files=("unit.md",), split="benchmark", license="MIT", rows=rows
    )
    loaded = environment(Environment(resource=verify, description="d", datasets=(source,)))
    one = Wanted(name="sample", module="sample", environment=loaded, split="benchmark")
    return one, Origins(folder / "sources.json")


def test_they_are_made_of_the_files_in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, origins = wanted(tmp_path)
    monkeypatch.setenv("GYM_CACHE", str(tmp_path / "cache"))
    with pytest.raises(UsageError, match=r"a\.jsonl \(numbers\) is not in .*set GYM_NUMBERS"):
        gather(one, origins, lambda _: nullcontext(lambda *_: None), tmp_path / "rows.jsonl")
    monkeypatch.setenv("GYM_NUMBERS", str(tmp_path))
    (tmp_path / "a.jsonl").write_text('{"number": 7}\n')
    (tmp_path / "unit.md").write_text("km")
    path, entry = gather(one, origins, lambda _: nullcontext(lambda *_: None), tmp_path / "rows.jsonl")
    assert json.loads(path.read_bytes()) == {"number": "7 km"}
    assert (entry["asset"], entry["file"], len(entry["sha256"])) == ("numbers", "a.jsonl", 64)
