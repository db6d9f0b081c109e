"""How much of everything a sandboxed program may use, and the shell lines that see to it.

Most are set by a shell between the isolation and the program, because only there they bind what they are
meant to bind: processes are counted per user and user namespace, so a limit set outside would count the
worker's own. What all processes together hold is bounded from outside (`gym_runtime.processes.bounded`).
"""

from __future__ import annotations

import msgspec

SHELL = "/bin/sh"
NAMESPACE = 9  # the descriptor that `gym_runtime.sandbox.bubblewrap` may have left open
_KIB, _BLOCK = 1024, 512


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one sandboxed program may use.

    Attributes:
        cpu_s: seconds of processor time of each process.
        memory_bytes: address space of each process, and resident memory of all of them together; where there
            are control groups, with room for twice the disk.
        file_bytes: size of each file that is written.
        disk_bytes: all files together, in `/tmp`, which lives in memory; `/dev/shm` takes as much again.
        open_files: descriptors of each process.
        processes: processes and threads at a time, three of which are the sandbox's own.
        output_bytes: what is kept of its output and of its errors, each; the rest is dropped.
    """

    cpu_s: int = 300
    memory_bytes: int = 4 << 30
    file_bytes: int = 64 << 20
    disk_bytes: int = 128 << 20
    open_files: int = 256
    processes: int = 64
    output_bytes: int = 1 << 20


def limited(limits: Limits, program: list[str], *, count_processes: bool) -> list[str]:
    """The command line that runs a program within its limits.

    ``count_processes`` is for a user namespace of its own; elsewhere it would count all of the user's.
    """
    lines = [
        f"exec {NAMESPACE}<&-",
        "ulimit -c 0",
        f"ulimit -t {limits.cpu_s}",
        f"ulimit -v {limits.memory_bytes // _KIB}",
        f"ulimit -f {limits.file_bytes // _BLOCK}",
        f"ulimit -n {limits.open_files}",
    ]
    if count_processes:
        # bash and zsh say -u, dash and busybox -p, which is bash's read-only pipe size.
        count = limits.processes
        lines.append(f"{{ command ulimit -u {count} || command ulimit -p {count}; }} 2>/dev/null")
    lines.append('exec "$@"')
    return [SHELL, "-c", " && ".join(lines), "sh", *program]
