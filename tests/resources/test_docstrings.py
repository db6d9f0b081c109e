"""The examples in the environments' docstrings."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import gym_resources
from tables import table

ROOT = Path(gym_resources.__path__[0])
MODULES = [
    ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
    for path in sorted(ROOT.rglob("*.py"))
    if ">>> " in path.read_text("utf-8")
]


@table("name", MODULES)
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
