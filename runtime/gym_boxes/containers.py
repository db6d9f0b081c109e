"""Containers in boxes: a `gym_sandbox.Container` that names a provider runs in a leased box.

Each worker of environments keeps the leases of its containers, from when it starts until it ends
(`leased`, an entry point of the group ``gym_runtime.beside_environments``). A container's first process is
a shell that reads requests from its standard input (`gym_sandbox.container.SERVER`). In a box it is run once
for each request, with the request as its input: providers run scripts to their end, and nothing else.

Settings: `MOST`, `PER_S` and `ACCOUNT` for the budget that all workers share, `TEMPLATES` where a provider's
templates are not named like images, `WARM` for boxes that wait.
"""

from __future__ import annotations

import os
import secrets
import shlex
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio
import msgspec
from anyio.abc import TaskGroup
from gym_runtime import GymError, ServiceUnavailable, UsageError, clock
from gym_runtime.bus import Bus
from gym_runtime.errors import UNREADABLE
from gym_runtime.plugins import plugins
from gym_sandbox import elsewhere
from gym_sandbox.container_engines import Network
from gym_sandbox.processes import EndOfProcess
from gym_sandbox.sandbox_errors import SetupError

from gym_boxes.leases import Lease, Leases
from gym_boxes.provider import provider

MOST = "GYM_BOXES_MOST"
"""The variable with how many boxes all workers of an account may have at a time; 16 without it."""
PER_S = "GYM_BOXES_PER_S"
"""The variable with how many boxes they may create in a second; 1 without it."""
ACCOUNT = "GYM_BOXES_ACCOUNT"
"""The variable with the account's name; the provider's name without it."""
WARM = "GYM_BOXES_WARM"
"""The variable with how many boxes of which templates wait, made already, as a JSON object."""
TEMPLATES = "GYM_BOXES_TEMPLATES"
"""The variable with templates by images, as a JSON object; others are asked for by the image's name."""
TAKE_S = 900.0
"""How long a container waits for a box of the budget."""
SHOWN_BYTES = 256 << 10
"""A longer answer is fetched as a file: providers keep the beginning of an output only."""

# What is asked comes by the input; what is answered goes by a file if it is long. In memory if possible,
# because files of the container are saved, and this is not one to save.
_ONCE = """
answer=$(mktemp -p /dev/shm 2>/dev/null || mktemp) || exit 125
{program} >"$answer"
if [ "$(wc -c <"$answer")" -le {shown} ]; then cat "$answer"; rm -f "$answer"; else echo "in $answer"; fi
"""
READY = b"ready\n"
LONGEST_PATH = 300
T = TypeVar("T")


class LeasedBoxes:
    """The boxes of one worker: `gym_sandbox.elsewhere.Boxes`."""

    def __init__(self, bus: Bus, tasks: TaskGroup) -> None:
        self._bus, self._tasks = bus, tasks
        self._leases: dict[str, Leases] = {}
        self._opening = anyio.Lock()

    def start(self, provider: str, image: str, program: Sequence[str], network: Network) -> LeasedShell:
        """See `gym_sandbox.elsewhere.Boxes.start`."""
        if provider not in plugins("boxes"):
            raise SetupError(
                f"there is no provider of boxes '{provider}'; there are: {', '.join(plugins('boxes'))}"
            )
        return LeasedShell(self, provider, image, program, internet=network == "public")

    async def take(self, name: str, image: str, *, internet: bool) -> Lease:
        """A new box of a provider.

        Raises:
            GymError: no box was free within `TAKE_S`.
        """
        async with self._opening:
            if name not in self._leases:
                self._leases[name] = await self._tasks.start(self._keep, name)
        who = f"container-{secrets.token_hex(8)}"
        template = _object(TEMPLATES, dict[str, str]).get(image, image)
        deadline_s = clock.monotonic() + TAKE_S
        return await self._leases[name].take(who, template, deadline_s=deadline_s, internet=internet)

    async def _keep(self, name: str, *, task_status: anyio.abc.TaskStatus[Leases]) -> None:
        boxes = provider(name)
        account = os.environ.get(ACCOUNT, name)
        try:
            async with Leases(
                self._bus,
                boxes,
                account=account,
                most=int(_number(MOST, 16)),
                per_s=_number(PER_S, 1.0),
                warm=_object(WARM, dict[str, int]),
            ) as leases:
                task_status.started(leases)
                await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await boxes.aclose()


