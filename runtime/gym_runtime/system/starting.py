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

from gym_sandbox.processes import tree


@contextmanager
def ended_at_once(lifeline: int) -> Generator[None]:
    """End this process at once on a signal, or when ``lifeline`` closes, while the context lasts.

    ``lifeline`` is the pipe that closes when the supervisor ends. Enter it in the main thread, where Python
    handles signals. A thread watches the pipe, because the event loop may be blocked. The handlers of the
    signals stay until the caller installs others, so that no signal is lost in between.
    """
    # Closing it wakes the thread, which `select` could otherwise not leave.
    started_read, started_write = os.pipe()
    watch = threading.Thread(target=_watch, args=(lifeline, started_read), name="lifeline", daemon=True)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    watch.start()
    try:
        yield
    finally:
        os.close(started_write)
        watch.join()
        os.close(started_read)


def _watch(lifeline: int, started: int) -> None:
    readable, _, _ = select.select([lifeline, started], [], [])
    # If both are readable, the worker has started, and its own watch of the pipe takes over.
    if started not in readable:
        _end()


def _end(*_: object) -> NoReturn:
    for child in tree.children(os.getpid()):
        tree.kill(child)
    # Not `sys.exit`: this may be a thread, or a handler within code that never returns.
    os._exit(128 + signal.SIGTERM)
