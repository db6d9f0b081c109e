"""Lean on this machine: its REPL, in a sandbox without a network that sees one folder, read-only.

A `Repl` is one process. It keeps the environment after each header that it has read, so that the imports of
a header (ten seconds for Mathlib) are loaded once; each proof begins from that environment and leaves nothing
for the next. A `Pool` keeps as many of them as there are processors. A process that takes too long, exceeds
its memory or says what cannot be read is replaced.
Source: github.com/leanprover-community/repl (Apache-2.0).
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import msgspec
from gym_runtime import ResourceError
from gym_runtime.errors import UNREADABLE
from gym_sandbox import Limits, Sandbox
from gym_sandbox.processes import EndOfProcess

from gym_resources.lean.lean_messages import Checked, Message, moved
from gym_resources.lean.program import Program
from gym_resources.lean.server import of_repl

LIMITS = Limits(
    cpu_s=3600, memory_bytes=16 << 30, file_bytes=1 << 20, disk_bytes=16 << 20, open_files=4096, processes=128
)
"""A process maps Mathlib's files into its memory, which counts."""
HEADER_LIMIT_S = 300.0
USES = 200
"""After so many proofs a process is replaced, because it keeps what it has read."""
ANSWER_BYTES, COMPLAINT_BYTES = 16 << 20, 1000


class _Answer(msgspec.Struct):
    env: int | None = None
    messages: list[Message] = []
    message: str = ""


_decode = msgspec.json.Decoder(_Answer).decode


class Repl:
    """One process of the REPL, started when it is first used. Calls must not overlap.

    Args:
        command: how it is started.
        folder: what it can read.
    """

    def __init__(self, command: Sequence[str], folder: str) -> None:
        self._command, self._folder = command, folder
        self._stack = AsyncExitStack()
        self._child: Any = None
        self._unread, self._complaints = b"", b""
        self._headers: dict[str, int] = {}
        self.uses = 0
        self.doubtful = False
        """What ended the last check's process may have been something else than its program."""

    def knows(self, header: str) -> bool:
        """Whether the header's imports are loaded."""
        return header in self._headers

    async def check(self, program: Program, timeout_s: float) -> Checked:
        """What Lean says of a program, whose axioms are asked for. The process may have ended afterwards.

        Raises:
            ResourceError: it does not start, or cannot load the header.
            Interrupted: something outside has killed it.
        """
        self.uses += 1
        self.doubtful = False
        try:
            environment = await self._load(program.header)
            read = await self._ask({"cmd": program.body, "env": environment}, timeout_s)
            said = moved(read.messages, program.header.count("\n"))
            found = of_repl(said, read.message)
            if found.status != "completed" or read.env is None:
                return found
            axioms = await self._ask({"cmd": f"#print axioms {program.name}", "env": read.env}, timeout_s)
            return of_repl([*said, *axioms.messages], axioms.message)
        except TimeoutError:
            await self.close()
            return Checked(status="timeout", output=f"the proof took longer than {timeout_s:g} s")
        except (EndOfProcess, *UNREADABLE) as error:
            excess = getattr(self._child, "excess", None)
            try:
                if self._child is not None:
                    await self._child.require_own_end()
                    self.doubtful = self._child.doubtful
            finally:
                await self.close()
            return Checked(status="failed", output=f"Lean has ended: {excess or error}")
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End the process. Repeatable; a later check starts another one."""
        self._child, self._unread, self._complaints, self.uses = None, b"", b"", 0
        self._headers.clear()
        with anyio.CancelScope(shield=True):
            await self._stack.aclose()

    async def _load(self, header: str) -> int:
        """The number of the environment after a header."""
        if header in self._headers:
            return self._headers[header]
        if self._child is None:
            box = await self._stack.enter_async_context(Sandbox(LIMITS, folders=(self._folder,)))
            self._child = await self._stack.enter_async_context(box.start(self._command, with_errors=True))
        try:
            answer = await self._ask({"cmd": header.strip()}, HEADER_LIMIT_S)
            problem = answer.message or next((m.data for m in answer.messages if m.severity == "error"), "")
        except (TimeoutError, EndOfProcess, *UNREADABLE) as error:
            said = self._complaints.decode(errors="replace")
            problem, answer = f"{type(error).__name__}: {error} {said}".strip(), _Answer()
        if problem or answer.env is None:
            raise ResourceError(f"Lean cannot load the header of the row: {problem[:500]}", stage="verify")
        self._headers[header] = answer.env
        return answer.env

    async def _ask(self, command: dict[str, Any], timeout_s: float) -> _Answer:
        child = self._child
        answer = b""
        ended: EndOfProcess | None = None
        with anyio.fail_after(timeout_s):
            await child.write(msgspec.json.encode(command) + b"\n\n")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(child.watch)
                tasks.start_soon(self._hear)
                try:
                    answer = await self._until_empty_line()
                except EndOfProcess as error:  # not through the task group, which would wrap it
                    ended = error
                tasks.cancel_scope.cancel()
        if ended is not None:
            raise ended
        return _decode(answer)

    async def _hear(self) -> None:
        """Read its error output, so that it does not wait for a reader; the end is kept."""
        while piece := await self._child.read(errors=True):
            self._complaints = (self._complaints + piece)[-COMPLAINT_BYTES:]

    async def _until_empty_line(self) -> bytes:
        data, start = bytearray(self._unread), 0
        while (end := data.find(b"\n\n", start)) < 0:
            start = max(0, len(data) - 1)
            piece = await self._child.read()
            if not piece or len(data) > ANSWER_BYTES:
                raise EndOfProcess("its output ended" if not piece else "its answer is too long")
            data += piece
        self._unread = bytes(data[end + 2 :])
        return bytes(data[:end])


class Pool:
    """Processes with warm headers, as many as there are processors.

    Args:
        fresh: each proof gets a new process.
    """

    def __init__(self, command: Sequence[str], folder: str, *, fresh: bool = False) -> None:
        self._command, self._folder, self._fresh = command, folder, fresh
        self._idle: list[Repl] = []
        self._places = anyio.CapacityLimiter(os.cpu_count() or 2)

    async def check(self, program: Program, timeout_s: float) -> Checked:
        """As `Repl.check`, when a process is free; waiting does not count towards the limit."""
        async with self._taken(program.header) as repl:
            checked = await repl.check(program, timeout_s)
            return await repl.check(program, timeout_s) if repl.doubtful else checked

    async def close(self) -> None:
        """End all processes that no check uses."""
        while self._idle:
            await self._idle.pop().close()

    @asynccontextmanager
    async def _taken(self, header: str) -> AsyncGenerator[Repl]:
        async with self._places:
            known = [repl for repl in self._idle if repl.knows(header)]
            repl = known[-1] if known else self._idle[0] if self._idle else Repl(self._command, self._folder)
            if repl in self._idle:
                self._idle.remove(repl)
            try:
                yield repl
            finally:
                if self._fresh or repl.uses >= USES:
                    await repl.close()
                self._idle.append(repl)
                for spare in self._idle[: -int(self._places.total_tokens)]:
                    self._idle.remove(spare)
                    await spare.close()
