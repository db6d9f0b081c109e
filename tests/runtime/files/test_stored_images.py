"""Images of rows as files, each once, and back again; rows never make the reader open another file."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gym_runtime.errors import UsageError
from gym_runtime.files import image_urls, with_images
from gym_runtime.files.merging import merge
from gym_runtime.files.results import OutputFiles, ResultWriter
from gym_runtime.files.run_metrics import Metrics
from gym_runtime.files.stored_images import ImageStore, remove_images
from gym_runtime.messages.outcomes import RolloutRecord
from runtime.environment.image_samples import png

Record = Callable[..., RolloutRecord]


def url(data: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def row(*urls: str, text: str = "") -> bytes:
    parts = [{"type": "input_image", "image_url": each, "detail": "auto"} for each in urls]
    return msgspec.json.encode({"response": {"output": [{"output": parts}]}, "said": text})


def test_equal_images_are_one_file_and_come_back(tmp_path: Path) -> None:
    large, small = png(2, 2, filler=500_000), png(3, 3)
    fooling = row(url(small)).decode()  # a model's text that looks like a row
    whole = row(*[url(large)] * 30, url(small), "https://example.org/a.png", text=fooling)
    store = ImageStore(tmp_path / 'a "b" ü.jsonl', "files")
    stored = store.stored(whole)
    assert len(stored) < 10_000
    files = list((tmp_path / 'a "b" ü_images').iterdir())
    assert {file.name: file.read_bytes() for file in files} == {
        f"{sha256(data).hexdigest()}.png": data for data in (large, small)
    }
    assert msgspec.json.decode(stored)["said"] == fooling
    assert with_images(stored, tmp_path) == whole
    spaced = whole.replace(b'":"data:', b'": "data:')  # as a dataset may write it
    assert store.stored(spaced) == stored.replace(b'"image_url":"a ', b'"image_url": "a ')
    assert len(image_urls(stored, tmp_path)) == 2
    assert ImageStore(tmp_path / 'a "b" ü.jsonl', "files").stored(whole) == stored
    assert ImageStore(tmp_path / "c.jsonl", "inline").stored(whole) is whole
    (tmp_path / 'a "b" ü_images' / "mine.png").write_bytes(small)
    remove_images(tmp_path / 'a "b" ü.jsonl')
    assert [file.name for file in (tmp_path / 'a "b" ü_images').iterdir()] == ["mine.png"]


def test_none_leaves_them_out_and_what_is_no_image_stays(tmp_path: Path) -> None:
    none = ImageStore(tmp_path / "a.jsonl", "none").stored(row(url(png(2, 2)), text="kept"))
    assert none == row("", text="kept")
    odd = row(url(b"<svg onload='x'/>", "svg+xml"), "data:image/png;base64,A===", url(b"no image"))
    assert ImageStore(tmp_path / "a.jsonl", "files").stored(odd) == odd
    assert not (tmp_path / "a_images").exists()


def test_a_row_opens_no_other_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gym_runtime.files.stored_images.SHOWN_BYTES", 1000)
    folder = tmp_path / "results"
    good, secret, large = png(2, 2), png(9, 9), png(3, 3, filler=900)
    (folder / "a_images").mkdir(parents=True)
    (tmp_path / "x_images").mkdir()
    names = {data: f"{sha256(data).hexdigest()}.png" for data in (good, secret, large, b"text")}
    for place, data in ((folder / "a_images", b"text"), (tmp_path / "x_images", secret)):
        (place / names[data]).write_bytes(data)
    (folder / "a_images" / names[good]).write_bytes(good)
    (folder / "a_images" / names[large]).write_bytes(large)
    (folder / "a_images" / names[secret]).symlink_to(tmp_path / "x_images" / names[secret])
    (folder / "l_images").symlink_to(tmp_path / "x_images")
    other = f"{'0' * 64}.png"
    (folder / "a_images" / other).write_bytes(good)  # another file than its name says
    os.mkfifo(folder / "a_images" / f"{'1' * 64}.png")
    hostile = [
        *(f"a_images/{name}" for name in (names[secret], names[b"text"], other, f"{'1' * 64}.png")),
        f"../x_images/{names[secret]}",
        f"{tmp_path}/x_images/{names[secret]}",
        f"l_images/{names[secret]}",
        f"a_images/../../x_images/{names[secret]}",
        "a_images/" + "2" * 64 + ".png",
    ]
    line = row(*hostile, f"a_images/{names[good]}")
    # As JSON may write it, too.
    line = line.replace(b'"../x', b'"..\\u002fx').replace(f'"{tmp_path}/'.encode(), b'"\\u0000/')
    assert image_urls(line, folder) == {f"a_images/{names[good]}": url(good)}
    both = row(f"a_images/{names[good]}", f"a_images/{names[large]}")  # more than may be read for a row
    assert [*image_urls(both, folder)] == [f"a_images/{names[good]}"]
    assert with_images(row(hostile[0]), folder) == row(hostile[0])


def test_results_failures_and_a_merge(tmp_path: Path, record: Record, failure: Record) -> None:
    def shown(one: RolloutRecord) -> RolloutRecord:
        fields: dict[str, Any] = msgspec.json.decode(one.row)
        fields["shown"] = {"image_url": url(png(2, 2))}
        return msgspec.structs.replace(one, row=msgspec.Raw(msgspec.json.encode(fields)))

    files = OutputFiles.beside(tmp_path / "out.jsonl")
    with ResultWriter(files, "files") as writer:
        writer.write(shown(record(0)))
        writer.write(shown(failure(1)))
    (image,) = (tmp_path / "out_images").iterdir()
    for path in (files.rollouts, files.failures):
        (line,) = path.read_bytes().splitlines()
        assert msgspec.json.decode(line)["shown"] == {"image_url": f"out_images/{image.name}"}
    merge([files.rollouts], OutputFiles.beside(tmp_path / "merged.jsonl"), Metrics())
    assert image_urls((tmp_path / "merged.jsonl").read_bytes(), tmp_path)
    with pytest.raises(UsageError, match=r"merge into the same folder"):
        merge([files.rollouts], OutputFiles.beside(tmp_path / "other" / "merged.jsonl"), Metrics())
