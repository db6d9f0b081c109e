"""Rows of offices and what changes in them."""

from __future__ import annotations

from pathlib import Path

import pytest
from gym_resources.workplace.office import DATA, NEMO_GYM, SHIPPED


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tables in the form of NeMo Gym's: two of each, and a directory without a header."""
    monkeypatch.setenv("GYM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GYM_WORKPLACE_DATA", raising=False)
    folder = tmp_path / "csv_data"
    for name, file in NEMO_GYM.items():
        lines = (DATA / SHIPPED[name]).read_text("utf-8").splitlines()
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = ["kai.lund@atlas.example"] if name == "addresses" else lines[:3]
        path.write_text("\n".join(kept) + "\n", "utf-8")
    return folder
