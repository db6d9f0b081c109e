"""A supervisor that is started before its system is known.

Half of the time to the first rollout of a command are imports: the command's own, and the supervisor's,
which its workers share. A supervisor that is started first imports beside the command. It waits for its
`SystemSpec`, and ends at once when its owner ends without one (wrong options, nothing left to do). This
module imports nothing heavy, because it comes first.
"""

from __future__ import annotations

import subprocess
import sys

# -P keeps the working directory out of sys.path: a user's html.py would hide the standard library's.
COMMAND = (sys.executable, "-P", "-m", "gym_runtime.system.supervisor")

_waiting: list[subprocess.Popen[bytes]] = []


def spawn() -> subprocess.Popen[bytes]:
    """A new supervisor. It leads a separate session: a Ctrl-C in a terminal is its owner's to handle."""
    return subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)


def start() -> None:
    """Start a supervisor, which `take` will return. A process that calls this should end by exiting."""
    _waiting.append(spawn())


def take() -> subprocess.Popen[bytes]:
    """The supervisor that `start` has started, or else a new one."""
    while _waiting:
        process = _waiting.pop()
        # It may have ended since: killed, or its imports failed.
        if process.poll() is None:
            return process
    return spawn()
