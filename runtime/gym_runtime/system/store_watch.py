"""Whether a nats-server stores what it is sent, by its own statistics, and whether a restart would help.

A stream that failed to write, because the disk or a quota was full, refuses everything until its server is
started again. And all streams together may take three quarters of the space that was free when the server
started: what is freed later does not count before the next start.

Source: nats-server 2.15, ``/healthz`` and ``/jsz``; older versions do not report a stream's write error.
"""

from __future__ import annotations

import http.client
import shutil
from pathlib import Path
from typing import TypeVar

import msgspec

from gym_runtime.errors import UNREADABLE

STORE_LOOK_ANSWER_S = 1.0
"""How long a broker may take to answer whether it stores: on the same machine it takes a millisecond."""


WRITE_ERROR = "write error"
ROOM_BYTES = 1024 * 1024
"""A restart must gain at least this."""


class _Health(msgspec.Struct):
    error: str = ""


class _Limits(msgspec.Struct):
    max_storage: int = 0


class _Storage(msgspec.Struct):
    storage: int = 0
    config: _Limits = msgspec.field(default_factory=_Limits)


T = TypeVar("T", _Health, _Storage)


class Refusal(msgspec.Struct, frozen=True):
    """A server that stores nothing.

    Attributes:
        why: in the server's words, on one line.
        stored_bytes: what all of its streams have stored.
    """

    why: str
    stored_bytes: int

    def curable(self, folder: Path) -> bool:
        """Whether the server would store again after a restart, by the space that its folder has now."""
        return shutil.disk_usage(folder).free // 4 * 3 > self.stored_bytes + ROOM_BYTES


def refusal(monitor: str) -> Refusal | None:
    """Ask a server at its monitoring address, ``HOST:PORT``; None if it stores, or does not say."""
    try:
        health, held = _ask(monitor, "/healthz", _Health), _ask(monitor, "/jsz", _Storage)
    # A server that starts or ends, or is too busy to answer, is asked again. The port may be -1: any.
    except (OSError, OverflowError, http.client.HTTPException, *UNREADABLE):
        return None
    if WRITE_ERROR in health.error:
        return Refusal(health.error, held.storage)
    if 0 < held.config.max_storage < held.storage:
        return Refusal(
            f"its streams hold {held.storage} bytes, and the limit is {held.config.max_storage}", held.storage
        )
    return None


def _ask(monitor: str, path: str, kind: type[T]) -> T:
    connection = http.client.HTTPConnection(monitor, timeout=STORE_LOOK_ANSWER_S)
    try:
        connection.request("GET", path)
        return msgspec.json.decode(connection.getresponse().read(), type=kind)
    finally:
        connection.close()
