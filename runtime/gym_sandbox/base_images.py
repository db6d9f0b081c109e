"""The images that a Dockerfile builds on: pulled before it is built, and judged as it is.

An image may bring instructions of its own, ``ONBUILD``, that the engine carries out when another one is built
on it. Podman tells of them nowhere, so they are read in the image's configuration, where it keeps that.

Source: github.com/opencontainers/image-spec (config.md), github.com/containers/storage (images.go).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from anyio import to_thread

from gym_sandbox import container_engines, dockerfiles
from gym_sandbox.sandbox_errors import SetupError, StartError

MAX_BYTES = 4 << 20
INSPECT_LIMIT_S = 30.0
_STORE = "{{.Store.GraphRoot}}/{{.Store.GraphDriverName}}-images"


async def prepare(engine: str, content: bytes, limit_s: float) -> None:
    """Pull what a Dockerfile that is not refused names, and judge what its bases bring.

    Args:
        limit_s: how long the pull of one image may take, in seconds.

    Raises:
        StartError: an image cannot be pulled, or not be read.
        SetupError: a base brings what a Dockerfile must not have, or the engine is another one than it says.
    """
    if engine == "docker":
        told = [engine, "version", "--format", "{{range .Server.Components}}{{.Name}} {{end}}"]
        if "Podman" in await container_engines.said(told, INSPECT_LIMIT_S, "docker does not answer"):
            raise SetupError(f"docker is podman here; set {container_engines.SETTING}=podman to build images")
    for one in await to_thread.run_sync(dockerfiles.images, content):
        # Podman builds with what is there; docker pulls what is copied from by itself.
        if not one.base and engine == "docker":
            continue
        if await container_engines.run([engine, "image", "inspect", "--", one.image]) != 0:
            if one.stage:
                continue
            platform = [f"--platform={one.platform}"] if one.platform else []
            pull = [engine, "pull", "--quiet", *platform, "--", one.image]
            await container_engines.said(pull, limit_s, f"the image {one.image} cannot be pulled")
        if one.base and (triggers := await _triggers(engine, one.image)):
            text = "\n".join(triggers).encode(errors="replace")
            judged = await to_thread.run_sync(lambda given: dockerfiles.refusal(given, mounts=False), text)
            if judged:
                raise SetupError(f"the image {one.image} has an ONBUILD that is refused here: {judged}")


async def _triggers(engine: str, image: str) -> list[str]:
    """The ``ONBUILD`` instructions of an image that the engine has.

    Raises:
        StartError: they cannot be read.
    """
    inspected = [engine, "image", "inspect", "--format"]
    if engine == "docker":
        config = (await _line([*inspected, "{{json .Config.OnBuild}}", "--", image])).encode()
        config = b'{"onbuild":%b}' % config
    else:
        number = (await _line([*inspected, "{{.Id}}", "--", image])).removeprefix("sha256:")
        folder = await _line([engine, "info", "--format", _STORE])
        name = base64.b64encode(f"sha256:{number}".encode()).decode()
        try:
            config = await to_thread.run_sync(_read, Path(folder, number, f"={name}"))
        except OSError as error:
            raise StartError(
                f"what ONBUILD of the image {image} is cannot be read where podman keeps images ({error}): "
                "name an image in place of the Dockerfile, or build with docker"
            ) from error
    found: list[str] = []

    def seen(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        # Engines take a name in any case, and twice.
        for key, value in pairs:
            if key.casefold() == "onbuild" and isinstance(value, list):
                found.extend(str(one) for one in cast("list[Any]", value))
        return {}

    try:
        json.loads(config, object_pairs_hook=seen)
    except (ValueError, RecursionError) as error:
        raise StartError(f"the configuration of the image {image} cannot be read: {error}") from error
    return found


async def _line(command: Sequence[str]) -> str:
    """The last line of what an engine says; others may be warnings."""
    said = await container_engines.said(command, INSPECT_LIMIT_S, "an image cannot be inspected")
    return said.rpartition("\n")[2]


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)
