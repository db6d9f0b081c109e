"""The examples in the adapters' docstrings."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import gym_models
import pytest
from gym_runtime.environment import tools

MODULES = [info.name for info in pkgutil.walk_packages(gym_models.__path__, "gym_models.") if not info.ispkg]


@pytest.mark.parametrize("name", [*MODULES, tools.__name__])
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
