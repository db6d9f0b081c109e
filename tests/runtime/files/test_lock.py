"""One writer per output."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from gym_runtime.errors import UsageError
from gym_runtime.files.results import Lock

HOLD = """
import sys
from pathlib import Path
from gym_runtime.files.results import Lock
lock = Lock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read(1)
"""


def test_a_second_run_is_refused_by_name(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    with (
        Lock(output),
        pytest.raises(UsageError, match=rf"out\.jsonl is being written by pid {os.getpid()} on "),
    ):
        Lock(output)
    with Lock(output):
        pass
    assert list(tmp_path.iterdir()) == []


FULL = """
import resource, sys
from pathlib import Path
from gym_runtime.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
sys.exit(main.run(sys.argv[2:]))
"""


def on_a_full_disk(size_bytes: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", FULL, str(size_bytes), *arguments]
    # Or the limit would cut off the bytecode that Python writes of what it imports.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)


@pytest.mark.slow
def test_a_disk_that_does_not_take_the_lock_is_named(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    ran = on_a_full_disk(0, "run", "mcqa", "--model", "scripted/message", "-o", str(output))
    assert ran.returncode == 2
    assert ran.stderr == (
        f"gym-runtime: cannot write {tmp_path}/.out.lock: File too large; make room, or choose another -o\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_run_that_a_full_disk_does_not_let_start_replaces_nothing(tmp_path: Path) -> None:
    arguments = (
        "run",
        "mcqa",
        "--limit",
        "1",
        "--model",
        "scripted/message",
        "-o",
        str(tmp_path / "o.jsonl"),
    )
    assert on_a_full_disk(2**30, *arguments).returncode == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    ran = on_a_full_disk(400, *arguments, "--overwrite")  # the lock fits, the manifest does not
    why = f"cannot write {tmp_path}/o_run.json: File too large; make room, then try again"
    assert (ran.returncode, ran.stderr) == (2, f"gym-runtime: {why}\n")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_new_environment_that_does_not_fit_leaves_nothing_behind(tmp_path: Path) -> None:
    ran = on_a_full_disk(1000, "new", "fresh", "--shape", "verify", "--directory", str(tmp_path))
    assert (ran.returncode, ran.stderr) == (2, f"gym-runtime: cannot write to {tmp_path}: File too large\n")
    assert list(tmp_path.iterdir()) == []


def test_a_link_to_the_output_is_the_output(tmp_path: Path) -> None:
    (tmp_path / "real.jsonl").touch()
    (tmp_path / "link.jsonl").symlink_to("real.jsonl")
    with Lock(tmp_path / "real.jsonl"), pytest.raises(UsageError, match="being written"):
        Lock(tmp_path / "link.jsonl")


def test_other_outputs_are_free(tmp_path: Path) -> None:
    with Lock(tmp_path / "a.jsonl"), Lock(tmp_path / "b.jsonl"):
        pass


def test_another_process_holds_it_until_it_is_killed(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    command = [sys.executable, "-c", HOLD, str(output)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(UsageError, match=f"being written by pid {holder.pid}"):
            Lock(output)
        holder.kill()
        holder.wait()
        with Lock(output):
            pass


def test_a_file_left_behind_means_nothing(tmp_path: Path) -> None:
    (tmp_path / ".out.lock").write_text("pid 1 on elsewhere\n")
    with Lock(tmp_path / "out.jsonl"):
        assert (tmp_path / ".out.lock").read_text().startswith(f"pid {os.getpid()} ")


def test_a_folder_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write to"):
        Lock(tmp_path / "none" / "out.jsonl")


def test_where_there_are_no_locks_it_only_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", flock)
    with Lock(tmp_path / "out.jsonl"), Lock(tmp_path / "out.jsonl"):
        pass
    assert list(tmp_path.iterdir()) == []
