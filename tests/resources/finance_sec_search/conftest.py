"""The SEC, on this machine."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from gym_data.web import fetcher as fetcher_module
from gym_data.web import outside_service as service_module
from gym_runtime.retrying import Pauses
from resources.web import PAGE, World, world


@pytest.fixture
async def out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncGenerator[World]:
    monkeypatch.setenv("GYM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(fetcher_module, "SERVICE_PAUSES", Pauses(0.01, 0.03))
    monkeypatch.setattr(fetcher_module, "HOST_PAUSE_S", 0.0)
    service_module._turns.clear()  # pyright: ignore[reportPrivateUsage]
    async with world() as found:
        monkeypatch.setenv("GYM_SEC_URL", found.url)
        monkeypatch.setenv("SEC_CONTACT", "Ada Lovelace ada@example.com")
        monkeypatch.delenv("TAVILY_API_KEY", raising=False)
        found.pages["/Archives/edgar/data/42/000000004226000001/annual.htm"] = PAGE
        yield found
