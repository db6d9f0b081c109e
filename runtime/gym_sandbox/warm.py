"""Sandboxes that start warm: forked from a template, in place of bubblewrap and a new Python.

A worker keeps a template for each set of visible packages and each script (`gym_sandbox.template`). Programs
whose view is their own, such as a folder, start cold (`gym_sandbox.process`), except scripts with
``own_view``. So do all on machines where a template cannot make sandboxes, as where a security module lets
bubblewrap alone make namespaces.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import weakref
from collections.abc import Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import IO

import anyio
import anyio.to_thread
import msgspec
from anyio.lowlevel import RunVar

from gym_sandbox import bubblewrap, process, python, seccomp, uncounted_sockets
from gym_sandbox.limits import NAMESPACE, Limits
from gym_sandbox.process import Isolated, Limited, Program, Script
from gym_sandbox.processes.bounded import Bounded
from gym_sandbox.processes.cgroups import ControlGroup
from gym_sandbox.processes.child import KILL_LIMIT_S
from gym_sandbox.readable_files import PACKAGES
from gym_sandbox.sandbox_errors import StartError

TEMPLATES_AT_MOST = 8
START_LIMIT_S = 60.0
LIMITS = Limits(memory_bytes=4 << 30, processes=1024)
"""Of a template's control group; its programs have their own."""
BOOT = "exec(open(0, 'rb', closefd=False).read())"
Key = tuple[tuple[tuple[str, str], ...], str, bool]


