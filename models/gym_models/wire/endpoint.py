"""Where an engine is and who we are to it: base URL, headers, key.

For a hosted engine the `openai` client is the source of truth for the headers, because it knows every
``OPENAI_*`` variable. Importing it and making a client costs 0.35 s of CPU, so for an engine on this
machine or in a private network the three variables that matter there are read directly.
"""

from __future__ import annotations

import ipaddress
import os
import re
from urllib.parse import urlsplit

import msgspec
from gym_runtime.errors import UsageError
from gym_runtime.model import ModelSettings

OPENAI_URL = "https://api.openai.com/v1"
_KEY = "OPENAI_API_KEY"
_PRIVATE_SUFFIXES = (".local", ".internal", ".svc", ".lan")
_LOOKS_LIKE_KEY = re.compile(r"\b(?:sk|pk|nvapi|hf|gsk|xai|AIza)[-_][\w*.-]{8,}")
_NOT_OURS = ("accept", "content-type", "user-agent", "x-stainless-")


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One engine.

    Attributes:
        url: without a slash at the end.
        headers: names in lower case.
        private: on this machine or in a private network.
        key_variable: where its key was looked for; the only thing about the key that may be shown.
        has_key: whether a key was there.
    """

    url: str
    headers: dict[str, str]
    private: bool
    key_variable: str = _KEY
    has_key: bool = False

    def scrub(self, text: str) -> str:
        """The text without this endpoint's secrets, nor anything that looks like a key."""
        for name, value in self.headers.items():
            if "auth" in name or "key" in name or "token" in name:
                secret = value.removeprefix("Bearer ")
                if secret:
                    text = text.replace(secret, "[key]")
        return _LOOKS_LIKE_KEY.sub("[key]", text)

    def __repr__(self) -> str:
        return f"Endpoint(url={self.url!r})"


def resolve(settings: ModelSettings) -> list[Endpoint]:
    """The endpoints that the settings and the environment name. Blocks: imports ``openai`` if needed.

    Raises:
        UsageError: a URL is not one, or a key is needed and its variable is empty.
    """
    variable = settings.api_key_variable or _KEY
    key = os.environ.get(variable, "").strip()
    if settings.api_key_variable and not key:
        raise UsageError(f"the environment variable {variable}, which is to hold the model's key, is not set")
    urls = settings.urls or (os.environ.get("OPENAI_BASE_URL") or OPENAI_URL,)
    return [_endpoint(url, key, variable, settings) for url in urls]


def _endpoint(text: str, key: str, variable: str, settings: ModelSettings) -> Endpoint:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"'{text}' is not a model URL; it looks like http://127.0.0.1:8000/v1")
    url = text.rstrip("/") if parts.path.strip("/") else text.rstrip("/") + "/v1"
    if parts.hostname == "api.openai.com" and not key:
        raise UsageError(f"{url} needs a key: set the environment variable {variable}")
    private = is_private(parts.hostname)
    headers = _own_headers(key) if private else _client_headers(url, key)
    headers.update((name.lower(), value) for name, value in settings.headers.items())
    headers = {"accept": "application/json", "content-type": "application/json", **headers}
    return Endpoint(url=url, headers=headers, private=private, key_variable=variable, has_key=bool(key))


def is_private(host: str) -> bool:
    """Whether a host is this machine or in a private network, as far as its name says.

    >>> [is_private(host) for host in ("localhost", "10.0.0.7", "vllm", "api.example.com")]
    [True, True, True, False]
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "." not in host or host.endswith(_PRIVATE_SUFFIXES)
    return address.is_private or address.is_loopback


def _own_headers(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"} if key else {}


def _client_headers(url: str, key: str) -> dict[str, str]:
    import openai

    client = openai.AsyncOpenAI(base_url=url, api_key=key or "none", max_retries=0)
    headers = {
        name.lower(): value
        for name, value in {**client.default_headers, **client.auth_headers}.items()
        if isinstance(value, str) and not name.lower().startswith(_NOT_OURS)
    }
    if not key:
        headers.pop("authorization", None)
    return headers
