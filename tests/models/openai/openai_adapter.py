"""The adapter before a stub engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from gym_models.openai import Adapter
from gym_runtime.workers.adapter import ModelSettings

KEY = "sk-test-0123456789"


def settings(*urls: str, name: str = "stub", **more: Any) -> ModelSettings:
    return ModelSettings(provider="openai", name=name, urls=urls, **more)


@asynccontextmanager
async def entered(*urls: str, **more: Any) -> AsyncIterator[Adapter]:
    async with Adapter(settings(*urls, **more)) as adapter:
        yield adapter
