"""A container: a sandbox whose files and processes last from one command to the next.

Without an image it is a sandbox of bubblewrap, in which only folders in memory can be written. With an image
it is one of podman, docker or apptainer (`gym_sandbox.container_engines`), without privileges. In each, a
shell is the first process (`SERVER`): it reads commands from its standard input and writes their results to
its standard output, so starting a command costs no new container, and the container ends when this worker
ends. It starts in the background: only the first command waits for it.

What runs in a container is hostile and may have the shell's rights, so it can forge the result of a command
of its own container, or end it. Therefore a result is trusted only as far as what has run there before, and
whatever decides on a reward runs in a new container.

What kills a container from outside says nothing about what ran there: `Container.run` then raises
`Interrupted`, and `gym_sandbox.in_container` uses another one. A command can end its container, too, and
often the two cannot be told apart: then the work is done again, and believed if it ends that one as well.

SIGTERM to all that a worker has started (`gym_sandbox.processes.disturbances`) ends no container: one of
bubblewrap ignores it; one of an engine that it ended while it started is started again, and a command of an
image that it ended counts for nothing.
"""

from __future__ import annotations

import base64
import binascii
import math
import shlex
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from posixpath import join, normpath

import anyio
from anyio import to_thread

from gym_sandbox import bubblewrap, container_engines, container_images, elsewhere, process, python
from gym_sandbox.box import ENDED_BY_SIGTERM, Result
from gym_sandbox.limits import SHELL, Limits, limited
from gym_sandbox.processes import disturbances
from gym_sandbox.processes.bounded import Bounded
from gym_sandbox.processes.child import EndOfProcess
from gym_sandbox.readable_files import Layers, View
from gym_sandbox.sandbox_errors import Interrupted, SetupError, StartError

# Beyond a command's own limit, which is enforced within the container.
GRACE_S = 10.0
ELSEWHERE_GRACE_S = 90.0
"""The same where requests go over a network, each with its own limit."""
START_LIMIT_S = 1800.0
"""How long an image may take to be pulled and started."""
LAST_WORDS_BYTES = 2000
DECODED_HERE_BYTES = 4 << 20
"""Longer answers are decoded in a thread: about a millisecond per megabyte."""
KILLED = 137  # 128 + SIGKILL, as shells say it

SERVER = r"""
export PATH="$2:$PATH" GIT_CONFIG_NOSYSTEM=1 GIT_TERMINAL_PROMPT=0
[ -d "$1" ] || mkdir -p -- "$1"; cd -- "$1" || exit 125
shell=/bin/sh
[ -x /bin/bash ] && shell=/bin/bash
full=Tm8gc3BhY2UgbGVmdCBvbiBkZXZpY2UK  # No space left on device
take() {
  [ "$1" = 0 ] || dd bs="$1" count=1 iflag=fullblock
}
encode() {
  text=
  [ -s "$1" ] || return 0
  text=$(head -c "$keep" "$1" | base64)
  if [ ${#text} -ge "$keep" ] && [ "$(wc -c <"$1")" -gt "$keep" ]; then
    text=$({ head -c $((keep / 2)) "$1"; printf '\n[...]\n'; tail -c $((keep / 2)) "$1"; } | base64)
    cut=1
  fi
}
echo ready
while read -r limit keep input script; do
  text=$full cut=0 taken=yes
  if room=$(mktemp -d || { mkdir -p -m 1777 "${TMPDIR:-/tmp}" && mktemp -d; }); then
    take "$input" >"$room/in" || taken=
    take "$script" >"$room/script" || taken=
  else
    take $((input + script)) >/dev/null
    taken=
  fi
  [ "$taken" ] && {
    timeout -s KILL "$limit" "$shell" "$room/script" <"$room/in" >&3 2>&4 3>&- 4>&-
    printf '%s ' $?
    encode /proc/self/fd/3
    printf '%s ' "$text"
    encode /proc/self/fd/4
  } 3<>"$room/out" 4<>"$room/err" || printf '1  '
  rm -rf "$room"
  echo "$text $cut."
done 2>/dev/null
"""
"""The first process of a container: a shell that runs one command after the other.

Nothing of a command's own files is left when its answer comes. It starts five programs for a command without
output, which is most of such a command's cost, and two for each output. `dd`, because `head` of busybox reads
more of a pipe than it is told, and because it reads all of a request that does not fit on the disk.
"""
ANSWERED = b".\n"
"""The end of an answer: its outputs are in Base64, on many lines."""


