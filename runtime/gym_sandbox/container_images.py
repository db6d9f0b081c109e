"""Images that this process makes with podman or docker: built from a folder, or copied from a container.

Both are removed when they are unused, at the end of the process at the latest, and carry the label `LABEL`:
``podman image prune --all --filter label=gym-runtime`` removes what a killed process has left. What is built
is hostile: its commands run in containers of the engine, without a network unless the caller allows it. The
engine itself fetches what ``FROM`` names.

Source: podman-build(1), podman-commit(1), docs.docker.com/reference/cli/docker/buildx/build.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Sequence

import anyio

from gym_sandbox import container_engines
from gym_sandbox.processes.child import Child
from gym_sandbox.sandbox_errors import SetupError, StartError

LABEL = "gym-runtime"
COPY_LIMIT_S = 600.0
INSPECT_LIMIT_S = 30.0
LAST_WORDS_BYTES = 2000
# Package managers change owners and users.
_CAPABILITIES = f"{container_engines.CAPABILITIES},SETUID,SETGID,SETFCAP"
# The engine itself would fetch them, from wherever they point.
_REMOTE = re.compile(rb"^\s*ADD\s(?:[^\n]*\s|\[\s*\")?(?:[a-z]+://|git@)", re.IGNORECASE | re.MULTILINE)
_OPTIONS = re.compile(rb"^\s*RUN\s[^\n]*--(?:network|security)\b", re.IGNORECASE | re.MULTILINE)

_building: dict[str, anyio.Lock] = {}


async def build(
    folder: str,
    name: str,
    *,
    limit_s: float,
    network: container_engines.Network = "none",
    memory_bytes: int = 4 << 30,
) -> str:
    """Build the image that the ``Dockerfile`` of a folder describes; its name.

    Args:
        name: letters and digits that stand for the folder's content. An image of this name that this process
            has built is used again; the engine's cache serves other processes.
        limit_s: how long it may take, in seconds.

    Raises:
        StartError: it cannot be built.
        SetupError: no engine is installed that can build, or the file asks for what is not allowed.
    """
    engine = _engine("an image is built")
    image = f"localhost/gym-{os.getpid()}-{name}:built"
    async with _building.setdefault(image, anyio.Lock()):  # many rollouts of a task want the same one
        known = container_engines.known(engine, image)
        known.waiting += 1  # from now on, or the end of another container might remove it
        try:
            await _built(engine, image, folder, limit_s, network, memory_bytes)
        except BaseException:
            known.waiting -= 1
            raise
    return image


async def _built(
    engine: str,
    image: str,
    folder: str,
    limit_s: float,
    network: container_engines.Network,
    memory_bytes: int,
) -> None:
    known = container_engines.known(engine, image)
    if known.pulled and await container_engines.run([engine, "image", "inspect", image]) == 0:
        return
    file = os.path.join(folder, "Dockerfile")
    content = await anyio.Path(file).read_bytes()
    for pattern, what in ((_REMOTE, "ADD of a URL"), (_OPTIONS, "RUN with --network or --security")):
        if pattern.search(content.replace(b"\\\n", b" ")):
            raise SetupError(f"the Dockerfile has {what}, which is refused here")
    told = [engine, "build", "--quiet", f"--tag={image}", f"--label={LABEL}=build", f"--file={file}"]
    told += ["--force-rm", *(() if network == "public" else ("--network=none",))]
    if engine == "podman":
        told += ["--cap-drop=ALL", f"--cap-add={_CAPABILITIES}"]
    if container_engines.counts(engine):
        told += [f"--memory={memory_bytes}"]
    await _done([*told, folder], limit_s, "the image cannot be built")
    known.pulled = True


async def copied(container: container_engines.Contained) -> str:
    """The name of an image with the files that a container has now; it is removed after its last container.

    Raises:
        StartError: the engine fails.
        SetupError: the engine cannot do that.
    """
    engine = _engine("a container is copied")
    image = f"localhost/gym-copy-{os.getpid()}-{secrets.token_hex(4)}:copy"
    told = [engine, "commit", "--pause=false", f"--change=LABEL {LABEL}=copy", container.name, image]
    await _done(told, COPY_LIMIT_S, "the container cannot be copied")
    known = container_engines.known(engine, image)
    known.pulled = known.once = True
    known.waiting += 1
    return image


async def user_of(image: str) -> str:
    """The user that an image names; empty for root. The image has been pulled.

    Raises:
        StartError: the engine fails.
        SetupError: there is no engine.
    """
    engine = container_engines.chosen()
    if engine == "apptainer":
        return ""
    known = container_engines.known(engine, image)
    if known.user is None:
        told = [engine, "image", "inspect", "--format", "{{.Config.User}}", image]
        known.user = (await _done(told, COPY_LIMIT_S, "the image cannot be inspected")).partition(":")[0]
    return known.user


async def first_process(container: container_engines.Contained) -> int | None:
    """The first process of a container, by its id where the engine runs; None if the engine does not say."""
    engine = container.image.engine
    if engine == "apptainer":
        return None
    told = [engine, "inspect", "--format", "{{.State.Pid}}", container.name]
    try:
        return int(await _done(told, INSPECT_LIMIT_S, "the container cannot be inspected")) or None
    except (StartError, ValueError):
        return None


def _engine(what: str) -> str:
    engine = container_engines.chosen()
    if engine == "apptainer":
        raise SetupError(f"{what} by podman or docker, not {engine}: set {container_engines.SETTING}")
    return engine


async def _done(command: Sequence[str], limit_s: float, problem: str) -> str:
    """The end of what an engine's command says.

    Raises:
        StartError: it fails or takes too long.
    """
    words, code = b"", 0
    try:
        child = Child(
            ["/bin/sh", "-c", 'exec "$@" 2>&1', "sh", *command], environment=container_engines.variables()
        )
    except OSError as error:
        raise StartError(f"{command[0]} cannot be started: {error}") from error
    async with child:
        with anyio.move_on_after(limit_s) as scope:
            while piece := await child.read():
                words = (words + piece)[-LAST_WORDS_BYTES:]
            code = await child.wait()
    said = words.decode(errors="replace").strip()
    if scope.cancelled_caught:
        raise StartError(f"{problem}: it took longer than {limit_s:g} s: {said}")
    if code:
        raise StartError(f"{problem}: {said}")
    return said
