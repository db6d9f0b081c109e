"""What the sockets of a sandbox may hold: memory of no process, which only control groups count.

Without them it is bounded by what the kernel allows each socket: `seccomp` leaves the sizes of buffers at
their defaults, and those of a TCP socket grow by themselves up to the system's largest.

Source: Linux's ``ip-sysctl.rst`` and ``net.rst``; proc(5).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from gym_sandbox.processes.tree import content

SHARE = 4  # all sockets together may hold as much as this part of a sandbox's memory
_OF_DEFAULT_SIZE = (b"UNIX", b"UNIX-STREAM", b"UDP", b"UDPv6", b"NETLINK")
_SYSTEM = Path("/proc/sys/net")


def excess(pid: int, memory_bytes: int) -> str | None:
    """A message if the sockets in a process's network namespace may hold too much, or None.

    Args:
        memory_bytes: the sandbox's limit.
    """
    try:
        # Sockets that are on their way to another process are counted as well.
        used = int(content(f"/proc/{pid}/net/sockstat").split()[2])
        if not used:
            return None
        rows = [line.split() for line in content(f"/proc/{pid}/net/protocols").splitlines()]
    except (OSError, ValueError, IndexError):
        return None  # it has ended
    small = sum(int(row[2]) for row in rows if row[0] in _OF_DEFAULT_SIZE)
    large = max(0, used - small)  # those of TCP also count where the connection is lost and the data is not
    of_small, of_large = _each_bytes()
    held_bytes, most_bytes = small * of_small + large * of_large, memory_bytes // SHARE
    if held_bytes <= most_bytes:
        return None
    return (
        f"{used} sockets at a time, which may hold {held_bytes >> 20} MiB, more than {most_bytes >> 20} "
        "without control groups"
    )


@cache
def _each_bytes() -> tuple[int, int]:
    """The most that a socket with buffers of the default size holds, and one of TCP."""

    def numbers(name: str) -> list[int]:
        return [int(number) for number in (_SYSTEM / name).read_text().split()]

    # Twice: the last message may be as large as the buffer.
    default = 2 * (numbers("core/wmem_default")[0] + numbers("core/rmem_default")[0])
    return default, max(default, numbers("ipv4/tcp_wmem")[2] + numbers("ipv4/tcp_rmem")[2])
