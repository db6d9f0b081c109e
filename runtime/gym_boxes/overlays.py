"""Boxes on this machine: sandboxes of bubblewrap whose folder ``/box`` is a stack of layers on disk.

A box has its own upper folder over the layers of its template. A snapshot makes the upper folder one
more layer, by a rename; a fork is one more box over the same layers. So neither copies a file. A template is
the list of its layers. ``/box`` is what stays and what a snapshot has; ``/tmp`` is in memory, and processes
end with a snapshot, and with the worker.

    FOLDER/boxes/ID/{label,stack,upper,work}    FOLDER/layers/ID    FOLDER/templates/ID
"""

from __future__ import annotations

import os
import secrets
import shlex
import stat
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread
from gym_runtime import UsageError
from gym_sandbox import Container, Interrupted, Limits, bubblewrap
from gym_sandbox.readable_files import Layers

from gym_boxes.answers import too_large
from gym_boxes.provider import GET_BYTES, BoxGone, BoxRefused, BoxUnknown, Found, Ran
from gym_boxes.scripts import reading, require_done, writing

FOLDER = "GYM_BOXES_FOLDER"
PLACE = "/box"
EMPTY = "empty"
"""The template without any file."""
ENDED = "ended"
"""What a box's label is called while the box is being removed."""
MOST_LAYERS = 60
"""The kernel takes the paths of all layers in one page."""
FILE_S = 60.0
REMOVE_S = 600
T = TypeVar("T")


class _Opened:
    """A box as this process has it."""

    def __init__(self) -> None:
        self.container: Container | None = None
        self.one = anyio.Lock()


