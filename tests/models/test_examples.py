"""The examples in the adapters' docstrings."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import gym_models
from gym_runtime.environment import tools
from tables import table

MODULES = [info.name for info in pkgutil.walk_packages(gym_models.__path__, "gym_models.") if not info.ispkg]


@table("name", [*MODULES, tools.__name__])
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
