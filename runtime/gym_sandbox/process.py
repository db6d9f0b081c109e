"""One sandboxed process: isolated by bubblewrap, or only limited with ``GYM_SANDBOX=weak``."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

import anyio
import anyio.to_thread
import msgspec
from anyio.lowlevel import RunVar

from gym_sandbox import bubblewrap, python, seccomp, uncounted_sockets
from gym_sandbox.limits import NAMESPACE, SHELL, Limits, limited
from gym_sandbox.processes.bounded import Bounded, Bounds
from gym_sandbox.processes.cgroups import ControlGroup
from gym_sandbox.processes.child import KILL_LIMIT_S, Child, wait_for_end
from gym_sandbox.readable_files import PACKAGES, View
from gym_sandbox.sandbox_errors import StartError

REMOVAL_LIMIT_S = 30.0
T = TypeVar("T")
OF_ITS_OWN = 3  # bubblewrap's processes, and a shell that has not become the program yet
starting: RunVar[anyio.Lock] = RunVar("gym_sandbox_starting")


class _Status(msgspec.Struct):
    """Bubblewrap's report about its sandbox, in one or several objects."""

    first: int | None = msgspec.field(name="child-pid", default=None)
    namespace: int | None = msgspec.field(name="pid-namespace", default=None)
    exit_code: int | None = msgspec.field(name="exit-code", default=None)


_decode_status = msgspec.json.Decoder(_Status).decode


class Script(msgspec.Struct, frozen=True):
    """A Python module that is run, as ``main(arguments)``; a template imports it once (`gym_sandbox.warm`).

    Attributes:
        text: of the module, and as a script calls ``main``. What it imports, its view has to show.
        forks: ``main`` runs a model's code in forks of its process only.
        own_view: it has a template of its own, also if it sees folders besides packages: for folders that
            are the same each time, and imports that are worth it.
    """

    text: str
    arguments: tuple[str, ...] = ()
    forks: bool = False
    own_view: bool = False


class Program(NamedTuple):
    """A program, and what its sandbox allows it.

    Attributes:
        command: with its arguments, or a script.
        outlives_sigterm: it ignores SIGTERM, and a program in Python may take it back for what a model wrote:
            what ends a worker in its own time (`gym_sandbox.processes.disturbances`) must not end its
            sandboxes.
        template: it makes sandboxes itself, with their filters and limits, and gets none.
        keep_open: descriptors that it inherits.
    """

    command: Sequence[str] | Script
    limits: Limits
    view: View
    with_errors: bool = False
    outlives_sigterm: bool = True
    template: bool = False
    keep_open: tuple[int, ...] = ()

    def words(self) -> list[str]:
        """The command, also of a script."""
        if isinstance(self.command, Script):
            return [*python.python_command(), "-c", self.command.text, *self.command.arguments]
        return [*self.command]


def of_loop(variable: RunVar[T], make: Callable[[], T]) -> T:
    """What this event loop has one of, made at its first use: a lock or a limiter works in one loop only."""
    try:
        return variable.get()
    except LookupError:
        made = make()
        variable.set(made)
        return made


async def started(program: Program) -> Isolated | Limited:
    """As `start`, without blocking the event loop while the kernel makes a control group.

    Many at once start one after the other, with the loop's other work between them.
    """
    async with of_loop(starting, anyio.Lock):
        return _start(program, await anyio.to_thread.run_sync(bounds(program.limits).group))


def start(program: Program) -> Isolated | Limited:
    """Start a program in a new sandbox.

    Raises:
        StartError: it cannot be started.
        SetupError: this machine cannot isolate.
    """
    return _start(program, bounds(program.limits).group())


def _start(program: Program, group: ControlGroup | None) -> Isolated | Limited:
    try:
        return Limited(program, group) if bubblewrap.weak() else Isolated(program, group)
    # Without an object there is no `close` that would remove the group.
    except BaseException as error:
        if group:
            group.remove()
        if isinstance(error, OSError):
            raise StartError(f"the sandbox does not start: {error}") from error
        raise


def bounds(limits: Limits) -> Bounds:
    """The limits of a program and of what starts it, together."""
    return Bounds(limits.processes + OF_ITS_OWN, limits.memory_bytes, 2 * limits.disk_bytes)


class Isolated(Bounded):
    """A process in separate namespaces, which end with it, together with all processes in them."""

    def __init__(self, program: Program, group: ControlGroup | None) -> None:
        layered = program.view.layers is not None
        path = (bubblewrap.check_layers if layered else bubblewrap.check)(os.getpid())
        arguments = bubblewrap.arguments(program.limits, program.view, template=program.template)
        self._report, self._limits = b"", program.limits
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
                if program.template:
                    bounded = ["--", *program.words()]
                else:
                    # Sandboxes with layers have one user, so the kernel would count those of all together.
                    command = limited(program.limits, program.words(), count_processes=not layered)
                    bounded = ["--seccomp", str(filtering), "--", *command]
                super().__init__(
                    bubblewrap.command(
                        path,
                        ["--args", str(told), *bounded],
                        outlives_sigterm=program.outlives_sigterm,
                        layers=program.view.layers,
                    ),
                    bounds=bounds(program.limits),
                    group=group,
                    environment={},
                    keep_open=(told, filtering, reporting, *program.keep_open),
                    with_errors=program.with_errors,
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

    @property
    def _ended_by(self) -> bool | None:
        # No process of the sandbox reaches bubblewrap itself. A sandbox whose first process was killed ends
        # like one whose program was.
        return {-signal.SIGKILL: False, 128 + signal.SIGKILL: None}.get(self.exit_code or 0, True)

    def find_excess(self) -> str | None:
        excess = super().find_excess()
        if excess is None and not bubblewrap.counted() and (first := self.first()) is not None:
            return uncounted_sockets.excess(first, self._limits.memory_bytes)
        return excess

    def _kill_all(self) -> None:
        if (first := self.first()) is None:
            super()._kill_all()
            return
        # The kernel kills all other processes of a pid namespace with its first one.
        for process in (first, self.pid):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    async def end(self) -> None:
        # Looked up before the kill, after which `/proc` may not have it.
        first = self.first()
        self.kill()
        if first is not None:
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

    def first(self) -> int | None:
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

    def __init__(self, program: Program, group: ControlGroup | None) -> None:
        self.ran = True
        self._folder = tempfile.mkdtemp(prefix="gym-sandbox-")
        variables = {**bubblewrap.VARIABLES, "HOME": self._folder, "TMPDIR": self._folder}
        packages = [path for place, path in program.view.shown.items() if place.startswith(PACKAGES)]
        if packages:
            variables["PYTHONPATH"] = os.pathsep.join({os.path.dirname(path) for path in packages})
        try:
            super().__init__(
                limited(
                    program.limits,
                    program.words(),
                    count_processes=False,
                    outlives_sigterm=program.outlives_sigterm,
                ),
                bounds=bounds(program.limits),
                group=group,
                environment=variables,
                directory=self._folder,
                with_errors=program.with_errors,
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
