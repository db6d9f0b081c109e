"""Files are fetched once, checked, and kept."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest
from data.assets.asset_origin import DEEP, HELLO, Origin
from gym_data.prepare.asset_files import fetch
from gym_runtime.assets import find
from gym_runtime.errors import AssetMissing, UsageError


def test_what_was_fetched_is_found_and_not_fetched_again(origin: Origin, folder: Path) -> None:
    asset = origin.asset()
    told: list[tuple[int, int]] = []
    assert fetch(asset, lambda *bytes_: told.append(bytes_), loopback=True) == ["a/hello.csv", "deep.bin"]
    assert find(asset, "env", "a/hello.csv", "deep.bin") == [folder / "a/hello.csv", folder / "deep.bin"]
    assert (folder / "a/hello.csv").read_bytes() == HELLO
    assert told == [(6, 10_000), (3006, 10_000)]
    assert json.loads((folder / "lock.json").read_bytes())["a/hello.csv"] == {
        "url": f"{origin.url}/hello.csv", "sha256": hashlib.sha256(HELLO).hexdigest(), "size_bytes": 6,
    }  # fmt: skip
    assert sorted(path.name for path in folder.rglob("*")) == ["a", "deep.bin", "hello.csv", "lock.json"]
    origin.asked.clear()
    assert (fetch(asset, loopback=True), origin.asked) == ([], [])


def test_a_file_that_is_not_there_is_an_error_with_the_remedy(origin: Origin, folder: Path) -> None:
    with pytest.raises(AssetMissing) as caught:
        find(origin.asset(), "env", "a/hello.csv")
    assert caught.value.message == (
        f"a/hello.csv (some things) is not in {folder}: gym-runtime prepare --assets env, or set "
        "GYM_TEST_THINGS to a folder that has it"
    )
    assert (caught.value.retryable, caught.value.fault().kind) == (False, "resource")
    with pytest.raises(AssetMissing, match="download it from over there and set GYM_TEST_THINGS to"):
        find(origin.asset(urls={}, page="over there"), "env", "a/hello.csv")


def test_a_digest_is_trusted_at_the_first_fetch_only(origin: Origin, folder: Path) -> None:
    asset = origin.asset()
    fetch(asset, loopback=True)
    (folder / "deep.bin").unlink()
    origin.files["/deep.bin"] = b"other"
    with pytest.raises(
        UsageError, match=f"was not used: its SHA-256 is .*, not {hashlib.sha256(DEEP).hexdigest()}"
    ):
        fetch(asset, loopback=True)
    assert not (folder / "deep.bin").exists()
    origin.files["/new.bin"] = b"other"
    moved = origin.asset(urls={**asset.urls, "deep.bin": f"{origin.url}/new.bin"})
    assert fetch(moved, loopback=True) == ["deep.bin"]
    assert find(moved, "env", "deep.bin")[0].read_bytes() == b"other"


def test_a_declared_digest_is_checked_before_the_file_takes_its_place(origin: Origin, folder: Path) -> None:
    right = {"deep.bin": hashlib.sha256(DEEP).hexdigest()}
    with pytest.raises(UsageError, match="its SHA-256 is"):
        fetch(origin.asset(sha256={"a/hello.csv": "0" * 64}), loopback=True)
    assert [path for path in folder.rglob("*") if path.is_file()] == []
    assert len(fetch(origin.asset(sha256=right), loopback=True)) == 2


def test_a_file_that_changed_in_the_cache_is_not_used_and_fetched_again(origin: Origin, folder: Path) -> None:
    asset = origin.asset()
    fetch(asset, loopback=True)
    (folder / "deep.bin").write_bytes(b"y" * 3000)
    # What is fetched in its place has the same size, and may be written within a tick of the clock of files.
    os.utime(folder / "deep.bin", (1, 1))
    with pytest.raises(AssetMissing, match=r"has the SHA-256 .* gym-runtime prepare --assets env"):
        find(asset, "env", "deep.bin")
    assert fetch(asset, loopback=True) == ["deep.bin"]
    assert find(asset, "env", "deep.bin")[0].read_bytes() == DEEP
    (folder / "lock.json").unlink()
    with pytest.raises(AssetMissing, match=r"deep\.bin .* is not in"):  # where it came from is not known
        find(asset, "env", "deep.bin")


@pytest.mark.parametrize("size_bytes", [0, 5, 3005])
def test_no_more_is_fetched_than_was_declared(origin: Origin, folder: Path, size_bytes: int) -> None:
    with pytest.raises(UsageError, match=f"larger than its declared {size_bytes} bytes"):
        fetch(origin.asset(size_bytes=size_bytes), loopback=True)
    assert not (folder / "deep.bin").exists()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://127.0.0.1:1/x", "must begin with https:"),
        ("http://example.com/x", "must begin with https:"),
        ("file:///etc/passwd", "must begin with https:"),
        ("ftp://127.0.0.1/x", "must begin with https:"),
    ],
)
def test_only_https_is_spoken(origin: Origin, url: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        fetch(origin.asset(urls={"x": url}), loopback=False)


def test_a_redirect_must_keep_to_the_rule(origin: Origin) -> None:
    origin.elsewhere["/deep.bin"] = "http://example.com/deep.bin"
    with pytest.raises(
        UsageError, match=r"example\.com/deep\.bin was not fetched: an asset's URL must begin with https"
    ):
        fetch(origin.asset(), loopback=True)
    origin.elsewhere["/deep.bin"] = f"{origin.url}/hello.csv"
    assert fetch(origin.asset(), loopback=True) == ["deep.bin"]


@pytest.mark.parametrize("file", ["../x", "/etc/x", "a/../../x", "lock.json"])
def test_a_file_lies_below_its_folder(origin: Origin, file: str) -> None:
    with pytest.raises(UsageError, match="is not a path below its folder"):
        fetch(origin.asset(urls={file: f"{origin.url}/hello.csv"}), loopback=True)


def test_what_breaks_leaves_nothing(origin: Origin, folder: Path) -> None:
    origin.cut.add("/deep.bin")
    with pytest.raises(UsageError, match="cannot be fetched"):
        fetch(origin.asset(), loopback=True)
    del origin.files["/deep.bin"]
    with pytest.raises(UsageError, match="cannot be fetched: Not Found"):
        fetch(origin.asset(), loopback=True)
    assert sorted(path.name for path in folder.rglob("*")) == ["a", "hello.csv", "lock.json"]


def test_a_folder_that_the_setting_names_goes_before(
    origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asset = origin.asset()
    fetch(asset, loopback=True)
    mine = tmp_path / "mine"
    mine.mkdir()
    monkeypatch.setenv("GYM_TEST_THINGS", str(mine))
    with pytest.raises(AssetMissing, match=str(mine)):
        find(asset, "env", "a/hello.csv")
    (mine / "hello.csv").write_bytes(b"mine")  # a flat folder will do
    assert find(asset, "env", "a/hello.csv") == [mine / "hello.csv"]
    with pytest.raises(AssetMissing, match="has the SHA-256"):
        find(origin.asset(sha256={"a/hello.csv": "0" * 64}), "env", "a/hello.csv")
