"""Keys, certificates, and files that hold none."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from faults.permissions.identities import serving
from gym_runtime.bus import identity, nats
from gym_runtime.bus.identity import CA, CERTIFICATE, CREDENTIALS, KEY, Join, write_join
from gym_runtime.errors import BrokerError, UsageError

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.mark.anyio
async def test_without_a_key_or_trust_nobody_enters(
    url: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CREDENTIALS)
    with pytest.raises(BrokerError, match="refuses the credentials"):
        async with nats.connect(url):
            pass
    stranger = tmp_path / "stranger.seed"
    stranger.write_text(identity.new_seed())
    with pytest.raises(BrokerError, match="refuses the credentials"):
        async with nats.connect(url, credentials=stranger):
            pass
    monkeypatch.delenv(CA)
    with pytest.raises(BrokerError, match="certificate"):
        async with nats.connect(url, credentials=folder / "client.seed"):
            pass


@pytest.mark.anyio
async def test_a_broker_may_ask_for_our_certificate(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Any certificate of the authority's will do; the broker's own is one.
    with serving(folder, ("# verify: true", "verify: true")) as url:
        asks = rf"asks for a certificate that it trusts \(.*\): .* {CERTIFICATE}, .* {KEY}"
        with pytest.raises(BrokerError, match=asks):
            async with nats.connect(url):
                pass
        # The broker ends the connection after it was made: nothing may go on trying to make it again.
        assert [task for task in asyncio.all_tasks() if "Connection" in repr(task.get_coro())] == []
        monkeypatch.setenv(CERTIFICATE, str(folder / "server.pem"))
        monkeypatch.setenv(KEY, str(folder / "server.key"))
        join = Join(
            urls=(url,),
            authority=(folder / "ca.pem").read_text(),
            seeds={"client": (folder / "client.seed").read_text()},
        )
        (tmp_path / "client.join").write_text(write_join(join))
        for where in (url, str(tmp_path / "client.join")):
            async with nats.connect(where) as bus:
                assert await bus.latest("runs.none") == []


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("variable", "content", "message"),
    [
        (CREDENTIALS, "", "No such file"),
        (CREDENTIALS, "password", "neither an NKey seed"),
        (CREDENTIALS, "SUBROKEN", "neither an NKey seed"),
        (CA, "", "No such file"),
        (CA, "password", f"{CA}="),
        (CERTIFICATE, "password", f"{CERTIFICATE}="),
        (KEY, "password", f"{KEY} is set and {CERTIFICATE} is not"),
    ],
)
async def test_a_file_that_is_none_is_said_and_its_content_is_not(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, content: str, message: str
) -> None:
    path = tmp_path / "file"
    if content:
        path.write_text(content)
    monkeypatch.setenv(variable, str(path))
    with pytest.raises(UsageError, match=message) as caught:
        async with nats.connect(url):
            pass
    assert not content or content not in str(caught.value)