class _Forked:
    """The first process of a sandbox, with the parts of a `subprocess.Popen`; its parent is the template."""

    def __init__(self, channel: socket.socket, pidfd: int, pipes: Sequence[IO[bytes] | None]) -> None:
        self.channel, self.pidfd = channel, pidfd
        self.stdin, self.stdout, self.stderr = pipes
        self.pid = _pid(pidfd)
        self._code: int | None = None
        self.silent = False
        """It has ended without a word, which nothing that runs in it can make it do."""

    def poll(self) -> int | None:
        if self._code is None and self._ended(0):
            said = b""
            with suppress(OSError):
                said = self.channel.recv(16)
            self.silent = not said
            # Without a word it was killed; where a script is the first process, other words tell its crash.
            self._code = int(said) if said.isdigit() else -signal.SIGKILL
        return self._code

    def wait(self) -> int:
        if self._code is None:
            self._ended(None)
        code = self.poll()
        return -signal.SIGKILL if code is None else code

    def kill(self) -> None:
        with suppress(OSError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def _ended(self, timeout_ms: int | None) -> bool:
        look = select.poll()
        look.register(self.pidfd, select.POLLIN)
        return bool(look.poll(timeout_ms))

    def close(self) -> None:
        self.poll()
        self.channel.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1


class Warm(Bounded):
    """A program in a sandbox that a template has forked."""

    ran = True

    def __init__(self, forked: _Forked, program: Program, group: ControlGroup | None) -> None:
        self._forked, self._limits = forked, program.limits
        super().__init__(forked, bounds=process.bounds(program.limits), group=group)

    @property
    def _ended_by(self) -> bool | None:
        return self.exit_code is None or not self._forked.silent

    def find_excess(self) -> str | None:
        excess = super().find_excess()
        if excess is None and not bubblewrap.counted() and self.exit_code is None:
            return uncounted_sockets.excess(self.pid, self._limits.memory_bytes)
        return excess

    async def end(self) -> None:
        # Asked before the kill: afterwards nothing is left to be measured. No other process is left, either.
        self.excess = self.excess or self.find_excess()
        self.kill()
        with anyio.move_on_after(KILL_LIMIT_S, shield=True):
            await self.wait()

    async def wait(self) -> int:
        if self.exit_code is None:
            # A copy, because only one task may wait for a descriptor.
            copy = os.dup(self._forked.pidfd)
            try:
                await anyio.wait_readable(copy)
            finally:
                anyio.notify_closing(copy)
                os.close(copy)
        return self._forked.wait()

    def kill(self) -> None:
        if self.exit_code is None:
            self._killed_here = True
            # The kernel kills all other processes of a pid namespace with its first one.
            self._forked.kill()

    async def close(self) -> None:
        await super().close()
        self._forked.close()

    def abandon(self) -> None:
        super().abandon()
        self._forked.close()


class Template:
    """The process that forks for one `Key`.

    Raises:
        StartError, SetupError: it cannot be started.
    """

    def __init__(self, key: Key, program: Program) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            # Above `NAMESPACE`, which the shell uses.
            inherited = os.dup(theirs.fileno())
            while inherited <= NAMESPACE:
                inherited = os.dup(inherited)
            os.set_inheritable(inherited, True)
            command = [*python.python_command(), "-c", BOOT]
            try:
                self._child = process.start(
                    Program(command, LIMITS, program.view, template=True, keep_open=(inherited,))
                )
            except BaseException:
                ours.close()
                raise
            finally:
                os.close(inherited)
        self._control = ours
        self._control.setblocking(False)
        self._lines = _text(inherited, key[1])

    @property
    def ended(self) -> bool:
        return self._child.exit_code is not None

    async def prepare(self) -> None:
        """Wait until it has imported its script.

        Raises:
            StartError: it ended, or took longer than `START_LIMIT_S` seconds.
        """
        with anyio.move_on_after(START_LIMIT_S):
            await self._child.write(self._lines)
            self._child.close_input()
            await anyio.wait_readable(self._control)
            with suppress(OSError):
                if self._control.recv(1):
                    return
        raise StartError("the sandbox's template does not start")

    async def start(self, program: Program) -> Warm:
        """A program in a new sandbox.

        Raises:
            StartError: the sandbox cannot be made.
        """
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        mine, its = _pipes(program.with_errors)
        forked: _Forked | None = None
        group: ControlGroup | None = None
        try:
            try:
                with theirs:
                    await self._send([theirs.fileno(), *its])
            finally:
                for descriptor in its:
                    os.close(descriptor)
            await anyio.wait_readable(ours)
            said, descriptors, _, _ = socket.recv_fds(ours, 200, 1)
            if not descriptors:
                raise StartError(_why(said[1:] or b"its template has ended"))
            forked = _Forked(ours, descriptors[0], mine)
            group = await anyio.to_thread.run_sync(partial(_grouped, program.limits, forked.pid))
            settings = _encode(_Settings.of(program))
            await _write(ours, len(settings).to_bytes(8, "big") + settings)
            await anyio.wait_readable(ours)
            said = ours.recv(1)
            if said != b"s":
                raise StartError(_why(ours.recv(200)))
            return Warm(forked, program, group)
        except BaseException as error:
            if forked:
                forked.kill()
                forked.close()
            ours.close()
            for pipe in mine:
                if pipe:
                    pipe.close()
            if group:
                group.remove()
            if isinstance(error, OSError):
                raise StartError(_why(str(error).encode())) from error
            raise

    async def _send(self, descriptors: list[int]) -> None:
        while True:
            try:
                socket.send_fds(self._control, [b"f"], descriptors)
                return
            except BlockingIOError:
                await anyio.wait_writable(self._control)

    def abandon(self) -> None:
        """End it, and all that it has forked."""
        self._control.close()
        self._child.abandon()


class _Settings(msgspec.Struct, frozen=True):
    """What the first process of a sandbox is told (`gym_sandbox.template`)."""

    user: int
    disk_bytes: int
    limits: list[tuple[int, int]]
    command: Sequence[str]
    arguments: Sequence[str]
    forks: bool
    outlives_sigterm: bool
    below: list[str]
    """Shown paths in folders that each program has of its own."""

    @staticmethod
    def of(program: Program) -> _Settings:
        most, started = program.limits, program.command
        limits = [
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_CPU, most.cpu_s),
            (resource.RLIMIT_AS, most.memory_bytes),
            (resource.RLIMIT_FSIZE, most.file_bytes),
            (resource.RLIMIT_NOFILE, most.open_files),
            (resource.RLIMIT_NPROC, most.processes),
        ]
        return _Settings(
            user=bubblewrap.next_user(),
            disk_bytes=most.disk_bytes,
            limits=limits,
            command=() if isinstance(started, Script) else started,
            arguments=started.arguments if isinstance(started, Script) else (),
            forks=isinstance(started, Script) and started.forks,
            outlives_sigterm=program.outlives_sigterm,
            below=sorted(place for place in program.view.shown if place.startswith(("/tmp/", "/dev/shm/"))),
        )


