"""The page and rows as files: every row can be taken out of them again."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from gym_runtime.errors import UsageError
from gym_view import page_export
from gym_view.index import HEADER_BYTES, read_index
from gym_view.run_files import find_runs
from runtime.environment.image_samples import png
from view import node


def rows(count: int) -> list[bytes]:
    text = "</script><script>alert(1)</script>" + "x" * 900
    return [
        json.dumps({"response": {"id": f"r{number}", "output": text}, "_ng_task_index": number}).encode()
        for number in range(count)
    ]


def taken_out(index: bytes, starts: list[int], chunks: list[bytes]) -> list[bytes]:
    found: list[bytes] = []
    for row in read_index(index[HEADER_BYTES:]):
        number = max(k for k, start in enumerate(starts) if start <= row.offset)
        at = row.offset - starts[number]
        found.append(chunks[number][at : at + row.size].rstrip())
    return found


def test_a_folder_has_every_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_export, "CHUNK_BYTES", 5000)
    lines = rows(40)
    lines[7] = lines[7].replace(b"x" * 900, b"y" * 20_000)
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines) + b"\n" + b'{"torn')
    (tmp_path / "a_failures.jsonl").write_bytes(lines[0] + b"\n")
    target = tmp_path / "shared"
    written = page_export.export(find_runs([tmp_path]), target)
    assert written.files == sum(path.is_file() for path in target.rglob("*"))
    (about,) = json.loads((target / "data/runs.json").read_bytes())["runs"]
    assert str(tmp_path) not in json.dumps(about)
    for part, expected in (("rollouts", lines), ("failures", lines[:1])):
        starts: list[int] = about["parts"][part]["chunks"]
        folder = target / "data" / about["folder"]
        chunks = [gzip.decompress((folder / f"{part}-{k}.gz").read_bytes()) for k in range(len(starts))]
        index = gzip.decompress((folder / f"{part}.idx.gz").read_bytes())
        assert taken_out(index, starts, chunks) == expected
        assert len(chunks) > 5 or part == "failures"
        cards: dict[str, Any] = {}
        for k in range(len(starts)):
            cards |= json.loads(gzip.decompress((folder / f"{part}-{k}.cards.gz").read_bytes()))
        assert list(cards) == [str(row.offset) for row in read_index(index[HEADER_BYTES:])]


def test_one_file_has_every_row_and_no_markup_of_theirs(tmp_path: Path) -> None:
    lines = rows(5)
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    target = tmp_path / "shared.html"
    assert page_export.export(find_runs([tmp_path / "a.jsonl"]), target).files == 1
    page = target.read_text()
    assert "alert(1)" not in page
    assert page.count("</script>") == 2
    assert "script-src 'sha256-" in page
    embedded = re.search(r'<script type="application/json" id="embedded">(.*?)</script>', page, re.DOTALL)
    assert embedded is not None
    document: dict[str, Any] = json.loads(embedded[1])
    (run,) = document["runs"]
    files = {name: gzip.decompress(base64.b64decode(text)) for name, text in run["data"].items()}
    starts = run["parts"]["rollouts"]["chunks"]
    assert taken_out(files["rollouts.idx"], starts, [files["rollouts-0"]]) == lines
    assert json.loads(files["figures.json"])["run"]["rollouts"] == 5


def test_images_that_are_files_are_in_the_export(tmp_path: Path) -> None:
    data = png(2, 2)
    name = f"a_images/{hashlib.sha256(data).hexdigest()}.png"
    (tmp_path / "a_images").mkdir()
    (tmp_path / name).write_bytes(data)
    said = {"type": "input_image", "image_url": name}
    (tmp_path / "a.jsonl").write_text(
        json.dumps({"response": {"output": [{"output": [said]}]}}).replace(": ", ":")
    )
    page_export.export(find_runs([tmp_path / "a.jsonl"]), tmp_path / "shared")
    cards = json.loads(gzip.decompress((tmp_path / "shared/data/0/rollouts-0.cards.gz").read_bytes()))
    url = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    assert cards["0"]["images"] == {name: url}
    script = """
      const { conversation } = await import(`${src}/row.js`);
      const answer = ([row, card]) => conversation(row, card);
    """
    output = {"type": "function_call_output", "output": [said, {**said, "image_url": "toString"}]}
    (item,) = node.run(script, [{"response": {"output": [output]}}, cards["0"]])
    assert [part["text"] for part in item["parts"]] == [url, "toString"]


def test_every_two_runs_are_compared_unless_they_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, reward in (("a", 0.0), ("b", 1.0)):
        row = {"response": {"id": name}, "_ng_task_index": 0, "reward": reward}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(row) + "\n")
    runs = sorted(find_runs([tmp_path]), key=lambda run: run.id)
    page_export.export(runs, tmp_path / "x")
    for folder, other, wins in ((0, 1, 1), (1, 0, 0)):
        packed = (tmp_path / f"x/data/{folder}/against-{other}.json.gz").read_bytes()
        assert json.loads(gzip.decompress(packed))["wins"] == wins
    monkeypatch.setattr(page_export, "MAX_COMPARED", 1)
    page_export.export(runs, tmp_path / "y")
    assert not list(tmp_path.glob("y/data/*/against*"))


def test_what_is_there_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(rows(1)[0])
    with pytest.raises(UsageError, match="is there already"):
        page_export.export(find_runs([tmp_path]), tmp_path)


def test_a_folder_that_cannot_be_filled_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_export, "_PAGE_FILES", ("index.html", "none.js"))
    (tmp_path / "a.jsonl").write_bytes(rows(1)[0])
    with pytest.raises(UsageError, match=r"cannot read .*none\.js"):
        page_export.export(find_runs([tmp_path]), tmp_path / "shared")
    assert not (tmp_path / "shared").exists()


def test_too_much_for_one_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_export, "MAX_PAGE_BYTES", 100)
    (tmp_path / "a.jsonl").write_bytes(rows(1)[0])
    with pytest.raises(UsageError, match="export to a folder"):
        page_export.export(find_runs([tmp_path]), tmp_path / "x.html")