class LeasedShell:
    """A shell in its own box: `gym_sandbox.elsewhere.Shell`."""

    def __init__(
        self, boxes: LeasedBoxes, provider: str, image: str, program: Sequence[str], *, internet: bool
    ) -> None:
        self._boxes, self._provider, self._image, self._internet = boxes, provider, image, internet
        self._script = _ONCE.format(program=shlex.join(program), shown=SHOWN_BYTES)
        self._lease: Lease | None = None
        self._asked = bytearray()
        self._more = anyio.Event()
        self._words = b""
        self.exit_code: int | None = None

    async def write(self, data: bytes) -> None:
        """See `gym_sandbox.elsewhere.Shell.write`."""
        if self.exit_code is not None:
            raise EndOfProcess("the box has ended")
        self._asked += data
        self._more.set()

    async def read(self, *, errors: bool = False) -> bytes:
        """See `gym_sandbox.elsewhere.Shell.read`.

        Raises:
            EndOfProcess: the box is gone, or the provider does not answer.
        """
        if errors:
            words, self._words = self._words, b""
            return words
        if self.exit_code is not None:
            return b""
        try:
            if self._lease is None:
                lease = await self._boxes.take(self._provider, self._image, internet=self._internet)
                if self.exit_code is not None:  # it was closed meanwhile
                    await lease.end()
                    raise EndOfProcess("the box has ended")
                self._lease = lease
                return READY
            return await self._answered(self._lease, await self._request())
        except GymError as error:
            self._words = error.message.encode()
            await self.end()
            raise EndOfProcess(error.message) from error

    async def _request(self) -> bytes:
        """The next request: a line with sizes, and so many bytes."""
        while self.exit_code is None:
            line, newline, rest = bytes(self._asked).partition(b"\n")
            if newline:
                size = sum(map(int, line.split()[2:]))
                if len(rest) >= size:
                    self._asked = self._asked[len(line) + 1 + size :]
                    return line + newline + rest[:size]
            self._more = anyio.Event()
            await self._more.wait()
        raise EndOfProcess("the box has ended")

    async def _answered(self, lease: Lease, request: bytes) -> bytes:
        limit_s, kept_bytes = map(int, request.split(b" ", 2)[:2])
        done = await lease.exec(self._script, timeout_s=limit_s + 30.0, stdin=request)
        answer = done.stdout
        if answer.startswith(b"in ") and len(answer) < LONGEST_PATH:
            path = answer[3:].decode(errors="replace").strip()
            # Both of a command's outputs in Base64, as `Container` reads them.
            answer = await lease.get(path, most_bytes=3 * kept_bytes + 2000)
            await lease.exec(f"rm -f {shlex.quote(path)}", timeout_s=30)
        if not answer.startswith(READY) or not answer.endswith(b"\n"):
            said = (done.stderr or answer)[-300:].decode(errors="replace")
            raise ServiceUnavailable(f"the box gives no answer: {said}", stage="box")
        return answer[len(READY) :]

    async def wait(self) -> int:
        """See `gym_sandbox.elsewhere.Shell.wait`."""
        await self.end()
        return self.exit_code or 0

    async def end(self) -> None:
        """See `gym_sandbox.elsewhere.Shell.end`."""
        self.exit_code = 0
        self._more.set()
        lease, self._lease = self._lease, None
        if lease is not None:
            await lease.end()

    async def close(self) -> None:
        """See `gym_sandbox.elsewhere.Shell.close`."""
        await self.end()


@asynccontextmanager
async def leased(bus: Bus) -> AsyncGenerator[None]:
    """Containers of this worker's environments that name a provider have boxes, until the block ends."""
    async with anyio.create_task_group() as tasks:
        with elsewhere.offer(LeasedBoxes(bus, tasks)):
            yield
        tasks.cancel_scope.cancel()


def _object(variable: str, kind: type[T]) -> T:
    """
    Raises:
        UsageError: the variable is no JSON object of this kind.
    """
    try:
        return msgspec.json.decode(os.environ.get(variable, "{}"), type=kind)
    except UNREADABLE as error:
        raise UsageError(f"{variable} must be a JSON object by images or templates: {error}") from error


def _number(variable: str, otherwise: float) -> float:
    """
    Raises:
        UsageError: the variable is no number above 0.
    """
    said = os.environ.get(variable, "")
    try:
        found = float(said) if said else otherwise
    except ValueError:
        found = 0.0
    if not found > 0:
        raise UsageError(f"{variable}={said} must be a number above 0")
    return found
