"""The box of a Harbor task: a container with Harbor's folders, into and out of which files are copied.

Without an image it is a sandbox of bubblewrap: the machine's programs, the folders `FOLDERS` and the working
directory in memory, and no network. With an image, also one that is built from the task's Dockerfile,
commands may be another user's than root's, and the network is what the caller allows. What runs in a box is
hostile: an archive from one is only unpacked in another, and what decides on a reward is written there after
it.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any, Literal

import anyio
from anyio import to_thread
from gym_runtime import ResourceError, UsageError
from gym_sandbox import Container, Limits, Result, SandboxError, container_images
from gym_sandbox.saved_files import SavedFiles, Store

from gym_resources.harbor_tasks import artifact_archive
from gym_resources.harbor_tasks.task_file import Artifact, EnvironmentPart, HealthCheck, StepPart
from gym_resources.harbor_tasks.task_folder import MAX_BYTES, HarborTask

FOLDERS = ("/logs", "/tests", "/solution")
WORKDIR = "/app"
STEP_LIMIT_S = 120.0
END_LIMIT_S = 15.0  # where processes multiply, no other command of the box would get on either
PIECE_BYTES = 4 << 20
_PATH = re.compile(r"(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*)+")
_MACHINE = frozenset(
    ["usr", "bin", "sbin", "lib", "lib32", "lib64", "etc", "proc", "dev", "sys", "root", "home"]
)
_DISK_BYTES = 512 << 20  # of a box without an image, whose files are in memory
_LOGS = "mkdir -p /logs/agent /logs/verifier /logs/artifacts && chmod 777 /logs/*"
_PROCESSES = """
for p in /proc/[0-9]*; do p=${p#/proc/}; case $p in $$|$PPID) ;; *) echo $p;; esac; done
"""
# No subshell: it would be among the processes. The last resort is against what starts processes faster.
END_PROCESSES = """
keep=" $KEPT_PROCESSES $$ $PPID " rounds=0
while :; do
  left=
  for p in /proc/[0-9]*; do
    p=${p#/proc/}
    case "$keep" in *" $p "*) ;; *) left=1; kill -KILL "$p" 2>/dev/null ;; esac
  done
  [ -z "$left" ] && break
  rounds=$((rounds + 1))
  [ $rounds -gt 200 ] && { echo "processes in the box cannot be ended" >&2; exit 98; }
  sleep 0.02
