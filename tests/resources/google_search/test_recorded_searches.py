"""Searches and pages that are kept: in the cache and in recordings."""

from __future__ import annotations

from pathlib import Path

import pytest
from resources.google_search.searches import ENGINES, browse, search
from resources.web import KEY, World

pytest.importorskip("trafilatura", reason="needs pip install 'gym-runtime[search]'")
pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]


@pytest.mark.slow
async def test_a_cache_asks_once(out: World) -> None:
    for _ in range(2):
        await search("x", search_backend="brave", use_cache=True)
        await browse(f"{out.url}/tides", use_cache=True)
    assert len(out.asked) == 2


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
async def test_what_is_recorded_with_any_engine_is_replayed_without(
    out: World, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = tmp_path / "recording.jsonl"
    monkeypatch.setenv("GYM_RECORDING", str(recording))
    found = await search("The Tides", search_backend=engine)
    page = await browse(f"{out.url}/tides", search_backend=engine)
    assert KEY.encode() not in recording.read_bytes()
    asked = len(out.asked)
    assert await search(" the  tides ", search_backend="replay") == found
    assert await browse(f"{out.url}/tides", search_backend="replay") == page
    assert await search("another", search_backend="replay") == '{"items":[]}'
    assert "not in the recording" in await browse(f"{out.url}/other", search_backend="replay")
    assert len(out.asked) == asked
