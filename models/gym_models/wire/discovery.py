"""Where a model's replicas are: ``urls`` may name sources that change while the system runs.

==================  ==============================================================
``http://…``        the replica itself
``file:PATH``       a file with one URL a line; ``#`` starts a comment
``dns:HOST:PORT``   every address of that name, over HTTP, as of a headless service
==================  ==============================================================
"""

from __future__ import annotations

import socket

import anyio
from gym_runtime import UsageError

_FILE, _DNS = "file:", "dns:"


def changes(url: str) -> bool:
    """Whether a URL names a source, which has to be read repeatedly."""
    return url.startswith((_FILE, _DNS))


async def look_up(url: str) -> list[str]:
    """The base URLs that a source names now.

    Raises:
        UsageError: the file cannot be read, the name cannot be resolved, or the source is malformed.
    """
    if url.startswith(_FILE):
        return await _file(url.removeprefix(_FILE))
    if url.startswith(_DNS):
        return await _addresses(url, url.removeprefix(_DNS))
    return [url]


async def _file(path: str) -> list[str]:
    try:
        text = await anyio.Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the list of model URLs '{path}' cannot be read: {error}") from error
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


async def _addresses(url: str, name: str) -> list[str]:
    host, _, port = name.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"'{url}' is not a source of model URLs; it looks like dns:engines.internal:8000")
    try:
        found = await anyio.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    except OSError as error:
        raise UsageError(f"the host of {url} cannot be resolved: {error}") from error
    addresses = dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found)
    return [f"http://{f'[{one}]' if ':' in one else one}:{port}/v1" for one in addresses]
