"""Container engines: podman, docker and apptainer, behind one way to start a container.

The setting `SETTING` names the engine; otherwise the first one that is installed is used. A container ends
with this process, however this one ends: the end of its standard input is its end. An image that is
not there yet is pulled when its first container starts. It stays as long as containers use it, and then while
it is among the last `KEPT` unused ones; images that this process has pulled are removed at its end at the
latest, and no others.

Source: podman-run(1), docs.docker.com/reference/cli/docker/container/run, apptainer.org/docs (exec).
"""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Literal

import anyio

from gym_sandbox.image_references import is_reference
from gym_sandbox.limits import SHELL, Limits, limited
from gym_sandbox.processes import disturbances
from gym_sandbox.processes.child import Child
from gym_sandbox.sandbox_errors import SetupError, StartError

SETTING = "GYM_CONTAINERS"
ENGINES = ("podman", "docker", "apptainer")
CAPABILITIES = "CHOWN,DAC_OVERRIDE,FOWNER,KILL"
ENGINE_FAILED = 125
"""The exit code with which podman and docker say that the engine failed, and not the program."""
PULLED = b"pulled"
KEPT = 4
LAST_WORDS_BYTES = 2000
REMOVE_LIMIT_S = 60.0
# After that podman ends a container by itself: this process may have been killed.
LIFETIME_S = 24 * 3600

# The engine's own messages go to the error output; the first line of the output says what was done.
_PULL_AND_RUN = """
engine=$1 image=$2
shift 2
if "$engine" image inspect "$image" >/dev/null 2>&1; then
  echo present
elif "$engine" pull -q "$image" >/dev/null; then
  echo pulled
else
  exit 125
fi
exec "$engine" "$@"
"""
# The first process of an engine's container is no child of this process. Alone, it would go on with its
# command when its standard input ends, for as long as that takes; so another one waits for that end, too.
# Outside of a container it must not: there it would kill everything.
_ENDS_WITH_INPUT = """
if [ $$ = 1 ] && pipe=$(mktemp -u) && mkfifo "$pipe"; then
  exec 3<&0
  { cat <&3; kill -KILL -1; } >"$pipe" 2>/dev/null &
  exec <"$pipe" 3<&-
  rm -f "$pipe"
fi
exec "$@"
"""
# The variable is root's in all of a container's processes.
_AT_HOME = 'HOME=$(eval echo "~$(id -un 2>/dev/null)") && export HOME; exec "$@"'
Network = Literal["none", "public"]
"""What a container reaches: nothing, or what the engine's own network reaches."""
_FORWARDED = ("PATH", "HOME", "USER", "XDG_RUNTIME_DIR", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "TMPDIR")
_PREFIXES = ("CONTAINERS_", "CONTAINER_", "DOCKER_", "APPTAINER_", "REGISTRY_")


class Image:
    """What this process knows of an image.

    Attributes:
        pulled: this process has pulled or built it, so this process removes it.
        user: that it names, empty for root; None while not known.
        waiting: how many containers will start of it, because it was just made for them.
        once: it is a copy of a container, and removed when no container uses it.
    """

    def __init__(self, engine: str, name: str) -> None:
        self.engine, self.name = engine, name
        self.pulled = self.once = False
        self.user: str | None = None
        self.users = self.waiting = 0


_images: dict[tuple[str, str], Image] = {}


class Contained(Child):
    """A container with the program as its first process, removed by `close`."""

    def __init__(self, image: Image, name: str, command: Sequence[str]) -> None:
        self.image, self.name = image, name
        super().__init__(command, environment=variables(), with_errors=True)
        # After the start, which may fail; `close` subtracts it.
        image.users += 1
        image.waiting = max(0, image.waiting - 1)
        self._open = True

    async def close(self) -> None:
        if self._open:
            self._open = False
            if self.image.engine != "apptainer":  # whose container ends with its process
                # Podman would otherwise ask the program to end, and wait for ten seconds.
                at_once = ["--time=0"] if self.image.engine == "podman" else []
                # To kill the engine's client would leave the container running.
                removal = [self.image.engine, "rm", "--force", *at_once, "--volumes", self.name]
                for _ in range(disturbances.TRIES):
                    if await run(removal) >= 0:  # else a signal has ended the command
                        break
            await self.end()
            await _release(self.image)
        await super().close()


