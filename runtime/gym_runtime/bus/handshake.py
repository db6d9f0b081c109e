"""How a link's connection to a broker begins: which server, TLS, who we are; and why it fails, in words.

The table of servers begins with those that the caller named. A server that is connected to names the others
of its cluster; they are tried too, and forgotten when they leave it.

nats-py encrypts if the broker demands it, and sends a password in the clear if a ``tls://`` URL meets a
broker that does not. So the broker's INFO is read first, over a separate connection; it also has facts that
nats-py hides (the cluster, JetStream). nats-py gets the credentials from functions that refuse unless there
was a TLS handshake.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import random
import re
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import msgspec
from nats.aio.client import Client
from nats.errors import Error as NatsError

from gym_runtime.bus.identity import CA, CERTIFICATE, CREDENTIALS, KEY, Addresses, proof
from gym_runtime.errors import UNREADABLE, BrokerError
from gym_runtime.timing import GREETING_S

MIN_MAX_PAYLOAD = 512 * 1024
"""NATS's default is 1 MB; some brokers of others take half of it."""
MAX_LINE_BYTES = 1024 * 1024
"""The longest line a broker sends: INFO, which names every server of a cluster."""
DISCONNECT_S = 2.0
"""How long a closing connection may take to send what it has buffered."""
NEVER_S = 10**6
NO_TLS = "its URL says tls, but it offers none"
LOST_ERRORS = (NatsError, OSError, RuntimeError)
"""What a client raises whose connection is lost. The RuntimeError is uvloop's, for a closed socket."""
_NOISE = re.compile(r"eof_received\(\) has no effect|the handler is closed|never retrieved\s.*gaierror")


class Refused(Exception):
    """The broker refuses this connection, in its own words; or we refuse it, or it is not a broker."""


class Slow(TimeoutError):
    """A broker said what it is, and the rest of the greeting took longer than `GREETING_S`."""


class Distrusted(ConnectionResetError):
    """A broker that asks for certificates ended the connection; its alert, which says why, may be lost."""


@dataclass
class Server:
    """One address, and how often in a row it could not be connected to.

    Attributes:
        tls: whether nothing may be said there in the clear.
        certified: the name that its certificate must hold.
        named: whether the caller named it, so that it is never forgotten.
    """

    host: str
    port: int
    tls: bool
    certified: str
    named: bool = True
    failures: int = 0

    @property
    def url(self) -> str:
        # `urlsplit` has removed the brackets of an IPv6 address.
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'tls' if self.tls else 'nats'}://{host}:{self.port}"


class Servers:
    """Those that are known."""

    def __init__(self, urls: Iterable[str]) -> None:
        self._known: list[Server] = []
        self.current: Server | None = None
        self.add(urls)

    def add(self, urls: Iterable[str]) -> None:
        """Those of these that are not known yet."""
        known = {(server.host, server.port) for server in self._known}
        for url in urls:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port or 4222
            if (host, port) not in known:
                self._known.append(Server(host, port, parts.scheme == "tls", host))

    def next(self) -> Server:
        """The server that failed least, rather another than the one just lost; the choice is random."""
        # Shuffled: thousands of workers whose server died must not all go to the same one.
        candidates = random.sample(self._known, len(self._known))
        lost = self.current
        return min(candidates, key=lambda server: (server.failures, server is lost))

    def connected(self, server: Server) -> None:
        """It answered."""
        server.failures = 0
        self.current = server

    def learn(self, connect_urls: Iterable[str]) -> None:
        """What the present server said of its cluster: ``host:port`` of each member."""
        here = self.current
        assert here is not None
        told = {
            (parts.hostname or "", parts.port or 0) for parts in (urlsplit(f"//{u}") for u in connect_urls)
        }
        # A server that says nothing of its cluster is no reason to forget what others said.
        if told:
            self._known = [
                server
                for server in self._known
                if server.named or server is here or (server.host, server.port) in told
            ]
        known = {(server.host, server.port) for server in self._known}
        for host, port in sorted(told - known):
            # An address is in no certificate as a rule: then the name of the one that told counts. TLS is
            # kept, or a cluster's answer could make us speak in the clear.
            certified = here.certified if _is_address(host) else host
            self._known.append(Server(host, port, here.tls, certified, named=False))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class Info(msgspec.Struct, frozen=True):
    """What a broker says of itself.

    Attributes:
        cluster: its name, or empty.
        jetstream: it stores streams itself; a leaf of another site does not.
    """

    tls_required: bool = False
    tls_verify: bool = False
    cluster: str = ""
    jetstream: bool = False


