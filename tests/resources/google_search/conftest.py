"""The web and its search engines, on this machine."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from gym_data.web import fetcher as fetcher_module
from gym_data.web import outside_service as service_module
from gym_data.web import public_addresses
from gym_runtime.retrying import Pauses
from resources.google_search.searches import ENGINES
from resources.web import KEY, World, world


@pytest.fixture
async def out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncGenerator[World]:
    monkeypatch.setenv("GYM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(fetcher_module, "SERVICE_PAUSES", Pauses(0.01, 0.03))
    service_module._turns.clear()  # pyright: ignore[reportPrivateUsage]
    public_addresses._dialled_hosts.clear()  # pyright: ignore[reportPrivateUsage]
    async with world() as found:
        for name in ENGINES:
            monkeypatch.setenv(f"GYM_{name.upper()}_URL", found.url)
            monkeypatch.setenv(f"{name.upper()}_API_KEY", KEY)
        monkeypatch.setenv("GOOGLE_CX", "engine")
        monkeypatch.setenv("GYM_PRIVATE_HOSTS", "127.0.0.1")
        yield found
