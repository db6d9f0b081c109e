"""The page and its rollouts as plain files, for any static host, or as one HTML file.

Rows are in gzipped chunks of about `CHUNK_BYTES`: many static hosts (``python -m http.server`` is one) know
no ranges of bytes. Beside each chunk are the cards of its rows. What the server computes when it is asked is
written out: the figures of each run, and each run compared with each other one where there are at most
`MAX_COMPARED` of them.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import shutil
from collections.abc import Iterable, Iterator, Sequence
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
from gym_runtime.errors import UsageError
from gym_runtime.files import write_whole

from gym_view.drafts import unwritten
from gym_view.index import HEADER_BYTES, IndexedRow, read_index
from gym_view.indexing import index_of
from gym_view.labels import load_labels
from gym_view.page_figures import page_figures_and_means
from gym_view.row import card_json
from gym_view.row_fields import figures_in
from gym_view.run_comparison import Means, compare
from gym_view.run_files import Run, describe
from gym_view.vocabulary import Vocabulary

CHUNK_BYTES = 4 * 2**20
MAX_PAGE_BYTES = 20 * 2**20
MAX_COMPARED = 8
_PAGE_FILES = ("index.html", "page.js", "page.css")
_Exported = tuple[dict[str, Any], Iterator[tuple[str, bytes]]]


class Written(msgspec.Struct, frozen=True):
    """What an export wrote."""

    files: int
    size_bytes: int


def export(runs: Sequence[Run], target: Path, vocabulary: Vocabulary | None = None) -> Written:
    """Write the page and these runs to a folder; or to one file, if ``target`` ends in ``.html``.

    With a ``vocabulary`` tokens have texts.

    Raises:
        UsageError: the folder has other content, the file would be larger than `MAX_PAGE_BYTES`, or the disk
            does not take it.
    """
    try:
        exported = _exported(runs, vocabulary)
        return (
            _export_file(exported, target) if target.suffix == ".html" else _export_folder(exported, target)
        )
    except OSError as error:
        raise unwritten(target, error, target) from None


def _export_folder(exported: Iterable[_Exported], target: Path) -> Written:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} is there already; name a new folder")
    try:
        return _fill_folder(exported, target)
    except BaseException:
        # Half an export looks like a whole one, and would be in the way of the next try.
        shutil.rmtree(target, ignore_errors=True)
        raise


def _fill_folder(exported: Iterable[_Exported], target: Path) -> Written:
    data = target / "data"
    data.mkdir(parents=True)
    for name in _PAGE_FILES:
        (target / name).write_bytes(_page(name))
    described: list[dict[str, Any]] = []
    for about, files in exported:
        folder = data / about["folder"]
        folder.mkdir()
        for name, content in files:
            (folder / f"{name}.gz").write_bytes(content)
        described.append(about)
    (data / "runs.json").write_bytes(_listing(described))
    sizes = [path.stat().st_size for path in target.rglob("*") if path.is_file()]
    return Written(len(sizes), sum(sizes))


def _export_file(exported: Iterable[_Exported], target: Path) -> Written:
    described: list[dict[str, Any]] = []
    total = 0
    for about, files in exported:
        about["data"] = {}
        for name, content in files:
            packed = base64.b64encode(content).decode()
            about["data"][name] = packed
            total += len(packed)
            if total > MAX_PAGE_BYTES:
                raise UsageError(
                    f"one HTML file with these rows would be larger than {MAX_PAGE_BYTES // 2**20} MiB; "
                    "export to a folder: --export DIR"
                )
        described.append(about)
    page = _whole_page(_listing(described))
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, iter([page]))
    return Written(1, len(page))


def _exported(runs: Sequence[Run], vocabulary: Vocabulary | None) -> Iterator[_Exported]:
    """Each run's description, complete once its files were taken, and these files by their names."""
    compared = [_figures(run) for run in runs] if len(runs) <= MAX_COMPARED else []
    means = [found for _, found in compared]
    for number, run in enumerate(runs):
        about: dict[str, Any] = describe(run) | {
            "path": run.rollouts.name,  # where it is on this machine concerns no reader
            "folder": str(number),
            "chunks": True,
            "compared": bool(compared),
        }
        figures, _ = compared[number] if compared else _figures(run)
        yield about, chain(_files(run, figures, about["parts"], vocabulary), _comparisons(means, number))


