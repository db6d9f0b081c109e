"""A collector of spans, and rollouts to trace."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
from runtime.tracing.trace_collector import Collector, collecting


@pytest.fixture
async def collector(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Collector]:
    async with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        yield collector
