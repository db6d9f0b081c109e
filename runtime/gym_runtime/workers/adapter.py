"""Model adapters: how the runtime talks to one kind of inference engine.

An adapter is a class `Adapter` in a module of its own; a model worker enters it, calls `respond`
concurrently for as many calls as are in flight, and leaves it. Adapters do no retries of their own: they
say by the error's class whether asking again may help, and the worker retries within the rollout's
deadline (`gym_runtime.workers.model_worker`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import TracebackType
from typing import Annotated, Any, Protocol, Self, runtime_checkable

import msgspec

from gym_runtime.errors import UsageError
from gym_runtime.messages.calls import Control, ControlAnswer, ModelAnswer, ModelCall

_PLACE = re.compile(r"[^/?#]*")
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^:@]*)(?::\d*)?")


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to reach a model, as a configuration file or the command line says it.

    Attributes:
        provider: the adapter's module: ``openai``, ``embedded``, ``scripted`` …
        name: the model's name at that engine, or a path.
        urls: base URLs of the engine's replicas, such as ``http://127.0.0.1:8000/v1``.
        api: ``responses``, ``chat``, or ``auto`` to use the Responses API where the engine has it.
        api_key_variable: the environment variable that holds the key. Keys never stand in arguments.
        max_concurrent_requests: calls in flight at the engine at most, per worker; 0 for no limit.
        requests_per_minute: calls of the engine at most, by all worker processes of the pool together, which
            have equal shares; 0 for no limit.
        extra_body: merged into every request's body.
        headers: sent with every request.
        options: what only this adapter knows.
        media_hosts: hosts in private networks from which the engine may fetch images and files that a
            conversation names by their address.

    Raises:
        UsageError: a URL holds a user, a password or a query.
    """

    provider: str
    name: str
    urls: tuple[str, ...] = ()
    api: str = "auto"
    api_key_variable: str = ""
    max_concurrent_requests: int = 0
    requests_per_minute: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    extra_body: dict[str, Any] = {}
    headers: dict[str, str] = {}
    options: dict[str, Any] = {}
    media_hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for url in self.urls:
            check_url(url)

    def __repr__(self) -> str:
        # Headers and extra bodies may hold keys, and structs stand in errors and logs.
        return f"ModelSettings(provider={self.provider!r}, name={self.name!r}, urls={self.urls!r})"

    @classmethod
    def parse(cls, text: str, **more: Any) -> ModelSettings:
        """Settings from ``PROVIDER/NAME``.

        >>> ModelSettings.parse("openai/Qwen/Qwen3-4B").name
        'Qwen/Qwen3-4B'
        """
        provider, _, name = text.partition("/")
        return cls(provider=provider, name=name, **more)


def check_url(url: str) -> None:
    """Refuse a model's URL that holds a secret: URLs stand in arguments, manifests, errors and logs.

    Raises:
        UsageError: it has a user, a password or a query; the message shows none of them.
    """
    if url.startswith("file:"):
        return
    rest = url.partition("://")[2] if "://" in url else url.removeprefix("dns:")
    place = _PLACE.match(rest)
    assert place is not None
    # A password may hold a slash: then what comes before it is no host with a port.
    if "@" in place[0] or ("@" in rest and not _HOST.fullmatch(place[0])):
        raise UsageError(
            f"the model URL of host {_PLACE.findall(rest.rpartition('@')[2])[0]} holds a user or a password, "
            "and URLs stand in arguments and files; set OPENAI_API_KEY, or headers in a configuration file"
        )
    if "?" in rest or "#" in rest:
        raise UsageError(
            f"the model URL of host {place[0]} has a query or a fragment, which may hold a secret and "
            "belongs to no base URL; send a key as OPENAI_API_KEY, or as headers in a configuration file"
        )


class Adapter(Protocol):
    """One engine. Made by ``Adapter(settings)``; used as an async context manager."""

    def __init__(self, settings: ModelSettings) -> None: ...

    async def __aenter__(self) -> Self:
        """Connect or start the engine.

        Raises:
            UsageError: a key is missing, the engine cannot be reached, the model is not there.
        """
        ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def respond(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        """Answer one call. Cancelling it aborts the request at the engine.

        Raises:
            ModelRefused: asking again changes nothing.
            ModelUnavailable: asking again may help.
        """
        ...


@runtime_checkable
class Controllable(Protocol):
    """An adapter whose engine's weights can change while it serves."""

    async def control(self, command: Control) -> ControlAnswer:
        """Do one thing to the engine, or to all replicas; calls in progress go on, none is aborted.

        Raises:
            ModelRefused: the engine cannot do this; the message says what it lacks.
            ModelUnavailable: asking again may help.
        """
        ...


class CallContext(msgspec.Struct, frozen=True, kw_only=True):
    """Whose call it is. ``headers`` are to be sent along to the engine (trace context)."""

    rollout: str
    attempt: int
    deadline_s: float
    headers: Mapping[str, str] = {}
