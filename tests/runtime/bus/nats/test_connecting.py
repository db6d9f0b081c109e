"""Connecting: what is refused, and with which remedy."""

from __future__ import annotations

import logging
import shutil
import socket
import ssl
from pathlib import Path

import anyio
import msgspec
import pytest
from freezing import frozen
from gym_runtime.bus import link as links
from gym_runtime.bus.blobs import SPARE
from gym_runtime.bus.handshake import _is_no_noise, unreachable
from gym_runtime.bus.nats import connect
from gym_runtime.bus.streams import LIFE_S
from gym_runtime.errors import (
    BrokerError,
    UsageError,
)
from gym_runtime.system.private_broker import Broker
from runtime.bus.conftest import StartServer, linked


@pytest.mark.asyncio
async def test_an_unreachable_broker_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "DIAL_S", 0.3)
    with pytest.raises(BrokerError, match=r"no broker at nats://127\.0\.0\.1:9 .*nats-server -js"):
        async with connect("nats://me:secret@127.0.0.1:9"):
            pass


@pytest.mark.asyncio
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "nosuch.invalid"])
async def test_a_client_that_is_refused_does_not_wait_as_for_a_silent_broker(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "DIAL_S", 3600.0)
    monkeypatch.setattr(links, "REFUSED_S", 0.2)
    with pytest.raises(BrokerError, match=r"no broker at .*correct the URL \(--nats, GYM_NATS_URL\)"):
        async with connect(f"nats://{host}:9"):
            pass


def test_a_look_up_that_nothing_waits_for_any_more_is_not_logged() -> None:
    # As uvloop has it, where the limit of connecting ends while a name is looked up.
    error = socket.gaierror(-2, "Name or service not known")
    future = f"future: <Future finished exception={error!r}>"
    for lost, shown in ((future, False), ("future: <Future finished exception=KeyError('x')>", True)):
        said = f"Future exception was never retrieved\n{lost}"
        record = logging.LogRecord("asyncio", logging.ERROR, "", 0, said, (), None)
        assert _is_no_noise(record) == shown


@pytest.mark.asyncio
async def test_a_client_waits_for_a_broker_that_starts_again(broker: Broker) -> None:
    broker.stop()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.to_thread.run_sync, broker.restart)
        async with connect(broker.url):
            pass


@pytest.mark.asyncio
async def test_a_frozen_broker_is_unreachable(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "DIAL_S", 0.3)
    with frozen(broker.pid), pytest.raises(BrokerError, match="no broker at"):
        async with connect(broker.url):
            pass


@pytest.mark.asyncio
async def test_bad_credentials_fail_at_once_without_telling_them(broker_url: str) -> None:
    host = broker_url.rpartition("@")[2]
    with pytest.raises(BrokerError, match="refuses the credentials") as caught:
        async with connect(f"nats://gym:wrong@{host}"):
            pass
    assert "wrong" not in str(caught.value)


