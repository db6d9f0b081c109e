"""The page and its rollouts as plain files, for any static host, or as one HTML file.

Rows stand in gzipped chunks of about `CHUNK_BYTES`: many static hosts (``python -m http.server`` is one)
know no ranges of bytes. The index is that of the rows, so the page works as it does with the server.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
from gym_runtime.errors import UsageError
from gym_runtime.files.appender import write_whole
from gym_runtime.files.index import HEADER_BYTES, read_index

from gym_view.indexing import index_of
from gym_view.run_files import Run, describe

CHUNK_BYTES = 4 * 2**20
MAX_PAGE_BYTES = 20 * 2**20
_PAGE_FILES = ("index.html", "page.js", "page.css")


class Written(msgspec.Struct, frozen=True):
    """What an export wrote."""

    files: int
    size_bytes: int


def export(runs: Sequence[Run], target: Path) -> Written:
    """Write the page and these runs to a folder; or to one file, if ``target`` ends in ``.html``.

    Raises:
        UsageError: the folder has other content, the file would be larger than `MAX_PAGE_BYTES`, or the disk
            does not take it.
    """
    try:
        return _export_file(runs, target) if target.suffix == ".html" else _export_folder(runs, target)
    except OSError as error:
        raise UsageError(f"cannot write {error.filename or target}: {error.strerror}") from None


def _export_folder(runs: Sequence[Run], target: Path) -> Written:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} is there already; name a new folder")
    data = target / "data"
    data.mkdir(parents=True)
    for name in _PAGE_FILES:
        (target / name).write_bytes(_page(name))
    described: list[dict[str, Any]] = []
    for number, run in enumerate(runs):
        folder = data / str(number)
        folder.mkdir()
        about = _describe(run)
        about["folder"] = str(number)
        parts: dict[str, Any] = about["parts"]
        for part, rows in run.parts.items():
            index = _index(rows)
            (folder / f"{part}.idx.gz").write_bytes(gzip.compress(index, 6, mtime=0))
            starts: list[int] = []
            for start, chunk in _chunks(rows, index):
                (folder / f"{part}-{len(starts)}.gz").write_bytes(gzip.compress(chunk, 6, mtime=0))
                starts.append(start)
            parts[part]["chunks"] = starts
        described.append(about)
    (data / "runs.json").write_bytes(msgspec.json.encode({"mode": "files", "runs": described}))
    sizes = [path.stat().st_size for path in target.rglob("*") if path.is_file()]
    return Written(len(sizes), sum(sizes))


def _export_file(runs: Sequence[Run], target: Path) -> Written:
    described: list[dict[str, Any]] = []
    total = 0
    for run in runs:
        about = _describe(run)
        for part, rows in run.parts.items():
            index = _index(rows)
            chunks = list(_chunks(rows, index))
            packed = [_packed(chunk) for _, chunk in chunks]
            about["parts"][part] |= {
                "index": _packed(index),
                "chunks": [start for start, _ in chunks],
                "data": packed,
            }
            total += sum(map(len, packed))
            if total > MAX_PAGE_BYTES:
                raise UsageError(
                    f"one HTML file with these rows would be larger than {MAX_PAGE_BYTES // 2**20} MiB; "
                    "export to a folder: --export DIR"
                )
        described.append(about)
    page = _whole_page(msgspec.json.encode({"mode": "files", "runs": described}))
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, iter([page]))
    return Written(1, len(page))


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


def _describe(run: Run) -> dict[str, Any]:
    """What the page is told; where the file stands on this machine concerns no reader."""
    return describe(run) | {"chunks": True, "path": run.rollouts.name}


def _index(rows: Path) -> bytes:
    # The page passes over the header, which is about a file of this machine.
    return bytes(HEADER_BYTES) + index_of(rows)


def _chunks(rows: Path, index: bytes) -> Iterator[tuple[int, bytes]]:
    """``(offset, bytes)`` of neighbouring whole rows; a larger row is a chunk of its own."""
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


def _packed(data: bytes) -> str:
    return base64.b64encode(gzip.compress(data, 6, mtime=0)).decode()


def _page(name: str) -> bytes:
    return (resources.files("gym_view") / "static" / name).read_bytes()
