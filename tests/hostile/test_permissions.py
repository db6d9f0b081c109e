"""The matrix of permissions: every verb of JetStream's interface and every subject, with every role.

The tables are those of `faults.permissions`, which plays them with each change; here they belong to the
one command that tries everything hostile.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from faults.permissions import test_permission_matrix as permissions
from faults.permissions.conftest import as_client, folder, url
from faults.permissions.identities import WORKERS
from gym_runtime.bus.link import Role

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(120)]
__all__ = ["as_client", "folder", "url"]  # fixtures


@pytest.mark.anyio
@pytest.mark.parametrize("role", ["client", *WORKERS])
async def test_each_role_may_do_what_the_tables_say_and_nothing_else(
    url: str, folder: Path, role: Role
) -> None:
    await permissions.test_each_role_may_do_what_the_tables_say_and_nothing_else(url, folder, role)


@pytest.mark.anyio
@pytest.mark.parametrize("role", ["resource", "model"])
async def test_who_lacks_the_reference_reads_no_large_payload_and_replaces_none(
    url: str, folder: Path, role: Role
) -> None:
    await permissions.test_who_lacks_the_reference_reads_no_large_payload_and_replaces_none(url, folder, role)