@pytest.mark.asyncio
async def test_a_missing_credentials_file_fails_at_once(broker_url: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.creds: No such file"):
        async with connect(broker_url, credentials=tmp_path / "none.creds"):
            pass


@pytest.mark.asyncio
async def test_a_broker_without_jetstream_is_refused(start_server: StartServer) -> None:
    url, _ = start_server("")
    with pytest.raises(BrokerError, match="start it with 'nats-server -js'"):
        async with connect(url):
            pass


@pytest.mark.asyncio
async def test_a_broker_for_small_messages_is_refused(start_server: StartServer) -> None:
    url, _ = start_server("max_payload: 128KB")
    with pytest.raises(BrokerError, match="max_payload: 8MB"):
        async with connect(url):
            pass


@pytest.mark.asyncio
async def test_a_bad_prefix_is_refused() -> None:
    with pytest.raises(UsageError, match="prefix"):
        async with connect("nats://127.0.0.1:9", prefix="a b"):
            pass


@pytest.mark.slow
@pytest.mark.asyncio
async def test_tls(start_server: StartServer, broker_url: str, tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs openssl")
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    request = f"req -x509 -newkey rsa:2048 -nodes -keyout {key} -out {certificate} -subj /CN=localhost"
    command = [openssl, *request.split(), "-addext", "subjectAltName=IP:127.0.0.1"]
    await anyio.run_process(command)
    url, _ = start_server(
        f'tls {{ cert_file: "{certificate}", key_file: "{key}" }}\n'
        f'jetstream {{ store_dir: "{tmp_path / "js"}" }}\nmax_payload: 8MB'
    )
    with pytest.raises(BrokerError, match=r"certificate is refused \(.*use a join file, or .* GYM_NATS_CA$"):
        async with connect(url):
            pass
    with pytest.raises(BrokerError, match="offers none"):
        async with connect(broker_url.replace("nats://", "tls://")):
            pass
    async with connect(url, tls=ssl.create_default_context(cafile=certificate)) as bus:
        assert await bus.commit("rollout.r.1", b"x")


@pytest.mark.parametrize(
    ("code", "why", "remedy"),
    [
        (10, "certificate has expired", "look at this machine's clock, or start 'gym-runtime broker' again"),
        (62, "Hostname mismatch", "use a name that it is for, or start 'gym-runtime broker' with --host"),
    ],
)
def test_a_certificate_that_is_refused_is_named_with_the_remedy(code: int, why: str, remedy: str) -> None:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = code, why
    assert f"its certificate is refused ({why}): {remedy}" in str(unreachable("tls://a:4222", error))


@pytest.mark.asyncio
async def test_an_error_inside_the_context_is_raised_as_it_is(broker_url: str, prefix: str) -> None:
    with pytest.raises(KeyError):
        async with connect(broker_url, prefix=prefix):
            raise KeyError


@pytest.mark.asyncio
async def test_streams_of_the_operator_keep_their_settings(broker_url: str, prefix: str) -> None:
    config = b'{"name":"%b_ROLLOUTS","subjects":["%b.rollout.>"],"max_age":3600000000000}' % (
        (prefix.encode(),) * 2
    )
    async with linked(broker_url) as link:
        await link.ask(f"$JS.API.STREAM.CREATE.{prefix}_ROLLOUTS", config, within_s=5)
        async with connect(broker_url, prefix=prefix) as bus:
            assert await bus.commit("rollout.r.1", b"x")
        info = await link.ask(f"$JS.API.STREAM.INFO.{prefix}_ROLLOUTS", b"", within_s=5)
        assert b'"max_age":3600000000000' in info.payload
        assert b'"allow_direct":true' in info.payload


@pytest.mark.asyncio
async def test_the_turns_of_a_paused_run_and_its_failed_tasks_stay_as_long_as_its_results(
    broker_url: str, prefix: str
) -> None:
    async with linked(broker_url) as link, connect(broker_url, prefix=prefix):
        lives = [
            msgspec.json.decode(
                (await link.ask(f"$JS.API.STREAM.INFO.{prefix}_{stream}", b"", within_s=5)).payload
            )["config"]["max_age"]
            for stream in ("JOURNAL", "ROLLOUTS", "TASKS")
        ]
    assert lives[0] >= lives[1] >= lives[2] >= 30 * 24 * 3600 * 10**9


@pytest.mark.asyncio
async def test_what_a_standing_system_is_told_once_is_kept_for_more_than_a_year(
    broker_url: str, prefix: str
) -> None:
    """An engine that starts later loads the current weights, and may find none that have expired."""
    year = 365 * 24 * 3600
    assert LIFE_S["runs"] > year
    assert LIFE_S["blob"] >= SPARE * max(life_s for kind, life_s in LIFE_S.items() if kind != "blob")
    async with linked(broker_url) as link, connect(broker_url, prefix=prefix):
        info = await link.ask(f"$JS.API.STREAM.INFO.{prefix}_RUNS", b"", within_s=5)
        assert msgspec.json.decode(info.payload)["config"]["max_age"] > year * 10**9


@pytest.mark.asyncio
async def test_two_prefixes_that_name_the_same_streams_are_told_apart(broker_url: str, prefix: str) -> None:
    async with connect(broker_url, prefix=f"{prefix}_a"):
        with pytest.raises(
            BrokerError, match=rf"{prefix}_a_TASKS is for {prefix}_a\.task\.>: .* another prefix"
        ):
            async with connect(broker_url, prefix=f"{prefix}.a"):
                pass


@pytest.mark.asyncio
async def test_a_stream_that_cannot_serve_is_refused(broker_url: str, prefix: str) -> None:
    config = b'{"name":"%b_TASKS","subjects":["%b.task.>"],"retention":"interest"}' % ((prefix.encode(),) * 2)
    async with linked(broker_url) as link:
        await link.ask(f"$JS.API.STREAM.CREATE.{prefix}_TASKS", config, within_s=5)
    with pytest.raises(BrokerError, match=f"{prefix}_TASKS exists with other settings"):
        async with connect(broker_url, prefix=prefix):
            pass
