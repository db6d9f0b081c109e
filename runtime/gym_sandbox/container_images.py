"""Images that this process makes with podman or docker: built from a folder, or copied from a container.

Both are removed when they are unused, at the end of the process at the latest, and carry the label `LABEL`:
``podman image prune --all --filter label=gym-runtime`` removes what a killed process has left. What is built
is hostile: its commands run in containers of the engine, without a network unless the caller allows it. The
engine itself fetches what ``FROM`` names (`gym_sandbox.dockerfiles`, `gym_sandbox.base_images`).

Source: podman-build(1), podman-commit(1), docs.docker.com/reference/cli/docker/buildx/build.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from functools import partial

import anyio
from anyio import to_thread

from gym_sandbox import base_images, container_engines, dockerfiles
from gym_sandbox.sandbox_errors import SetupError, StartError

LABEL = "gym-runtime"
COPY_LIMIT_S = 600.0
COPY_BYTES = 8 << 30
"""The most new files of a container that is copied: the engine would write the holes of sparse files out."""
# Package managers change owners and users.
_CAPABILITIES = f"{container_engines.CAPABILITIES},SETUID,SETGID,SETFCAP"

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
    async with await anyio.open_file(file, "rb") as opened:
        content = await opened.read(dockerfiles.MAX_BYTES + 1)
    # Buildah, which builds for podman, follows links in what is mounted: up to 1.28 in stages, caches and the
    # build's own folder, to any file of this machine (such as CVE-2024-1753, CVE-2024-9675).
    judged = partial(dockerfiles.refusal, content, mounts=engine == "docker")
    if reason := await to_thread.run_sync(judged):
        raise SetupError(f"the Dockerfile has what is refused here: {reason}")
    await base_images.prepare(engine, content, limit_s)
    told = [engine, "build", "--quiet", f"--tag={image}", f"--label={LABEL}=build", f"--file={file}"]
    told += ["--force-rm", *(() if network == "public" else ("--network=none",))]
    if engine == "podman":
        # Not pulled again: another image than the one that was looked at.
        told += ["--pull=never", "--cap-drop=ALL", f"--cap-add={_CAPABILITIES}"]
    if container_engines.counts(engine):
        told += [f"--memory={memory_bytes}"]
    await container_engines.said([*told, folder], limit_s, "the image cannot be built")
    known.pulled = True


async def copied(container: container_engines.Contained) -> str:
    """The name of an image with the files that a container has now; it is removed after its last container.

    Raises:
        StartError: the engine fails, or the container has more new files than `COPY_BYTES`.
        SetupError: the engine cannot do that.
    """
    engine, problem = _engine("a container is copied"), "the container cannot be copied"
    asked = [engine, "container", "inspect", "--size", "--format", "{{.SizeRw}}", container.name]
    size = (await container_engines.said(asked, COPY_LIMIT_S, problem)).rpartition("\n")[2]
    if size.isdigit() and int(size) > COPY_BYTES:
        raise StartError(f"{problem}: its new files have {int(size):,} bytes, and {COPY_BYTES:,} are allowed")
    image = f"localhost/gym-copy-{os.getpid()}-{secrets.token_hex(4)}:copy"
    told = [engine, "commit", "--pause=false", f"--change=LABEL {LABEL}=copy", container.name, image]
    await container_engines.said(told, COPY_LIMIT_S, problem)
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
        known.user = (
            await container_engines.said(told, COPY_LIMIT_S, "the image cannot be inspected")
        ).partition(":")[0]
    return known.user


async def first_process(container: container_engines.Contained) -> int | None:
    """The first process of a container that takes commands, by its id here; None if it does not run here.

    It has the container's name in its command line. To ask the engine instead costs 70 ms of CPU.
    """
    if container.image.engine == "apptainer":
        return None
    return await to_thread.run_sync(_first_process, container.name, container.pid)


def _first_process(name: str, client: int) -> int | None:
    # Those that were started after the engine's client come first.
    found = (int(one) for one in os.listdir("/proc") if one.isdigit())
    for process in sorted(found, key=lambda one: (one < client, one)):
        with suppress(OSError):
            with open(f"/proc/{process}/cmdline", "rb") as file:
                if not file.read().endswith(f"\0{name}\0".encode()):
                    continue
            with open(f"/proc/{process}/status") as file:
                told = "".join(line for line in file if line.startswith("NSpid:")).split()[1:]
            if len(told) > 1 and told[-1] == "1":  # the engine's client has this command line, too
                return process
    return None


def _engine(what: str) -> str:
    engine = container_engines.chosen()
    if engine == "apptainer":
        raise SetupError(f"{what} by podman or docker, not {engine}: set {container_engines.SETTING}")
    return engine
