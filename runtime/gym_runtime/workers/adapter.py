"""Model adapters: how the runtime talks to one kind of inference engine.

An adapter is a class `Adapter` in its own module; a model worker enters it, calls `respond`
concurrently for as many calls as are in flight, and leaves it. Adapters do not retry: the class of the error
that they raise says whether a retry may help, and the worker retries within the rollout's deadline
(`gym_runtime.workers.model_worker`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import TracebackType
from typing import Annotated, Any, Protocol, Self, runtime_checkable

import msgspec

from gym_runtime.errors import UsageError
from gym_runtime.messages.calls import Control, ControlAnswer, ModelAnswer, ModelCall

_SECRET = re.compile(r"[^/]@|[?#]")  # `/@` begins a part of a path, as some hosts have it


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to reach a model, from a configuration file or the command line.

    Attributes:
        provider: the adapter's module: ``openai``, ``embedded``, ``scripted`` …
        name: the model's name at that engine, or a path.
        urls: base URLs of the engine's replicas, such as ``http://127.0.0.1:8000/v1``.
        api: ``responses``, ``chat``, or ``auto`` to use the Responses API where the engine has it;
            ``completions`` for base models.
        api_key_variable: the environment variable that holds the key. A key is never an argument.
        max_concurrent_requests: the most calls in flight at the engine, per worker; 0 for no limit.
        requests_per_minute: the most calls of the engine, shared equally by all worker processes of the
            pool; 0 for no limit.
        call_timeout_s: how long one call of the engine may take where its run does not say it, in seconds, 0
            for no limit; None for a limit that is learned.
        hold_kv_usage: rollouts wait before their next turn while every engine uses more than this share of
            its cache of keys and values, 0 to 1; 0 for no such limit.
        hold_waiting: rollouts wait before their next turn while more calls than this wait at every engine; 0
            for no such limit.
        hold_outage_s: for how long rollouts wait before their next turn while no engine answers, if one has
            answered before, in seconds; 0 for not at all. Then their calls fail.
        extra_body: merged into every request's body.
        headers: sent with every request.
        options: settings of this adapter only.
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
    call_timeout_s: Annotated[float, msgspec.Meta(ge=0)] | None = None
    hold_kv_usage: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    hold_waiting: Annotated[int, msgspec.Meta(ge=0)] = 0
    hold_outage_s: Annotated[float, msgspec.Meta(ge=0)] = 600.0
    extra_body: dict[str, Any] = {}
    headers: dict[str, str] = {}
    options: dict[str, Any] = {}
    media_hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for url in self.urls:
            check_url(url)

    def __repr__(self) -> str:
        # Headers and extra bodies may hold keys, and errors and logs show structs.
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
    """Refuse a model's URL that holds a secret: arguments, manifests, errors and logs show URLs.

    Raises:
        UsageError: it has a user, a password or a query; the message shows none of them.
    """
    # A `file:` URL is a path to a list of replicas.
    if not url.startswith("file:") and _SECRET.search(url):
        raise UsageError(
            "a model URL holds a user or a password (@), a query (?) or a fragment (#), and arguments and "
            "files show URLs; set OPENAI_API_KEY, or headers in a configuration file"
        )


class Adapter(Protocol):
    """One engine. Created by ``Adapter(settings)``; used as an async context manager."""

    def __init__(self, settings: ModelSettings) -> None: ...

    async def __aenter__(self) -> Self:
        """Connect or start the engine.

        Raises:
            UsageError: a key is missing, the engine cannot be reached, or it does not have the model.
        """
        ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def respond(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        """Answer one call. Cancelling it aborts the request at the engine.

        Any other exception, an `OSError` too, is taken for a bug of the adapter, and the rollout fails for
        good.

        Raises:
            ModelRefused: a retry would fail too.
            ModelUnavailable: a retry may help.
        """
        ...


@runtime_checkable
class Holding(Protocol):
    """An adapter that knows how busy its engines are, and whether one of them answers."""

    @property
    def held(self) -> str:
        """Why rollouts should not ask its engines now (``ModelSettings.hold_…``); empty if they may."""
        ...


@runtime_checkable
class Counting(Protocol):
    """An adapter whose engine tells how many tokens a conversation has, without an answer to it."""

    async def count(self, call: ModelCall, context: CallContext) -> int:
        """The tokens of a conversation with its tools and the beginning of an answer.

        Raises:
            TaskError: the engine cannot render it.
            ModelRefused: the engine does not count.
            ModelUnavailable: a retry may help.
        """
        ...


@runtime_checkable
class Controllable(Protocol):
    """An adapter whose engine's weights can change while it serves."""

    async def control(self, command: Control) -> ControlAnswer:
        """Carry out one command on the engine, or on all replicas; calls in progress are not aborted.

        Raises:
            ModelRefused: the engine cannot do this; the message says what it lacks.
            ModelUnavailable: a retry may help.
        """
        ...


class ConversationNotes(dict[str, Any]):
    """An adapter's notes on a conversation that its worker keeps, from turn to turn.

    At each turn the call's ``input`` begins with the items of the previous turn, so the adapter need not
    process these again. The notes are lost with the conversation, at any time.

    Attributes:
        size_bytes: how much memory they take; their worker limits it.
    """

    size_bytes = 0


class CallContext(msgspec.Struct, frozen=True, kw_only=True):
    """The rollout that makes a call, and its deadline, by `gym_runtime.clock.monotonic`.

    The adapter sends ``headers`` (the trace context) to the engine, and may use ``notes``.
    """

    rollout: str
    attempt: int
    deadline_s: float
    headers: Mapping[str, str] = {}
    notes: ConversationNotes = msgspec.field(default_factory=ConversationNotes)
