"""One warm process, seen from the worker: it is sandboxed, and forks for each request (`fork_server`)."""

from __future__ import annotations

from itertools import count

import anyio
import msgspec

from gym_runtime.processes import priority, tree
from gym_runtime.processes.child import Child, EndOfProcess
from gym_runtime.sandbox import calls, process, python, view
from gym_runtime.sandbox.limits import Limits
from gym_runtime.sandbox.verifier import Verifier

START_LIMIT_S = 120.0
LIMITS = Limits(
    cpu_s=1_000_000_000,  # each request has its own
    memory_bytes=8 << 30,
    file_bytes=256 << 20,
    disk_bytes=256 << 20,
    processes=64,
)
PROGRAM = """
import sys
sys.path[:] = sys.argv[1:]
from gym_runtime.sandbox.fork_server import main
main()
"""


class ProcessDied(Exception):
    """The process ended in the middle of a call, or had to be; the message says why."""


class NotPrepared(Exception):
    """The process could not even prepare for calls of its kind: it ended, or took too long."""


class Overrun(Exception):
    """The call took more processor time than it may."""


class Warm:
    """A process that was told to prepare for one kind of requests when it was started.

    Args:
        spare: no request waits for it yet.

    Raises:
        ResourceError: it cannot be started.
        UsageError: there is no isolation here, or the verifier's files cannot be shown.
    """

    def __init__(self, verifier: Verifier, *, spare: bool) -> None:
        self.verifier = verifier
        self.overran = False
        self.reusable = False
        self._prepared = False
        self._numbers = count(1)
        self._asked = 0
        seen = view.of_verifier(verifier.sources, verifier.variables.values())
        program = [*python.command(), "-P", "-c", PROGRAM, *view.program_path(verifier.sources)]
        self._child = process.start(LIMITS, seen, program)
        self._yields = spare and priority.weigh(self._child.pid, priority.LEAST)
        start = calls.Start(
            function=verifier.function,
            prepare=verifier.prepare,
            arguments=verifier.arguments,
            variables=verifier.variables,
            isolated=isinstance(self._child, process.Isolated),
        )
        self._child.send_now(calls.encode_start(start))

    @property
    def ended(self) -> bool:
        return self._child.exit_code is not None

    async def prepare(self) -> None:
        """Wait until it has prepared.

        Raises:
            NotPrepared: it ended over it, or took longer than `START_LIMIT_S` seconds.
            GymError: whatever its preparation raised.
        """
        self.insist()
        if self._prepared:
            return
        try:
            with anyio.fail_after(START_LIMIT_S):
                answer = await self.answer()
        except ProcessDied as error:
            raise NotPrepared("it ended while it imported what it needs") from error
        except TimeoutError as error:
            raise NotPrepared(f"importing what it needs took longer than {START_LIMIT_S:g} s") from error
        if isinstance(answer, calls.Failed):
            raise answer.error()
        self._prepared = self.reusable = True

    async def ask(self, arguments: bytes, cpu_s: float) -> None:
        """Send a request.

        Raises:
            ProcessDied: it has ended.
        """
        self._asked, self.reusable = next(self._numbers), False
        try:
            await self._child.send(calls.REQUEST.pack(self._asked, cpu_s) + arguments)
        except EndOfProcess as error:
            raise ProcessDied("it was gone") from error

    async def answers_within(self, seconds: float) -> bool:
        return await self._child.answers_within(seconds)

    async def answer(self) -> calls.Done | calls.Failed:
        """What came of the request.

        Raises:
            ProcessDied: it ended over it, or what it answered cannot be read.
            Overrun: it took more processor time than it may.
        """
        try:
            # Not the sandbox's own `receive`, which waits for the end of programs that leave others behind.
            frame = await Child.receive(self._child, calls.ANSWER.size + calls.ANSWER_BYTES)
        except EndOfProcess as error:
            why = self._child.find_excess() or "out of memory or of processor time, or a crash in native code"
            raise ProcessDied(why) from error
        self.watch()  # the result may be what a child lacks that the kernel has killed
        number, how, last = calls.ANSWER.unpack_from(frame)
        if number != self._asked:
            raise ProcessDied("it answered another request")
        self.reusable = not last
        data = frame[calls.ANSWER.size :]
        if how == calls.OVERRAN:
            raise Overrun
        if how == calls.DIED:
            raise ProcessDied(data.decode())
        try:
            return calls.decode_answer(data)
        except msgspec.DecodeError as error:
            raise ProcessDied(f"its answer cannot be read: {error}") from error

    def insist(self) -> None:
        """Take the priority that a call has. Repeatable, and to be repeated: it may fail for a while."""
        if self._yields and priority.weigh(self._child.pid, 0):
            self._yields = False

    def yield_to_others(self) -> None:
        """Go on at the lowest priority, with all that it has started by now; repeatable."""
        priority.lower(tree.members(self._child.pid)[1:])  # the first one is to see to the end of the others
        priority.weigh(self._child.pid, priority.LEAST)

    def watch(self) -> None:
        """Look at what it has become.

        Raises:
            ProcessDied: that is more than it may be; it has been killed.
        """
        if too_much := self._child.find_excess():
            self.reusable = False
            self._child.kill()
            raise ProcessDied(too_much)

    async def close(self) -> None:
        """End it with all that it has started."""
        priority.weigh(self._child.pid, 0)  # dying takes time, too
        await self._child.close()

    def abandon(self) -> None:
        """`close` it without an event loop."""
        self._child.abandon()