_decode_info = msgspec.json.Decoder(Info).decode


Callbacks = Mapping[str, Callable[..., Awaitable[None]]]
"""What nats-py calls, by the names of its options. It awaits them in its read loop, so they never raise."""


class Dialler(msgspec.Struct, frozen=True, kw_only=True):
    """Who connects, and how.

    Attributes:
        role: whose key is taken of a file with several.
        tls: how TLS is spoken; None for the system's certificate authorities.
    """

    where: Addresses
    name: str
    credentials: Path | None
    role: str
    tls: ssl.SSLContext | None

    async def connect(self, server: Server, info: Info, callbacks: Callbacks) -> Client:
        """Introduce the two sides; afterwards subscriptions and messages may be sent.

        Args:
            info: what the server says of itself, as `look_at` has read it.

        Raises:
            Refused: The broker refuses the connection, demands no TLS where the URL says so, or is no broker.
            OSError: The connection broke, or its certificate does not hold.
            UsageError: A file with credentials cannot be used.
        """
        for name in ("asyncio", "nats.aio.client"):
            logging.getLogger(name).addFilter(_is_no_noise)
        if server.tls and not info.tls_required:
            raise Refused(NO_TLS)
        context = (self.tls or ssl.create_default_context()) if info.tls_required else None
        handshakes = _handshakes(context)

        def guard() -> None:
            # The server that answers now may not be the one whose INFO was read.
            if context is not None and _handshakes(context) == handshakes:
                raise Refused(NO_TLS)

        who = proof(self.where, self.credentials, self.role, guard)
        client = Client()
        try:
            await client.connect(
                [server.url],
                name=self.name,
                **callbacks,
                tls=context,
                tls_hostname=server.certified,
                # One client for each connection: it is thrown away when it is lost, silent or stuck.
                allow_reconnect=False,
                reconnect_time_wait=0,
                max_reconnect_attempts=1,
                connect_timeout=GREETING_S,
                ping_interval=NEVER_S,
                pending_size=0,  # without a limit, so that `publish` waits for nothing
                flusher_queue_size=1,  # so that a drain waits for its UNSUB (`Link`)
                skip_subject_validation=True,
                **who,
            )
            guard()
            if not client.is_connected:  # another line came in place of the first PONG
                raise ConnectionResetError("no greeting")
        # Also for a cancellation: a connection that is not kept must not stay open.
        except BaseException as error:
            await discard(client)
            if isinstance(error, NatsError) and str(error).startswith("nats: '"):  # the broker's own words
                raise Refused(str(error).removeprefix("nats: ").strip(" '")) from error
            if info.tls_verify and isinstance(error, LOST_ERRORS) and not isinstance(error, ssl.SSLError):
                raise Distrusted(str(error)) from error
            if isinstance(error, LOST_ERRORS) and not isinstance(error, OSError):
                raise ConnectionResetError(str(client.last_error or error)) from error
            raise
        return client


def _handshakes(context: ssl.SSLContext | None) -> int:
    return 0 if context is None else context.session_stats()["connect_good"]


def _is_no_noise(record: logging.LogRecord) -> bool:
    # What nats-py and asyncio would print of a lost connection; the link logs what matters.
    error = record.exc_info[1] if record.exc_info else None
    return _NOISE.search(f"{record.getMessage()} {error}") is None


async def discard(client: Client | None) -> None:
    """Close a client, within `DISCONNECT_S`: nothing public aborts the socket of a frozen broker."""
    if client is not None:
        with anyio.move_on_after(DISCONNECT_S, shield=True), suppress(*LOST_ERRORS):
            await client.close()


