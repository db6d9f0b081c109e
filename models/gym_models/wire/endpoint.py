"""An engine's address and credentials: base URL, headers, key.

For a hosted engine the `openai` client is the source of truth for the headers, because it reads every
``OPENAI_*`` variable. Importing it and making a client costs 0.35 s of CPU, so for an engine on this machine
or in a private network the three variables that matter there are read directly.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

import msgspec
from gym_runtime import UsageError
from gym_runtime.adapters import ModelSettings, check_url

from gym_models.wire.quoted import Quoted, secrets_of

OPENAI_URL = "https://api.openai.com/v1"
_KEY = "OPENAI_API_KEY"
_PRIVATE_SUFFIXES = (".local", ".internal", ".svc", ".lan")
_KEY_HEADERS = ("authorization", "api-key")
_BREAK = re.compile(r"[\r\n\0]")
_NOT_OURS = ("accept", "content-type", "user-agent", "x-stainless-")


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One engine.

    Attributes:
        url: without a slash at the end.
        headers: names in lower case.
        query: appended to every path, such as ``?api-version=2024-10-21``.
        private: on this machine or in a private network.
        key_variable: the variable of its key; nothing else about the key may be shown.
        has_key: whether that variable holds a key.
        lists: whether the engine is expected to answer ``GET /models``.
    """

    url: str
    headers: dict[str, str]
    private: bool
    query: str = ""
    key_variable: str = _KEY
    has_key: bool = False
    lists: bool = True

    def quote(self, text: str | bytes, login: Mapping[str, str] | None = None) -> Quoted:
        """The engine's text, for an error. ``login`` holds headers that were sent besides the endpoint's."""
        return Quoted(text, secrets_of({**self.headers, **(login or {})}))

    def check_headers(self) -> None:
        """
        Raises:
            UsageError: a key or another header has a line break within, which HTTP cannot carry.
        """
        for name, value in self.headers.items():
            if _BREAK.search(name + value):
                key = f" (the key in {self.key_variable})" if name in _KEY_HEADERS else ""
                raise UsageError(
                    f"a line break within the header {name!r}{key}: keys and headers are one line"
                )

    def __repr__(self) -> str:
        return f"Endpoint(url={self.url!r})"


def resolve(
    settings: ModelSettings, make: Callable[[str, ModelSettings], Endpoint] | None = None
) -> list[Endpoint]:
    """The endpoints that the settings and the environment name. Blocks: imports ``openai`` if needed.

    Raises:
        UsageError: a URL is not one, or a key is needed and its variable is empty.
    """
    urls = settings.urls or (os.environ.get("OPENAI_BASE_URL") or OPENAI_URL,)
    return [(make or at)(url, settings) for url in urls]


def at(text: str, settings: ModelSettings) -> Endpoint:
    """The endpoint at a URL, as the `openai` client would speak to it; see `resolve`."""
    found = plain(text, settings)
    if found.private:
        return found
    key = os.environ.get(found.key_variable, "").strip()
    if urlsplit(found.url).hostname == "api.openai.com" and not key:
        raise UsageError(f"{found.url} needs a key: set the environment variable {found.key_variable}")
    # In this order, so that the settings win.
    return msgspec.structs.replace(found, headers=_client_headers(found.url, key) | found.headers)


def plain(text: str, settings: ModelSettings) -> Endpoint:
    """The endpoint at a URL with nothing but the key and the settings' own headers."""
    variable = settings.api_key_variable or _KEY
    key = os.environ.get(variable, "").strip()
    if settings.api_key_variable and not key:
        raise UsageError(f"the environment variable {variable}, which is to hold the model's key, is not set")
    url, host = base_url(text)
    headers = {"accept": "application/json", "content-type": "application/json"}
    if key:
        headers["authorization"] = f"Bearer {key}"
    headers.update((name.lower(), value) for name, value in settings.headers.items())
    return Endpoint(
        url=url, headers=headers, private=is_private(host), key_variable=variable, has_key=bool(key)
    )


def base_url(text: str) -> tuple[str, str]:
    """A base URL without a slash at its end, ``/v1`` where it has no path; and its host.

    Raises:
        UsageError: it is no URL, or one with a login or a query, which are not shown.
    """
    check_url(text)
    problem = f"'{text}' is not a model URL; it looks like http://127.0.0.1:8000/v1"
    try:
        parts = urlsplit(text)
        host = parts.hostname if parts.port != 0 else None
        (host or "").encode("idna")
    except ValueError as error:  # a port beyond 65535, half of an IPv6 address, or what no host is called
        raise UsageError(problem) from error
    if parts.scheme not in ("http", "https") or not host:
        raise UsageError(problem)
    return text.rstrip("/") if parts.path.strip("/") else text.rstrip("/") + "/v1", host


def is_private(host: str) -> bool:
    """Whether a host is this machine or in a private network, judged by its name alone.

    >>> [is_private(host) for host in ("localhost", "10.0.0.7", "vllm", "api.example.com")]
    [True, True, True, False]
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "." not in host or host.endswith(_PRIVATE_SUFFIXES)
    return address.is_private or address.is_loopback


def _client_headers(url: str, key: str) -> dict[str, str]:
    import openai

    # Only the client's headers are used. Without the environment it does not look for proxies, whose schemes
    # it may not support.
    http = openai.DefaultAsyncHttpxClient(trust_env=False)
    # The client refuses an empty key; the header that it makes of this one is removed below.
    client = openai.AsyncOpenAI(base_url=url, api_key=key or "none", max_retries=0, http_client=http)
    headers = {
        name.lower(): value
        for name, value in {**client.default_headers, **client.auth_headers}.items()
        if isinstance(value, str) and not name.lower().startswith(_NOT_OURS)
    }
    if not key:
        headers.pop("authorization", None)
    return headers
