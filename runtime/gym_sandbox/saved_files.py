"""The files of a container, saved after each change so that another container continues with them.

What was changed since the last time is one *layer*: the changed files, and the names in each changed folder,
so that what is not there is deleted. A `Store` keeps each layer once, by its digest; their names, in order,
bring a container that began in the same way to the same files. Kept is what can be written: all files of an
image's container, else those in memory (``/tmp`` and the container's own folders), with folders, symbolic
links, hard links within one layer, modes and times. Processes, sockets and pipes are not kept. The kernel's
time of change tells what was changed. A folder that is moved does not give it to the files in it; so the
folders are compared with those of the last time, too, by their inodes and paths.

Where this worker sees the container's files, a process beside it reads them (`gym_sandbox.seen_files`).
Elsewhere the container makes and unpacks the layers itself, with GNU find, tar and coreutils. What has run
there may have forged these: outside they are bytes that no program reads but one within the container's
files, and they return to a container of the same rollout, where a model's commands have the same rights
anyway. Either way unpacks what the other has packed.
"""

from __future__ import annotations

import os
import re
import shlex
from base64 import b64decode
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Protocol

import msgspec
from anyio import to_thread

from gym_sandbox import file_packer, layer_archive, seen_files
from gym_sandbox.container import Container
from gym_sandbox.sandbox_errors import SetupError, StartError

TURN = "GYM_SAVED_TURN_MIB"
"""The environment variable with the size of the largest layer, compressed, in MiB; 128 by default."""
LIMIT_S = 60.0
"""How long one step in the container may take."""
LAYER_BYTES = 32 << 20
"""The largest layer that a container makes by itself, compressed."""
PART_BYTES = 8 << 20
"""A larger layer is stored in parts of this size, so that no more of it is in memory."""
PARTS = b"gym parts\n"
"""How a part begins that is the names of others, in order."""
MOST_LAYERS = 64
"""More of them become one, which also drops what later layers have replaced."""

MOST_FAILURES = 3
"""After so many failures in a row it is given up: each may take `LIMIT_S` of the rollout's time."""

_DIGEST = re.compile("[0-9a-f]{32}")
_TIME = re.compile(r"[0-9]{1,12}\.[0-9]{9}")
# A file's time of change is up to a tick of the kernel behind the clock: hence the pause.
_CLOCK = "printf '%s ' \"$(date +%s.%N)\" && sleep 0.02"
# A command's own files are in the folder of its script, and the room of these scripts is beside it.
_ROOM = r"""
export LC_ALL=C
cd / && room=$(mktemp -d) && trap 'rm -rf "$room"' EXIT || exit 1
export A=".$room" B=".${0%/*}"
"""
# Of an image, its root and what is mounted there in memory, such as apptainer's /tmp and podman's volumes.
_OF_IMAGE = r"""
FOLDERS=.
while read -r _ place kind _; do
  case $kind:$place in
    tmpfs:/ | tmpfs:/dev* | tmpfs:/proc* | tmpfs:/sys* | tmpfs:/run*) ;;
    tmpfs:*) [ ! -d "$place" ] || FOLDERS="$FOLDERS .$place" ;;
  esac
done </proc/self/mounts
"""
# What a client of a box has put there for itself is named like this.
_NAMES = r"""xargs -0 -r sh -c 'find "$@" -mindepth 1 -maxdepth 1 ! -path "$A" ! -path "$B" \
  ! -path "./tmp/.gym-*" -printf "%y %p\0" 2>/dev/null; :' sh"""
_SKIPPED = r"""\( -path "$A" -o -path "$B" -o -path "./tmp/.gym-*" -o -path ./proc -o -path ./sys -o \
  -path ./dev \)"""
