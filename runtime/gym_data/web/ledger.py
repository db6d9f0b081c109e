"""How often a service was asked: the pace and the quota of one machine, over all its processes.

Services limit a key or a machine, not a process. So one small file per service has the count of today's
requests and the time of the next one, in the user's cache, which is locked while it is read and written.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
from gym_runtime.assets import cache_folder
from gym_runtime.errors import UNREADABLE, UsageError
from gym_runtime.own_files import open_own

SERVICE_RESTS_LONGEST_S = 24 * 3600.0
"""A ledger's time to wait that is longer counts as an error of the clock, which was set back."""


class _Ledger(msgspec.Struct):
    """
    Attributes:
        day: of ``calls``, in UTC.
        free_s: when the next request may start, in seconds since the epoch.
    """

    day: str = ""
    calls: int = 0
    free_s: float = 0.0


_decode = msgspec.json.Decoder(_Ledger).decode
_encode = msgspec.json.Encoder().encode


class QuotaUsedUp(Exception):
    """As many requests as the operator allows for a day were made."""


async def reserve(service: str, per_s: float | None, per_day: int | None) -> None:
    """Wait until the service may be asked, and count the request.

    Args:
        per_s: requests per second at most; None for no limit.
        per_day: requests in a day, by UTC, at most; None for no limit.

    Raises:
        QuotaUsedUp: there were so many today.
        UsageError: the file cannot be written.
    """
    if per_s is None and per_day is None:
        return
    await anyio.sleep(await anyio.to_thread.run_sync(_reserved, service, per_s, per_day))


def _reserved(service: str, per_s: float | None, per_day: int | None) -> float:
    """The pause until the request may start, in seconds."""
    place = cache_folder() / "web" / "services" / f"{service}.json"
    try:
        return _updated(place, per_s, per_day)
    except OSError as error:
        raise UsageError(
            f"{place} cannot be written ({error.strerror}); set GYM_CACHE to another folder"
        ) from error


def _updated(place: Path, per_s: float | None, per_day: int | None) -> float:
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Closing the file writes what is buffered, and then gives up the lock.
    with os.fdopen(open_own(place, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            ledger = _decode(file.read())
        except UNREADABLE:  # it is new, or a full disk cut it off
            ledger = _Ledger()
        now_s, today = time.time(), time.strftime("%Y-%m-%d", time.gmtime())
        if ledger.day != today:
            ledger.day, ledger.calls = today, 0
        if per_day is not None and ledger.calls >= per_day:
            raise QuotaUsedUp
        # Counted before it is sent: a service counts failed requests as well.
        ledger.calls += 1
        due_s = ledger.free_s
        if due_s >= now_s + SERVICE_RESTS_LONGEST_S:  # the clock was set back
            due_s = 0.0
        start_s = max(now_s, due_s)
        if per_s is not None:
            ledger.free_s = start_s + 1 / per_s
        file.seek(0)
        file.truncate()
        file.write(_encode(ledger))
    return start_s - now_s
