"""An environment that takes long, and its rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from runtime.environment.isolated.heavy_module import MODULE


@pytest.fixture
def module(tmp_path: Path) -> str:
    path = tmp_path / "heavy_module.py"
    path.write_text(MODULE)
    return str(path)
