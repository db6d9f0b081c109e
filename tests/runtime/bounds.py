"""Tests of limits run twice: where control groups keep them, if there are any, and where they are watched."""

from __future__ import annotations

import os

import pytest
from gym_runtime import cgroups


@pytest.fixture(params=["groups", "watched"], autouse=True)
def bounds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What keeps limits in this test, for every test of a module that imports this."""
    if request.param == "groups":
        need_groups()
    else:
        monkeypatch.setattr(cgroups, "place", _nowhere)
    return request.param


def _nowhere(process: int) -> cgroups.Place:
    return cgroups.Place(why_not="a test")


def need_groups() -> None:
    """Skip the test where there are none."""
    if why_not := cgroups.place(os.getpid()).why_not:
        pytest.skip(f"no control groups: {why_not}")
