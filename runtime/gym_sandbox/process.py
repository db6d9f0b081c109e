"""One sandboxed process: isolated by bubblewrap, or only limited with ``GYM_SANDBOX=weak``."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import tempfile
from collections.abc import Sequence
from contextlib import suppress

import anyio
import anyio.to_thread
import msgspec
from anyio.lowlevel import RunVar

from gym_sandbox import bubblewrap, seccomp, uncounted_sockets
from gym_sandbox.limits import NAMESPACE, SHELL, Limits, limited
from gym_sandbox.processes.bounded import Bounded, Bounds
from gym_sandbox.processes.cgroups import ControlGroup
from gym_sandbox.processes.child import KILL_LIMIT_S, Child, wait_for_end
from gym_sandbox.readable_files import PACKAGES, View
from gym_sandbox.sandbox_errors import StartError

REMOVAL_LIMIT_S = 30.0
OF_ITS_OWN = 3  # bubblewrap's processes, and a shell that has not become the program yet
# By event loop: a lock works in one loop only.
_starting: RunVar[anyio.Lock] = RunVar("gym_sandbox_starting")


class _Status(msgspec.Struct):
    """Bubblewrap's report about its sandbox, in one or several objects."""

    first: int | None = msgspec.field(name="child-pid", default=None)
    namespace: int | None = msgspec.field(name="pid-namespace", default=None)
    exit_code: int | None = msgspec.field(name="exit-code", default=None)


_decode_status = msgspec.json.Decoder(_Status).decode


async def started(
    limits: Limits,
    view: View,
    program: Sequence[str],
    *,
    with_errors: bool = False,
    outlives_sigterm: bool = True,
) -> Isolated | Limited:
    """As `start`, without blocking the event loop while the kernel makes a control group.

    Many at once start one after the other, with the loop's other work between them.
    """
    async with _turn():
        group = await anyio.to_thread.run_sync(bounds(limits).group)
        return _start(limits, view, program, group, with_errors, outlives_sigterm)


def start(
    limits: Limits,
    view: View,
    program: Sequence[str],
    *,
    with_errors: bool = False,
    outlives_sigterm: bool = True,
) -> Isolated | Limited:
    """Start a program in a new sandbox.

    It ignores SIGTERM unless told otherwise, and a program in Python may take it back for what a model wrote:
    what ends a worker in its own time (`gym_sandbox.processes.disturbances`) must not end its sandboxes.

    Raises:
        StartError: it cannot be started.
        SetupError: this machine cannot isolate.
    """
    return _start(limits, view, program, bounds(limits).group(), with_errors, outlives_sigterm)


def _start(
    limits: Limits,
    view: View,
    program: Sequence[str],
    group: ControlGroup | None,
    with_errors: bool,
    outlives_sigterm: bool,
) -> Isolated | Limited:
    try:
        kind = Limited if bubblewrap.weak() else Isolated
        return kind(limits, view, program, group, with_errors=with_errors, outlives_sigterm=outlives_sigterm)
    # Without an object there is no `close` that would remove the group.
    except BaseException as error:
        if group:
            group.remove()
        if isinstance(error, OSError):
            raise StartError(f"the sandbox does not start: {error}") from error
        raise


def _turn() -> anyio.Lock:
    try:
        return _starting.get()
    except LookupError:
        lock = anyio.Lock()
        _starting.set(lock)
        return lock


def bounds(limits: Limits) -> Bounds:
    """The limits of a program and of what starts it, together."""
    return Bounds(limits.processes + OF_ITS_OWN, limits.memory_bytes, 2 * limits.disk_bytes)


