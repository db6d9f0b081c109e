"""The base of every adapter for an engine behind HTTP: its replicas, and a limit on concurrent calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType, TracebackType
from typing import Any, Self

import anyio
import msgspec
from gym_runtime.adapters import CallContext, ModelAnswer, ModelCall, ModelSettings
from msgspec.structs import replace

from gym_models.wire import endpoint
from gym_models.wire.endpoint import Endpoint
from gym_models.wire.engine import Engine
from gym_models.wire.pinned import pinned
from gym_models.wire.replicas import Replicas


class HttpAdapter:
    """Sends each call to a replica, ``settings.max_concurrent_requests`` of them at a time.

    Args:
        engine: makes the engine for an endpoint.
        at: makes the endpoint for a base URL.
        check_model: whether the engine has to list the model.
        sampling: parameters that win over those of rows and runs.
    """

    def __init__(
        self,
        settings: ModelSettings,
        engine: Callable[[Endpoint], Engine],
        *,
        at: Callable[[str, ModelSettings], Endpoint] = endpoint.at,
        check_model: bool = True,
        sampling: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._pinned = msgspec.json.encode(dict(sampling)) if sampling else b""
        self._replicas = Replicas(settings, engine, at=at, check_model=check_model)
        limit = settings.max_concurrent_requests
        self._gate = anyio.Semaphore(limit, fast_acquire=True) if limit else None

    async def __aenter__(self) -> Self:
        await self._replicas.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._replicas.__aexit__(kind, error, trace)

    @property
    def held(self) -> str:
        """Why rollouts should not ask the engines now; empty if they may."""
        return self._replicas.held

    async def respond(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        """Answer one call; any number may be in flight. Cancelling closes the call's connection.

        Raises:
            TaskError: the row holds what the engine's API cannot carry.
            ModelRefused: asking again changes nothing.
            ModelUnavailable: asking again may help, after ``retry_after_s`` if the engine names a time.
            DeadlineExceeded: the deadline passed first.
        """
        if self._pinned:
            call = replace(call, params=pinned(bytes(call.params), self._pinned))
        if self._gate is None:
            return await self._replicas.ask(context, lambda engine: engine.respond(call, context))
        async with self._gate:
            return await self._replicas.ask(context, lambda engine: engine.respond(call, context))
