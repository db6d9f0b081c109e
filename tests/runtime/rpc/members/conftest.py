"""Members on a bus in virtual time."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

import pytest
from runtime.rpc.members.member_cluster import Cluster


@pytest.fixture
async def cluster() -> AsyncGenerator[Cluster]:
    async with AsyncExitStack() as stack:
        yield Cluster(stack)