class Container:
    """One container. Start it early, so that its start-up overlaps with other work of the caller.

    Args:
        image: the name of an image, or None for bubblewrap.
        directory: where commands start: a path in the image; without an image, the name of a new folder.
        limits: of each process; of all together where the back end can count them.
        writable: without an image, further folders that can be written, by their paths from the root; their
            parents must not be folders of the machine's.
        layers: without an image, a folder that stays when the container has ended.
        variables: of all commands. They are in no argument list.
        network: ``public`` is the engine's own network: the internet, and also what this machine's own
            network has. A container without an image has no network.
        cpus: how many processors all processes share, where the back end can count.
        user: of the image, by its name or number; by default the one that the image names.
        provider: of boxes, such as ``e2b``: the container runs there, with the limits of the box for all
            processes together. By default it runs on this machine, unless `container_engines.SETTING`
            names a provider.

    Attributes:
        image: the name of its image, or None.
        writable: the further folders that can be written.
        ended: why it has ended, in words, or None. All further commands then fail with this text.
        doubtful: a command may have ended it, or something outside.
    """

    def __init__(
        self,
        image: str | None = None,
        *,
        directory: str,
        limits: Limits | None = None,
        writable: Sequence[str] = (),
        layers: Layers | None = None,
        variables: Mapping[str, str] | None = None,
        network: container_engines.Network = "none",
        cpus: float | None = None,
        user: str = "",
        provider: str = "",
    ) -> None:
        self.image = image
        self.limits = limits or Limits()
        self.ended: str | None = None
        self.doubtful = False
        self._directory = directory
        self.writable = tuple(writable)
        self._view = View(writable=self.writable, layers=layers)
        self._variables = dict(variables or {})
        self._network: container_engines.Network = network
        self._cpus = cpus
        self._user, self._within = user, self
        self._provider = elsewhere.named(provider, image)
        self._others: list[Container] = []
        self._child: elsewhere.Shell | None = None
        self._disturbances, self._ready = 0, False
        self._unread = bytearray()

    async def __aenter__(self) -> Container:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Begin to start it, without waiting until it takes commands; repeatable.

        Raises:
            StartError: it cannot be started.
            SetupError: this machine has no back end for it, or none with such a network.
        """
        if self._child is not None or self.ended is not None:
            return
        self._disturbances = disturbances.count()
        path = "/usr/local/bin" if self.image else f"{python.runtime()}/bin"
        server = [SHELL, "-c", SERVER, "sh", self._directory, path]
        if self._provider:
            self._child = self._started_elsewhere(server)
        elif self._within is not self:
            self._child = container_engines.enter(await self._within.contained(), self._user, server)
        elif self.image is None:
            if self._network != "none":
                raise SetupError("a sandbox without an image has no network; name an image")
            if (self._view.writable or self._view.layers) and bubblewrap.weak():
                raise SetupError("folders that can be written need isolation by bubblewrap")
            absent = not f"{normpath(join('/tmp', self._directory))}/".startswith("/tmp/")
            if absent and not (self._view.writable or self._view.layers):
                raise SetupError(f"without an image directory names a new folder, not {self._directory!r}")
            child = await process.started(process.Program(server, self.limits, self._view))
            if self.ended is None:
                self._child = child
            else:  # closed meanwhile
                with anyio.CancelScope(shield=True):
                    await child.close()
        else:
            self._child = container_engines.start(
                self.image, server, self.limits, network=self._network, cpus=self._cpus, user=self._user
            )

    def _started_elsewhere(self, server: list[str]) -> elsewhere.Shell:
        if self._user not in ("", "0", "root"):
            raise SetupError(f"users of an image need podman or docker, not boxes of '{self._provider}'")
        inside = limited(self.limits, server, count_processes=False)
        return elsewhere.start(self._provider, self.image, inside, self._network)

    def as_user(self, user: str) -> Container:
        """The same container, where another user of its image runs the commands: a name, or a number.

        It has the files, the limits and the network of this one, and ends with it.

        Raises:
            SetupError: it has no image, or runs in a box of a provider.
        """
        if self.image is None:
            raise SetupError(f"a sandbox without an image has no user '{user}'; name an image")
        if self._provider:
            raise SetupError(f"users of an image need podman or docker, not boxes of '{self._provider}'")
        other = Container(
            self.image, directory=self._directory, limits=self.limits, variables=self._variables
        )
        other._user, other._within = user, self._within
        self._within._others.append(other)
        return other

    async def contained(self) -> container_engines.Contained:
        """What an engine runs for it, once it takes commands.

        Raises:
            StartError: it cannot be started, or has ended.
            SetupError: it has no image.
        """
        await self.ready()
        if self._child is None:
            raise StartError(self.ended or "")
        if not isinstance(self._child, container_engines.Contained):
            raise SetupError("it has no image of this machine's engine")
        return self._child

    async def first_process(self) -> int | None:
        """The first process of a container that takes commands, by its id on this machine.

        None where it has no namespaces, or runs elsewhere. An engine may be another machine's, and name a
        process there.
        """
        if isinstance(self._child, process.Isolated):
            return self._child.first()
        if isinstance(self._child, container_engines.Contained):
            return await container_images.first_process(self._child)
        return None

    async def copied(self, *, network: container_engines.Network = "none") -> Container:
        """A new container with the files of this one, and with none of its processes.

        Files in memory (``/dev/shm``, volumes of the image) are not copied. End its processes first.

        Raises:
            StartError: the engine cannot copy it.
            SetupError: it has no image, or the engine cannot do that.
        """
        image = await container_images.copied(await self.contained())
        return Container(
            image,
            directory=self._directory,
            limits=self.limits,
            variables=self._variables,
            network=network,
            cpus=self._cpus,
            user=self._user,
        )

    async def ready(self) -> None:
        """Return when it takes commands; `run` waits for that by itself.

        Raises:
            StartError: it could not be started.
        """
        await self.start()
        if not self._ready:
            await self._started()

    async def run(
        self, script: str, *, stdin: bytes = b"", timeout_s: float, output_bytes: int | None = None
    ) -> Result:
        """Run a shell script, or kill it after ``timeout_s`` seconds; what it leaves running goes on.

        Of an output that is longer than ``output_bytes`` (by default the limit), the beginning and the end
        are kept.

        If the container ends meanwhile, or does not answer, the exit code is `KILLED` and the error output
        says so (`doubtful`). Commands must not overlap. Cancelling ends the container.

        Raises:
            StartError: the container could not be started, or its engine failed.
            Interrupted: something outside has killed the container, or SIGTERM to the worker and all that it
                has started ended the command.
        """
        await self.start()
        start_s = time.monotonic()
        if self._child is None:
            return self._lost(start_s)
        if not self._ready:
            await self._started()
            # The start of a container does not count as the command's time.
            start_s = time.monotonic()
        child = self._child
        try:
            # The text is a model's, and may hold lone surrogates.
            exported = "".join(f"export {key}={shlex.quote(one)}\n" for key, one in self._variables.items())
            encoded = (exported + script).encode("utf-8", "surrogatepass")
            result = await self._exchange(child, encoded, stdin, timeout_s, output_bytes)
        except (EndOfProcess, TimeoutError) as error:
            excess = child.excess if isinstance(child, Bounded) else None
            # Its exit code tells an engine's failure from the container's end.
            with anyio.move_on_after(GRACE_S):
                if isinstance(error, EndOfProcess):
                    await child.wait()
            failed = self.image is not None and child.exit_code == container_engines.ENGINE_FAILED
            killed = isinstance(error, EndOfProcess) and self._killed_outside(child)
            self.doubtful = isinstance(error, EndOfProcess) and not excess
            self.ended = f"the container has ended: {excess or str(error) or 'it does not answer'}"
            await self.close()
            await self._refuse_disturbed()
            if failed:
                raise StartError("the container engine failed") from error
            if killed:
                raise Interrupted("something outside has killed the container") from error
            return self._lost(start_s)
        # After a cancellation its answer would be taken for that of the next command.
        except BaseException:
            await self.close()
            raise
        suspicious = self.image is not None and result.exit_code == ENDED_BY_SIGTERM
        if suspicious or disturbances.count() != self._disturbances:
            # What waits in a container of an image for the end of its input would have been ended, too.
            try:
                await self._exchange(child, b":", b"", GRACE_S)
            except (EndOfProcess, TimeoutError):
                await self._refuse_disturbed()
        self._disturbances = disturbances.count()
        return result

    def _killed_outside(self, child: elsewhere.Shell) -> bool:
        """Whether nothing that ran in it can have ended it so."""
        if isinstance(child, Bounded):
            return child.killed_outside
        # The engine's client. That of the first process says nothing: no other process of its container can
        # kill it, but what it runs, such as `rm`, may be the model's and end it with the code of a kill.
        return isinstance(child, container_engines.Contained) and child.exit_code == -signal.SIGKILL

    async def _refuse_disturbed(self) -> None:
        """Raise Interrupted if SIGTERM to the worker may be the reason why a container of an image ended."""
        if self.image is not None and await disturbances.came_since(self._disturbances):
            self.ended = "SIGTERM to the worker also reached its containers"
            await self.close()
            raise Interrupted(self.ended)

    async def close(self) -> None:
        """End it with all its processes, and remove its files. Repeatable."""
        # Before the await, so that a second call finds nothing to close.
        child, self._child = self._child, None
        self.ended = self.ended or "the container is closed"
        others, self._others = self._others, []
        for other in others:
            await other.close()
        if child is not None:
            with anyio.CancelScope(shield=True):
                if not self._ready:  # an image's FIFO as /etc/passwd holds up the start, and that the removal
                    await child.end()
                await child.close()

    def _lost(self, start_s: float) -> Result:
        return Result(
            exit_code=KILLED,
            stdout=b"",
            stderr=(self.ended or "").encode(),
            truncated=False,
            duration_s=time.monotonic() - start_s,
        )

    async def _started(self) -> None:
        """Wait until it takes commands; if SIGTERM has ended it meanwhile, it is started again."""
        for tries_left in reversed(range(disturbances.TRIES)):
            child, before = self._child, self._disturbances
            if child is None:  # closed meanwhile
                raise StartError(self.ended or "")
            try:
                await self._wait_until_ready(child)
            except (EndOfProcess, TimeoutError) as error:
                words = await _last_words(child)
                if tries_left and await disturbances.came_since(before):
                    self._child = None
                    await child.close()
                    self._unread.clear()
                    await self.start()
                    continue
                await self.close()
                what = f"a container of {self.image}" if self.image else "the sandbox"
                reason = words or str(error) or "it took too long"
                raise StartError(f"{what} does not start: {reason}") from error
            except BaseException:
                await self.close()
                raise
            self._ready = True
            return

    async def _wait_until_ready(self, child: elsewhere.Shell) -> None:
        with anyio.fail_after(START_LIMIT_S):
            while (line := await self._line(child, 1000)) != b"ready":
                if isinstance(child, container_engines.Contained) and line == container_engines.PULLED:
                    child.image.pulled = True

    async def _exchange(
        self,
        child: elsewhere.Shell,
        script: bytes,
        stdin: bytes,
        timeout_s: float,
        output_bytes: int | None = None,
    ) -> Result:
        keep = self.limits.output_bytes if output_bytes is None else output_bytes
        # At least 1: `timeout 0` means no limit.
        limit_s = max(1, math.ceil(timeout_s))
        head = f"{limit_s} {keep} {len(stdin)} {len(script)}\n".encode()
        start_s, line = time.monotonic(), b""
        lost: EndOfProcess | None = None
        with anyio.fail_after(limit_s + (ELSEWHERE_GRACE_S if self._provider else GRACE_S)):
            async with anyio.create_task_group() as tasks:
                if isinstance(child, Bounded):
                    tasks.start_soon(child.watch)
                tasks.start_soon(_send, child, head + stdin + script)
                try:
                    line = await self._line(child, 3 * keep + 1000, ANSWERED)
                except EndOfProcess as error:  # not through the task group, which would wrap it
                    lost = error
                tasks.cancel_scope.cancel()
        if lost is not None:
            raise lost
        duration_s = time.monotonic() - start_s
        try:
            if len(line) > DECODED_HERE_BYTES:
                exit_code, truncated, stdout, stderr = await to_thread.run_sync(_decoded, line)
            else:
                exit_code, truncated, stdout, stderr = _decoded(line)
        except (ValueError, binascii.Error) as error:
            raise EndOfProcess("its answer cannot be read") from error
        # A program may exit with 137 by itself, or be killed for its memory.
        overrun = exit_code == KILLED and duration_s >= limit_s
        return Result(
            exit_code=None if overrun else exit_code,
            stdout=stdout,
            stderr=stderr,
            truncated=truncated,
            duration_s=duration_s,
        )

    async def _line(self, child: elsewhere.Shell, at_most_bytes: int, end: bytes = b"\n") -> bytes:
        """What comes next in its output, up to this end.

        Raises:
            EndOfProcess: it has ended, or this is longer than ``at_most_bytes``.
        """
        start = 0
        # From `start`, so that nothing is searched twice.
        while (found := self._unread.find(end, start)) < 0:
            start = max(0, len(self._unread) - len(end) + 1)
            piece = await child.read()
            if not piece or start > at_most_bytes:
                raise EndOfProcess("it was killed" if not piece else "its answer is too long")
            self._unread += piece
        line = bytes(self._unread[:found])
        del self._unread[: found + len(end)]
        return line


def _decoded(line: bytes) -> tuple[int, bool, bytes, bytes]:
    """A command's exit code, whether its output was cut, its output and its error output."""
    code, output, errors, truncated = line.split(b" ")
    return int(code), truncated == b"1", base64.b64decode(output), base64.b64decode(errors)


async def _send(child: elsewhere.Shell, data: bytes) -> None:
    # It has ended, which `_line` finds out and says.
    with suppress(EndOfProcess):
        await child.write(data)


async def _last_words(child: elsewhere.Shell) -> str:
    """The end of an engine's error output."""
    words = b""
    if not isinstance(child, Bounded):
        with anyio.move_on_after(GRACE_S):
            await child.end()
            while piece := await child.read(errors=True):
                words = (words + piece)[-LAST_WORDS_BYTES:]
    return words.decode(errors="replace").strip()
