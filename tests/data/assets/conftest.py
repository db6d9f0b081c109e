"""A server of assets, and a folder for them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from data.assets.asset_origin import Origin


@pytest.fixture
def origin() -> Iterator[Origin]:
    origin = Origin()
    thread = threading.Thread(target=origin.server.serve_forever, args=(0.01,))
    thread.start()
    yield origin
    origin.server.shutdown()
    thread.join()
    origin.server.server_close()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("GYM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GYM_TEST_THINGS", raising=False)
    return tmp_path / "cache" / "assets" / "things"
