"""The tasks of an environment of OpenEnv, by its server's Task API, one page after the other.

Source: openenv 0.10, ``openenv.core.env_server.http_server``.
"""

from __future__ import annotations

import hashlib
import http.client
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec
from gym_runtime import UsageError
from gym_runtime.errors import UNREADABLE

PAGE = 200
TIMEOUT_S = 30.0
MAX_BYTES = 32 * 2**20
_NO_TASKS = 501
_encode = msgspec.json.Encoder().encode


class _Count(msgspec.Struct):
    num_tasks: int


class _Page(msgspec.Struct):
    tasks: list[msgspec.Raw]


def tasks(url: str, split: str, start: int, size: int | None) -> Iterator[tuple[int, str]]:
    """The numbers of tasks, from one on, and a digest of what each task is.

    Args:
        url: the server's, without a slash at its end.
        size: how many at most; None for all.

    Raises:
        UsageError: the server is not there, has no such tasks, or answers otherwise.
    """
    (name, *_) = [*_asked(url, "/list_environments", None, list[str]), ""]
    path = f"/{quote(name, safe='')}"
    count = _asked(url, f"{path}/num_tasks", {"split": split}, _Count).num_tasks
    stop = count if size is None else min(count, start + size)
    for first in range(start, stop, PAGE):
        last = min(first + PAGE, stop)
        asked = {"split": split, "start": first, "stop": last}
        found = _asked(url, f"{path}/task_range", asked, _Page).tasks
        if len(found) != last - first:
            raise UsageError(f"{url} has {len(found)} tasks from {first} to {last} of the split '{split}'")
        for number, task in enumerate(found, first):
            plain = msgspec.json.encode(msgspec.json.decode(task), order="sorted")
            yield number, hashlib.sha256(plain).hexdigest()[:16]


def _asked(url: str, path: str, body: dict[str, Any] | None, kind: Any) -> Any:
    """An answer of the server; http.client follows no redirect and asks no proxy."""
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    connect = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = connect(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    data = None if body is None else _encode(body)
    try:
        headers = {"content-type": "application/json"}
        connection.request("GET" if data is None else "POST", f"{parts.path}{path}", data, headers)
        answer = connection.getresponse()
        said = answer.read(MAX_BYTES + 1)
    except (OSError, http.client.HTTPException) as error:
        raise UsageError(f"{url} cannot be asked for its tasks: {error}") from error
    finally:
        connection.close()
    if answer.status == _NO_TASKS:
        raise UsageError(
            f"the environment at {url} has no tasks in splits: leave ?split= out, and set --limit N"
        )
    try:
        if answer.status == http.client.OK and len(said) <= MAX_BYTES:
            return msgspec.json.decode(said, type=kind)
    except UNREADABLE:
        pass
    why = said[:300].decode(errors="replace")
    raise UsageError(f"{url}{path} answered {answer.status} and no tasks: {why}")
