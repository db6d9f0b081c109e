"""The services that some environments need: a Lean, an Aviary server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from stubs import stub_aviary
from stubs.stub_lean import stub_server


@pytest.fixture(scope="session", autouse=True)
def lean_server() -> Iterator[None]:
    """A server that says what a proof's words say (`stubs.stub_lean`)."""
    with stub_server() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("GYM_LEAN", f"{server.address}/verify")
        yield


@pytest.fixture(scope="session", autouse=True)
def aviary_server() -> Iterator[None]:
    """The library's own server with its simplest environment (`stubs.stub_aviary`), if it is installed."""
    if not stub_aviary.installed():
        yield
        return
    with stub_aviary.stub_aviary() as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AVIARY_SERVER_URL", url)
        patch.setenv("AVIARY_SERVER_API_KEY", stub_aviary.KEY)
        yield
