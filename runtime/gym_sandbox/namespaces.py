"""A user namespace for a worker that is root: its sandboxes run as users without any privilege outside.

For an ordinary user, bubblewrap does this. For root, bubblewrap's own namespace would map the sandbox's user
to root, for which the kernel has no limit on processes. So each worker process makes one namespace. In it,
root has an unused number (bubblewrap needs root to reach files that only root can read, before it drops all
privileges), and each sandbox gets its own user, so that its processes are counted separately. No further
user namespaces can be made in it. A keeper process watches: when the worker has ended, for any reason, it
kills all processes left in the namespace. Bubblewrap may not do this, because its user differs from the
sandbox's.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from functools import cache
from itertools import count

from gym_sandbox.sandbox_errors import SetupError

FIRST_USER, USERS, ROOT = 1000, 5000, 65533
KEEPER = """
import ctypes, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x10000000):
    print(os.strerror(ctypes.get_errno()), flush=True)
    sys.exit(1)
print("made", flush=True)
sys.stdin.readline()
with open("/proc/sys/user/max_user_namespaces", "w") as file:
    file.write("0")
print("sealed", flush=True)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
sys.stdin.read()
mine, here, left = os.readlink("/proc/self/ns/user"), str(os.getpid()), True
while left:
    left = False
    for pid in os.listdir("/proc"):
        try:
            if pid.isdigit() and pid != here and os.readlink(f"/proc/{pid}/ns/user") == mine:
                with open(f"/proc/{pid}/stat", "rb") as file:
                    if file.read().rpartition(b")")[2].split()[0] == b"Z":
                        continue  # the worker, which waits for this process, has not waited for it
                os.kill(int(pid), signal.SIGKILL)
                left = True
        except OSError:
            continue
"""
_turn = count()


@cache
def namespace(process: int) -> int:
    """A descriptor of this process's namespace, made once; ``process`` is its id.

    Raises:
        SetupError: the system does not let root make one.
    """
    # The argument makes the cache miss in a fork, which must not share the namespace.
    keeper = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", KEEPER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        start_new_session=True,
    )
    try:
        _expect(keeper, b"made\n")
        first = first_outside()
        # Written from outside: only a process of the namespace above may map several users.
        for kind in ("uid", "gid"):
            with open(f"/proc/{keeper.pid}/{kind}_map", "w") as file:
                file.write(f"{ROOT} 0 1\n{FIRST_USER} {first} {USERS}\n")
        assert keeper.stdin
        keeper.stdin.write(b"\n")
        _expect(keeper, b"sealed\n")
        found = os.open(f"/proc/{keeper.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        _dismiss(keeper)
        raise SetupError(f"no user namespace for the sandbox: {error}") from error
    atexit.register(_dismiss, keeper)
    return found


def _expect(keeper: subprocess.Popen[bytes], line: bytes) -> None:
    assert keeper.stdout
    received = keeper.stdout.readline()
    if received != line:
        raise OSError(received.decode().strip() or "it cannot be sealed against further namespaces")


def _dismiss(keeper: subprocess.Popen[bytes]) -> None:
    for pipe in (keeper.stdin, keeper.stdout):
        if pipe:
            # At the end of its input the keeper kills the remaining processes, and ends.
            pipe.close()
    keeper.wait()


def next_user() -> int:
    """A user id of the namespace for one sandbox; ids repeat after `USERS` sandboxes."""
    return FIRST_USER + next(_turn) % USERS


def first_outside() -> int:
    """The first of `USERS` unused user ids of this namespace, from the high end if there are enough."""
    with open("/proc/self/uid_map") as file:
        ranges = [tuple(map(int, line.split())) for line in file]
    end = max(inside + size for inside, _, size in ranges)
    # Far from what systems give to users and their containers.
    first = min(2_000_000_000, end - USERS - 10)
    if first < 20_000:
        raise OSError(f"only {end} user ids exist in this namespace, too few for {USERS} sandboxes")
    return first
