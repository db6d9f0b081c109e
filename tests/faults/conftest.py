"""Every fault test can be run in both layouts: with ``--hosted``, agent workers host what they may."""

from __future__ import annotations

from typing import Any

import pytest
from gym_runtime.system import spec
from gym_runtime.system.hosting import host


@pytest.fixture(autouse=True)
def layout(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pools of the systems that the tests start."""
    if not request.config.getoption("hosted"):
        return

    def hosting(*, pools: Any = (), **more: Any) -> spec.SystemSpec:
        return spec.SystemSpec(pools=host(pools), **more)

    monkeypatch.setattr(request.module, "SystemSpec", hosting, raising=False)
