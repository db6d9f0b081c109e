"""The files of a container, saved after each change so that another container continues with them.

What was changed since the last time is one *layer*: the changed files, and the names in each changed folder,
so that what is not there is deleted. A `Store` keeps each layer once, by its digest; their names, in order,
bring a container that began in the same way to the same files. Kept is what can be written: all files of an
image's container, else those in memory (``/tmp`` and the container's own folders), with folders, symbolic
links, hard links within one layer, modes and times. Processes, sockets and pipes are not kept. The kernel's
time of change tells what was changed. A folder that is moved does not give it to the files in it; so the
folders are compared with those of the last time, too, by their inodes and paths.

The container makes and unpacks the layers itself, with GNU find, tar and coreutils. What has run there may
have forged them: outside they are bytes that no program reads, and they return to a container of the same
rollout, where a model's commands have the same rights anyway.
"""

from __future__ import annotations

import re
import shlex
from base64 import b64decode
from typing import Any, Protocol

import msgspec

from gym_sandbox.container import Container
from gym_sandbox.sandbox_errors import StartError

LIMIT_S = 60.0
"""How long one step in the container may take."""
LAYER_BYTES = 32 << 20
"""The largest layer, compressed."""
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
_DIRS = r"""-type d -fprintf "$room/dirs" '%i %p\0'"""
_TELL_DIRS = 'sort -z "$room/dirs" | gzip -1n | base64 -w0'
BEGIN = rf"""
{_ROOM}
find $FOLDERS -xdev {_SKIPPED} -prune -o \( {_DIRS} , -type f -printf '%s %p\0' \) 2>/dev/null |
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
gzip -d >"$room/layer"
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


class SavedFiles:
    """Saves the files of one container.

    Call `begin` before anything is changed there. Calls must not overlap with commands of the container.

    Args:
        store: None saves nothing.
    """

    def __init__(self, container: Container, store: Store | None) -> None:
        self._container, self._store = container, store
        folders = [f".{folder}" for folder in ("/tmp", *container.writable)]
        self._head = _OF_IMAGE if container.image else f"FOLDERS={shlex.quote(' '.join(folders))}\n"
        self._saved: Saved | None = None
        # Times, and with each the folders of that time, as the container has told them.
        self._begun = self._since = ("", b"")
        self._put_bytes = self._failures = 0

    async def begin(self, saved: Any = None) -> None:
        """The first use of the container; with what `save` has returned, it gets those files.

        Raises:
            StartError: the container cannot be started, or did not begin as the saved one did, or the
                files cannot be unpacked.
        """
        if self._store is None:
            return
        wanted = None if saved is None else msgspec.convert(saved, Saved)
        done = await self._container.run(self._head + BEGIN, timeout_s=LIMIT_S, output_bytes=LAYER_BYTES)
        base, _, rest = done.stdout.partition(b" ")
        # Without GNU's programs, or where it has ended, nothing is saved.
        known, begun = None, None if done.truncated else _moment(rest)
        if done.exit_code == 0 and begun is not None and _DIGEST.fullmatch(base.decode(errors="replace")):
            known = Saved(base=base.decode())
            self._begun = self._since = begun
        if wanted is not None:
            if known is None or known.base != wanted.base:
                raise StartError("the files with which the container starts are not those of the lost one")
            for name, _ in wanted.layers:
                layer = await self._store.get(name)
                unpacked = await self._container.run(RESTORE, stdin=layer, timeout_s=LIMIT_S)
                if unpacked.exit_code != 0:
                    words = unpacked.stderr.decode(errors="replace")[-500:]
                    raise StartError(f"the files of a lost container cannot be unpacked: {words}")
            again = await self._container.run(self._head + AGAIN, timeout_s=LIMIT_S, output_bytes=LAYER_BYTES)
            since = None if again.truncated else _moment(again.stdout)
            if since is None:
                raise StartError("the container with a lost one's files has ended")
            self._since = since
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
        layer, now = await self._layer(self._begun if whole else self._since)
        if now is None or self._put_bytes + len(layer) > self._store.limit_bytes:
            self._failures += 1
            return None
        self._failures = 0
        layers = [] if whole else before.layers
        if layer:
            layers = [*layers, (await self._store.put(layer), len(layer))]
            self._put_bytes += len(layer)
        self._saved, self._since = Saved(base=before.base, layers=layers), now
        return msgspec.to_builtins(self._saved)

    async def _layer(self, since: tuple[str, bytes]) -> tuple[bytes, tuple[str, bytes] | None]:
        """What was changed since a moment, and the moment of this look; None if it cannot be had."""
        script = f"{self._head}SINCE={since[0]}\n{SAVE}"
        done = await self._container.run(script, stdin=since[1], timeout_s=LIMIT_S, output_bytes=LAYER_BYTES)
        now = _moment(done.stderr)
        if done.exit_code != 0 or done.truncated or now is None:
            return b"", None
        # Where nothing was changed, no folders are told: they are as they were.
        return done.stdout, now if now[1] else (now[0], since[1])


def _moment(said: bytes) -> tuple[str, bytes] | None:
    """A time and its folders, compressed, as the container tells them; None if it tells something else."""
    time, _, folders = said.strip().partition(b" ")
    if not _TIME.fullmatch(time.decode(errors="replace")):
        return None
    try:
        return time.decode(), b64decode(folders)
    except ValueError:
        return None
