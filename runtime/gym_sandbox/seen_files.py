"""The files of a container as this worker sees them: packed and unpacked by a process beside the container.

It is `gym_sandbox.file_packer`, one for each worker, which forks for each container and in the fork joins the
container's mounts. That costs no program in the container, and no memory here but a frame at a time. It needs
that the container's first process runs on this machine, and that this worker may join it: so containers of
bubblewrap, and those of an engine of this user. Others pack by themselves (`gym_sandbox.saved_files`).
"""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
import weakref
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from functools import cache
from typing import Any

import anyio
import msgspec

from gym_sandbox import file_packer, layer_archive
from gym_sandbox.container import Container

LIMIT_S = file_packer.LIMIT_S + 5.0
RESTORE_LIMIT_S = 600.0
ALONE = ("-I", "-S", "-X", "utf8", "-c")
PROGRAM = "import sys; sys.path[:] = sys.argv[2:]; from gym_sandbox.file_packer import main; main()"
"""The program of the process that forks; its arguments are a descriptor, and where it imports from."""
FRAME_BYTES = 16 << 20
"""The longest frame: the folders of a container with a million of them."""
READ_BYTES = 1 << 18


class UnseenError(Exception):
    """The files cannot be seen, packed or unpacked here."""


class _Begun(msgspec.Struct):
    base: str
    upper: str


class SeenFiles:
    """The files of one container.

    Args:
        process: the first process of the container.
        image: it has an image, and all its files are kept, with their owners; otherwise those in ``folders``.
    """

    def __init__(self, process: int, folders: list[str], *, image: bool) -> None:
        self._request: dict[str, Any] = {
            "process": process,
            "started": file_packer.started(process),
            "upper": "",
            "image": image,
            "folders": folders,
        }
        self._kept: _Stream | None = None

    async def begin(self) -> tuple[str, bytes]:
        """A digest of the names and sizes of its files, and a moment.

        Raises:
            UnseenError: this process may not see them.
        """
        async with self._asked("begin") as stream:
            begun = msgspec.json.decode(await stream.receive(), type=_Begun)
            self._request["upper"] = begun.upper
            return begun.base, await stream.moment()

    @asynccontextmanager
    async def packed(self, since: bytes) -> AsyncGenerator[Packed]:
        """What was changed since a moment.

        Raises:
            UnseenError: it cannot be read.
        """
        async with self._asked("pack", since) as stream:
            yield Packed(stream)

    @asynccontextmanager
    async def unpacking(self) -> AsyncGenerator[Unpacking]:
        """Unpack layers.

        Raises:
            UnseenError: one cannot be unpacked.
        """
        async with self._asked("unpack", limit_s=RESTORE_LIMIT_S) as stream:
            yield Unpacking(stream)

    @asynccontextmanager
    async def _asked(self, what: str, *frames: bytes, limit_s: float = LIMIT_S) -> AsyncGenerator[_Stream]:
        stream, self._kept = self._kept, None
        with anyio.move_on_after(limit_s) as scope:
            try:
                if stream is not None and stream.usable:
                    await stream.send(what.encode(), *frames)
                else:
                    stream = await _connected(msgspec.json.encode({**self._request, "do": what}))
                    await stream.send(*frames)
                stream.ended = False
                yield stream
            finally:
                if stream is not None:
                    if stream.ended and self._kept is None:
                        self._kept = stream
                    else:
                        stream.close()
        if scope.cancelled_caught:
            raise UnseenError(f"its files were not read within {limit_s:g} s")


class Packed:
    """The changes since a moment, in pieces; then the moment of this look."""

    def __init__(self, stream: _Stream) -> None:
        self._stream = stream
        self._ended = False

    async def piece(self, size: int) -> bytes:
        """The next piece, of this size or a little more; smaller at the end, and then empty."""
        found = bytearray()
        while not self._ended and len(found) < size:
            frame = await self._stream.receive()
            self._ended = not frame
            found += frame
        return bytes(found)

    async def moment(self) -> bytes:
        """The moment, when all pieces are read."""
        return await self._stream.moment()


