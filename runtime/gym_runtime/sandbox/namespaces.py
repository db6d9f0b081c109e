"""A user namespace for a worker that is root: its sandboxes run as users without any privilege outside.

An ordinary user gets this from bubblewrap. For root, bubblewrap's own namespace would map the sandbox's user
to root, whom no limit on processes binds. So one namespace is made per worker process, in which root goes
by a nameless number (bubblewrap needs it to reach what only root can read, before it drops everything) and
each sandbox gets a user of its own, so that its processes are counted alone. No further user namespaces can
be made in it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from itertools import count

from gym_runtime.errors import UsageError

FIRST_USER, USERS, ROOT = 1000, 5000, 65533
_MAKER = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x10000000):
    sys.exit(ctypes.get_errno())
print("made", flush=True)
input()
open("/proc/sys/user/max_user_namespaces", "w").write("0")
print("sealed", flush=True)
input()
"""
_turn = count()


@cache
def namespace(process: int) -> int:
    """A descriptor of this process's namespace, made once; ``process`` is its id.

    Raises:
        UsageError: the system does not let root make one.
    """
    # Not cached across a fork: hence the argument.
    maker = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _MAKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
    )
    assert maker.stdin
    assert maker.stdout
    with maker.stdin, maker.stdout:
        try:
            if maker.stdout.readline() != b"made\n":
                raise OSError(maker.wait(), os.strerror(maker.wait()))
            first = _first_outside()
            for kind in ("uid", "gid"):
                with open(f"/proc/{maker.pid}/{kind}_map", "w") as file:
                    file.write(f"{ROOT} 0 1\n{FIRST_USER} {first} {USERS}\n")
            maker.stdin.write(b"\n")
            if maker.stdout.readline() != b"sealed\n":
                raise OSError("it cannot be sealed against further namespaces")
            return os.open(f"/proc/{maker.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise UsageError(f"no user namespace for the sandbox: {error}") from error
        finally:
            maker.kill()
            maker.wait()


def next_user() -> int:
    """A user for one sandbox, by the namespace's numbers; they come round again after `USERS` sandboxes."""
    return FIRST_USER + next(_turn) % USERS


def _first_outside() -> int:
    """The first of `USERS` numbers that exist here and belong to nobody, high up where there are so many."""
    with open("/proc/self/uid_map") as file:
        ranges = [tuple(map(int, line.split())) for line in file]
    end = max(inside + size for inside, _, size in ranges)
    first = min(2_000_000_000, end - USERS - 10)
    if first < 20_000:
        raise OSError(f"only {end} user ids exist here, too few for {USERS} sandboxes' own")
    return first
