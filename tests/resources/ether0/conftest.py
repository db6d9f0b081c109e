"""Answers in molecules."""

from __future__ import annotations

from pathlib import Path

import pytest
from resources.judging import usable


@pytest.fixture(autouse=True)
def needed() -> None:
    usable("ether0")


@pytest.fixture(autouse=True)
def no_filters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GYM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GYM_ETHER0_FILTERS", raising=False)


@pytest.fixture
def filters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters that know benzene, and what occurs in toluene and in propane."""
    from gym_resources.chemistry import molecules
    from molbloom import CustomFilter

    known = [mol for mol in map(molecules.molecule, ("Cc1ccccc1", "CCC")) if mol is not None]
    seen = {
        "rings": molecules.rings(known[0]),
        "fingerprints": {str(place) for mol in known for place in molecules.environments(mol)},
    }
    for kind, names in seen.items():
        made = CustomFilter(8192, 100, kind)
        for name in names:
            made.add(name)
        made.save(str(tmp_path / f"{kind}.bloom"))
    monkeypatch.setenv("GYM_ETHER0_FILTERS", str(tmp_path))
