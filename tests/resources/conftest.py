"""The services that some environments need, and whether this machine isolates programs."""

from __future__ import annotations

import os

import pytest
from gym_sandbox import bubblewrap
from gym_sandbox.sandbox_errors import SetupError
from stubs.services import aviary_server as aviary_server
from stubs.services import lean_server as lean_server


@pytest.fixture
def isolation() -> None:
    try:
        bubblewrap.check(os.getpid())
    except SetupError as error:
        pytest.skip(str(error))
