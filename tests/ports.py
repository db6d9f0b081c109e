"""Ports for servers that must be told theirs, or that end and come back on the same one.

The kernel's choice (port 0) would be from those that it gives to any other socket, too: a connection or a
server of another test may have it a moment later.
"""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, suppress
from pathlib import Path

from gym_runtime.system.private_broker import Broker


def free_port() -> int:
    """The first of three that are free."""
    while True:
        port = random.randrange(15_000, 30_000)
        with ExitStack() as stack, suppress(OSError):
            for number in range(port, port + 3):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", number))
            return port


def loopback_hosts(count: int) -> list[str]:
    """Addresses of this machine alone: brokers of a cluster meet at one port, whichever tests run beside."""
    network = f"127.{random.randrange(1, 255)}.{random.randrange(1, 255)}"
    return [f"{network}.{number}" for number in range(1, count + 1)]


def restartable_broker(folder: Path) -> Broker:
    """A broker that may be away for a while: nothing gets its port meanwhile."""
    broker = Broker(folder)
    broker._port = free_port()
    return broker
