"""What the sockets of a sandbox may hold where no control group counts it."""

from __future__ import annotations

import pytest
from gym_sandbox import Limits, Result, Sandbox, python
from gym_sandbox.processes import cgroups
from sandbox.programs import NEEDS_ISOLATION

pytestmark = [pytest.mark.anyio, NEEDS_ISOLATION]

SMALL = Limits(memory_bytes=256 << 20, disk_bytes=4 << 20)
LOCAL_TCP = """
import socket, time
held = []
for _ in range({pairs}):
    listener = socket.create_server(("127.0.0.1", 0))
    held += [socket.create_connection(listener.getsockname()), listener.accept()[0]]
    listener.close()
print(len(held))
"""


@pytest.fixture(autouse=True)
def _uncounted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "place", lambda process: cgroups.Place(why_not="a test"))


async def run(code: str, limits: Limits | None = None) -> Result:
    async with Sandbox(limits) as box:
        return await box.run([*python.python_command(), "-c", code], timeout_s=15)


async def test_buffers_of_sockets_keep_their_size_where_no_group_counts_them() -> None:
    code = """
import socket
for kind in (socket.AF_UNIX, socket.AF_INET):
    one = socket.socket(kind)
    one.settimeout(9)  # other options are set as ever
    one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    print(one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1)
    for name in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        before = one.getsockopt(socket.SOL_SOCKET, name)
        one.setsockopt(socket.SOL_SOCKET, name, 1 << 30)
        print(one.getsockopt(socket.SOL_SOCKET, name) == before)
"""
    assert (await run(code)).stdout.split() == 6 * [b"True"]
    assert (await run(LOCAL_TCP.format(pairs=3))).stdout == b"6\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "held",
    ["import socket, time\nheld = [socket.socketpair() for _ in range(100)]", LOCAL_TCP.format(pairs=15)],
)
async def test_sockets_that_may_hold_too_much_are_the_end_where_no_group_counts_them(held: str) -> None:
    result = await run(f"{held}\ntime.sleep(600)", SMALL)
    assert b"sockets at a time, which may hold" in result.stderr
    assert b"more than 64 without control groups" in result.stderr
