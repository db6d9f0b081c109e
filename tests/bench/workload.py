"""What `isolated` has computed in verifiers, which find functions by their names."""

from __future__ import annotations

import os
import resource

from gym_sandbox.kernel import fork


def run(code: str) -> None:
    exec(code)


def fork_ms_of(count: int) -> float:
    """What a fork of this process that ends at once costs in processor time, on average."""
    start_s = _cpu_s()
    for _ in range(count):
        if not (pid := fork()):
            os._exit(0)
        os.waitpid(pid, 0)
    return (_cpu_s() - start_s) * 1000 / count


def _cpu_s() -> float:
    used = [resource.getrusage(kind) for kind in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)
