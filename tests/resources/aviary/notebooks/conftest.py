"""The tests of notebooks are skipped where what notebooks need is not installed."""

from __future__ import annotations

import pytest
from resources.judging import usable


@pytest.fixture(autouse=True)
def _needed() -> None:
    usable("bixbench_aviary")
