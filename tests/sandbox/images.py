"""An image for container engines, made of programs of this machine, so that none has to be pulled."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from gym_sandbox import container_engines
from time_limits import busy

NAME = f"localhost/gym-runtime-test-{os.getpid()}"
"""Of this process, which removes it at its end: another test run may use the same engine."""
PROGRAMS = (
    *(
        "sh",
        "bash",
        "git",
        "tar",
        "timeout",
        "head",
        "tail",
        "base64",
        "tr",
        "wc",
        "mktemp",
        "mkfifo",
        "rm",
        "mkdir",
        "cat",
    ),
    *(
        "ls",
        "id",
        "sleep",
        "env",
        "sed",
        "grep",
        "touch",
        "find",
        "cp",
        "chmod",
        "yes",
        "mknod",
        "setsid",
        "cut",
    ),
    *("python3", "mount", "dd", "nohup", "mv", "gzip", "ln", "sort", "comm", "xargs", "sha256sum", "date"),
    "readlink",
)
_HYBRID = """#!/bin/sh
# Podman refuses control groups of both versions together; in its own mount namespace there is one only.
exec unshare -m sh -c 'umount /sys/fs/cgroup/unified 2>/dev/null; exec {podman} "$@"' sh "$@"
"""
_AHEAD = f"""#!{sys.executable}
import os, sys
option, size, *file = sys.argv[1:]
assert option == "-c"
source, found = os.open(*file, os.O_RDONLY) if file else 0, b""
while len(found) < int(size) and (piece := os.read(source, 4096)):
    found += piece
os.write(1, found[:int(size)])
"""
_CONFIGURATION = (
    '[containers]\ncgroups = "disabled"\ndefault_ulimits = ["nofile=4096:4096", "nproc=1000:1000"]\n'
)


def head_of_busybox(folder: Path) -> str:
    """A search path with a `head` that reads more of a pipe than it is told, as that of busybox does."""
    program = folder / "head"
    program.write_text(_AHEAD)
    program.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


class Engine:
    """An engine that works here.

    Attributes:
        variables: what the worker's environment must hold for it.
        refusal: why it does not work, or "".
    """

    def __init__(self, name: str, variables: dict[str, str] | None = None, refusal: str = "") -> None:
        self.name, self.variables, self.refusal = name, variables or {}, refusal

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.name, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env={**os.environ, **self.variables},
        )


@cache
def engine(name: str) -> Engine:
    """An engine with the image `NAME`, or the reason why there is none."""
    path = shutil.which(name)
    if path is None:
        return Engine(name, refusal=f"{name} is not installed: apt-get install {name}")
    found = Engine(name)
    try:
        _remove_left(found)
        problem = _prepared(found)
        if problem and name == "podman" and os.geteuid() == 0:
            folder = Path(tempfile.mkdtemp(prefix="gym-podman-"))
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            (folder / "containers.conf").write_text(_CONFIGURATION)
            wrapper = folder / "podman"
            wrapper.write_text(_HYBRID.format(podman=path))
            wrapper.chmod(0o755)
            variables = {
                "CONTAINERS_CONF": f"{folder}/containers.conf",
                "PATH": f"{folder}:{os.environ['PATH']}",
            }
            found = Engine(name, variables)
            problem = _prepared(found)
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = str(error)
    return Engine(name, refusal=f"{name} does not work here: {problem}") if problem else found


@contextmanager
def used(name: str, monkeypatch: pytest.MonkeyPatch) -> Generator[Engine]:
    """An engine for the containers of this process, of which none is left; skipped where it does not work."""
    found = engine(name)
    if found.refusal:
        pytest.skip(found.refusal)
    for variable, value in {**found.variables, container_engines.SETTING: name}.items():
        monkeypatch.setenv(variable, value)
    container_engines.counts.cache_clear()
    before = containers(found)
    yield found
    container_engines.counts.cache_clear()
    until_s = time.monotonic() + 10 * busy()
    # A removal that a signal has ended may be finished by podman itself, a moment later.
    while not containers(found) <= before:
        assert time.monotonic() < until_s, containers(found) - before
        time.sleep(0.2)


def containers(found: Engine) -> set[str]:
    """Those that this process has made; other processes may run the same tests."""
    names = found.run("ps", "--all", "--format", "{{.Names}}").stdout.split()
    return {one for one in names if one.startswith(f"gym-{os.getpid()}-")}


def _remove_left(found: Engine) -> None:
    """Remove images of test runs that were killed; those that a container uses stay."""
    own = re.escape(NAME.removesuffix(str(os.getpid())))
    for name in found.run("images", "--format", "{{.Repository}}").stdout.split():
        run = re.match(rf"{own}(\d+)", name)
        if run and not Path(f"/proc/{run[1]}").exists():
            found.run("rmi", name)


def _prepared(found: Engine) -> str:
    """Import the image and try it; the problem, or ""."""
    if problem := imported(found, NAME):
        return problem
    tried = found.run("run", "--rm", "--network=none", NAME, "/bin/sh", "-c", "exit 0")
    return tried.stderr.strip()[-500:] if tried.returncode else ""


def imported(found: Engine, name: str, further: Path | None = None) -> str:
    """Make an image of these programs and a folder's files, removed at exit; the problem, or ""."""
    found.run("rmi", "--force", name)  # else an earlier one of this name stays, as <none>
    with tempfile.TemporaryDirectory(prefix="gym-image-") as folder:
        done = found.run("import", str(_root(Path(folder), further)), name)
    if done.returncode == 0:
        atexit.register(found.run, "rmi", "--force", name)  # before the folder of `engine` is removed
    return done.stderr.strip()[-500:] if done.returncode else ""


def _root(folder: Path, further: Path | None) -> Path:
    """The archive of a root file system: programs, their libraries, Python, git."""
    files: set[str] = {"/usr/lib/git-core/git"}
    for name in PROGRAMS:
        path = shutil.which(name, path="/usr/bin:/bin")
        if path is None:
            continue
        real = os.path.realpath(path)
        files |= {path, real}
        listed = subprocess.run(["ldd", real], capture_output=True, text=True, check=False).stdout
        files |= set(re.findall(r"(/\S+\.so\S*)", listed))
    root = folder / "root"
    for path in sorted(files):
        if os.path.exists(path):
            place = _merged(path)
            target = root / place.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                shutil.copy2(os.path.realpath(path), target)
    library = next(Path("/usr/lib").glob("python3.[0-9]*"), None)
    if library is not None:
        ignored = shutil.ignore_patterns("__pycache__", "test", "idlelib", "dist-packages")
        shutil.copytree(library, root / str(library).lstrip("/"), ignore=ignored, symlinks=True)
    for name in ("bin", "lib", "lib64", "sbin"):
        (root / "usr" / name).mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(f"usr/{name}")
    for name in ("tmp", "root", "proc", "dev", "sys", "etc", "testbed"):
        (root / name).mkdir()
    (root / "tmp").chmod(0o1777)
    if further is not None:
        shutil.copytree(further, root, dirs_exist_ok=True)
    archive = folder / "root.tar"
    subprocess.run(["tar", "-C", str(root), "-cf", str(archive), "."], check=True)
    return archive


def _merged(path: str) -> str:
    """A path below ``/usr``, also where this machine reaches it through a link."""
    return path if path.startswith("/usr/") else f"/usr{path}"
