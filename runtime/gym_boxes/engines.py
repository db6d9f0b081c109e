"""Boxes of a container engine: podman or docker, by its command. A template is an image.

A box is named after its label, so a create whose answer was lost finds the box that it has made. It has few
privileges, as `gym_sandbox.container_engines` gives, and a network only if it is asked for. Podman ends a
box after a day; docker has no such limit: there the reaper ends what is left.

Source: podman-run(1), docs.docker.com/reference/cli/docker.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Sequence
from contextlib import suppress

import anyio
import anyio.to_thread
import msgspec
from gym_runtime import ResourceError, UsageError
from gym_sandbox import Limits
from gym_sandbox.container_engines import counts
from gym_sandbox.processes import Child, EndOfProcess

from gym_boxes.provider import GET_BYTES, BoxGone, BoxRefused, BoxUnknown, Found, Ran
from gym_boxes.scripts import loaded, ran, read, reading, require_done, writing

CALL_S = 60.0
PULL_S = 1800.0
GRACE_S = 10.0
LIFETIME_S = 24 * 3600
LAST_WORDS_S = 1.0
"""How long what a command has written is read after its end."""
LABEL, PREFIX = "gym-label", "gym-"
KEPT_BYTES = 1 << 20
SNAPSHOT_BYTES = 8 << 30
"""The largest box that is committed: the engine would write the hole of a sparse file out, onto the disk."""
_ABSENT = (
    *("no such container", "no container with name", "no such object"),
    *("is not running", "container state improper"),
)


class _Row(msgspec.Struct, frozen=True):
    """A box in the output of ``ps``: podman and docker write names and labels differently."""

    names: str | list[str] = msgspec.field(name="Names", default="")
    labels: str | dict[str, str] | None = msgspec.field(name="Labels", default=None)

    @property
    def name(self) -> str:
        return self.names if isinstance(self.names, str) else self.names[0]

    @property
    def label(self) -> str:
        if isinstance(self.labels, str):
            pairs = (part.partition("=") for part in self.labels.split(","))
            return next((value for key, _, value in pairs if key == LABEL), "")
        return (self.labels or {}).get(LABEL, "")


class Engine:
    """The provider `gym_boxes.Provider` of one container engine.

    Args:
        command: ``podman`` or ``docker``.
        limits: of each box: its memory and its processes, where the engine can count them.
    """

    def __init__(self, command: str, limits: Limits | None = None) -> None:
        if not shutil.which(command):
            raise UsageError(f"boxes of {command} need it: it is not installed")
        self._command, self._limits = command, limits or Limits()

    async def create(self, template: str, *, label: str, life_s: float, internet: bool = False) -> str:
        """See `gym_boxes.Provider.create`. The label is its name, so it may be repeated."""
        name = f"{PREFIX}{label}"
        told = [
            *("run", "--detach", f"--name={name}", f"--label={LABEL}={label}"),
            *(() if internet else ("--network=none",)),
            *("--cap-drop=ALL", "--cap-add=CHOWN,DAC_OVERRIDE,FOWNER", "--security-opt=no-new-privileges"),
            *("--hostname=sandbox", "--entrypoint=", "--init"),
        ]
        if await anyio.to_thread.run_sync(counts, self._command):
            limits = self._limits
            told += [f"--pids-limit={limits.processes}", f"--memory={limits.memory_bytes}"]
        if self._command == "podman":
            told.append(f"--timeout={LIFETIME_S}")
        done = await self._engine([*told, "--", template, "sleep", str(LIFETIME_S)], limit_s=PULL_S)
        if done.exit_code != 0 and "already in use" not in _words(done):
            raise BoxRefused(f"{self._command} makes no box of {template}: {_words(done)[-300:]}")
        return name

    async def exec(self, box: str, script: str, *, timeout_s: float, stdin: bytes = b"") -> Ran:
        """See `gym_boxes.Provider.exec`."""
        return await self._exec(box, script, timeout_s, stdin)

    async def put(self, box: str, path: str, data: bytes) -> None:
        """See `gym_boxes.Provider.put`."""
        done = await self.exec(box, writing(path), timeout_s=CALL_S, stdin=data)
        require_done(done, f"{path} cannot be written")

    async def get(self, box: str, path: str, *, most_bytes: int = GET_BYTES) -> bytes:
        """See `gym_boxes.Provider.get`."""
        script = reading(path, most_bytes)
        return read(await self._exec(box, script, CALL_S, b"", most_bytes + 1), path, most_bytes)

    async def snapshot(self, box: str) -> str:
        """See `gym_boxes.Provider.snapshot`: an image of this machine."""
        name = f"gym-snapshot-{secrets.token_hex(6)}"
        asked = ["container", "inspect", "--size", "--format", "{{.SizeRw}}", "--", _checked(box)]
        size = (await self._engine(asked, limit_s=PULL_S)).stdout.strip()
        if size.isdigit() and int(size) > SNAPSHOT_BYTES:
            raise ResourceError(
                f"box {box} has {int(size):,} bytes of new files; a snapshot may have {SNAPSHOT_BYTES:,}",
                stage="box",
            )
        done = await self._engine(["commit", "--", _checked(box), name], limit_s=PULL_S)
        if done.exit_code != 0:
            raise BoxGone(f"box {box} cannot be committed: {_words(done)[-300:]}", stage="box")
        return name

    async def forget(self, template: str) -> None:
        """See `gym_boxes.Provider.forget`."""
        await self._engine(["rmi", "--force", "--", template])

    async def renew(self, box: str, life_s: float) -> None:
        """See `gym_boxes.Provider.renew`; its life is not renewed, it is only looked for."""
        asked = ["container", "inspect", "--format", "{{.State.Running}}", "--", _checked(box)]
        done = await self._engine(asked)
        if done.exit_code != 0 and not _says_absent(done):
            raise BoxUnknown(f"{self._command} does not find box {box}: {_words(done)[-300:]}", stage="box")
        if b"true" not in done.stdout:
            raise BoxGone(f"there is no box {box}", stage="box")

    async def end(self, box: str) -> None:
        """See `gym_boxes.Provider.end`."""
        at_once = ["--time=0"] if self._command == "podman" else []
        done = await self._engine(["rm", "--force", *at_once, "--volumes", "--", _checked(box)])
        if done.exit_code != 0 and not _says_absent(done):
            raise BoxUnknown(f"box {box} cannot be ended: {_words(done)[-300:]}", stage="box")

    async def list(self, prefix: str) -> Sequence[Found]:
        """See `gym_boxes.Provider.list`."""
        done = await self._engine(["ps", "--all", f"--filter=label={LABEL}", "--format=json"])
        if done.exit_code != 0:
            raise BoxUnknown(f"{self._command} lists no boxes: {_words(done)[-300:]}", stage="box")
        text = done.stdout.strip()
        try:  # podman writes a list, docker one object a line
            rows = (
                msgspec.json.decode(text, type=list[_Row])
                if text.startswith(b"[")
                else [msgspec.json.decode(line, type=_Row) for line in text.splitlines()]
            )
        except msgspec.DecodeError as error:
            raise BoxUnknown(f"the list of {self._command} cannot be read: {error}", stage="box") from error
        return [Found(row.name, row.label) for row in rows if row.label.startswith(prefix)]

    async def aclose(self) -> None:
        """See `gym_boxes.Provider.aclose`."""

    async def _exec(
        self, box: str, script: str, timeout_s: float, stdin: bytes, kept_bytes: int = KEPT_BYTES
    ) -> Ran:
        command, sent = loaded(script, stdin, timeout_s)
        asked = ["exec", "--interactive", "--", _checked(box), *command]
        done = await self._engine(asked, stdin=sent, limit_s=timeout_s + GRACE_S, kept_bytes=kept_bytes)
        if done.exit_code in (1, 125, 126, 255) and _says_absent(done):
            await self.renew(box, 0)  # the command itself may have said so
        return ran(done.exit_code or 0, done.stdout, done.stderr)

    async def _engine(
        self,
        told: Sequence[str],
        *,
        stdin: bytes = b"",
        limit_s: float = CALL_S,
        kept_bytes: int = KEPT_BYTES,
    ) -> Ran:
        """Run a command of the engine.

        Raises:
            BoxUnknown: it does not end in time.
        """
        code, output = 0, {False: bytearray(), True: bytearray()}
        # Not by the event loop's own subprocesses: uvloop's leave descriptors to the monitor of a detached
        # container, which then holds the output open for as long as the container lives.
        with anyio.move_on_after(limit_s):
            async with Child([self._command, *told], with_errors=True) as child:

                async def tell() -> None:
                    with suppress(EndOfProcess):
                        await child.write(stdin)
                    child.close_input()

                async def listen(errors: bool) -> None:
                    kept = output[errors]
                    while piece := await child.read(errors=errors):
                        kept += piece[: kept_bytes - len(kept)]

                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(tell)
                    tasks.start_soon(listen, False)
                    tasks.start_soon(listen, True)
                    code = await child.wait()
                    tasks.cancel_scope.deadline = anyio.current_time() + LAST_WORDS_S
                return Ran(exit_code=code, stdout=bytes(output[False]), stderr=bytes(output[True]))
        raise BoxUnknown(f"{self._command} {told[0]} did not end within {limit_s:g} s", stage="box")


def _checked(box: str) -> str:
    """Check the id of a box, which other workers tell: it must not name another container."""
    if not box.startswith(PREFIX):
        raise BoxGone(f"there is no box {box!r}", stage="box")
    return box


def _says_absent(done: Ran) -> bool:
    return any(word in _words(done).lower() for word in _ABSENT)


def _words(done: Ran) -> str:
    return done.stderr.decode(errors="replace").strip()


def podman() -> Engine:
    """The provider of podman."""
    return Engine("podman")


def docker() -> Engine:
    """The provider of docker."""
    return Engine("docker")
