"""A broker with identities for each module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.permissions.identities import identities, serving
from gym_runtime.bus.identity import CA, CREDENTIALS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return identities(tmp_path_factory.mktemp("identities"))


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    # With small buffers, where large payloads travel by reference.
    with serving(folder, ("max_payload: 32MB", "max_payload: 1MB")) as url:
        yield url


@pytest.fixture(autouse=True)
def as_client(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is the client, by the variables that everybody uses."""
    monkeypatch.setenv(CA, str(folder / "ca.pem"))
    monkeypatch.setenv(CREDENTIALS, str(folder / "client.seed"))