async def look_at(server: Server) -> Info:
    """What a server says of itself before anything is said to it.

    Raises:
        Refused: It is no NATS server.
        OSError: The connection broke.
    """
    reader, writer = await asyncio.open_connection(server.host, server.port, limit=MAX_LINE_BYTES)
    try:
        line = await reader.readline()
    except ValueError as error:
        raise Refused(str(error)) from error
    finally:
        writer.transport.abort()
    if not line:
        raise ConnectionResetError("the broker closed the connection")
    try:
        return _decode_info(line.removeprefix(b"INFO "))
    except UNREADABLE as error:
        raise Refused(f"{line[:40]!r} instead of INFO: {error}") from error


def is_final(error: Exception) -> bool:
    """Whether another attempt to connect would end the same way."""
    return isinstance(error, Refused | ssl.SSLError)


_TRUST = f"use a join file, or name the authority that signed it in {CA}"
_ASKS = (
    "it asks for a certificate that it trusts ({}): name one that its authority has signed in "
    f"{CERTIFICATE}, and its private key in {KEY}"
)
_NEW_ONE = "look at this machine's clock, or start 'gym-runtime broker' again, which makes a new one"
_REMEDIES = {
    9: _NEW_ONE,
    10: _NEW_ONE,
    62: "use a name that it is for, or start 'gym-runtime broker' with --host",
    64: "use an address that it is for, or start 'gym-runtime broker' with --host",
}
"""By OpenSSL's codes: not yet valid, expired, another host, another address."""


def unreachable(where: str, error: Exception | None, credentials: Path | None = None) -> BrokerError:
    """Connecting failed, with the last error; None if nothing answered in time."""
    text = "" if error is None else str(error).strip()
    if isinstance(error, Refused) and "authorization" in text.lower():
        remedy = f"check user and password in its URL, or name a join file in {CREDENTIALS}"
        if credentials is not None:
            remedy = f"its keys have changed since {credentials} was written; get the file from it again"
        return BrokerError(f"the broker at {where} refuses the credentials: {remedy}", final=True)
    if isinstance(error, ssl.SSLCertVerificationError):
        text = (
            f"its certificate is refused ({error.verify_message}): {_REMEDIES.get(error.verify_code, _TRUST)}"
        )
    elif isinstance(error, ssl.SSLError) and re.search("ALERT.*(CERTIFICATE|UNKNOWN_CA)", error.reason or ""):
        said = (error.reason or "").partition("ALERT_")[2].replace("_", " ").lower()
        text = _ASKS.format(said)
    elif isinstance(error, Distrusted):
        text = _ASKS.format("it ended the connection")
        return BrokerError(f"cannot connect to the broker at {where}: {text}", silent=True)
    if error is not None and is_final(error):
        return BrokerError(f"cannot connect to the broker at {where}: {text}", final=True)
    if isinstance(error, Slow):
        return BrokerError(
            f"the broker at {where} answers too slowly (connecting took over {GREETING_S} s): look at the "
            "network between, then repeat the command",
            silent=True,
        )
    return BrokerError(
        f"no broker at {where} ({text or 'no answer'}): start a system with 'gym-runtime start', or a broker "
        "alone with 'nats-server -js', or correct the URL (--nats, GYM_NATS_URL)",
        silent=True,
    )


def too_small(where: str, max_payload: int) -> BrokerError:
    """It takes messages of less than `MIN_MAX_PAYLOAD` bytes only."""
    return BrokerError(
        f"the broker at {where} takes messages up to {max_payload} bytes only, at "
        f"least {MIN_MAX_PAYLOAD} are needed: put 'max_payload: 8MB' into its configuration"
    )


def unheard(where: str, inbox: str, role: str) -> BrokerError:
    """We may not listen where we are answered."""
    return BrokerError(
        f"the broker at {where} does not let these credentials listen on {inbox}: take those of the role "
        f"'{role}', or give the --prefix that they are for"
    )