_OWN_FILES = " ".join(f"! -path {name}" for name in file_packer.OF_ENGINE)
_DIRS = r"""-type d -fprintf "$room/dirs" '%i %p\0'"""
_TELL_DIRS = 'sort -z "$room/dirs" | gzip -1n | base64 -w0'
BEGIN = rf"""
{_ROOM}
find $FOLDERS -xdev {_SKIPPED} -prune -o \( {_DIRS} , -type f {_OWN_FILES} -printf '%s %p\0' \) 2>/dev/null |
  sort -z | sha256sum | cut -c-32 | tr '\n' ' ' && {_CLOCK} && {_TELL_DIRS}
"""
AGAIN = rf"""
{_ROOM}
sleep 0.02
find $FOLDERS -xdev {_SKIPPED} -prune -o {_DIRS} 2>/dev/null
{_CLOCK} && {_TELL_DIRS}
"""
SAVE = rf"""
{_ROOM}
{{ {_CLOCK}; }} >&2
exec 3>&2 2>/dev/null
gzip -d >"$room/known"
find $FOLDERS -xdev {_SKIPPED} -prune -o \( {_DIRS} , -newerct "@$SINCE" \
  \( -type d -fprint0 "$room/folders" -print0 -o \( -type f -o -type l \) -print0 \) \) \
  >"$room/changed" || exit 1
[ -s "$room/changed" ] || exit 0
sort -z "$room/dirs" | comm -z -13 "$room/known" - | cut -z -d' ' -f2- >"$room/moved"
xargs -0 -r sh -c 'find "$@" -mindepth 1 -maxdepth 1 \( -type f -o -type l \) -print0; :' sh \
  <"$room/moved" | cat - "$room/moved" >>"$room/changed"
cat "$room/moved" >>"$room/folders"
sort -zu -o "$room/changed" "$room/changed" && sort -zu -o "$room/folders" "$room/folders" || exit 1
{_NAMES} <"$room/folders" | sort -z >"$room/names"
tar -cf "$room/layer" -C "$room" folders names || exit 1
tar -rSf "$room/layer" --numeric-owner --no-recursion --null -T "$room/changed" || [ $? = 1 ] || exit 1
gzip -1n <"$room/layer"
{_TELL_DIRS} >&3
"""
RESTORE = rf"""
{_ROOM}
set -e
gzip -dcf >"$room/layer"
tar -xf "$room/layer" -C "$room" folders names
xargs -0 -r sh -c 'for one; do [ ! -L "$one" ] || rm -f -- "$one"; done' sh <"$room/folders"
{_NAMES} <"$room/folders" | sort -z | comm -z -23 - "$room/names" | cut -z -c3- | xargs -0 -r rm -rf --
tar -xpf "$room/layer" --numeric-owner --anchored --exclude=folders --exclude=names
"""


class Store(Protocol):
    """Keeps layers, each once.

    Attributes:
        limit_bytes: how much a rollout may keep.
    """

    limit_bytes: int

    async def put(self, part: bytes) -> str:
        """Keep a layer; its name."""
        ...

    async def get(self, name: str) -> bytes:
        """A layer by its name."""
        ...


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """A state of the files.

    Attributes:
        base: what they were when their container started: a digest of their names and sizes.
        layers: the names of the layers, the oldest first, with their sizes in bytes.
    """

    base: str
    layers: list[tuple[str, int]] = []


def turn_bytes() -> int:
    """How large a layer may be, in bytes.

    Raises:
        SetupError: the variable has no such number.
    """
    said = os.environ.get(TURN, "128")
    if not said.isdigit():
        raise SetupError(f"{TURN}={said} is no number of MiB")
    return int(said) << 20


_Moment = tuple[str, bytes]
"""A time, and the folders of that time, as whatever reads the files tells them."""


