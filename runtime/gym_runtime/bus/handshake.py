"""How a connection begins: the broker's INFO, TLS, who we are, and its first PONG."""

from __future__ import annotations

import ssl

from gym_runtime.bus.identity import Identity
from gym_runtime.bus.protocol import PING, PONG, Info, OutOfStep, connect_command, decode_info
from gym_runtime.bus.servers import Server
from gym_runtime.bus.socket import Socket


class Refused(Exception):
    """The broker does not take this connection, in its own words, or we do not take the broker."""


async def shake_hands(
    socket: Socket, server: Server, *, name: str, identity: Identity, tls: ssl.SSLContext | None
) -> Info:
    """Introduce the two sides; afterwards subscriptions and messages may be sent.

    Raises:
        Refused: The broker refuses the connection, or offers no TLS where the URL asks for it.
        OSError: The connection broke, or its certificate does not hold.
        OutOfStep: It is no NATS broker.
        UsageError: A file with credentials cannot be used.
    """
    info = decode_info(await socket.readline())
    # A TLS context that the caller gave is used wherever the broker can, also for nats:// URLs.
    secure = info.tls_required or ((server.tls or tls is not None) and info.tls_available)
    if server.tls and not secure:
        # Credentials would be sent in the clear.
        raise Refused("its URL says tls, but it offers none")
    if secure:
        await socket.start_tls(tls or ssl.create_default_context(), server.certified)
    # A broker says nothing on a good CONNECT (not verbose): its answer to the PING shows that it was
    # accepted.
    socket.write(connect_command(name, identity.proof(info.nonce), tls=secure) + PING)
    while (line := await socket.readline()) != PONG.rstrip():
        if line.startswith(b"-ERR"):
            raise Refused(line[4:].decode("utf-8", "replace").strip(" '"))
        # A broker may send INFO again at any time, also between CONNECT and PONG.
        if line.startswith(b"INFO"):
            info = decode_info(line)
        elif line == PING.rstrip():
            socket.write(PONG)
        elif line != b"+OK":
            raise OutOfStep(f"{line[:40]!r} instead of PONG")
    return info
