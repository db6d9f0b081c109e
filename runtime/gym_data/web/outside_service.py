"""Services outside that environments ask, such as a search engine: their addresses, keys, paces and limits.

An operator configures a service ``NAME`` by the environment variables of the resource workers:

- its key variable holds its key, or several, separated by commas, which take turns. Keys are sent to the
  service and nowhere else: no row, log, error, recording or cache has one, and where an answer repeats one,
  it is replaced by ``[key]``;
- ``GYM_NAME_URL`` (or what `Service.url_variable` says) is another address of it; the operator's own, so it
  may be in a private network;
- ``GYM_NAME_QUOTA`` is how many requests it may get in a day, by UTC, from this machine.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from typing import Literal

import msgspec
from gym_runtime.errors import ServiceUnavailable
from yarl import URL

from gym_data.web.web_request import WebAnswer, WebRequest

Said = Literal["answered", "limited", "used up", "refused", "down"]
"""What an answer means: it is valid; ask later; this key's quota is spent; this key is refused; try again."""


def said(answer: WebAnswer) -> Said:
    """The usual meaning of an HTTP status."""
    match answer.status:
        case 401 | 403:
            return "refused"
        case 402:
            return "used up"
        case 429:
            return "limited"
        case status if status < 200 or 300 <= status < 400 or status >= 500:
            return "down"
        case _:
            return "answered"


def unsigned(request: WebRequest, key: str) -> WebRequest:
    """A service without keys."""
    return request


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """A service.

    Attributes:
        name: in lower case; for variables, metrics and messages.
        url: its address; empty if the operator must set it.
        url_variable: the environment variable of another address; by default ``GYM_NAME_URL``.
        key_variable: the environment variable of its keys; empty if it takes none.
        key_optional: some of its servers take requests without a key; ``sign`` is then given an empty one.
        key_is: a description of the key, for the error that it is missing.
        sign: puts a key into a request: into its headers or parameters.
        said: what an answer means.
        per_s: requests per second from one machine at most; None for no limit.
        timeout_s: for one request.
        size_bytes: of an answer at most.
    """

    name: str
    url: str = ""
    url_variable: str = ""
    key_variable: str = ""
    key_optional: bool = False
    key_is: str = "a key"
    sign: Callable[[WebRequest, str], WebRequest] = unsigned
    said: Callable[[WebAnswer], Said] = said
    per_s: float | None = None
    timeout_s: float = 10.0
    size_bytes: int = 10_000_000

    def __post_init__(self) -> None:
        if not self.url_variable:
            # The struct is frozen; this is where msgspec lets it be completed.
            msgspec.structs.force_setattr(self, "url_variable", f"GYM_{self.name.upper()}_URL")

    @property
    def base_url(self) -> str:
        """Its address, without a slash at the end.

        Raises:
            ServiceUnavailable: it has no default, and the operator has not set one.
        """
        found = os.environ.get(self.url_variable, "").strip() or self.url
        if not found:
            raise ServiceUnavailable(
                f"{self.url_variable} is not set: it is the address of {self.name}", stage="resource"
            )
        return found.rstrip("/")

    @property
    def private_hosts(self) -> frozenset[str]:
        """The host that the operator named, if there is one: it may be in a private network."""
        # Only a host that the operator has named: the default address must be public.
        host = URL(os.environ.get(self.url_variable, "").strip()).host
        return frozenset({host} if host else ())

    def located(self, url: str) -> str:
        """One of its URLs, at the place that the operator named."""
        return f"{self.base_url}{URL(url).raw_path_qs}" if self.private_hosts else url

    @property
    def keys(self) -> list[str]:
        """The keys that are set; a single empty one for a service that takes none, or needs none."""
        given = os.environ.get(self.key_variable, "").split(",") if self.key_variable else []
        found = [key.strip() for key in given if key.strip()]
        # A list of one or of none: true counts as 1.
        return found or [""] * (self.key_optional or not self.key_variable)

    @property
    def per_day(self) -> int | None:
        """The operator's quota: requests per day.

        Raises:
            ServiceUnavailable: it is not a number.
        """
        variable = f"GYM_{self.name.upper()}_QUOTA"
        text = os.environ.get(variable, "").strip()
        if text and not text.isdecimal():
            raise ServiceUnavailable(f"{variable} is {text!r}, not a number of requests", stage="resource")
        return int(text) if text else None

    def check(self) -> None:
        """Refuse a service that is not configured.

        Raises:
            ServiceUnavailable: its address or its key is missing, with the variable to set.
        """
        # Only for the errors that they raise.
        _ = self.base_url, self.per_day
        if not self.keys:
            raise ServiceUnavailable(
                f"{self.key_variable} is not set for the resource workers: {self.name} needs {self.key_is}",
                stage="resource",
            )


class Turns:
    """Chooses the next key of a service, round robin, in this process."""

    def __init__(self) -> None:
        self._rest_until_s: dict[str, float] = {}
        self._taken = random.randrange(1 << 16)  # processes that start together begin with different keys

    def next(self, keys: list[str]) -> str | None:
        """The next key that is not resting; None if all are."""
        now_s = time.monotonic()
        for _ in keys:
            self._taken += 1
            key = keys[self._taken % len(keys)]
            if self._rest_until_s.get(key, 0.0) <= now_s:
                return key
        return None

    def rest(self, key: str, seconds: float) -> None:
        """Do not use a key for so many seconds."""
        self._rest_until_s[key] = time.monotonic() + seconds


_turns: dict[str, Turns] = {}


def turns(service: str) -> Turns:
    """The key rotation of a service."""
    return _turns.setdefault(service, Turns())


def without(answer: WebAnswer, key: str) -> WebAnswer:
    """An answer in which a key is replaced by ``[key]``."""
    if not key or (key.encode() not in answer.body and key not in answer.url):
        return answer
    return msgspec.structs.replace(
        answer, body=answer.body.replace(key.encode(), b"[key]"), url=answer.url.replace(key, "[key]")
    )