class Overlays:
    """The provider `gym_boxes.Provider` of this machine.

    Args:
        folder: where boxes and layers are; workers of one machine may share it.
        limits: of each box. ``disk_bytes`` counts for ``/tmp`` only.
    """

    def __init__(self, folder: Path, limits: Limits | None = None) -> None:
        self._folder = str(folder)
        self._boxes, self._layers, self._templates = (
            folder / name for name in ("boxes", "layers", "templates")
        )
        self._limits = limits or Limits(file_bytes=1 << 30)
        self._opened: dict[str, _Opened] = {}
        for made in (folder, self._boxes, self._layers, self._templates):
            made.mkdir(mode=0o755, parents=True, exist_ok=True)
            _require_own(made)
        self._owner = bubblewrap.layers_owner()

    async def create(self, template: str, *, label: str, life_s: float, internet: bool = False) -> str:
        """See `gym_boxes.Provider.create`. It lives until it is ended."""
        if internet:
            raise UsageError("boxes of bubblewrap have no network: use podman, docker or a service")
        box = secrets.token_hex(6)
        await self._on_disk(self._make, box, template, label)
        self._opened[box] = _Opened()
        await self._container(box).start()
        return box

    async def exec(self, box: str, script: str, *, timeout_s: float, stdin: bytes = b"") -> Ran:
        """See `gym_boxes.Provider.exec`."""
        return await self._run(box, script, timeout_s, stdin)

    async def put(self, box: str, path: str, data: bytes) -> None:
        """See `gym_boxes.Provider.put`."""
        require_done(await self._run(box, writing(path), FILE_S, data), f"{path} cannot be written")

    async def get(self, box: str, path: str, *, most_bytes: int = GET_BYTES) -> bytes:
        """See `gym_boxes.Provider.get`."""
        # The end of a longer output is kept, too, so one byte more may be missing from it.
        keep = min(self._limits.file_bytes, most_bytes) + 2
        done = await self._run(box, reading(path, most_bytes), FILE_S, keep=keep)
        require_done(done, f"there is no file {path} in the box")
        if len(done.stdout) > most_bytes:
            raise too_large(path, most_bytes)
        return done.stdout

    async def snapshot(self, box: str) -> str:
        """See `gym_boxes.Provider.snapshot`. Processes end."""
        opened = self._of(box)
        async with opened.one:
            if opened.container is not None:
                await opened.container.close()
                opened.container = None
            return await self._on_disk(self._seal, box)

    async def forget(self, template: str) -> None:
        """See `gym_boxes.Provider.forget`. Layers that nothing uses any more are deleted."""
        await anyio.to_thread.run_sync(self._drop, template)

    async def ready(self, box: str) -> None:
        """Return when a box takes commands; `exec` waits for that by itself."""
        opened = self._of(box)
        async with opened.one:
            await self._container(box).ready()

    async def reset(self, box: str) -> None:
        """Give a box the files of its template again; its processes end."""
        opened = self._of(box)
        async with opened.one:
            if opened.container is not None:
                await opened.container.close()
                opened.container = None
            await self._on_disk(self._clear, box)
            await self._container(box).start()

    async def renew(self, box: str, life_s: float) -> None:
        """See `gym_boxes.Provider.renew`."""
        self._of(box)

    async def end(self, box: str) -> None:
        """See `gym_boxes.Provider.end`."""
        opened = self._opened.pop(box, None)
        if opened is not None and opened.container is not None:
            await opened.container.close()
        await anyio.to_thread.run_sync(self._finish, self._boxes / _checked(box))

    async def list(self, prefix: str) -> Sequence[Found]:
        """See `gym_boxes.Provider.list`."""
        return await anyio.to_thread.run_sync(self._list, prefix)

    async def aclose(self) -> None:
        """See `gym_boxes.Provider.aclose`: the boxes' processes end."""
        for opened in self._opened.values():
            if opened.container is not None:
                await opened.container.close()
                opened.container = None

    def _of(self, box: str) -> _Opened:
        if not (self._boxes / _checked(box) / "label").exists():
            raise BoxGone(f"there is no box {box}", stage="box")
        return self._opened.setdefault(box, _Opened())

    def _container(self, box: str) -> Container:
        opened, place = self._of(box), self._boxes / box
        if opened.container is None:
            stack = self._stack_of(place)
            layers = Layers(
                PLACE,
                # One layer at least: the kernel wants something below the upper folder.
                tuple(str(self._layers / one) for one in stack) or (str(place / "lower"),),
                str(place / "upper"),
                str(place / "work"),
                self._folder,
            )
            opened.container = Container(directory=PLACE, limits=self._limits, layers=layers)
        return opened.container

    async def _run(
        self, box: str, script: str, timeout_s: float, stdin: bytes = b"", keep: int | None = None
    ) -> Ran:
        opened = self._of(box)
        async with opened.one:
            container = self._container(box)
            try:
                done = await container.run(script, stdin=stdin, timeout_s=timeout_s, output_bytes=keep)
            except Interrupted as error:
                raise BoxUnknown(f"{error}; the files of box {box} are still there", stage="box") from error
            finally:
                if container.ended:
                    opened.container = None  # its files are still there
        return Ran(exit_code=done.exit_code, stdout=done.stdout, stderr=done.stderr)

    async def _on_disk(self, work: Callable[..., T], *arguments: object) -> T:
        """Run what changes folders, in a thread.

        Raises:
            BoxRefused: the disk takes no more; nothing is left of what was begun.
        """
        try:
            return await anyio.to_thread.run_sync(work, *arguments)
        except OSError as error:
            raise BoxRefused(f"{error.strerror} in {self._folder}, where boxes are kept") from error

    def _make(self, box: str, template: str, label: str) -> None:
        stack = self._stack(template)
        place = self._boxes / box
        try:
            for name in ("", "upper", "work", *(() if stack else ("lower",))):
                (place / name).mkdir()
                if name:
                    self._hand_over(place / name)
            (place / "stack").write_text("\n".join(stack))
            # Last: a box without it was never made.
            _write(place / "label", label)
        except OSError:
            self._remove(place)
            raise

    def _stack(self, template: str) -> Sequence[str]:
        if template == EMPTY:
            return []
        try:
            return (self._templates / _checked(template)).read_text().split()
        except OSError as error:
            raise UsageError(f"there is no template {template} on this machine") from error

    def _stack_of(self, place: Path) -> list[str]:
        """A box's layers. A worker that was killed in `_seal` has listed what is still the upper folder."""
        stack = (place / "stack").read_text().split()
        return stack if not stack or (self._layers / stack[-1]).exists() else stack[:-1]

    def _seal(self, box: str) -> str:
        place, template = self._boxes / box, secrets.token_hex(6)
        stack = self._stack_of(place)
        if os.listdir(place / "upper") or not stack:
            if len(stack) >= MOST_LAYERS:
                raise BoxRefused(f"box {box} has {len(stack)} layers: begin a new one with its files")
            # Before the layer is there: another worker deletes layers that no list has.
            stack.append(template)
            _write(place / "stack", "\n".join(stack))
            (place / "upper").rename(self._layers / template)
            try:
                (place / "upper").mkdir()
                self._hand_over(place / "upper")
            except OSError:
                (self._layers / template).rename(place / "upper")
                raise
        _write(self._templates / template, "\n".join(stack))
        return template

    def _clear(self, box: str) -> None:
        place = self._boxes / box
        _delete(place / "work" / "work")
        for name in ("upper", "work"):
            _delete(place / name)
            (place / name).mkdir()
            self._hand_over(place / name)

    def _hand_over(self, folder: Path) -> None:
        os.chown(folder, self._owner, self._owner if os.geteuid() == 0 else -1, follow_symlinks=False)

    def _finish(self, place: Path) -> None:
        layered = ""
        with suppress(OSError):  # the reaper may be ending the same box
            layered = (place / "stack").read_text()
        self._remove(place)
        if layered:
            self._sweep()

    def _drop(self, template: str) -> None:
        (self._templates / _checked(template)).unlink(missing_ok=True)
        self._sweep()

    def _sweep(self) -> None:
        """Delete layers that no template and no box lists."""
        # Before the lists are read: a layer that is made meanwhile is not among these.
        layers = list(self._layers.iterdir())
        used: set[str] = set()
        for listing in (*self._templates.iterdir(), *self._boxes.glob("*/stack")):
            with suppress(FileNotFoundError):
                used.update(listing.read_text().split())
        for layer in layers:
            if layer.name not in used:
                _delete(layer)

    def _list(self, prefix: str) -> list[Found]:
        found: list[Found] = []
        for label in (*self._boxes.glob("*/label"), *self._boxes.glob(f"*/{ENDED}")):
            with suppress(OSError):
                if (text := label.read_text()).startswith(prefix):
                    found.append(Found(label.parent.name, text))
        return found

    def _remove(self, place: Path) -> None:
        with suppress(OSError):  # what has no label is no box any more
            # It is listed until all is gone: if this worker dies meanwhile, the reaper removes the rest.
            (place / "label").rename(place / ENDED)
        for name in ("upper", "work/work", "work", "lower"):
            _delete(place / name)
        for name in ("stack", ENDED):
            with suppress(OSError):
                (place / name).unlink()
        _delete(place)


