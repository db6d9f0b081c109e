"""The careless verifier as a file, and a secret in the environment of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile.isolation.careless_verifier import MODULE


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    path = tmp_path / "careless.py"
    path.write_text(MODULE)
    return path
