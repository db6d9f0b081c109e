"""A fresh office for each test."""

from __future__ import annotations

import pytest
from gym_resources.workplace_assistant import Workplace
from resources.workplace.office import opened


@pytest.fixture
def office() -> Workplace:
    return opened()