class SavedFiles:
    """Saves the files of one container.

    Call `begin` before anything is changed there. Calls must not overlap with commands of the container.

    Args:
        store: None saves nothing.

    Raises:
        SetupError: `TURN` is no number.
    """

    def __init__(self, container: Container, store: Store | None) -> None:
        self._container, self._store = container, store
        self._folders = [f".{folder}" for folder in ("/tmp", *container.writable)]
        folders = shlex.quote(" ".join(self._folders))
        self._head = _OF_IMAGE if container.image else f"FOLDERS={folders}\n"
        self._seen: seen_files.SeenFiles | None = None
        self._saved: Saved | None = None
        self._begun: _Moment = ("", b"")
        self._since: _Moment = ("", b"")
        self._put: dict[str, int] = {}
        self._failures = 0
        self._turn_bytes = turn_bytes()

    async def begin(self, saved: Any = None) -> None:
        """The first use of the container; with what `save` has returned, it gets those files.

        Raises:
            StartError: the container cannot be started, or did not begin as the saved one did, or the
                files cannot be unpacked.
        """
        if self._store is None:
            return
        wanted = None if saved is None else msgspec.convert(saved, Saved)
        known = await self._first_look()
        if wanted is not None:
            if known is None or known.base != wanted.base:
                raise StartError("the files with which the container starts are not those of the lost one")
            layers = [name for name, _ in wanted.layers]
            await (self._unpack_beside if self._seen else self._unpack_inside)(self._store, layers)
        self._saved = wanted or known

    async def save(self) -> dict[str, Any] | None:
        """The state of the files now, as JSON; None if it cannot be saved, for example for its size.

        A later `save` has what this one has not.

        Raises:
            StartError: the container's engine failed.
            Exception: the store did not keep the layer.
        """
        before = self._saved
        if before is None or self._store is None or self._container.ended or self._failures >= MOST_FAILURES:
            return None
        whole = len(before.layers) >= MOST_LAYERS
        since = self._begun if whole else self._since
        most_bytes = min(self._turn_bytes, self._store.limit_bytes - sum(self._put.values()))
        layer = _Layer(self._store, most_bytes, self._put)
        try:
            now = await (self._packed(layer, since) if self._seen else self._made(layer, since))
        except _TooLargeError:
            now = None
        except seen_files.UnseenError:
            # A command finds out whether the container has ended, and raises what that means.
            await self._container.run(":", timeout_s=LIMIT_S)
            now = None
        if now is None:
            self._failures += 1
            return None
        self._failures = 0
        stored = await layer.stored()
        layers = [*([] if whole else before.layers), *([stored] if stored else [])]
        self._saved, self._since = Saved(base=before.base, layers=layers), now
        return msgspec.to_builtins(self._saved)

    async def _first_look(self) -> Saved | None:
        if seen := await seen_files.seen(self._container, self._folders):
            self._seen, base, moment = seen
            self._begun = self._since = ("", moment)
            return Saved(base=base)
        done = await self._container.run(self._head + BEGIN, timeout_s=LIMIT_S, output_bytes=LAYER_BYTES)
        base, _, rest = done.stdout.partition(b" ")
        # Without GNU's programs, or where it has ended, nothing is saved.
        begun = None if done.truncated else _moment(rest)
        if done.exit_code != 0 or begun is None or not _DIGEST.fullmatch(base.decode(errors="replace")):
            return None
        self._begun = self._since = begun
        return Saved(base=base.decode())

    async def _unpack_beside(self, store: Store, layers: Sequence[str]) -> None:
        assert self._seen is not None
        try:
            async with self._seen.unpacking() as unpacking:
                for name in layers:
                    async for part in _parts(store, name):
                        await unpacking.send(part)
                    if not await unpacking.done():
                        await self._unpack_one(store, name)
                self._since = "", await unpacking.moment()
        except seen_files.UnseenError as error:
            raise StartError(f"the files of a lost container cannot be unpacked: {error}") from error

    async def _unpack_inside(self, store: Store, layers: Sequence[str]) -> None:
        for name in layers:
            await self._unpack_one(store, name)
        again = await self._container.run(self._head + AGAIN, timeout_s=LIMIT_S, output_bytes=LAYER_BYTES)
        since = None if again.truncated else _moment(again.stdout)
        if since is None:
            raise StartError("the container with a lost one's files has ended")
        self._since = since

    async def _unpack_one(self, store: Store, name: str) -> None:
        """Have the container unpack a layer."""
        layer = b"".join([part async for part in _parts(store, name)])
        if not layer.startswith(layer_archive.GZIP):
            layer = await to_thread.run_sync(_tar, layer)
        unpacked = await self._container.run(RESTORE, stdin=layer, timeout_s=LIMIT_S)
        if unpacked.exit_code != 0:
            words = unpacked.stderr.decode(errors="replace")[-500:]
            raise StartError(f"the files of a lost container cannot be unpacked: {words}")

    async def _packed(self, layer: _Layer, since: _Moment) -> _Moment:
        """Store what was changed since a moment, and return the moment of this look."""
        assert self._seen is not None
        async with self._seen.packed(since[1]) as packed:
            while piece := await packed.piece(PART_BYTES):
                await layer.put(piece)
            return "", await packed.moment()

    async def _made(self, layer: _Layer, since: _Moment) -> _Moment | None:
        """The same, by the container itself; None if that cannot be had."""
        script = f"{self._head}SINCE={since[0]}\n{SAVE}"
        done = await self._container.run(script, stdin=since[1], timeout_s=LIMIT_S, output_bytes=LAYER_BYTES)
        now = _moment(done.stderr)
        if done.exit_code != 0 or done.truncated or now is None:
            return None
        if done.stdout:
            await layer.put(done.stdout)
        # Where nothing was changed, no folders are told: they are as they were.
        return now if now[1] else (now[0], since[1])