def chosen() -> str:
    """The engine's name.

    Raises:
        SetupError: no engine is installed, or the setting does not name one.
    """
    named = os.environ.get(SETTING, "")
    if named and named not in ENGINES:
        raise SetupError(f"{SETTING}={named} is unknown; set it to one of {', '.join(ENGINES)}")
    for engine in (named,) if named else ENGINES:
        if shutil.which(engine):
            return engine
    wanted = named or "podman, docker or apptainer"
    raise SetupError(
        f"an image needs {wanted}, which is not installed: apt-get install podman, or set {SETTING}; "
        "rows without an image need none"
    )


def known(engine: str, image: str) -> Image:
    """What is known of an image; this process's own ones are removed at its end at the latest."""
    if not _images:
        atexit.register(remove_images)
    return _images.get((engine, image)) or _images.setdefault((engine, image), Image(engine, image))


def start(
    image: str,
    program: Sequence[str],
    limits: Limits,
    *,
    network: Network = "none",
    cpus: float | None = None,
    user: str = "",
) -> Contained:
    """Begin to start a container with this first process; its name is unique on this machine.

    The process gets the name as a further argument.

    Raises:
        StartError: the engine cannot be started, or this is no name of an image that data may choose.
        SetupError: there is no engine, or it has no such network.
    """
    engine = chosen()
    if not is_reference(image) and not (engine == "apptainer" and _is_file(image)):
        raise StartError(
            f"{image[:200]!r} names no image of a registry, such as docker.io/library/python:3.12"
        )
    if (network != "none" or user) and engine == "apptainer":
        what = "users of an image need" if user else "a separate network needs"
        raise SetupError(f"{what} podman or docker, not {engine}: set {SETTING}")
    # The random part: where process ids come again, an earlier worker may have left one behind.
    name = f"gym-{os.getpid()}-{secrets.token_hex(4)}"
    # The name is the last argument of the first process, too, which is found by it.
    own = [SHELL, "-c", _ENDS_WITH_INPUT, "sh", *program, name]
    inside = limited(limits, own, count_processes=False)
    try:
        command = _command(engine, image, name, inside, limits, network, cpus, user)
        return Contained(known(engine, image), name, command)
    except OSError as error:
        raise StartError(f"{engine} cannot be started: {error}") from error


def enter(container: Contained, user: str, program: Sequence[str]) -> Child:
    """Begin to start a further process in a container that runs, as a user of its image: a name or a number.

    Raises:
        StartError: the engine cannot be started.
        SetupError: the engine cannot do that.
    """
    engine = container.image.engine
    if engine == "apptainer":
        raise SetupError(f"users of an image need podman or docker, not {engine}: set {SETTING}")
    program = [SHELL, "-c", _AT_HOME, "sh", *program]
    command = [engine, "exec", "--interactive", f"--user={user}", container.name, *program]
    try:
        return Child(command, environment=variables(), with_errors=True)
    except OSError as error:
        raise StartError(f"{engine} cannot be started: {error}") from error


def image_name(image: str) -> str:
    """An image's name for the chosen engine, also from the path of a ``.sif`` file made of it.

    Such files are called ``<owner>_<image>.sif``; an engine that cannot read them pulls ``<owner>/<image>``.
    A file that exists is used by apptainer as it is.

    >>> image_name("/images/xingyaoww_sweb.eval.x86_64.dask_s_dask-9378.sif")
    'docker.io/xingyaoww/sweb.eval.x86_64.dask_s_dask-9378'
    """
    if not image.endswith(".sif") or os.path.exists(image):
        return image
    owner, _, name = os.path.basename(image).removesuffix(".sif").partition("_")
    return f"docker.io/{owner}/{name}"


def _is_file(image: str) -> bool:
    """Whether it is one that apptainer uses as it is; it reads no other kind here."""
    return image.startswith("/") and image.endswith(".sif") and "\0" not in image and os.path.exists(image)


