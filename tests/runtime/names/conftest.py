"""Rows that name files, and where they lie."""

from __future__ import annotations

from pathlib import Path

import pytest
from runtime.names.hostile_rows import TRAP, Place


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    here = tmp_path / "here"
    (here / "below").mkdir(parents=True)
    (here / "~").mkdir()
    found = Place(here)
    for folder in (here, here / "below", here / "~", tmp_path):
        for name in ("trap", "mcqa", "antigravity"):
            (folder / f"{name}.py").write_text(TRAP.format(mark=str(found.mark)))
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("GYM_NATS_URL", raising=False)
    return found