class _TooLargeError(Exception):
    """A layer is larger than it may be."""


class _Layer:
    """A layer on its way into the store.

    Args:
        most_bytes: how large it may be.
        known: what the store has got, by its names, with their sizes; the parts of this layer are added.
    """

    def __init__(self, store: Store, most_bytes: int, known: dict[str, int]) -> None:
        self._store, self._left_bytes, self._known = store, most_bytes, known
        self._names: list[str] = []
        self._size = 0

    async def put(self, part: bytes) -> None:
        """Store the next part.

        Raises:
            _TooLargeError: it is more than fits.
        """
        self._size += len(part)
        if self._size > self._left_bytes:
            raise _TooLargeError
        name = await self._store.put(part)
        self._known[name] = len(part)
        self._names.append(name)

    async def stored(self) -> tuple[str, int] | None:
        """Its name and its size, when all parts are stored; None if nothing was changed."""
        if not self._names:
            return None
        if len(self._names) == 1:
            return self._names[0], self._size
        return await self._store.put(PARTS + "\n".join(self._names).encode()), self._size


async def _parts(store: Store, name: str) -> AsyncGenerator[bytes]:
    """What a layer consists of."""
    first = await store.get(name)
    if not first.startswith(PARTS):
        yield first
        return
    for one in first.removeprefix(PARTS).decode(errors="replace").split("\n"):
        yield await store.get(one)


def _tar(layer: bytes) -> bytes:
    """A layer that was packed beside a container, as one that unpacks it by itself can read it.

    Raises:
        StartError: it is too large, or no layer.
    """
    try:
        opened = layer_archive.zstd.ZstdDecompressor().decompress(layer, LAYER_BYTES + 1)
    except layer_archive.zstd.ZstdError as error:
        raise StartError(f"the files of a lost container cannot be unpacked: {error}") from error
    if len(opened) > LAYER_BYTES:
        raise StartError("the files of a lost container are too large for one that unpacks them by itself")
    return opened


def _moment(said: bytes) -> _Moment | None:
    """A time and its folders, compressed, as the container tells them; None if it tells something else."""
    time, _, folders = said.strip().partition(b" ")
    if not _TIME.fullmatch(time.decode(errors="replace")):
        return None
    try:
        return time.decode(), b64decode(folders)
    except ValueError:
        return None