def _command(
    engine: str,
    image: str,
    name: str,
    program: Sequence[str],
    limits: Limits,
    network: Network,
    cpus: float | None,
    user: str,
) -> list[str]:
    if engine == "apptainer":
        source = image if image.endswith(".sif") else f"docker://{image}"
        isolated = ["--containall", "--cleanenv", "--no-home", "--no-privs", "--writable-tmpfs"]
        return [engine, "--quiet", "exec", *isolated, "--net", "--network", "none", source, *program]
    told = [
        *("run", "--rm", "--interactive", "--pull=never", f"--name={name}"),
        *(() if network == "public" else ("--network=none",)),
        *((f"--user={user}",) if user else ()),
        # Root of an image may change its own files, as package managers and builds expect, and end the
        # processes of the image's other users.
        *("--cap-drop=ALL", f"--cap-add={CAPABILITIES}", "--security-opt=no-new-privileges"),
        *("--ipc=private", "--hostname=sandbox"),
        *("--entrypoint=", "--env=HOME=/root"),
    ]
    if engine == "podman":
        told += ["--timeout", str(LIFETIME_S), "--image-volume=tmpfs"]
    if counts(engine):
        told += [f"--pids-limit={limits.processes}", f"--memory={limits.memory_bytes}"]
        told += [] if cpus is None else [f"--cpus={cpus:g}"]
    return ["/bin/sh", "-c", _PULL_AND_RUN, "sh", engine, image, *told, image, *program]


@cache
def counts(engine: str) -> bool:
    """Whether the engine can limit all processes of a container together, by control groups."""
    if engine == "docker":
        return True
    asked = [engine, "info", "--format", "{{.Host.CgroupControllers}} {{.Host.CgroupVersion}}"]
    # Podman does not say that its configuration switches control groups off.
    configured = os.environ.get("CONTAINERS_CONF", "/etc/containers/containers.conf")
    with suppress(OSError), open(configured) as file:
        if any(line.replace(" ", "").startswith('cgroups="disabled"') for line in file):
            return False
    # An engine that does not report this is assumed to lack it.
    with suppress(OSError, subprocess.TimeoutExpired):
        said = subprocess.run(asked, capture_output=True, timeout=30, check=False, env=variables()).stdout
        return b"memory" in said and b"pids" in said
    return False


def variables() -> dict[str, str]:
    """The variables that engines need; none of them reaches the container."""
    return {
        name: value for name, value in os.environ.items() if name in _FORWARDED or name.startswith(_PREFIXES)
    }


async def run(command: Sequence[str]) -> int:
    """Its exit code, negative for a signal; 0 if it cannot be started or takes too long."""
    # The engine may be gone by now; there is nothing to remove then.
    with suppress(OSError):
        async with Child(command, environment=variables()) as child:
            with anyio.move_on_after(REMOVE_LIMIT_S):
                return await child.wait()
    return 0


async def said(command: Sequence[str], limit_s: float, problem: str) -> str:
    """The end of what an engine's command says; all of it, if it is short.

    Raises:
        StartError: it fails or takes too long.
    """
    words, code = b"", 0
    try:
        child = Child(["/bin/sh", "-c", 'exec "$@" 2>&1', "sh", *command], environment=variables())
    except OSError as error:
        raise StartError(f"{command[0]} cannot be started: {error}") from error
    async with child:
        with anyio.move_on_after(limit_s) as scope:
            while piece := await child.read():
                words = (words + piece)[-LAST_WORDS_BYTES:]
            code = await child.wait()
    text = words.decode(errors="replace").strip()
    if scope.cancelled_caught:
        raise StartError(f"{problem}: it took longer than {limit_s:g} s: {text}")
    if code:
        raise StartError(f"{problem}: {text}")
    return text


async def _release(image: Image) -> None:
    """One container less uses an image; remove the images that have been unused for longest."""
    image.users -= 1
    if image.users or not image.pulled:
        return
    if image.once:
        _images.pop((image.engine, image.name), None)
        await run(_removal(image))
        return
    _images[image.engine, image.name] = _images.pop((image.engine, image.name), image)  # now the last one
    unused = [one for one in _images.values() if one.pulled and not one.users and not one.waiting]
    for oldest in unused[: max(0, len(unused) - KEPT)]:
        _images.pop((oldest.engine, oldest.name), None)
        await run(_removal(oldest))


def _removal(image: Image) -> list[str]:
    return [image.engine, "rmi", "--force", image.name]


def remove_images() -> None:
    """Remove the images that this process has pulled."""
    for key in [key for key, image in _images.items() if image.pulled]:
        image = _images.pop(key)
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                _removal(image),
                capture_output=True,
                timeout=REMOVE_LIMIT_S,
                check=False,
                env=variables(),
            )