def _delete(folder: Path) -> None:
    """Remove a folder with all that programs have put into it."""
    # Where nothing was written, this is all: a program that removes costs as much as a box.
    with suppress(OSError):
        folder.rmdir()
    if os.path.lexists(folder):
        # Not in Python, which fails on a very deep tree of folders.
        lines = 'rm -rf -- "$1" 2>/dev/null || { chmod -R u+rwx -- "$1"; rm -rf -- "$1"; }'
        subprocess.run(["/bin/sh", "-c", lines, "sh", folder], timeout=REMOVE_S, check=False)


def _require_own(folder: Path) -> None:
    """
    Raises:
        UsageError: another user could put something else in the place of what is made there.
    """
    found = folder.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022:
        return
    raise UsageError(
        f"{folder} must be a folder of this user that no other user can write to: "
        f"chmod go-w {shlex.quote(str(folder))}, or set {FOLDER} to another one"
    )


def _checked(name: str) -> str:
    if not (name.isalnum() and name.isascii()):
        raise BoxGone(f"there is no box or template {name!r}", stage="box")
    return name


def _write(path: Path, text: str) -> None:
    made = path.with_name(f".{path.name}")
    try:
        made.write_text(text)
        made.replace(path)
    except OSError:
        made.unlink(missing_ok=True)
        raise


def make() -> Overlays:
    """The provider, in the folder that the environment variable names."""
    given = os.environ.get(FOLDER, "")
    # A link that a user names is meant; one in the folder of all users is another one's.
    named = os.path.realpath(given) if given else f"{tempfile.gettempdir()}/gym-boxes-{os.geteuid()}"
    return Overlays(Path(named))
