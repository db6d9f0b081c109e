"""Child processes that are killed from outside, with everything they have started.

A `Child` has pipes that never block the event loop, an end that can be awaited, and a kill that ends the
whole tree: each member is stopped before the first one is killed, so that none can fork meanwhile. A
process that has left the tree before (a daemon, adopted by init) is not reached, unless the child is a
subreaper or the first process of a pid namespace.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Protocol

import anyio
from anyio import to_thread

from gym_sandbox.processes import tree

KILL_LIMIT_S = 5.0
"""How long the end of a killed process, or of a killed group of processes, is awaited."""

CHUNK_BYTES = 65536
_LENGTH = struct.Struct("!Q")
_CLOSED = "the pipes of the process were closed"


class EndOfProcess(Exception):
    """The process closed its pipe: it has ended, or is about to."""


class Process(Protocol):
    """A process that something else has started, as `subprocess.Popen` has its own."""

    @property
    def pid(self) -> int: ...
    @property
    def stdin(self) -> IO[bytes] | None: ...
    @property
    def stdout(self) -> IO[bytes] | None: ...
    @property
    def stderr(self) -> IO[bytes] | None: ...
    def poll(self) -> int | None: ...
    def wait(self) -> int: ...


class Child:
    """A child process, started by the constructor and killed at the end of its ``async with`` block.

    Start it from a thread that outlives it (the event loop's), because a child that asks to die with its
    parent (``PR_SET_PDEATHSIG``) dies with the thread that started it.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(
        self,
        arguments: Sequence[str] | Process,
        *,
        environment: Mapping[str, str] | None = None,
        directory: str | None = None,
        keep_open: Sequence[int] = (),
        with_errors: bool = False,
    ) -> None:
        self._popen = (
            _started(arguments, environment, directory, keep_open, with_errors=with_errors)
            if isinstance(arguments, Sequence)
            else arguments
        )
        self.pid = self._popen.pid
        self._files = [self._popen.stdin, self._popen.stdout, self._popen.stderr]
        self._pipes = [pipe.fileno() if pipe else -1 for pipe in self._files]
        for descriptor in self._pipes:
            if descriptor >= 0:
                os.set_blocking(descriptor, False)

    async def __aenter__(self) -> Child:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative for a signal."""
        return self._popen.poll()

    async def write(self, data: bytes) -> None:
        """Write to its standard input.

        Raises:
            EndOfProcess: it no longer reads.
        """
        # Slices of a memoryview are no copies; a large request is written in many pieces.
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._pipes[0], rest) :]
            except BlockingIOError:
                try:
                    await anyio.wait_writable(self._pipes[0])
                except anyio.ClosedResourceError as error:
                    raise EndOfProcess(_CLOSED) from error
            except OSError as error:
                raise EndOfProcess from error

    def close_input(self) -> None:
        """Close its standard input."""
        pipe = self._files[0]
        if pipe and not pipe.closed:
            # Before the close: the number may belong to another file soon.
            descriptor, self._pipes[0] = self._pipes[0], -1
            anyio.notify_closing(descriptor)
            pipe.close()

    async def read(self, *, errors: bool = False) -> bytes:
        """The next bytes of its standard output (or of its errors); empty at the end."""
        return await self._piece(2 if errors else 1, CHUNK_BYTES)

    async def _piece(self, pipe: int, at_most_bytes: int) -> bytes:
        # Tried first and waited for then: usually there is something to read.
        while True:
            try:
                return os.read(self._pipes[pipe], at_most_bytes)
            except BlockingIOError:
                try:
                    await anyio.wait_readable(self._pipes[pipe])
                except anyio.ClosedResourceError:
                    return b""
            except OSError:  # another task has closed it meanwhile
                return b""

    async def send(self, message: bytes) -> None:
        """Write a message after its length; see `write`."""
        await self.write(_LENGTH.pack(len(message)) + message)

    def send_now(self, message: bytes) -> None:
        """As `send`, without waiting: for a process that was just started and a message that fits its pipe.

        Raises:
            BlockingIOError: the pipe does not hold it.
        """
        data = _LENGTH.pack(len(message)) + message
        if os.write(self._pipes[0], data) < len(data):
            raise BlockingIOError(f"a first message of {len(data)} bytes is more than a pipe holds")

    async def answers_within(self, seconds: float) -> bool:
        """Whether a message, or the end, can be received within this time. Safe to cancel."""
        with anyio.move_on_after(seconds) as scope, suppress(anyio.ClosedResourceError):
            if self._pipes[1] >= 0:
                await anyio.wait_readable(self._pipes[1])
        return not scope.cancelled_caught

    async def receive(self, at_most_bytes: int) -> bytes:
        """Read a message that follows its length.

        Raises:
            EndOfProcess: it ended, or announces more than ``at_most_bytes``.
        """
        size = _LENGTH.unpack(await self._exactly(_LENGTH.size))[0]
        if size > at_most_bytes:
            raise EndOfProcess(f"a message of {size} bytes, more than {at_most_bytes}")
        return await self._exactly(size)

    async def _exactly(self, size: int) -> bytes:
        got = bytearray()
        while len(got) < size:
            # In pieces: an announced length costs no memory before the bytes come.
            piece = await self._piece(1, min(size - len(got), 16 * CHUNK_BYTES))
            if not piece:
                raise EndOfProcess("the process has ended" if self._pipes[1] >= 0 else _CLOSED)
            got += piece
        return bytes(got)

    async def wait(self) -> int:
        """Wait for its end; return its exit code, negative for a signal."""
        if self._popen.poll() is None:
            if sys.platform == "linux":
                await wait_for_end(self.pid)
            else:
                await to_thread.run_sync(self._popen.wait, abandon_on_cancel=True)
        return self._popen.wait()

    def kill(self) -> None:
        """Kill it and its descendants, without waiting for their end."""
        if self._popen.poll() is None:
            self._kill_all()

    def _kill_all(self) -> None:
        tree.kill(self.pid)

    async def end(self) -> None:
        """Kill it and its descendants and wait for its end, also during a cancellation. Repeatable."""
        self.kill()
        # A limit, because a process in an uninterruptible system call does not end when it is killed.
        with anyio.move_on_after(KILL_LIMIT_S, shield=True):
            await self.wait()

    async def close(self) -> None:
        """`end` it and close the pipes. Repeatable."""
        await self.end()
        # The numbers may belong to other files soon, and another task may be about to read.
        pipes, self._pipes = self._pipes, [-1, -1, -1]
        for pipe, descriptor in zip(self._files, pipes, strict=True):
            if pipe and not pipe.closed:
                anyio.notify_closing(descriptor)
                pipe.close()

    def abandon(self) -> None:
        """`close` it without an event loop; waits for its end."""
        self.kill()
        self._popen.wait()
        for pipe in self._files:
            if pipe:
                pipe.close()


def _started(
    arguments: Sequence[str],
    environment: Mapping[str, str] | None,
    directory: str | None,
    keep_open: Sequence[int],
    *,
    with_errors: bool,
) -> Process:
    return subprocess.Popen(
        arguments,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if with_errors else subprocess.DEVNULL,
        # Unbuffered: the pipes are read and written by their descriptors.
        bufsize=0,
        env=environment,
        cwd=directory,
        pass_fds=tuple(keep_open),
        # Of its own session: a Ctrl-C in the terminal is the worker's, and one signal reaches the group.
        start_new_session=True,
    )


async def wait_for_end(pid: int) -> None:
    """Wait until any process, not only a child, has ended; Linux only."""
    try:
        # A pidfd stands for this very process, also when its number is used again.
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        await anyio.wait_readable(descriptor)
    finally:
        anyio.notify_closing(descriptor)
        os.close(descriptor)