class Unpacking:
    """Layers on their way into a container, one after the other."""

    def __init__(self, stream: _Stream) -> None:
        self._stream = stream

    async def send(self, piece: bytes) -> None:
        """Send the next piece of a layer."""
        for start in range(0, len(piece), layer_archive.CHUNK_BYTES):
            await self._stream.send(piece[start : start + layer_archive.CHUNK_BYTES])

    async def done(self) -> bool:
        """Whether a layer was unpacked, when all of it is sent; False if it was not packed in this way."""
        await self._stream.send(b"")
        return await self._stream.receive() != b"foreign"

    async def moment(self) -> bytes:
        """The moment, when there are no more layers; what is changed later differs from it."""
        await self._stream.send(b"")
        return await self._stream.moment()


async def seen(container: Container, folders: list[str]) -> tuple[SeenFiles, str, bytes] | None:
    """The files of a container in which nothing has run yet, with `SeenFiles.begin`; None if it is not seen.

    Args:
        folders: those whose files are kept, where it has no image.

    Raises:
        StartError: the container cannot be started.
    """
    await container.ready()
    process = await container.first_process()
    if process is None:
        return None
    try:
        found = SeenFiles(process, folders, image=container.image is not None)
        return found, *await found.begin()
    except (UnseenError, OSError):
        return None


# -- the process ----------------------------------------------------------------------------------------


class _Stream:
    """Frames to and from a fork, which ends when this is closed, or forgotten.

    Attributes:
        ended: the last request is answered; another one may follow.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.ended = False
        self._unread = bytearray()
        self._socket = connection
        self._forgotten = weakref.finalize(self, connection.close)

    @property
    def usable(self) -> bool:
        """Whether the fork still waits for a request."""
        try:
            return bool(self._socket.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def close(self) -> None:
        with suppress(OSError):
            anyio.notify_closing(self._socket)
        self._forgotten()

    async def moment(self) -> bytes:
        """The last frame of the answer to a request."""
        found = await self.receive()
        self.ended = True
        return found

    async def send(self, *frames: bytes) -> None:
        packed = (file_packer.FRAME.pack(False, len(one)) + one for one in frames)
        rest = memoryview(b"".join(packed))
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._socket)
            except OSError as error:
                # Its last words say why it reads no more.
                await self.receive()
                raise UnseenError(str(error)) from error

    async def receive(self) -> bytes:
        """
        Raises:
            UnseenError: it says so, or it has ended.
        """
        failed, size = file_packer.FRAME.unpack(await self._exactly(file_packer.FRAME.size))
        if size > FRAME_BYTES:
            raise UnseenError(f"a frame of {size} bytes")
        frame = await self._exactly(size)
        if failed:
            raise UnseenError(frame.decode(errors="replace"))
        return frame

    async def _exactly(self, size: int) -> bytes:
        while len(self._unread) < size:
            try:
                piece = self._socket.recv(READ_BYTES)
            except BlockingIOError:
                await anyio.wait_readable(self._socket)
                continue
            except OSError as error:
                raise UnseenError(str(error)) from error
            if not piece:
                raise UnseenError("what reads its files has ended")
            self._unread += piece
        found = bytes(self._unread[:size])
        del self._unread[:size]
        return found


class PackingServer:
    """The process that forks."""

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._popen = subprocess.Popen(
                [sys.executable, *ALONE, PROGRAM, str(theirs.fileno()), *sys.path],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env={},
            )
        self.socket.setblocking(False)

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def ended(self) -> bool:
        return self._popen.poll() is not None

    def end(self) -> None:
        """End it, as the end of this process does; requests on their way end by themselves."""
        self.socket.close()
        self._popen.kill()
        self._popen.wait()


@cache
def _servers(process: int) -> list[PackingServer]:
    """The one of this process, whose id is the argument: a fork has none."""
    found: list[PackingServer] = []

    def end() -> None:
        if os.getpid() == process:
            for one in found:
                one.end()

    atexit.register(end)
    return found


def server() -> PackingServer:
    """The process that forks, started if there is none."""
    known = _servers(os.getpid())
    if not known or known[0].ended:
        for one in known:
            one.end()
        known[:] = [PackingServer()]
    return known[0]


async def _connected(request: bytes) -> _Stream:
    """A new fork with its first request."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    stream = _Stream(ours)
    with theirs:
        while True:
            asked = server()
            try:
                socket.send_fds(asked.socket, [request], [theirs.fileno()])
                return stream
            except BlockingIOError:
                await anyio.wait_writable(asked.socket)
            except OSError as error:
                if not asked.ended:
                    raise UnseenError(str(error)) from error
