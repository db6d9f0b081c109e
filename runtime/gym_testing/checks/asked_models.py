"""Models in roles that are asked from this process, without workers: for re-verification."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
from gym_runtime import Role, clock
from gym_runtime.adapters import Adapter, CallContext, ModelCall, ModelSettings
from gym_runtime.environment import Asker
from gym_runtime.rpc import RetryBudget
from gym_runtime.system import adapter_of
from gym_runtime.workers import EngineHealth, Notices, ask_engine
from msgspec import Raw

RETRIES = 8


class AskedModel:
    """One role's model."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._notices = Notices()
        self._health = EngineHealth()
        self._places: anyio.Semaphore | None = None

    async def __call__(self, role: Role, params: Raw, items: Sequence[Raw]) -> Raw:
        self._places = self._places or anyio.Semaphore(role.concurrency)
        async with self._places:
            context = CallContext(rollout="", attempt=1, deadline_s=clock.monotonic() + role.timeout_s)
            call = ModelCall(params=params, input=list(items))
            answer = await ask_engine(
                self._adapter, call, context, RetryBudget(RETRIES), self._notices, self._health
            )
            return answer.response


@asynccontextmanager
async def asked_models(models: Mapping[str, ModelSettings]) -> AsyncGenerator[dict[str, Asker]]:
    """Models by their roles, until the context ends.

    Raises:
        UsageError: one cannot be reached.
    """
    async with AsyncExitStack() as stack:
        yield {
            role: AskedModel(await stack.enter_async_context(adapter_of(settings)))
            for role, settings in models.items()
        }