class Isolated(Bounded):
    """A process in separate namespaces, which end with it, together with all processes in them."""

    def __init__(
        self,
        limits: Limits,
        view: View,
        program: Sequence[str],
        group: ControlGroup | None,
        *,
        with_errors: bool,
        outlives_sigterm: bool,
    ) -> None:
        path = bubblewrap.check(os.getpid())
        arguments = bubblewrap.arguments(limits, view)
        self._report, self._limits = b"", limits
        self._status, status = os.pipe()
        # Above `NAMESPACE`: the shell opens that number, and would replace this one.
        reporting = fcntl.fcntl(status, fcntl.F_DUPFD_CLOEXEC, NAMESPACE + 1)
        os.close(status)
        arguments += ["--json-status-fd", str(reporting)]
        # Passed in a file, because the sandbox can read the command line.
        settings = b"".join(os.fsencode(argument) + b"\0" for argument in arguments)
        try:
            filters = seccomp.program(counted=bubblewrap.counted())
            with bubblewrap.inherited(settings) as told, bubblewrap.inherited(filters) as filtering:
                bounded = limited(limits, [*program], count_processes=True)
                super().__init__(
                    bubblewrap.command(
                        path,
                        ["--args", str(told), "--seccomp", str(filtering), "--", *bounded],
                        outlives_sigterm=outlives_sigterm,
                    ),
                    bounds=bounds(limits),
                    group=group,
                    environment={},
                    keep_open=(told, filtering, reporting),
                    with_errors=with_errors,
                )
        # Without an object there is no `close` for this end of the pipe.
        except BaseException:
            os.close(self._status)
            raise
        finally:
            os.close(reporting)
        os.set_blocking(self._status, False)

    @property
    def ran(self) -> bool:
        """Whether the program was started; False if its isolation failed. Known after its end."""
        return any(status.exit_code is not None for status in self._statuses())

    def find_excess(self) -> str | None:
        excess = super().find_excess()
        if excess is None and not bubblewrap.counted() and (first := self._first()) is not None:
            return uncounted_sockets.excess(first, self._limits.memory_bytes)
        return excess

    async def end(self) -> None:
        # Looked up before the kill, after which `/proc` may not have it.
        first = self._first()
        self.kill()
        if first is not None:
            # The kernel kills all other processes of a pid namespace with its first one.
            with suppress(ProcessLookupError):
                os.kill(first, signal.SIGKILL)
            with anyio.move_on_after(KILL_LIMIT_S, shield=True):
                await wait_for_end(first)
        await super().end()

    async def close(self) -> None:
        await super().close()
        if self._status >= 0:
            # Read to the end before it is closed: `ran` is asked afterwards.
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
        # Its objects are flat, so each ends at the first brace.
        return [_decode_status(part + b"}") for part in self._report.split(b"}")[:-1]]

    def _first(self) -> int | None:
        """The first process of the namespace, by its id outside, unless it has ended."""
        for status in self._statuses():
            if status.first is not None:
                with suppress(OSError):
                    # The namespace is compared, because the number may belong to another process by now.
                    if os.readlink(f"/proc/{status.first}/ns/pid") == f"pid:[{status.namespace}]":
                        return status.first
        return None


class Limited(Bounded):
    """A process with limits and its own folder, without isolation. For ``GYM_SANDBOX=weak``.

    A daemon that it starts can be killed at its end only with control groups.
    """

    def __init__(
        self,
        limits: Limits,
        view: View,
        program: Sequence[str],
        group: ControlGroup | None,
        *,
        with_errors: bool,
        outlives_sigterm: bool,
    ) -> None:
        self.ran = True
        self._folder = tempfile.mkdtemp(prefix="gym-sandbox-")
        variables = {**bubblewrap.VARIABLES, "HOME": self._folder, "TMPDIR": self._folder}
        packages = [path for place, path in view.shown.items() if place.startswith(PACKAGES)]
        if packages:
            variables["PYTHONPATH"] = os.pathsep.join({os.path.dirname(path) for path in packages})
        try:
            super().__init__(
                limited(limits, [*program], count_processes=False, outlives_sigterm=outlives_sigterm),
                bounds=bounds(limits),
                group=group,
                environment=variables,
                directory=self._folder,
                with_errors=with_errors,
            )
        # Without an object there is no `close` that would remove the folder.
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    async def close(self) -> None:
        await super().close()
        # Not in Python, which fails on a very deep tree of folders, and blocks the event loop on a wide one.
        remove = [SHELL, "-c", 'chmod -R u+rwx "$1"; exec rm -rf "$1"', "sh", self._folder]
        async with Child(remove) as child:
            with anyio.move_on_after(REMOVAL_LIMIT_S):
                await child.wait()

    def abandon(self) -> None:
        super().abandon()
        shutil.rmtree(self._folder, ignore_errors=True)
