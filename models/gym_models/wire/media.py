"""Addresses of images and files in a conversation, which an engine may fetch from its own network.

Nothing in this project fetches them. But an engine does, from inside a network, and describes the content in
its answer: so a harness, a tool or a row could make it read what only that network can reach. Data within the
conversation (``data:``) and public HTTP addresses may pass. Addresses of this machine, of private and
link-local networks, other schemes and an engine's own files are refused, by name and by what the name
resolves to here, unless the model's settings name the host in ``media_hosts``. The engine's operator has to
limit what the engine itself resolves a moment later and which redirects it follows. The same rules hold for
the servers of hosted tools.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Container, Iterable, Iterator
from functools import lru_cache
from typing import Any, cast
from urllib.parse import urlsplit

import anyio
import msgspec
from gym_runtime import ModelCall, TaskError
from msgspec import Raw

from gym_models.wire.endpoint import is_private


class _Params(msgspec.Struct):
    tools: list[Raw] | None = None


class _Tool(msgspec.Struct):
    type: Any = None


RESOLVE_S = 2.0
_decode_params = msgspec.json.Decoder(_Params).decode
_decode_tool = msgspec.json.Decoder(_Tool).decode
_REMEDY = "to allow it, name its host in the model's 'media_hosts'"
_SHOWN_CHARS = 100
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


async def check(call: ModelCall, allowed: Container[str] = ()) -> None:
    """
    Args:
        allowed: hosts that the engine may fetch from wherever they are.

    Raises:
        TaskError: the call has an address that the engine must not fetch; the message shows its beginning.
    """
    names: dict[str, str] = {}
    for url in (*_tool_urls(bytes(call.params)), *_urls(call.input)):
        host = _host(url)
        if host and host not in allowed:
            if is_private(host) or _is_inside(host):
                raise _refused(
                    url, "it points into a private network; to allow it, name its host in 'media_hosts'"
                )
            names.setdefault(host, url)
    for host, url in names.items():
        for address in await _addresses(host):
            if _is_inside(address):
                raise _refused(url, f"its host is at {address} here; {_REMEDY}")


def _may_have_url(text: bytes) -> bool:
    # A name's letters may be written as escapes. Two plain searches take a third of the time of one regular
    # expression, and contexts are long.
    return b"_url" in text or b"\\u00" in text


def _urls(items: Iterable[Raw]) -> Iterator[str]:
    for item in items:
        if _may_have_url(bytes(item)):
            yield from _within(item)


@lru_cache(maxsize=256)
def _tool_urls(params: bytes) -> tuple[str, ...]:
    """The addresses of hosted tools; a function's schema may have a field with such a name."""
    if not _may_have_url(params):
        return ()
    tools = [raw for raw in _decode_params(params).tools or () if _decode_tool(raw).type != "function"]
    return tuple(url for raw in tools for url in _within(raw))


def _within(raw: Raw) -> Iterator[str]:
    """Every string under a name such as ``image_url``, itself or as the ``url`` of an object.

    Raises:
        TaskError: it is nested too deeply.
    """
    try:
        waiting: list[Any] = [msgspec.json.decode(raw)]
    except (msgspec.DecodeError, RecursionError) as error:
        raise TaskError(f"an item of the conversation cannot be read: {error}", stage="model") from error
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            waiting += cast("list[Any]", one)
        elif isinstance(one, dict):
            for name, inner in cast("dict[str, Any]", one).items():
                if name.endswith("_url"):
                    url = cast("dict[str, Any]", inner).get("url") if isinstance(inner, dict) else inner
                    if isinstance(url, str):
                        yield url
                waiting.append(inner)


def _host(url: str) -> str:
    """The host of an address by HTTP; empty if the address holds its data itself.

    Raises:
        TaskError: it is neither.
    """
    if url[:5].lower() == "data:":
        return ""
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").rstrip(".")
    except ValueError:
        host, parts = "", urlsplit("")
    if parts.scheme.lower() not in ("http", "https") or not host or "\\" in url or parts.username is not None:
        raise _refused(url, "it is neither a plain http or https address nor a data: URL")
    return host


def _is_inside(host: str) -> bool:
    """Whether an address is not public; False for a name."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            address = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        else:
            address = address.ipv4_mapped or address.sixtofour or address
    return not address.is_global or address.is_multicast


async def _addresses(host: str) -> list[str]:
    """The addresses that a name resolves to here; empty if it cannot be resolved, or not in time."""
    with anyio.move_on_after(RESOLVE_S):
        try:
            found = await anyio.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return []
        return [str(address[0]) for *_, address in found]
    return []


def _refused(url: str, reason: str) -> TaskError:
    shown = url if len(url) <= _SHOWN_CHARS else f"{url[:_SHOWN_CHARS]}…"
    return TaskError(f"the engine is not asked to fetch {shown!r}: {reason}", stage="model")
