"""Boxes on this machine: other users, other workers at the same time, and what a box's programs say."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from gym_boxes import BoxGone, engines, overlays
from gym_boxes.engines import Engine
from gym_boxes.overlays import EMPTY, Overlays
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
