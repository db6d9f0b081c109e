"""Files that environments need and that are not shipped: declared, fetched, found, checked."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gym_runtime.assets import cache
from gym_runtime.assets.asset import Asset
from gym_runtime.assets.cache import find
from gym_runtime.assets.fetch import fetch
from gym_runtime.cli import main
from gym_runtime.environment import catalogue
from gym_runtime.errors import AssetMissing, UsageError
from gym_runtime.files.rows import expand
from gym_runtime.messages.outcomes import Completed, Failed
from gym_runtime.testing.small_system import Engine, answer, small_system
from resources.judging import row

HELLO, DEEP = b"hello\n", b"x" * 3000


class Origin:
    """An HTTP server on this machine: what it has, where it sends elsewhere, what it was asked for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {"/hello.csv": HELLO, "/deep.bin": DEEP}
        self.elsewhere: dict[str, str] = {}
        self.cut: set[str] = set()
        self.asked: list[str] = []
        origin = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                origin.asked.append(self.path)
                if self.path in origin.elsewhere:
                    self.send_response(302)
                    self.send_header("Location", origin.elsewhere[self.path])
                    self.end_headers()
                    return
                content = origin.files.get(self.path)
                if content is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(content) + (self.path in origin.cut)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                """Nothing is printed."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def asset(self, **changes: Any) -> Asset:
        told: dict[str, Any] = {
            "name": "things",
            "description": "some things",
            "licence": "CC0-1.0",
            "urls": {"a/hello.csv": f"{self.url}/hello.csv", "deep.bin": f"{self.url}/deep.bin"},
            "size_bytes": 10_000,
            "setting": "GYM_TEST_THINGS",
        }
        return Asset(**{**told, **changes})


@pytest.fixture
def origin() -> Iterator[Origin]:
    origin = Origin()
    thread = threading.Thread(target=origin.server.serve_forever)
    thread.start()
    yield origin
    origin.server.shutdown()
    thread.join()
    origin.server.server_close()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("GYM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GYM_TEST_THINGS", raising=False)
    return tmp_path / "cache" / "assets" / "things"


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


ENVIRONMENT = """
from gym_runtime import Environment, Reply, Task, Verdict
from gym_runtime.assets.asset import Asset
from gym_runtime.assets.cache import find

THINGS = Asset(name="things", description="some things", licence="CC0-1.0", setting="GYM_TEST_THINGS",
               urls={"x.csv": "https://files.invalid/x.csv"}, size_bytes=10)

class ThingsTask(Task):
    needs: str = ""

    def check_assets(self) -> None:
        if self.needs:
            find(THINGS, "with_things", self.needs)

async def verify(task: ThingsTask, reply: Reply) -> Verdict:
    return Verdict(1.0)

environment = Environment(resource=verify, description="With things.", assets=(THINGS,))
"""


@pytest.fixture
def with_things(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "with_things.py").write_text(ENVIRONMENT)
    monkeypatch.chdir(tmp_path)
    return "with_things"


@pytest.mark.anyio
async def test_a_session_of_a_row_whose_file_is_missing_does_not_open(with_things: str) -> None:
    resource = catalogue.environment(with_things).resource
    await resource.close(await resource.open(row()))
    with pytest.raises(AssetMissing, match="gym-runtime prepare --assets with_things"):
        await resource.open(row(needs="x.csv"))


@pytest.mark.anyio
async def test_a_rollout_whose_file_is_missing_fails_before_the_model_is_asked(with_things: str) -> None:
    environment = catalogue.environment(with_things)
    async with small_system() as system:
        engine = Engine(answer("Yes."))
        await system.add_agent()
        await system.add_model(engine)
        await system.add_resource(environment)
        rows = [row(), row(needs="x.csv")]
        tasks = list(expand(rows, environment=with_things, run="run"))
        assert [task.opens_first for task in tasks] == [True, True]
        found = {record.task_index: record for record in await system.make(*tasks)}
        assert (found[0].outcome, found[0].reward) == (Completed(), 1.0)
        outcome = found[1].outcome
        assert isinstance(outcome, Failed)
        assert (outcome.fault.name, outcome.fault.stage) == ("AssetMissing", "open")
        assert "gym-runtime prepare --assets with_things" in outcome.fault.message
        assert len(engine.asked_s) == 1


def test_the_command_says_what_it_fetched(
    with_things: str, origin: Origin, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["prepare", "--assets", with_things]) == 2
    assert "https://files.invalid/x.csv cannot be fetched" in capsys.readouterr().err
    cached = cache.cached(catalogue.environment(with_things).definition.assets[0])
    cached.mkdir(parents=True, exist_ok=True)
    (cached / "x.csv").write_bytes(HELLO)
    known = cache.Fetched(
        url="https://files.invalid/x.csv", sha256=hashlib.sha256(HELLO).hexdigest(), size_bytes=6
    )
    (cached / "lock.json").write_bytes(msgspec.json.encode({"x.csv": known}))
    assert main.run(["prepare", "--assets", with_things]) == 0
    assert capsys.readouterr().out == f"things (CC0-1.0): all files are there, in {cached}\n"


def test_the_command_says_what_a_person_has_to_fetch(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["prepare", "--assets", "spider2_lite"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(
        "spider2-lite-databases (MIT): download it from https://github.com/xlang-ai/Spider2"
    )
    assert said.endswith("and set GYM_SPIDER2_DATABASES to a folder that has it\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [([], "say whose assets"), (["gsm8k_aviary"], "needs no files"), (["no_such_one"], "there is no env")],
)
def test_the_command_refuses_what_it_cannot_do(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["prepare", "--assets", *arguments]) == 2
    assert said in capsys.readouterr().err