done
"""


class TaskBox:
    """A box of a task.

    Args:
        part: ``[environment]``, or ``[verifier.environment]``.
        image: its image, or None for a box of bubblewrap.
        files: those of ``environment/`` are copied into its working directory.
        variables: of each command in it.
        network: what it reaches.
        store: where its files are saved; None saves nothing.
        container: it has been made already, with the files of another box.

    Raises:
        UsageError: the working directory cannot be one without an image.
    """

    def __init__(
        self,
        task: HarborTask,
        part: EnvironmentPart,
        *,
        image: str | None,
        files: bool,
        variables: Mapping[str, str],
        network: Literal["none", "public"] = "none",
        store: Store | None = None,
        container: Container | None = None,
    ) -> None:
        self.task, self.part, self.image = task, part, image
        self.directory = part.workdir or ("." if image else WORKDIR)
        if not image:
            check_directory(self.directory, task.name)
        limits = Limits(
            cpu_s=24 * 3600,
            memory_bytes=part.memory_bytes or 4 << 30,
            file_bytes=256 << 20,
            disk_bytes=min(part.storage_bytes or _DISK_BYTES, _DISK_BYTES),
            open_files=4096,
            processes=512,
            output_bytes=PIECE_BYTES,
        )
        own = [] if self.directory.startswith("/tmp/") else [self.directory]
        self._container = container or Container(
            image,
            directory=self.directory,
            limits=limits,
            writable=[] if image else [*FOLDERS, *own],
            variables=variables,
            network=network,
            cpus=part.cpus,
            user="0" if image else "",
        )
        self._copied, self._with_files = container is not None, files
        self._others: dict[str, Container] = {}
        self._user = ""
        self._files = SavedFiles(self._container, store)
        self._variables = variables
        self._kept = ""

    @property
    def ended(self) -> str | None:
        """Why it has ended, in words."""
        return self._container.ended

    async def open(self, saved: Any = None) -> None:
        """Start it, with what the task puts into it, or with what `save` has saved; wait until it is healthy.

        Raises:
            ResourceError: a step fails.
            StartError: it does not start, or not with these files.
        """
        await self._files.begin(saved)
        new = saved is None and not self._copied
        listed = await self.must(f"{_LOGS}\n{_PROCESSES}" if new else _PROCESSES, "its folders")
        self._kept = " ".join(listed.stdout.decode(errors="replace").split())
        if self.image and not self._copied:
            self._user = await container_images.user_of(self.image)
        if new and self._with_files and self.task.has("environment"):
            await self.put("environment", self.directory)
            await self.must("rm -f Dockerfile .dockerignore", "its files")
        if self.part.healthcheck is not None:
            await self.healthy(self.part.healthcheck)

    async def copied(self, *, network: Literal["none", "public"]) -> TaskBox:
        """A new box with the files of this one, and none of its processes; open it.

        Raises:
            StartError: the engine cannot copy it.
        """
        container = await self._container.copied(network=network)
        box = TaskBox(
            self.task,
            self.part,
            image=self.image,
            files=False,
            variables=self._variables,
            container=container,
        )
        box._user = self._user
        return box

    async def save(self) -> dict[str, Any] | None:
        """The state of its files; None if they are not saved."""
        return await self._files.save()

    async def run(
        self,
        script: str,
        *,
        timeout_s: float,
        stdin: bytes = b"",
        variables: Mapping[str, str] | None = None,
        user: str | int | None = "root",
    ) -> Result:
        """Run a script with the task's variables, in the working directory.

        Args:
            user: of the image, by its name or number; None is the one that the image names.
        """
        given = variables or {}
        head = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in given.items())
        container = self._of(str(self._user if user is None else user))
        return await container.run(head + script, stdin=stdin, timeout_s=timeout_s)

    def _of(self, user: str) -> Container:
        if user in ("", "root", "0"):
            return self._container
        known = self._others.get(user)
        if known is None or known.ended:  # it ends when the processes of the box are ended
            self._others[user] = known = self._container.as_user(user)
        return known

    async def must(
        self,
        script: str,
        what: str,
        *,
        timeout_s: float = STEP_LIMIT_S,
        stdin: bytes = b"",
        variables: Mapping[str, str] | None = None,
    ) -> Result:
        """As `run`, for what is not the model's to fail.

        Raises:
            ResourceError: it fails, or takes too long.
        """
        done = await self.run(script, timeout_s=timeout_s, stdin=stdin, variables=variables)
        if done.exit_code != 0:
            how = f"took longer than {timeout_s:g} s" if done.timed_out else f"failed ({done.exit_code})"
            words = done.stderr.decode(errors="replace").strip()[-500:]
            raise ResourceError(f"task {self.task.name}: {what} {how}: {words}", stage="sandbox")
        return done

    async def upload(self, archive: bytes, into: str = "/") -> None:
        """Unpack an archive, at the root or in another folder.

        Raises:
            ResourceError: it cannot be unpacked.
        """
        await self.must(f"tar -xf - -C {shlex.quote(into)}", "copying files into its box", stdin=archive)

    async def put(self, folder: str, at: str) -> None:
        """Copy a folder of the task into the folder ``at``.

        Raises:
            ResourceError: it cannot be copied.
        """
        await self.upload(await to_thread.run_sync(self.task.packed, folder, ""), at)

    async def end_processes(self) -> None:
        """End all that commands have left running.

        Raises:
            ResourceError: it starts processes faster than they end.
        """
        await self.must(END_PROCESSES, "ending its processes", timeout_s=END_LIMIT_S, variables=self.kept)
        others, self._others = self._others, {}
        for other in others.values():
            await other.close()

    @property
    def kept(self) -> dict[str, str]:
        """The variables that `END_PROCESSES` needs as a part of another script."""
        return {"KEPT_PROCESSES": self._kept}

    async def export(self, artifacts: Sequence[Artifact]) -> bytes:
        """Files and folders as an archive; those that are missing are left out.

        Raises:
            ResourceError: they are too large, or cannot be read.
        """
        excluded = [f"--exclude={pattern}" for one in artifacts for pattern in one.exclude]
        lines = ["cd /", "rm -f /tmp/.harbor-export", "set --"]
        for one in artifacts:
            path = shlex.quote(self._absolute(one.source).lstrip("/") or ".")
            lines.append(f'if [ -e {path} ] || [ -L {path} ]; then set -- "$@" {path}; fi')
        lines += [
            "[ $# = 0 ] && set -- logs/artifacts",
            # It leaves itself out. An exclusion of ours would cost half a minute where folders are 500 deep.
            f'tar -cf /tmp/.harbor-export {shlex.join(excluded)} -- "$@"',
            "[ $? -le 1 ] && wc -c </tmp/.harbor-export",
        ]
        sized = await self.must("\n".join(lines), "copying files out of its box")
        try:
            size = int(sized.stdout)
        except ValueError:
            size = -1
        if not 0 <= size <= MAX_BYTES:
            raise ResourceError(
                f"task {self.task.name}: the files for its tests have {size >> 20} MiB, "
                f"and {MAX_BYTES >> 20} are allowed",
                stage="sandbox",
            )
        archive = bytearray()
        while len(archive) < size:
            part = f"tail -c +{len(archive) + 1} /tmp/.harbor-export | head -c {PIECE_BYTES}"
            piece = await self.must(part, "copying files out of its box")
            if not piece.stdout:
                raise ResourceError(f"task {self.task.name}: the files for its tests cannot be read")
            archive += piece.stdout
        return bytes(archive)

    async def only(self, archive: bytes, artifacts: Sequence[Artifact]) -> tuple[bytes, list[str]]:
        """What of an archive `artifacts` allow, and some paths that they do not.

        Raises:
            ResourceError: it is no archive.
        """
        declared = [self._absolute(one.source) for one in artifacts]
        try:
            return await to_thread.run_sync(artifact_archive.only, archive, declared)
        except ValueError as error:
            problem = f"task {self.task.name}: the files for its tests cannot be read: {error}"
            raise ResourceError(problem, stage="sandbox") from error

    async def close(self) -> None:
        """Remove it; repeatable."""
        await self._container.close()

    def _absolute(self, source: str) -> str:
        return source if source.startswith("/") else f"{self.directory}/{source}"

    async def healthy(self, check: HealthCheck) -> None:
        """Wait until a check succeeds.

        Raises:
            ResourceError: it has failed too often.
        """
        failures, begun_s = 0, anyio.current_time()
        while (await self.run(check.command, timeout_s=check.timeout_sec)).exit_code != 0:
            starting = anyio.current_time() - begun_s < check.start_period_sec
            failures += not starting
            if failures >= check.retries:
                raise ResourceError(f"task {self.task.name}: its health check fails: {check.command[:200]}")
            await anyio.sleep(check.start_interval_sec if starting else check.interval_sec)


async def built(
    task: HarborTask, folder: str, part: EnvironmentPart, network: Literal["none", "public"]
) -> str:
    """The name of the image that a Dockerfile in a folder of the task describes; built once in each worker.

    Raises:
        ResourceError: it cannot be built.
    """
    packed = await to_thread.run_sync(task.packed, folder, "")
    name = hashlib.sha256(f"{network} ".encode() + packed).hexdigest()[:24]
    with tempfile.TemporaryDirectory(prefix="gym-build-") as context:
        await to_thread.run_sync(_unpack, packed, context)
        try:
            return await container_images.build(
                context,
                name,
                limit_s=part.build_timeout_sec,
                network=network,
                memory_bytes=part.memory_bytes or 4 << 30,
            )
        except SandboxError as error:
            commands = task.network_commands(f"{folder}/Dockerfile")
            hint = f" It uses a network, and none was allowed: {'; '.join(commands[:5])}." if commands else ""
            hint = hint if network == "none" else ""
            words = f"task {task.name}: {folder}/Dockerfile: {error}.{hint}"
            raise ResourceError(words, stage="sandbox") from error


def _unpack(packed: bytes, folder: str) -> None:
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")


def check_directory(directory: str, name: str) -> None:
    """Refuse what cannot be a new folder in a box without an image.

    Raises:
        UsageError: it is a folder of the machine's, or no absolute path.
    """
    first = directory.split("/")[1] if directory.startswith("/") else ""
    if not _PATH.fullmatch(directory) or first in _MACHINE or f"/{first}" in FOLDERS or directory == "/tmp":
        raise UsageError(
            f"task {name}: its workdir '{directory}' cannot be made in a box without an image; use one "
            f"such as {WORKDIR}, or run it with an image"
        )


def carried(box: TaskBox) -> list[Artifact]:
    """What the tests of a shared verifier get of the agent's box: all that it could write."""
    return [Artifact(path) for path in (box.directory, "/tmp", "/logs/artifacts", "/logs/agent")]


def declared(task: HarborTask, step: StepPart) -> list[Artifact]:
    """What the tests of a separate verifier get."""
    return [Artifact("/logs/artifacts"), *task.file.artifacts_of(step)]
