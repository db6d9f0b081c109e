"""Boxes on this machine: other users, other workers at the same time, and what a box's programs say."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from gym_boxes import BoxGone, BoxRefused, engines, overlays
from gym_boxes.engines import Engine
from gym_boxes.overlays import EMPTY, Overlays
from gym_boxes.provider import Found
from gym_runtime import UsageError
from gym_sandbox import Limits
from gym_sandbox.sandbox_errors import SetupError

pytestmark = pytest.mark.anyio


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    try:
        Overlays(tmp_path / "boxes")
    except SetupError as error:
        pytest.skip(str(error))
    return tmp_path / "boxes"


@pytest.mark.parametrize("name", ["", "boxes", "layers", "templates"])
def test_a_folder_that_others_can_change_is_refused(folder: Path, name: str) -> None:
    place = folder / name
    place.chmod(0o777)
    with pytest.raises(UsageError, match="that no other user can write to: chmod go-w"):
        Overlays(folder)
    place.chmod(0o755)
    Overlays(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_folder_of_another_user_is_refused(folder: Path) -> None:
    os.chown(folder, 12345, 12345)
    with pytest.raises(UsageError, match="must be a folder of this user"):
        Overlays(folder)


def test_only_a_link_that_the_user_names_is_followed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = folder.with_name("link")
    link.symlink_to(folder)
    with pytest.raises(UsageError, match="must be a folder of this user"):
        Overlays(link)
    monkeypatch.setenv(overlays.FOLDER, str(link))
    overlays.make()


class Workers:
    """Two workers of one machine, of which the second does something at a chosen step of the first."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.one, self.two = Overlays(folder), Overlays(folder)
        self._folder = folder
        self._left, self._meanwhile = -1, list[Callable[[], object]]()
        for owner, name in ((overlays, "_write"), (Path, "rename"), (Path, "iterdir"), (Path, "glob")):
            monkeypatch.setattr(owner, name, self._stepping(getattr(owner, name)))

    def _stepping(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **more: Any) -> Any:
            self._look()
            done = real(*args, **more)
            if isinstance(done, Iterator):
                done = iter(list(cast("Iterator[Any]", done)))
            self._look()
            return done

        return step

    def _look(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._meanwhile.pop()()

    def at(self, step: int, meanwhile: Callable[[], object]) -> None:
        self._meanwhile, self._left = [meanwhile], step

    def happened(self) -> bool:
        return not self._meanwhile

    def box(self) -> str:
        self.one._make("box", EMPTY, "a.1.1")  # pyright: ignore[reportPrivateUsage]
        self.write("one")
        return self.seal()

    def write(self, name: str) -> None:
        (self._folder / "boxes" / "box" / "upper" / name).write_text(name)

    def seal(self) -> str:
        return self.one._seal("box")  # pyright: ignore[reportPrivateUsage]

    def drop(self, template: str) -> None:
        self.two._drop(template)  # pyright: ignore[reportPrivateUsage]

    def files(self) -> set[str]:
        """The files of the box, over all of its layers."""
        listed = (self._folder / "boxes" / "box" / "stack").read_text().split()
        return {file.name for layer in listed for file in os.scandir(self._folder / "layers" / layer)}


@pytest.mark.parametrize("step", range(1, 7))
def test_a_template_is_forgotten_while_a_box_is_kept(
    folder: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = Workers(folder, monkeypatch)
    old = workers.box()
    workers.write("two")
    workers.at(step, lambda: workers.drop(old))
    workers.seal()
    assert workers.happened()
    assert workers.files() == {"one", "two"}


@pytest.mark.parametrize("step", range(1, 7))
def test_a_box_is_kept_while_a_template_is_forgotten(
    folder: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = Workers(folder, monkeypatch)
    old = workers.box()
    workers.write("two")
    workers.at(step, workers.seal)
    workers.drop(old)
    assert workers.happened()
    assert workers.files() == {"one", "two"}


def test_a_worker_that_is_killed_while_it_keeps_a_box_loses_no_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = Workers(folder, monkeypatch)
    workers.box()
    workers.write("two")

    def die() -> None:
        raise KeyboardInterrupt

    workers.at(3, die)
    with pytest.raises(KeyboardInterrupt):
        workers.seal()
    workers.seal()
    assert workers.files() == {"one", "two"}


def kept(folder: Path) -> set[Path]:
    """What is stored of boxes, layers and templates."""
    return {*folder.glob("*/*")}


@pytest.mark.slow
async def test_a_link_in_a_box_is_not_followed_when_its_files_are_removed(
    folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside" / "work").mkdir(parents=True)
    boxes = Overlays(folder)
    box = await boxes.create(EMPTY, label="a.1.1", life_s=60)
    for template in (False, True):
        assert (await boxes.exec(box, f"ln -s {tmp_path}/outside work", timeout_s=60)).exit_code == 0
        if template:
            await boxes.forget(await boxes.snapshot(box))
        await boxes.reset(box)
    await boxes.end(box)
    assert (tmp_path / "outside" / "work").exists()
    assert not kept(folder)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of a few kilobytes."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "size=128k,mode=711", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mounted, check=False, capture_output=True).returncode != 0:
        pytest.skip("it takes the right to mount")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.slow
async def test_a_full_disk_refuses_boxes_and_keeps_those_that_are_there(
    folder: Path, small_disk: Path
) -> None:
    boxes = Overlays(small_disk)
    box = await boxes.create(EMPTY, label="a.1.1", life_s=60)
    filled = await boxes.exec(box, "echo kept >one; head -c 1000000 /dev/zero >two", timeout_s=60)
    assert filled.exit_code != 0
    before = kept(small_disk)
    with pytest.raises(BoxRefused, match=f"No space left on device in {small_disk}"):
        await boxes.create(EMPTY, label="a.2.1", life_s=60)
    with pytest.raises(BoxRefused, match="No space left"):
        await boxes.snapshot(box)
    assert kept(small_disk) == before
    assert await boxes.get(box, "/box/one") == b"kept\n"
    await boxes.exec(box, "rm two", timeout_s=60)
    fork = await boxes.create(await boxes.snapshot(box), label="a.2.1", life_s=60)
    assert await boxes.get(fork, "/box/one") == b"kept\n"
    await boxes.aclose()


@pytest.mark.slow
async def test_layers_are_deleted_with_the_last_box_that_has_them(folder: Path) -> None:
    boxes = Overlays(folder)
    box = await boxes.create(EMPTY, label="a.1.1", life_s=60)
    await boxes.put(box, "/box/one", b"1")
    template = await boxes.snapshot(box)
    fork = await boxes.create(template, label="a.2.1", life_s=60)
    await boxes.forget(template)
    await boxes.end(box)
    assert await boxes.get(fork, "/box/one") == b"1"
    await boxes.end(fork)
    assert not kept(folder)


def test_a_box_that_is_half_removed_is_listed_and_can_be_ended_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that dies while it removes many files leaves the rest to the reaper, which asks for a list."""
    boxes: Any = Overlays(folder)
    boxes._make("box", EMPTY, "a.1.1")
    (folder / "boxes" / "box" / "upper" / "one").write_text("one")

    def die(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(subprocess, "run", die)
        boxes._remove(folder / "boxes" / "box")
    assert boxes._list("a.") == [Found("box", "a.1.1")]
    with pytest.raises(BoxGone):
        boxes._of("box")
    boxes._remove(folder / "boxes" / "box")
    assert not boxes._list("a.")
    assert not kept(folder)


@pytest.fixture
def podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A command that notes what it is told, and does as the file ``does`` beside it says."""
    command = tmp_path / "podman"
    command.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/asked\n. {tmp_path}/does\n')
    command.chmod(0o755)
    (tmp_path / "does").touch()
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


SAYS = 'case "$1" in container) echo {running} ;; *) echo "nginx is not running" >&2; exit 1 ;; esac\n'


async def test_a_command_that_says_that_something_does_not_run_ends_no_box(podman: Path) -> None:
    engine = Engine("podman")
    (podman / "does").write_text(SAYS.format(running="true"))
    done = await engine.exec("gym-b", "service nginx status", timeout_s=5)
    assert (done.exit_code, done.stderr) == (1, b"nginx is not running\n")
    (podman / "does").write_text(SAYS.format(running="false"))
    with pytest.raises(BoxGone):
        await engine.exec("gym-b", "service nginx status", timeout_s=5)


@pytest.mark.parametrize("counts", [True, False])
async def test_memory_and_processes_are_limited_where_the_engine_can(
    podman: Path, monkeypatch: pytest.MonkeyPatch, counts: bool
) -> None:
    def found(command: str) -> bool:
        return counts

    monkeypatch.setattr(engines, "counts", found)
    engine = Engine("podman", Limits(processes=7, memory_bytes=1 << 28))
    await engine.create("image", label="a.1.1", life_s=60)
    asked = (podman / "asked").read_text()
    assert ("--pids-limit=7 --memory=268435456" in asked) is counts
