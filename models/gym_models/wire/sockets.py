"""What both HTTP clients ask of the system: open files, probes, limits on opening connections."""

from __future__ import annotations

import socket
import sys

CONNECT_S = 10.0
# Below the 5 s after which vLLM (uvicorn) and llama.cpp close an idle connection: to reuse one that is
# being closed costs a retry.
KEEP_ALIVE_S = 4.5
# A burst of thousands would overflow the engine's backlog (4,096 on Linux, often 128), which then drops
# connections, to be retried after 1, 2, 4 … seconds.
OPENING_AT_ONCE = 128
ADDRESSES_S = 60
"""How long a host's addresses hold."""
# Left for what is not a call to the engine; where a process may have few files, half of them.
_RESERVED_FILES = 512
_IDLE_S, _PROBE_S, _PROBES = 15, 5, 3  # a host that answers no probe counts as dead after 30 s


def probe(made: socket.socket) -> None:
    """Let the system probe a connection that is quiet, so that a host that vanished is noticed."""
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":  # elsewhere the system's default holds, two hours
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_S)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_S)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)


def most_connections() -> int:
    """How many connections this process may have: every call in flight holds one, hence one file."""
    files = raise_file_limit()
    return files - min(_RESERVED_FILES, files // 2)


def raise_file_limit() -> int:
    """Raise this process's limit of open files to the maximum and return it. Idempotent."""
    try:
        import resource
    except ModuleNotFoundError:  # not a POSIX system: sockets are not files there
        return 1 << 16
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, 1 << 20) if hard != resource.RLIM_INFINITY else 1 << 20
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (ValueError, OSError):  # macOS reports "unlimited" and accepts less
            wanted = soft
    return max(wanted, soft)
