"""Each test that asks for a name runs with both environments."""

from __future__ import annotations

import pytest
from resources.aviary.library.library_runs import needed


@pytest.fixture(params=["gsm8k_aviary", "hotpotqa_aviary"])
def name(request: pytest.FixtureRequest) -> str:
    needed(request.param)
    return request.param
