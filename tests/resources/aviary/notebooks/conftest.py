"""The tests of notebooks are skipped where what notebooks need is not installed."""

from __future__ import annotations

import pytest
from gym_runtime.environment import catalogue, requirements
from gym_runtime.errors import UsageError


@pytest.fixture(autouse=True)
def _needed() -> None:
    try:
        requirements.require(catalogue.environment("bixbench_aviary"))
    except UsageError as error:
        pytest.skip(error.message)
