"""One fork server as the worker uses it: a sandboxed process that forks for each request (`fork_server`)."""

from __future__ import annotations

import math
from itertools import count

import anyio
import msgspec

from gym_sandbox import frames, process, python, readable_files
from gym_sandbox.limits import Limits
from gym_sandbox.processes import priority, tree
from gym_sandbox.processes.child import Child, EndOfProcess
from gym_sandbox.sandbox_errors import UNREADABLE, NotPrepared, ProcessDied
from gym_sandbox.verifier import Verifier

START_LIMIT_S = 120.0
INSIST_PAUSE_S = 0.2
LIMITS = Limits(
    cpu_s=1_000_000_000,  # each request has its own
    memory_bytes=8 << 30,
    file_bytes=256 << 20,
    disk_bytes=256 << 20,
    processes=64,
)
PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from gym_sandbox.fork_server import main; main()"
"""The program of a fork server; its arguments are the folders from which it imports."""


class Overrun(Exception):
    """The call took more processor time than it may."""


class ServerProcess:
    """A process that prepares for one kind of requests when it starts.

    Args:
        spare: no request waits for it yet.

    Raises:
        StartError: it cannot be started.
        SetupError: this machine cannot isolate, or the sandbox's user cannot read the verifier's files.
    """

    def __init__(self, verifier: Verifier, *, spare: bool) -> None:
        self.verifier = verifier
        self.overran = False
        self.reusable = False
        self._prepared = False
        self._numbers = count(1)
        self._asked = 0
        folders = [folder for _, folder in verifier.start.variables]
        seen = readable_files.of_verifier(verifier.sources, folders)
        program = [
            *("/usr/bin/env", *frames.LARGE_PAGES),
            *python.python_command(),
            "-P",
            "-c",
            PROGRAM,
            *readable_files.program_path(verifier.sources),
        ]
        self._child = process.start(process.Program(program, LIMITS, seen))
        self._own: frozenset[int] = frozenset()
        self._cpu_s = math.inf
        self._shared = False
        self._lowered: set[int] = set()
        self._yields = spare and priority.weigh(self._child.pid, priority.LEAST)
        isolated = isinstance(self._child, process.Isolated)
        start = msgspec.structs.replace(verifier.start, isolated=isolated)
        # Not awaited: a spare process is started where nothing can wait.
        self._child.send_now(frames.encode_start(start))

    @property
    def ended(self) -> bool:
        return self._child.exit_code is not None

    @property
    def is_at_normal_priority(self) -> bool:
        """Whether later calls have the normal priority, or get it by `insist`.

        A shared fork that was lowered stays so: only a privileged process could raise its priority again.
        """
        return not (self._shared and self._lowered)

    @property
    def kept_by_kernel(self) -> bool:
        """Whether the kernel keeps its limits, so that nothing grows between two looks."""
        return self._child.kept_by_kernel

    async def prepare(self) -> None:
        """Wait until it has prepared.

        Raises:
            NotPrepared: it ended meanwhile, or took longer than `START_LIMIT_S` seconds.
            FunctionRaised: the preparation raised.
        """
        self.insist()
        if self._prepared:
            return
        try:
            with anyio.fail_after(START_LIMIT_S):
                # At the lowest priority it may get no processor time at all on a busy machine.
                while self._yields and not await self.answers_within(INSIST_PAUSE_S):
                    self.insist()
                self._shared = bytes(await self.answer()) == b"true"
        except ProcessDied as error:
            raise NotPrepared("it ended while it imported what it needs, or tried it on examples") from error
        except TimeoutError as error:
            what = "importing what it needs, and trying it on examples,"
            raise NotPrepared(f"{what} took longer than {START_LIMIT_S:g} s") from error
        self._own = frozenset(tree.members(self._child.pid))
        self._prepared = self.reusable = True

    async def ask(self, arguments: bytes, cpu_s: float) -> None:
        """Send a request.

        Raises:
            ProcessDied: it has ended.
        """
        # Until it has answered: a call that is given up leaves a process that still computes.
        self._asked, self.reusable, self._cpu_s = next(self._numbers), False, cpu_s
        if not self._shared:  # those of the last call have ended
            self._lowered.clear()
        try:
            await self._child.send(frames.REQUEST.pack(self._asked, cpu_s) + arguments)
        except EndOfProcess as error:
            raise ProcessDied("it had ended before the call") from error

    async def answers_within(self, seconds: float) -> bool:
        return await self._child.answers_within(seconds)

    async def answer(self) -> msgspec.Raw:
        """The function's result, as JSON.

        Raises:
            FunctionRaised: it raised instead.
            ProcessDied: the process ended meanwhile, or its answer cannot be decoded.
            Overrun: it took more processor time than it may.
            Interrupted: something outside has killed it.
        """
        try:
            # Not the sandbox's own `receive`, which also watches for programs that leave processes behind.
            frame = await Child.receive(self._child, frames.ANSWER.size + frames.ANSWER_BYTES)
        except EndOfProcess as error:
            await self._child.require_own_end()
            why = self._child.find_excess() or "out of memory or of processor time, or a crash in native code"
            raise ProcessDied(why) from error
        # The result may be wrong because the kernel has killed a child for its memory. All else is over.
        self._end_for(self._child.find_kill())
        number, how, last = frames.ANSWER.unpack_from(frame)
        if number != self._asked and (number or how == frames.ANSWERED):
            raise ProcessDied("it answered another request")
        self.reusable = not last
        data = frame[frames.ANSWER.size :]
        if how == frames.OVERRAN:
            raise Overrun
        if how == frames.DIED:
            raise ProcessDied(data.decode())
        if not frames.is_decodable(data):
            raise ProcessDied("its answer has more values than a verdict has")
        try:
            answer = frames.decode_answer(data)
        except UNREADABLE as error:
            raise ProcessDied(f"its answer cannot be read: {error}") from error
        if isinstance(answer, frames.CallFailed):
            raise answer.error()
        return answer.result

    def insist(self) -> None:
        """Set the normal priority of a call. Call it again and again: the kernel may refuse for a while."""
        if self._yields and priority.weigh(self._child.pid, 0):
            self._yields = False

    def yield_to_others(self) -> None:
        """Continue the call at the lowest priority, with all processes that it has started. Repeatable."""
        found = [pid for pid in tree.members(self._child.pid) if pid not in self._own]
        priority.lower(pid for pid in found if pid not in self._lowered)
        self._lowered.update(found)
        self._yields = self._yields or priority.weigh(self._child.pid, priority.LEAST)

    def watch(self) -> None:
        """Check its limits.

        Raises:
            ProcessDied: it exceeded one, and has been killed.
            Overrun: the call took more processor time than it may; it goes on until `close`.
        """
        # A shared fork, which has worked for earlier calls, sees to that itself.
        if math.isfinite(self._cpu_s) and not self._shared:
            forks = (pid for pid in tree.members(self._child.pid) if pid not in self._own)
            if sum(map(tree.cpu_s, forks)) > self._cpu_s:
                raise Overrun
        self._end_for(self._child.find_excess())

    def _end_for(self, too_much: str | None) -> None:
        if too_much:
            self.reusable = False
            self._child.kill()
            raise ProcessDied(too_much)

    async def close(self) -> None:
        """End it with all processes that it has started."""
        priority.weigh(self._child.pid, 0)  # a process needs processor time to end
        await self._child.close()

    def abandon(self) -> None:
        """`close` it without an event loop."""
        self._child.abandon()
