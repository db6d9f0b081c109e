"""The vLLM adapter before stub engines."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from stubs.stub_vllm import StubVllm


@pytest.fixture
async def stub() -> AsyncIterator[StubVllm]:
    async with StubVllm().running() as made:
        yield made


@pytest.fixture
async def thinker() -> AsyncIterator[StubVllm]:
    async with StubVllm(think=True).running() as made:
        yield made