def _figures(run: Run) -> tuple[bytes, Means]:
    figures, means = page_figures_and_means(run, _as_indexed)
    return _packed(msgspec.json.encode(figures)), means


def _files(
    run: Run, figures: bytes, parts: dict[str, Any], vocabulary: Vocabulary | None
) -> Iterator[tuple[str, bytes]]:
    """A run's files; ``parts`` gets where the chunks of each begin."""
    yield "figures.json", figures
    yield "labels.json", _packed(msgspec.json.encode(load_labels(run.rollouts)))
    yield "fields.json", _packed(msgspec.json.encode(figures_in(run)))
    for part, rows in run.parts.items():
        index = _index(rows)
        yield f"{part}.idx", _packed(index)
        starts: list[int] = []
        for start, chunk in _chunks(rows, index):
            yield f"{part}-{len(starts)}", _packed(chunk)
            yield f"{part}-{len(starts)}.cards", _packed(_cards(start, chunk, vocabulary, rows.parent))
            starts.append(start)
        parts[part]["chunks"] = starts


def _comparisons(means: Sequence[Means], number: int) -> Iterator[tuple[str, bytes]]:
    """One run compared with each other one."""
    for other, theirs in enumerate(means):
        if other != number:
            yield f"against-{other}.json", _packed(msgspec.json.encode(compare(means[number], theirs)))


def _cards(start: int, chunk: bytes, vocabulary: Vocabulary | None, folder: Path) -> bytes:
    """The cards of a chunk's rows, by where each row begins in the file."""
    found: dict[int, msgspec.Raw] = {}
    for line in chunk.split(b"\n"):
        if line.strip():
            found[start] = msgspec.Raw(card_json(line, vocabulary, folder))
        start += len(line) + 1
    return msgspec.json.encode(found)


def _whole_page(data: bytes) -> bytes:
    """The page with its script, style and data in it; its policy lets nothing else run or be loaded."""
    script, style = _page("page.js"), _page("page.css")
    script = script.replace(b"</script", b"<\\/script")
    digests = [base64.b64encode(hashlib.sha256(text).digest()).decode() for text in (script, style)]
    policy = (
        f"default-src 'none'; script-src 'sha256-{digests[0]}'; style-src 'sha256-{digests[1]}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    # "<" does not occur in base64, and in JSON it may be written as an escape: no text ends the element.
    return b"".join(
        [
            b'<!doctype html>\n<html lang="en"><head><meta charset="utf-8" />',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}" />'.encode(),
            b'<meta name="viewport" content="width=device-width, initial-scale=1" />',
            b'<meta name="color-scheme" content="light dark" /><title>gym-runtime</title><style>',
            style,
            b'</style></head><body><div id="app"></div><script type="application/json" id="embedded">',
            data.replace(b"<", b"\\u003c"),
            b'</script><script type="module">',
            script,
            b"</script></body></html>\n",
        ]
    )


def _listing(described: Sequence[dict[str, Any]]) -> bytes:
    return msgspec.json.encode({"mode": "files", "runs": described})


def _as_indexed(rows: Path) -> Iterator[IndexedRow]:
    return read_index(index_of(rows))


def _index(rows: Path) -> bytes:
    # The page passes over the header, which is about a file of this machine.
    return bytes(HEADER_BYTES) + index_of(rows)


def _chunks(rows: Path, index: bytes) -> Iterator[tuple[int, bytes]]:
    """``(offset, bytes)`` of neighbouring whole rows; a larger row is a chunk alone."""
    start = end = 0
    with rows.open("rb") as file:

        def chunk() -> tuple[int, bytes]:
            file.seek(start)
            return start, file.read(end - start)

        for row in read_index(index[HEADER_BYTES:]):
            if end > start and row.offset + row.size - start > CHUNK_BYTES:
                yield chunk()
                start = row.offset
            end = row.offset + row.size
        if end > start:
            yield chunk()


def _packed(data: bytes) -> bytes:
    return gzip.compress(data, 6, mtime=0)


def _page(name: str) -> bytes:
    return (resources.files("gym_view") / "static" / name).read_bytes()
