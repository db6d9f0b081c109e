"""One connection and its servers: finding them, proving who we are, leaving one that goes."""

from __future__ import annotations

import base64
import json
import os
import signal
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import nkeys
import pytest
from anyio.abc import SocketAttribute, SocketStream
from gym_runtime.bus import identity
from gym_runtime.bus import link as links
from gym_runtime.bus.interface import Headers
from gym_runtime.bus.link import Link, Listener
from gym_runtime.errors import BrokerError
from gym_runtime.system.private_broker import Broker
from ports import free_port
from runtime.bus.conftest import StartServer, linked
from structlog.testing import capture_logs
from time_limits import busy

pytestmark = pytest.mark.asyncio


class Back:
    """Counts how often a connection came back."""

    def __init__(self, link: Link) -> None:
        self._event = anyio.Event()
        link.watch(lambda up: self._event.set() if up else None)

    async def again(self) -> None:
        with anyio.fail_after(30):
            await self._event.wait()
        self._event = anyio.Event()


def noting(got: list[bytes], heard: anyio.Event) -> Listener:
    def listen(subject: str, reply: str, headers: Headers, payload: bytes, /) -> None:
        got.append(payload)
        heard.set()

    return listen


@pytest.mark.slow
async def test_a_cluster_is_known_by_one_of_its_servers(start_server: StartServer) -> None:
    first, second = free_port(), free_port()

    def member(here: int, other: int) -> str:
        routes = f'routes: ["nats://127.0.0.1:{other}"]'
        return f'cluster {{ name: c, listen: "127.0.0.1:{here}", {routes} }}'

    (url, pid), (other_url, _) = start_server(member(first, second)), start_server(member(second, first))
    async with linked(url) as link:
        assert link.clustered
        with anyio.fail_after(15):
            while len(link._servers._known) < 2:
                await anyio.sleep(0.01)
        back, got, heard = Back(link), [], anyio.Event()
        link.listen("x", noting(got, heard))
        os.kill(pid, signal.SIGKILL)
        await back.again()
        assert link.url.rpartition(":")[2] == other_url.rpartition(":")[2]
        await link.send("x", b"after")
        await heard.wait()
        assert got == [b"after"]


@pytest.mark.slow
async def test_a_broker_in_lame_duck_mode_is_left_for_another(start_server: StartServer) -> None:
    config = 'lame_duck_duration: "30s"\nlame_duck_grace_period: "1s"'
    servers = dict(start_server(config) for _ in range(2))
    async with linked(*servers) as link:
        left, back = link.url, Back(link)
        os.kill(servers[left], signal.SIGUSR2)
        await back.again()
        assert link.url != left
        await link.settle()


async def test_what_is_sent_while_no_server_is_there_is_sent_later_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "RECONNECT_S", (0.01, 0.05))
    broker = Broker(tmp_path / "broker")
    broker.start()
    try:
        await _sent_later(broker)
    finally:
        broker.stop()


async def _sent_later(broker: Broker) -> None:
    async with linked(broker.url) as link:
        back, down = Back(link), anyio.Event()
        link.watch(lambda up: None if up else down.set())
        os.kill(broker.pid, signal.SIGKILL)
        await down.wait()
        got: list[bytes] = []
        last = anyio.Event()
        link.listen(
            "x", lambda s, r, h, payload: (got.append(payload), last.set() if payload == b"99" else None)
        )
        for number in range(100):
            await link.send("x", b"%d" % number)
        await link.send("last", b"")
        assert not link.up
        broker.restart()
        await back.again()
        with anyio.fail_after(15):
            await last.wait()
        assert got == [b"%d" % number for number in range(100)]


async def test_no_subscription_is_lost_if_the_connection_breaks_while_they_are_made_again(
    broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "RECONNECT_S", (0.01, 0.05))
    address = urlsplit(broker_url)
    breaks = 0

    async def relay(client: SocketStream) -> None:
        nonlocal breaks
        async with client, await anyio.connect_tcp(address.hostname or "", address.port or 0) as broker:

            async def pass_on(source: SocketStream, sink: SocketStream) -> None:
                nonlocal breaks
                async for chunk in source:
                    if breaks and b"SUB " in chunk:
                        breaks -= 1
                        break
                    await sink.send(chunk)
                tasks.cancel_scope.cancel()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(pass_on, client, broker)
                tasks.start_soon(pass_on, broker, client)

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, relay)
        user = address.netloc.rpartition("@")[0]
        port = listener.extra(SocketAttribute.local_port)
        async with linked(f"nats://{user}@127.0.0.1:{port}") as link:
            got: list[bytes] = []
            last = anyio.Event()
            for number in range(1000):
                link.listen(f"again.{number}", noting(got, anyio.Event()))
            link.listen("again.last", noting([], last))
            await link.settle()
            back = Back(link)
            breaks = 2  # the connection, and the first one after it in the middle of its subscriptions
            link.listen("again.more", noting([], anyio.Event()))
            await back.again()
            for number in range(1000):
                await link.send(f"again.{number}", b"%d" % number)
            await link.send("again.last", b"")
            with anyio.fail_after(15):
                await last.wait()
            assert got == [b"%d" % number for number in range(1000)]
        tasks.cancel_scope.cancel()


