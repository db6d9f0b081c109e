"""Kills workers while a run trains, one kind after the other, to see that it learns the same."""

import os
import signal
import threading
from itertools import cycle

from gym_runtime import Client


class Interruptions:
    """For a ``with`` statement: every so many seconds one worker gets SIGKILL, an agent, a resource, a model.

    A kind whose worker is not back waits for its turn.

    Args:
        write: is told of each.
        every_s: None to kill none.
    """

    def __init__(self, gym, write, every_s):
        self._gym, self._write, self._every_s = gym, write, every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._kill, daemon=True)

    def __enter__(self):
        if self._every_s:
            self._thread.start()

    def __exit__(self, *_):
        self._over.set()
        if self._every_s:
            self._thread.join()

    def _kill(self):
        for kind in cycle(("agent", "resource", "model")):
            if self._over.wait(self._every_s):
                return
            for worker in [one for one in self._gym.call(Client.workers) if one.kind == kind][:1]:
                os.kill(worker.pid, signal.SIGKILL)
                self._write(killed=kind)
