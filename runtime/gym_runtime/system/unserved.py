"""How a worker is ended that lives and serves nothing.

A worker whose service has ended leaves, and its supervisor starts another one. But what it has to leave may
hold it up: code that ignores its cancellation keeps its task group for ever. Nothing in the event loop can
end that, so a thread looks.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from gym_sandbox.processes import tree

from gym_runtime.logs import logger

UNSERVED_CHECKED_S = 1.0
"""How often a thread looks whether its worker serves (`gym_runtime.system.unserved`)."""
UNSERVED_S = 15.0
"""A worker whose service has ended, and which has not ended after so long, is ended. Longer than the 10 s
that a resource worker has to close its sessions."""


def end_when_unserved(serving: Callable[[], bool]) -> None:
    """From now on, end this process and those that it has started when ``serving`` is false for `UNSERVED_S`.

    A thread calls ``serving``, until the process ends.
    """

    def watch() -> None:
        served_s = time.monotonic()
        while time.monotonic() - served_s < UNSERVED_S:
            time.sleep(UNSERVED_CHECKED_S)
            if serving():
                served_s = time.monotonic()
        logger().error("this worker serves nothing and does not end by itself; it is ended")
        for child in tree.children(os.getpid()):
            tree.kill(child)
        os._exit(1)

    threading.Thread(target=watch, name="unserved", daemon=True).start()