_encode = msgspec.json.Encoder().encode


Started = Warm | Isolated | Limited


class Templates:
    """The templates of an event loop; None for a `Key` whose programs start cold."""

    def __init__(self) -> None:
        self._made: dict[Key, Template | None] = {}
        self._making = anyio.Lock()
        self._alive: set[Template] = set()
        # Not a method: that would keep this object alive.
        weakref.finalize(self, _abandon, self._alive)

    async def of(self, program: Program) -> Template | None:
        """The template for a program, or None if it starts cold."""
        view = program.view
        own = isinstance(program.command, Script) and program.command.own_view
        others = not own and any(not place.startswith(PACKAGES) for place in view.shown)
        if view.covered or view.writable or others:
            return None
        script = program.command.text if isinstance(program.command, Script) else ""
        key = (tuple(sorted(view.shown.items())), script, bubblewrap.counted())
        async with self._making:
            if key not in self._made and len(self._made) < TEMPLATES_AT_MOST:
                self._made[key] = await self._make(key, program)
            return self._made.get(key)

    async def _make(self, key: Key, program: Program) -> Template | None:
        template: Template | None = None
        try:
            template = Template(key, program)
            await template.prepare()
            # Tried in earnest: making a namespace may be allowed, and mounting in it refused.
            trial = Program([*python.python_command(), "-c", ""], Limits(), program.view)
            async with await template.start(trial) as tried:
                if await tried.wait():
                    raise StartError("the sandbox's user cannot execute Python")
        except StartError:
            if template:
                template.abandon()
            return None
        except BaseException:
            if template:
                template.abandon()
            raise
        self._alive.add(template)
        return template

    def forget(self, template: Template) -> None:
        """It does not fork any more; the next program gets a new one."""
        self._made = {key: one for key, one in self._made.items() if one is not template}
        self._alive.discard(template)
        template.abandon()


_templates: RunVar[Templates] = RunVar("gym_sandbox_templates")


async def started(program: Program) -> Started:
    """Start a program in a new sandbox, from a template if that can be.

    Raises:
        StartError: it cannot be started.
        SetupError: this machine cannot isolate.
    """
    if not bubblewrap.weak():
        templates = process.of_loop(_templates, Templates)
        while template := await templates.of(program):
            try:
                # Many at once start one after the other, with the loop's other work between them.
                async with process.of_loop(process.starting, anyio.Lock):
                    return await template.start(program)
            except StartError:
                if not template.ended:
                    raise
                templates.forget(template)
    return await process.started(program)


def _grouped(limits: Limits, pid: int) -> ControlGroup | None:
    group = process.bounds(limits).group()
    if group:
        try:
            group.add(pid)
        except OSError:
            group.remove()
            raise
    return group


def _pipes(with_errors: bool) -> tuple[list[IO[bytes] | None], list[int]]:
    """This process's ends of a program's three streams, and the program's."""
    its_input, input_ = os.pipe()
    output, its_output = os.pipe()
    errors, its_errors = os.pipe() if with_errors else (None, os.open(os.devnull, os.O_WRONLY))
    mine: list[IO[bytes] | None] = [os.fdopen(input_, "wb", 0), os.fdopen(output, "rb", 0)]
    mine.append(None if errors is None else os.fdopen(errors, "rb", 0))
    return mine, [its_input, its_output, its_errors]


async def _write(channel: socket.socket, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[channel.send(rest) :]
        except BlockingIOError:
            await anyio.wait_writable(channel)


def _why(said: bytes) -> str:
    return f"the sandbox does not start: {said.decode(errors='replace').strip()}"


def _pid(pidfd: int) -> int:
    with open(f"/proc/self/fdinfo/{pidfd}") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pid:"))


def _text(control: int, script: str) -> bytes:
    filters = seccomp.program(counted=bubblewrap.counted())
    call = f"Template({control}, {script!r}, {filters!r}, own_users={bubblewrap.own_users()}).serve()\n"
    return f"{_template()}\n{call}".encode()


@cache
def _template() -> str:
    return Path(__file__).with_name("template.py").read_text("utf-8")


def _abandon(alive: set[Template]) -> None:
    for template in alive:
        template.abandon()
