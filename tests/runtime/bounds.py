"""Tests of limits run in two ways: where control groups keep them, and where they are watched.

Where groups can be made, the second way is only taken with ``--soak``.
"""

from __future__ import annotations

import os

import pytest
from gym_sandbox.processes import cgroups

WHY_NOT = cgroups.place(os.getpid()).why_not
WAYS = ["watched", "groups"] if WHY_NOT else ["groups", pytest.param("watched", marks=pytest.mark.soak)]


@pytest.fixture(params=WAYS, autouse=True)
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
    if WHY_NOT:
        pytest.skip(f"no control groups: {WHY_NOT}")