async def test_one_line_of_the_log_says_why_a_broker_takes_no_client_back_and_what_to_do(
    start_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "RECONNECT_S", (0.05, 0.05))
    first, second = identity.new_seed(), identity.new_seed()

    def users(seed: str) -> str:
        return f'authorization {{ users: [ {{ nkey: "{identity.public_key(seed)}" }} ] }}'

    url, pid = start_server(users(first))
    configuration = tmp_path / "server0" / "conf"
    credentials = tmp_path / "seed"
    credentials.write_text(first)
    with capture_logs() as lines:
        async with linked(url, credentials=credentials) as link:
            back, said = Back(link), list[str]()
            configuration.write_text(configuration.read_text().replace(users(first), users(second)))
            os.kill(pid, signal.SIGHUP)
            with anyio.fail_after(15 * busy()):
                while said.count("not reconnected") < 5:
                    await anyio.sleep(0.01)
                    said = [line["event"] for line in lines]
            credentials.write_text(second)
            await back.again()
    [refused] = [line["error"] for line in lines if "does not take this connection again" in line["event"]]
    assert f"its keys have changed since {credentials} was written; get the file from it again" in refused


async def test_a_token(start_server: StartServer) -> None:
    url, _ = start_server('authorization { token: "s3cret" }')
    host = url.removeprefix("nats://")
    async with linked(f"nats://s3cret@{host}") as link:
        assert "s3cret" not in link.url
        await link.settle()
    for wrong in (url, f"nats://another@{host}"):
        with pytest.raises(BrokerError, match="refuses the credentials"):
            async with linked(wrong):
                pass


class Key:
    """A key of an operator, an account or a user, in the encoding of NKeys."""

    def __init__(self, prefix: int) -> None:
        self._key = nkeys.from_seed(nkeys.encode_seed(os.urandom(32), prefix))
        self.public = self._key.public_key.decode()

    def jwt(self, subject: str, name: str, **claims: object) -> str:
        """A NATS JWT that this key has signed."""
        head = {"typ": "JWT", "alg": "ed25519-nkey"}
        body = {"jti": "x", "iat": 1, "iss": self.public, "sub": subject, "name": name, "nats": claims}
        text = ".".join(map(_b64, (json.dumps(head).encode(), json.dumps(body).encode())))
        return f"{text}.{_b64(self._key.sign(text.encode()))}"


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


async def test_a_creds_file(start_server: StartServer, tmp_path: Path) -> None:
    operator, account, seed = (
        Key(nkeys.PREFIX_BYTE_OPERATOR),
        Key(nkeys.PREFIX_BYTE_ACCOUNT),
        identity.new_seed(),
    )
    many = dict.fromkeys(("subs", "data", "payload"), -1)
    limits = {**many, "conn": -1, "imports": -1, "exports": -1, "wildcards": True, "leaf": -1}
    account_jwt = operator.jwt(account.public, "A", type="account", version=2, limits=limits)
    url, _ = start_server(
        f"operator: {operator.jwt(operator.public, 'O', type='operator', version=2)}\n"
        f"resolver: MEMORY\nresolver_preload: {{ {account.public}: {account_jwt} }}"
    )
    user_jwt = account.jwt(identity.public_key(seed), "U", type="user", version=2, pub={}, sub={}, **many)
    creds = tmp_path / "user.creds"
    creds.write_text(
        f"-----BEGIN NATS USER JWT-----\n{user_jwt}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )
    async with linked(url, credentials=creds) as link:
        await link.settle()
    creds.write_text(creds.read_text().replace(seed, identity.new_seed()))
    with pytest.raises(BrokerError, match="refuses the credentials"):
        async with linked(url, credentials=creds):
            pass
