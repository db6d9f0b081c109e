"""Addresses of images and files in a conversation, which an engine may fetch from its own network.

Nothing in this project fetches them. But an engine does, from inside a network, and describes the content in
its answer: so a harness, a tool or a row could make it read what only that network can reach. Data within the
conversation (``data:``) and public HTTP addresses may pass. Addresses of this machine, of private and
link-local networks, other schemes and an engine's own files are refused, by name and by what the name
resolves to here, unless the model's settings name the host in ``media_hosts``. The engine's operator has to
limit what the engine itself resolves afterwards and which redirects it follows. The same rules hold for
the servers of hosted tools.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, cast

import anyio
import msgspec
from gym_data.web import host_of, is_address, is_public, resolved
from gym_faces.dialects import pieces
from gym_runtime import TaskError
from gym_runtime.adapters import ConversationNotes, ModelCall
from gym_runtime.errors import UNREADABLE
from msgspec import Raw

from gym_models.wire.endpoint import is_private


class _Params(msgspec.Struct):
    tools: list[Raw] | None = None


class _Tool(msgspec.Struct):
    type: Any = None


class _Seen(msgspec.Struct):
    """The items of a conversation that were looked at, and the addresses by HTTP in them."""

    items: int = 0
    urls: list[str] = []


RESOLVE_S = 2.0
_LONG_BYTES = 4096
_decode_params = msgspec.json.Decoder(_Params).decode
_decode_tool = msgspec.json.Decoder(_Tool).decode
_REMEDY = "to allow it, name its host in the model's 'media_hosts'"
_SHOWN_CHARS = 100


async def check(
    call: ModelCall, allowed: Container[str] = (), notes: ConversationNotes | None = None
) -> None:
    """
    Args:
        allowed: hosts that the engine may fetch from wherever they are.
        notes: of the conversation, so that each item is read once; its addresses are checked at every turn.

    Raises:
        TaskError: the call has an address that the engine must not fetch; the message shows its beginning.
    """
    names: dict[str, str] = {}
    said = _urls(call.input, ConversationNotes() if notes is None else notes)
    for url in (*_tool_urls(bytes(call.params)), *said):
        host = _host(url)
        if host and host not in allowed:
            if is_private(host) or (is_address(host) and not is_public(host)):
                raise _refused(
                    url, "it points into a private network; to allow it, name its host in 'media_hosts'"
                )
            # Each name is resolved once, however often it comes.
            names.setdefault(host, url)
    for host, url in names.items():
        for address in await _addresses(host):
            if not is_public(address):
                raise _refused(url, f"its host is at {address} here; {_REMEDY}")


def _may_have_url(text: bytes) -> bool:
    # A name's letters may be written as escapes. Two plain searches take a third of the time of one regular
    # expression, and contexts are long.
    return b"_url" in text or b"\\u00" in text


def _urls(items: Sequence[Raw], notes: ConversationNotes) -> list[str]:
    """The addresses by HTTP in a conversation."""
    seen: _Seen = notes.setdefault("media", _Seen())
    for item in items[seen.items :]:
        if any(map(_may_have_url, _outside_texts(item))):
            seen.urls += [url for url in _within(item) if _host(url)]
        seen.items += 1
    return seen.urls


def _outside_texts(item: Raw) -> Iterable[bytes]:
    """The parts of an item in which names may stand: to search a long text takes longer than to skip it."""
    text = bytes(item)
    if len(text) < _LONG_BYTES:
        return (text,)
    try:
        fields = pieces.decode_fields(text)
    except UNREADABLE:
        return (text,)
    return (
        pieces.encode(list(fields)),
        *(bytes(one) for one in fields.values() if not pieces.is_string(one)),
    )


# The parameters are the same in all turns of a rollout, and of its group.
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
    except UNREADABLE as error:
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
                # A list in place of recursion: hostile JSON may be nested deeply.
                waiting.append(inner)


def _host(url: str) -> str:
    """The host of an address by HTTP; empty if the address holds its data itself.

    Raises:
        TaskError: it is neither.
    """
    if url[:5].lower() == "data:":
        return ""
    host = host_of(url)
    if not host:
        raise _refused(url, "it is neither a plain http or https address nor a data: URL")
    return host


async def _addresses(host: str) -> list[str]:
    """The addresses that a name resolves to here; empty if it cannot be resolved, or not in time."""
    with anyio.move_on_after(RESOLVE_S):
        try:
            return [address for _, address in await resolved(host)]
        except OSError:
            return []
    return []


def _refused(url: str, reason: str) -> TaskError:
    shown = url if len(url) <= _SHOWN_CHARS else f"{url[:_SHOWN_CHARS]}…"
    return TaskError(f"the engine is not asked to fetch {shown!r}: {reason}", stage="model")
