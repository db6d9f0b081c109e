"""One sandboxed process: isolated by bubblewrap, or only limited where the environment accepts that."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress

import anyio
import msgspec

from gym_runtime.errors import ResourceError
from gym_runtime.processes.bounded import Bounded
from gym_runtime.processes.child import Child, EndOfProcess, wait_for_end
from gym_runtime.sandbox import bubblewrap, seccomp
from gym_runtime.sandbox.limits import NAMESPACE, SHELL, Limits, limited
from gym_runtime.sandbox.view import PACKAGES, View
from gym_runtime.timing import KILL_LIMIT_S

WATCH_S = 0.25
REMOVAL_LIMIT_S = 30.0
SOCKETS_UNCOUNTED = 32  # each may hold several MiB
OF_ITS_OWN = 3  # bubblewrap's processes, and a shell that has not become the program yet


class _Status(msgspec.Struct):
    """What bubblewrap reports of its sandbox, in one or several objects."""

    first: int | None = msgspec.field(name="child-pid", default=None)
    namespace: int | None = msgspec.field(name="pid-namespace", default=None)
    exit_code: int | None = msgspec.field(name="exit-code", default=None)


_decode_status = msgspec.json.Decoder(_Status).decode


def start(
    limits: Limits, view: View, program: Sequence[str], *, with_errors: bool = False
) -> Isolated | Limited:
    """Start a program in a sandbox of its own.

    Raises:
        ResourceError: it cannot be started.
        UsageError: there is no isolation here.
    """
    kind = Limited if bubblewrap.weak() else Isolated
    try:
        return kind(limits, view, program, with_errors=with_errors)
    except OSError as error:
        raise ResourceError(f"the sandbox does not start: {error}", stage="sandbox") from error


class Watched(Bounded):
    """A process that is looked at while somebody waits for it.

    Attributes:
        excess: what it was killed for having become more than it may be, in words, or None.
    """

    excess: str | None = None

    def __init__(
        self,
        arguments: Sequence[str],
        limits: Limits,
        *,
        environment: Mapping[str, str],
        directory: str | None = None,
        keep_open: Sequence[int] = (),
        with_errors: bool,
    ) -> None:
        super().__init__(
            arguments,
            processes=limits.processes + OF_ITS_OWN,
            memory_bytes=limits.memory_bytes,
            files_bytes=2 * limits.disk_bytes,
            environment=environment,
            directory=directory,
            keep_open=keep_open,
            with_errors=with_errors,
        )

    async def watch(self) -> None:
        """Kill it when all its processes together are more than its limits allow; cancel to stop watching.

        Those that it has itself are each process's own, and bind no number of them in the weak mode.
        """
        while self.excess is None:
            await anyio.sleep(WATCH_S)
            self.excess = self.find_excess()
        await self.end()

    async def end(self) -> None:
        self.excess = self.excess or self.find_excess()
        await super().end()

    async def receive(self, at_most_bytes: int) -> bytes:
        received: list[bytes | EndOfProcess] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._end_with_the_program)
            tasks.start_soon(self.watch)
            try:
                received.append(await super().receive(at_most_bytes))
            except EndOfProcess as error:
                received.append(error)
            tasks.cancel_scope.cancel()
        if isinstance(received[0], EndOfProcess):
            self.excess = self.excess or self.find_excess()
            raise EndOfProcess(f"killed: {self.excess}") if self.excess else received[0]
        return received[0]

    async def _end_with_the_program(self) -> None:
        """What it has left running holds the pipes open."""
        await self.wait()
        await self.end()


class Isolated(Watched):
    """A process in namespaces of its own; they end with it, and all that live in them."""

    def __init__(self, limits: Limits, view: View, program: Sequence[str], *, with_errors: bool) -> None:
        path = bubblewrap.check(os.getpid())
        arguments = bubblewrap.arguments(limits, view)
        self._report = b""
        self._status, status = os.pipe()
        reporting = fcntl.fcntl(status, fcntl.F_DUPFD_CLOEXEC, NAMESPACE + 1)
        os.close(status)
        arguments += ["--json-status-fd", str(reporting)]
        # Not on the command line, which the sandbox can read.
        settings = b"".join(os.fsencode(argument) + b"\0" for argument in arguments)
        try:
            filters = seccomp.program(counted=bubblewrap.counted())
            with bubblewrap.inherited(settings) as told, bubblewrap.inherited(filters) as filtering:
                bounded = limited(limits, [*program], count_processes=True)
                super().__init__(
                    bubblewrap.command(
                        path, ["--args", str(told), "--seccomp", str(filtering), "--", *bounded]
                    ),
                    limits,
                    environment={},
                    keep_open=(told, filtering, reporting),
                    with_errors=with_errors,
                )
        except BaseException:
            os.close(self._status)
            raise
        finally:
            os.close(reporting)
        os.set_blocking(self._status, False)

    @property
    def ran(self) -> bool:
        """Whether the program was reached; false if its isolation failed. Known once it has ended."""
        return any(status.exit_code is not None for status in self._statuses())

    def find_excess(self) -> str | None:
        excess = super().find_excess()
        if excess is None and not bubblewrap.counted() and (first := self._first()) is not None:
            sockets = _sockets(first)
            if sockets > SOCKETS_UNCOUNTED:
                return f"{sockets} sockets at a time, more than {SOCKETS_UNCOUNTED} without control groups"
        return excess

    async def end(self) -> None:
        first = self._first()
        self.kill()
        if first is not None:
            # The others of the namespace are gone when its first process is.
            with suppress(ProcessLookupError):
                os.kill(first, signal.SIGKILL)
            with anyio.move_on_after(KILL_LIMIT_S, shield=True):
                await wait_for_end(first)
        await super().end()

    async def close(self) -> None:
        await super().close()
        if self._status >= 0:
            self._statuses()
            os.close(self._status)
            self._status = -1

    def abandon(self) -> None:
        super().abandon()
        if self._status >= 0:
            os.close(self._status)
            self._status = -1

    def _statuses(self) -> list[_Status]:
        with suppress(BlockingIOError, OSError):
            while self._status >= 0 and (piece := os.read(self._status, 4096)):
                self._report += piece
        return [_decode_status(part + b"}") for part in self._report.split(b"}")[:-1]]

    def _first(self) -> int | None:
        """The first process of the namespace, by its number out here, unless it has ended."""
        for status in self._statuses():
            if status.first is not None:
                with suppress(OSError):
                    if os.readlink(f"/proc/{status.first}/ns/pid") == f"pid:[{status.namespace}]":
                        return status.first
        return None


class Limited(Watched):
    """A process under limits in a folder of its own, in nothing else. For ``GYM_SANDBOX=weak``.

    A daemon that it starts is found at its end only where there are control groups.
    """

    def __init__(self, limits: Limits, view: View, program: Sequence[str], *, with_errors: bool) -> None:
        self.ran = True
        self._folder = tempfile.mkdtemp(prefix="gym-sandbox-")
        variables = {**bubblewrap.VARIABLES, "HOME": self._folder, "TMPDIR": self._folder}
        packages = [path for place, path in view.shown.items() if place.startswith(PACKAGES)]
        if packages:
            variables["PYTHONPATH"] = os.pathsep.join({os.path.dirname(path) for path in packages})
        try:
            super().__init__(
                limited(limits, [*program], count_processes=False),
                limits,
                environment=variables,
                directory=self._folder,
                with_errors=with_errors,
            )
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    async def close(self) -> None:
        await super().close()
        # Not by Python, which gives up in a tree of folders that is too deep, and blocks in one that is wide.
        remove = [SHELL, "-c", 'chmod -R u+rwx "$1"; exec rm -rf "$1"', "sh", self._folder]
        async with Child(remove) as child:
            with anyio.move_on_after(REMOVAL_LIMIT_S):
                await child.wait()

    def abandon(self) -> None:
        super().abandon()
        shutil.rmtree(self._folder, ignore_errors=True)


def _sockets(pid: int) -> int:
    """How many sockets there are in the network namespace of a process."""
    with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/net/sockstat") as file:
        return int(file.readline().split()[2])
    return 0
