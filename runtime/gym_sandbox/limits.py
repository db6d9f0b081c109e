"""The limits of a sandboxed program, and the shell lines that set them.

A shell inside the isolation sets most of them before it starts the program. Outside they would apply to the
wrong processes: the kernel counts processes per user and user namespace, so such a limit would count the
worker's own. Limits on all processes together are enforced from outside (`gym_sandbox.processes.bounded`).
"""

from __future__ import annotations

import msgspec

SHELL = "/bin/sh"
NAMESPACE = 9  # the descriptor that `gym_sandbox.bubblewrap` may have left open
# The units of `ulimit`: memory in KiB, files in blocks of 512 bytes (POSIX).
_KIB, _BLOCK = 1024, 512


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one sandboxed program may use. Where the worker itself may use less, that counts.

    Attributes:
        cpu_s: seconds of processor time of each process.
        memory_bytes: limits the address space of each process, and the resident memory of all processes
            together. With control groups the second limit is ``memory_bytes + 2 * disk_bytes``, because files
            in memory count there.
        reserves: processes may reserve any amount of address space, as browsers do, and only resident memory
            counts.
        file_bytes: size of each file that is written.
        disk_bytes: all files together, in `/tmp` and a container's ``writable`` folders, which are in memory
            and have equal shares; `/dev/shm` may have as much again.
        open_files: descriptors of each process.
        processes: processes and threads at a time, of which one to three belong to the sandbox.
        output_bytes: how much of its output, and of its errors, is kept; the rest is dropped.
    """

    cpu_s: int = 300
    memory_bytes: int = 4 << 30
    reserves: bool = False
    file_bytes: int = 64 << 20
    disk_bytes: int = 128 << 20
    open_files: int = 256
    processes: int = 64
    output_bytes: int = 1 << 20


def limited(
    limits: Limits, program: list[str], *, count_processes: bool, outlives_sigterm: bool = False
) -> list[str]:
    """The command line that runs a program within its limits; it may ignore SIGTERM.

    Set ``count_processes`` only in a separate user namespace; elsewhere it would count all of the user's.
    """
    most = {
        "c": 0,
        "t": limits.cpu_s,
        **({} if limits.reserves else {"v": limits.memory_bytes // _KIB}),
        "f": limits.file_bytes // _BLOCK,
        "n": limits.open_files,
    }
    lines = [
        f"exec {NAMESPACE}<&-",
        # Above the worker's own limit none can be set; that one then holds.
        *(
            f'{{ command ulimit -{option} {value} 2>/dev/null || [ "$(ulimit -{option})" -le {value} ]; }}'
            for option, value in most.items()
        ),
    ]
    if count_processes:
        # The option is -u in bash and zsh, -p in dash and busybox; in bash, -p is the read-only pipe size.
        count = limits.processes
        lines.append(f"{{ command ulimit -u {count} || command ulimit -p {count}; }} 2>/dev/null")
    if outlives_sigterm:
        lines.append("trap '' TERM")
    if program[:2] == [SHELL, "-c"]:  # this shell runs it: to start another one costs a millisecond
        text, *rest = program[2:]
        return [SHELL, "-c", f"{' && '.join(lines)} || exit\n{text}", *rest]
    lines.append('exec "$@"')
    return [SHELL, "-c", " && ".join(lines), "sh", *program]
