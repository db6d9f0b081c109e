"""How a starting worker is ended, although loading a model may block its event loop for minutes.

Until it serves, SIGTERM, SIGINT and the end of its supervisor end it at once, together with every process
that its adapter has started: it has no work yet to finish or to give back.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import NoReturn

from gym_runtime.processes import tree


@contextmanager
def ended_at_once(lifeline: int) -> Generator[None]:
    """End this process at once on a signal, or when ``lifeline`` closes, while the context lasts.

    ``lifeline`` is the pipe that closes when the supervisor ends. Enter it in the main thread, where Python
    handles signals. A thread watches the pipe, because the event loop may be blocked.
    """
    started_read, started_write = os.pipe()
    watch = threading.Thread(target=_watch, args=(lifeline, started_read), name="lifeline", daemon=True)
    before = {number: signal.signal(number, _end) for number in (signal.SIGTERM, signal.SIGINT)}
    watch.start()
    try:
        yield
    finally:
        os.close(started_write)
        watch.join()
        os.close(started_read)
        for number, handler in before.items():
            signal.signal(number, handler)


def _watch(lifeline: int, started: int) -> None:
    readable, _, _ = select.select([lifeline, started], [], [])
    if started not in readable:
        _end()


def _end(*_: object) -> NoReturn:
    for child in tree.children(os.getpid()):
        tree.kill(child)
    os._exit(128 + signal.SIGTERM)
