"""A service on this machine, asked without long pauses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from data.web.site import site
from gym_data.web import fetcher as fetcher_module
from gym_data.web import outside_service as service_module
from gym_data.web import public_addresses
from gym_runtime.environment import usage
from gym_runtime.retrying import Pauses


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("GYM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ORACLE_KEY", "key-one")
    monkeypatch.setattr(fetcher_module, "SERVICE_PAUSES", Pauses(0.01, 0.03))
    monkeypatch.setattr(fetcher_module, "HOST_PAUSE_S", 0.0)
    for state in (service_module._turns, public_addresses._dialled_hosts):  # pyright: ignore[reportPrivateUsage]
        state.clear()
    usage.taken()
    yield
    usage.taken()


@pytest.fixture
async def served(monkeypatch: pytest.MonkeyPatch) -> Any:
    async with site() as found:
        monkeypatch.setenv("GYM_ORACLE_URL", found.url)
        yield found
