"""The files that the runtime writes: a link, a pipe or a second name at one of them changes nothing else."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from gym_faces.recordings import CallsFile
from gym_runtime.errors import UsageError
from gym_runtime.files.appender import Appender, repair_tail, write_whole
from gym_runtime.files.results import Lock, OutputFiles
from gym_runtime.own_files import open_own, private_folder, replacing

PRECIOUS = b"not the runtime's\nand without a last newline"


def symbolic(path: Path, victim: Path) -> None:
    path.symlink_to(victim)


def hard(path: Path, victim: Path) -> None:
    path.hardlink_to(victim)


def pipe(path: Path, victim: Path) -> None:
    os.mkfifo(path)


def nothing_behind(path: Path, victim: Path) -> None:
    path.symlink_to(victim.with_name("missing"))


TRAPS = [symbolic, hard, pipe, nothing_behind]
WRITERS: dict[str, Callable[[Path], object]] = {
    "append": Appender,
    "record calls": CallsFile,
    "repair": repair_tail,
    "replace": lambda path: write_whole(path, iter([b"{}"])),
    "run": lambda path: OutputFiles.beside(path.with_name("out.jsonl")).lock(),
}


@pytest.mark.parametrize("trap", TRAPS)
@pytest.mark.parametrize("writer", WRITERS)
def test_what_is_no_file_of_its_own_is_refused(
    tmp_path: Path, writer: str, trap: Callable[..., None]
) -> None:
    victim = tmp_path / "elsewhere" / "victim"
    victim.parent.mkdir()
    victim.write_bytes(PRECIOUS)
    path = tmp_path / ("out_run.json" if writer == "run" else "out.jsonl")
    trap(path, victim)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match=r"out.*(is a symbolic link|hard links|is no regular file).*remove"):
        WRITERS[writer](path)
    assert victim.read_bytes() == PRECIOUS
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("trap", [symbolic, hard, pipe])
def test_a_lock_file_is_its_own(tmp_path: Path, trap: Callable[..., None]) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(PRECIOUS)
    trap(tmp_path / ".out.lock", victim)
    with pytest.raises(UsageError, match=r"\.out\.lock is .*remove"):
        Lock(tmp_path / "out.jsonl")
    assert victim.read_bytes() == PRECIOUS


def test_a_foreign_file_is_no_lock(tmp_path: Path) -> None:
    (tmp_path / ".out.lock").write_bytes(PRECIOUS)
    with pytest.raises(UsageError, match="is not a lock of this runtime; move it away"):
        Lock(tmp_path / "out.jsonl")
    assert (tmp_path / ".out.lock").read_bytes() == PRECIOUS


@pytest.mark.parametrize("content", [PRECIOUS, b'{\n  "a": 1\n}\n', b"one line", b"[1, 2"])
def test_no_line_is_cut_off_a_file_that_is_not_of_json_lines(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"notes\.txt is not a file of JSON lines"):
        CallsFile(path)
    assert path.read_bytes() == content


def test_a_folder_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with OutputFiles.beside(tmp_path / "link" / "out.jsonl").lock():
        Appender(tmp_path / "link" / "out.jsonl").close()
    assert [path.name for path in (tmp_path / "real").iterdir()] == ["out.jsonl"]


RECORD = """
import sys
from pathlib import Path
from gym_runtime.files.appender import Appender
from gym_faces.recordings import CallsFile
file = CallsFile(Path(sys.argv[1]))
file._appender.append(b"{}")
file.close()
"""


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_an_open_descriptor_of_the_process_may_be_written_to(tmp_path: Path, name: str) -> None:
    piped = subprocess.run([sys.executable, "-c", RECORD, name], capture_output=True, check=True)
    assert piped.stdout == b"{}\n"
    with (tmp_path / "calls.jsonl").open("wb") as file:
        subprocess.run([sys.executable, "-c", RECORD, name], stdout=file, check=True)
    assert (tmp_path / "calls.jsonl").read_bytes() == b"{}\n"


def test_a_draft_never_takes_a_name_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda _: "00")
    (tmp_path / "victim").write_bytes(PRECIOUS)
    (tmp_path / ".out.00.tmp").symlink_to("victim")
    with pytest.raises(UsageError, match="symbolic link"), replacing(tmp_path / "out"):
        pass
    assert (tmp_path / "victim").read_bytes() == PRECIOUS


def test_an_error_while_it_is_replaced_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), replacing(tmp_path / "out") as file:
        file.write(b"new")
        raise ZeroDivisionError
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"out": b"old"}


def test_a_device_is_no_file_that_can_be_replaced() -> None:
    os.close(open_own(Path("/dev/null"), os.O_WRONLY))
    with pytest.raises(UsageError, match="/dev/null is no regular file"):
        write_whole(Path("/dev/null"), iter([b"x"]))
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_a_private_folder_is_this_users_alone(tmp_path: Path) -> None:
    (tmp_path / "indices").mkdir(mode=0o755)
    private_folder(tmp_path / "indices")
    assert (tmp_path / "indices").stat().st_mode & 0o777 == 0o700
    (tmp_path / "link").symlink_to("indices")
    with pytest.raises(UsageError, match=r"link cannot be used .*GYM_CACHE"):
        private_folder(tmp_path / "link")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_private_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "indices").mkdir()
    os.chown(tmp_path / "indices", 65534, 65534)
    with pytest.raises(UsageError, match="belongs to another user; set GYM_CACHE"):
        private_folder(tmp_path / "indices")
