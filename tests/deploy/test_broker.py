"""``gym-runtime broker`` by the real command: join files, one node, three, and a stop that awaits workers."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import subprocess
import sysconfig
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import anyio
import pytest
from deploy.brokers import serving, until_ready
from faults.broker.broker_runs import break_disk
from gym_deploy.broker import serve
from gym_deploy.broker_plan import BrokerPlan, configure
from gym_runtime import connect
from gym_runtime.bus import nats
from gym_runtime.bus.identity import Join, read_join, read_keys, write_join
from gym_runtime.client import Client, make_pools
from gym_runtime.errors import BrokerError, ConnectionLost, NotThereYet, UsageError
from gym_runtime.messages.outcomes import Completed
from gym_runtime.messages.rollout_settings import RolloutSettings
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import System, launch
from ports import free_port, loopback_hosts
from runtime.cli.started import SCRIPT
from time_limits import busy

NAME = "example_session_state_mgmt"
ROW = {
    "responses_create_params": {"input": [{"role": "user", "content": "count"}]},
    "initial_count": 3,
    "expected_count": 3,
}


def workers(folder: Path, *, drain_s: float = 20.0) -> list[System]:
    """One of each kind, each with the join file of its role."""
    pools = make_pools([NAME], "scripted/message", concurrency=8)
    return [
        launch(SystemSpec(pools=(pool,), nats=(str(folder / "join" / f"{pool.kind}.join"),), drain_s=drain_s))
        for pool in pools
    ]


async def make(gym: Client, count: int) -> list[Any]:
    return [type(record.outcome) async for record in gym.rollouts([ROW] * count, environment=NAME)]


def jetstream(host: str, port: int) -> dict[str, Any]:
    with urlopen(f"http://{host}:{port}/jsz?acc=GYM&streams=true&config=true") as answer:
        return json.load(answer)


# -- join files -----------------------------------------------------------------------------------------


def test_a_join_file_comes_back_as_it_was(tmp_path: Path) -> None:
    configure(BrokerPlan(folder=tmp_path, hosts=("broker.example", "10.0.0.5")))
    path = tmp_path / "join" / "agent.join"
    join = read_join(path)
    assert join.urls == ("tls://broker.example:4222",)
    assert join.seeds == {"agent": (tmp_path / "agent.seed").read_text()}
    assert join.authority == (tmp_path / "ca.pem").read_text()
    path.write_text(write_join(join))
    assert read_join(path) == join
    assert path.stat().st_mode & 0o077 == 0
    before = join.seeds
    configure(BrokerPlan(folder=tmp_path, nodes=("a", "b", "c"), node="b"))
    assert read_join(path) == Join(
        urls=("tls://a:4222", "tls://b:4222", "tls://c:4222"), authority=join.authority, seeds=before
    )


def test_certificates_keep_the_strict_rules_and_brokers_sign_none(tmp_path: Path) -> None:
    configure(BrokerPlan(folder=tmp_path, nodes=("a", "b", "c"), node="b"))
    for purpose in ("sslserver", "sslclient"):
        run_openssl("verify", "-x509_strict", "-purpose", purpose, "-CAfile", "ca.pem", "b.pem", cwd=tmp_path)
    # Machines whose clocks are behind the broker's join all the same.
    earlier = str(int(time.time()) - 3600)
    run_openssl("verify", "-attime", earlier, "-CAfile", "ca.pem", "b.pem", cwd=tmp_path)
    assert "CA:FALSE" in run_openssl("x509", "-noout", "-text", "-in", "b.pem", cwd=tmp_path)


def test_an_authority_of_an_earlier_version_is_still_trusted(tmp_path: Path) -> None:
    # It says nothing of its key's use, and Python 3.13 is strict by default.
    own_authority(tmp_path, "basicConstraints=critical,CA:TRUE")
    configure(BrokerPlan(folder=tmp_path, hosts=("broker.example",), listen="broker.example:4222"))
    assert "Key Usage" not in run_openssl("x509", "-noout", "-text", "-in", "ca.pem", cwd=tmp_path)
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    [certificate] = [path for path in tmp_path.glob("*.pem") if path.name != "ca.pem"]
    own.load_cert_chain(certificate, certificate.with_suffix(".key"))
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    trust = read_join(tmp_path / "join" / "client.join").trust()
    client = trust.wrap_bio(back, there, server_hostname="broker.example")
    server = own.wrap_bio(there, back, server_side=True)
    for side in (client, server, client):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    assert client.version() == "TLSv1.3"


def test_nodes_are_told_of_by_the_names_that_their_certificates_hold(tmp_path: Path) -> None:
    text = configure(BrokerPlan(folder=tmp_path, nodes=("a", "b", "c"), node="b")).read_text()
    assert '  advertise: "b:6222"\n' in text
    assert 'client_advertise: "b:4222"\n' in text


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_broker_is_joined_at_an_address_of_ipv6(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET6) as tried:
        try:
            tried.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
    plan = BrokerPlan(folder=tmp_path / "nodes", nodes=("fd00::1", "fd00::2", "c"), node="fd00::1")
    text = configure(plan).read_text()
    assert 'routes: ["nats-route://[fd00::2]:6222", "nats-route://c:6222"]' in text
    assert 'client_advertise: "[fd00::1]:4222"' in text
    port = free_port()
    with serving(tmp_path / "broker", "--host", "[::1]", host="[::1]", port=port) as process:
        until_ready(process)
        join = tmp_path / "broker" / "join" / "client.join"
        assert read_join(join).urls == (f"tls://[::1]:{port}",)
        async with connect(str(join)) as gym:
            assert not (await gym.status()).workers


def test_a_trainers_join_file_holds_the_keys_of_a_client_and_a_model(tmp_path: Path) -> None:
    configure(BrokerPlan(folder=tmp_path))
    path = tmp_path / "join" / "trainer.join"
    for role in ("client", "model"):
        assert read_keys(path, role).seed == (tmp_path / f"{role}.seed").read_text()
    with pytest.raises(UsageError, match=r"no key of role 'agent', only client, model; take agent\.join"):
        read_keys(path, "agent")
    # A key that stands alone is what its broker takes it for.
    assert read_keys(tmp_path / "model.seed", "client") == read_keys(path, "model")


def test_join_files_that_were_put_together_hold_the_keys_of_all_their_roles(tmp_path: Path) -> None:
    configure(BrokerPlan(folder=tmp_path))
    roles, path = ("agent", "resource", "model"), tmp_path / "node.join"
    path.write_text("".join((tmp_path / "join" / f"{role}.join").read_text() for role in roles))
    assert len(read_join(path).urls) == 1
    for role in roles:
        assert read_keys(path, role).seed == (tmp_path / f"{role}.seed").read_text()


def test_the_join_file_of_another_role_is_refused_before_there_is_a_connection(tmp_path: Path) -> None:
    configure(BrokerPlan(folder=tmp_path))
    joins = tmp_path / "join"
    with pytest.raises(UsageError, match=r"no key of role 'client', only agent; take client\.join of"):
        read_keys(joins / "agent.join", "client")
    # 'run --nats client.join' would start workers of its own.
    with pytest.raises(UsageError, match=r"or add it to this file, or .* 'gym-runtime publish', then"):
        read_keys(joins / "client.join", "agent")


def test_what_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(NotThereYet, match=r"there is no join file .*: 'gym-runtime broker' writes it"):
        read_join(tmp_path / "none.join")
    (tmp_path / "half.join").write_text("url tls://a:4222\n")
    with pytest.raises(UsageError, match="a certificate authority and a key"):
        read_join(tmp_path / "half.join")
    damaged = Join(urls=("tls://a",), authority="-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n")
    with pytest.raises(UsageError, match="certificate authority of a join file is damaged"):
        damaged.trust()
    for listen in ("4222", "127.0.0.1:0", "127.0.0.1:65536"):
        with pytest.raises(UsageError, match="expected HOST:PORT"):
            configure(BrokerPlan(folder=tmp_path, listen=listen))
    with pytest.raises(UsageError, match="--leaf-of hub:leaf: expected HOST:PORT"):
        configure(BrokerPlan(folder=tmp_path, leaf_of=("hub:leaf",)))
    with pytest.raises(UsageError, match="--monitor 8222: expected HOST:PORT"):
        configure(BrokerPlan(folder=tmp_path, monitor="8222"))
    with pytest.raises(UsageError, match="is not among them"):
        configure(BrokerPlan(folder=tmp_path, nodes=("a", "b", "c"), node="d"))
    with pytest.raises(UsageError, match="--nodes a,b,a: each broker has a name of its own"):
        configure(BrokerPlan(folder=tmp_path, nodes=("a", "b", "a"), node="a"))
    with pytest.raises(UsageError, match="of two brokers neither stores anything without the other"):
        configure(BrokerPlan(folder=tmp_path, nodes=("a", "b"), node="a"))
    (tmp_path / "binary.join").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="a certificate authority and a key"):
        read_join(tmp_path / "binary.join")
    for plan in (
        BrokerPlan(folder=tmp_path / "in", node="../out"),
        BrokerPlan(folder=tmp_path / "in", hosts=("",)),
        BrokerPlan(folder=tmp_path / "in", hosts=('a b"',)),
        BrokerPlan(folder=tmp_path / "in", nodes=("", "a"), node="a"),
        BrokerPlan(folder=tmp_path / "in", leaf_of=("a\nb",)),
        # The name with the port would be in the join files, and in no address that can be reached.
        BrokerPlan(folder=tmp_path / "in", hosts=("broker.example:4222",)),
        BrokerPlan(folder=tmp_path / "in", nodes=("a:4222", "b:4222", "c:4222"), node="a:4222"),
        BrokerPlan(folder=tmp_path / "in", prefix="a b"),
        BrokerPlan(folder=tmp_path / "in", prefix=">"),
    ):
        with pytest.raises(UsageError, match="letters, digits") as refused:
            configure(plan)
        assert "\n" not in refused.value.message
    assert not (tmp_path / "in").exists()


def test_a_worker_says_which_join_file_it_came_with(tmp_path: Path) -> None:
    join = str(tmp_path / "join" / "agent.join")
    with serving(tmp_path) as broker:
        until_ready(broker)
        command = [SCRIPT, "start", "agent:tool_loop", "--nats", join]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
            try:
                assert worker.stdout is not None
                while not (line := worker.stdout.readline()).startswith("joined "):
                    assert line
            finally:
                worker.terminate()
    assert line == f"joined {join}\n"


@pytest.mark.anyio
async def test_a_broker_is_for_a_system_with_any_prefix(tmp_path: Path) -> None:
    prefix = "team-a.b_c"
    with serving(tmp_path, "--host", "127.0.0.1", "--prefix", prefix) as broker:
        await anyio.to_thread.run_sync(until_ready, broker)
        async with connect(str(tmp_path / "join" / "client.join"), prefix=prefix) as gym:
            run = await gym.publish([ROW], environment=NAME)
            assert await gym.runs()
            await gym.cancel(run.run)


@pytest.mark.parametrize(("kept", "lost"), [("ca.pem", "ca.key"), ("ca.key", "ca.pem")])
def test_half_of_an_authority_is_refused_and_stays(tmp_path: Path, kept: str, lost: str) -> None:
    plan = BrokerPlan(folder=tmp_path)
    configure(plan)
    before, joined = (tmp_path / kept).read_bytes(), (tmp_path / "join" / "agent.join").read_bytes()
    (tmp_path / lost).unlink()
    said = f"{kept} is there and {lost} is missing: restore it .*, or delete {kept}"
    with pytest.raises(UsageError, match=said):
        configure(plan)
    assert (tmp_path / kept).read_bytes() == before
    assert (tmp_path / "join" / "agent.join").read_bytes() == joined
    (tmp_path / kept).unlink()
    configure(plan)
    assert read_join(tmp_path / "join" / "agent.join").authority == (tmp_path / "ca.pem").read_text()


def test_a_broker_does_not_begin_without_the_runs_of_its_folder_under_another_name(tmp_path: Path) -> None:
    first = BrokerPlan(folder=tmp_path, node="one")
    configure(first)
    first.store.mkdir()
    said = "has the runs of broker one, and this one is two: name it, --node one, or rename jetstream-one to"
    with pytest.raises(UsageError, match=said):
        configure(BrokerPlan(folder=tmp_path, node="two"))
    configure(first)
    configure(BrokerPlan(folder=tmp_path, node="two", nodes=("one", "two", "three")))
    with pytest.raises(UsageError, match="this one is a: rename jetstream-one to jetstream-a to go on with"):
        configure(BrokerPlan(folder=tmp_path, node="a", nodes=("a", "b", "c")))


def own_authority(folder: Path, *extensions: str) -> None:
    """An authority that is in the folder before the broker."""
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-keyout", "ca.key", "-out", "ca.pem")
    more = [part for extension in extensions for part in ("-addext", extension)]
    run_openssl("req", "-x509", "-nodes", "-subj", "/CN=own", *more, *key, cwd=folder)


def run_openssl(*arguments: str, cwd: Path) -> str:
    return subprocess.run(
        ["openssl", *arguments], cwd=cwd, check=True, capture_output=True, text=True, timeout=30
    ).stdout


# -- the broker -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.timeout(60)
async def test_who_came_by_a_join_file_follows_a_broker_that_moves(tmp_path: Path) -> None:
    join = str(tmp_path / "join" / "client.join")
    with ExitStack() as first:
        broker = first.enter_context(serving(tmp_path, "--host", "127.0.0.1"))
        await anyio.to_thread.run_sync(until_ready, broker)
        async with connect(join) as gym:
            assert not (await gym.status()).workers
            first.close()
            # As the next job of Slurm does on another node: the folder is the same, the address is not.
            with serving(tmp_path, "--host", "127.0.0.1") as moved:
                await anyio.to_thread.run_sync(until_ready, moved)
                while True:
                    with suppress(BrokerError, ConnectionLost):
                        assert not (await gym.status()).workers
                        break


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.timeout(120)
async def test_workers_and_clients_join_by_files_and_the_broker_outlasts_them(tmp_path: Path) -> None:
    folder, port = tmp_path / "broker", free_port()
    with serving(folder, "--host", "127.0.0.1", port=port) as process:
        until_ready(process)
        streams = jetstream("127.0.0.1", port + 1)["account_details"][0]["stream_detail"]
        assert {stream["name"] for stream in streams} == {
            f"gym_{name}" for name in ("TASKS", "ROLLOUTS", "JOURNAL", "RUNS", "BLOBS")
        }
        systems = workers(folder)
        try:
            for system in systems:
                await system.until("all_ready")
            async with connect(str(folder / "join" / "client.join")) as gym:
                assert await make(gym, 5) == [Completed] * 5
                # New keys for all, in the middle of a run.
                old = read_join(folder / "join" / "agent.join")
                for seed in folder.glob("*.seed"):
                    seed.unlink()
                async with anyio.create_task_group() as tasks:
                    made: list[Any] = []

                    async def work() -> None:
                        made.extend(await make(gym, 200))

                    tasks.start_soon(work)
                    process.send_signal(signal.SIGHUP)
                assert made == [Completed] * 200
                (tmp_path / "old.join").write_text(write_join(old))
                changed = r"refuses the credentials: its keys have changed since .*old.join was written"
                with pytest.raises(BrokerError, match=changed):
                    async with nats.connect(str(tmp_path / "old.join"), role="agent"):
                        pass
                # To every process at once, as a node's scheduler does it.
                for one in (process, *process.children(recursive=True)):
                    one.send_signal(signal.SIGTERM)
                with anyio.fail_after(20 * busy()):
                    assert await make(gym, 5) == [Completed] * 5
                assert process.poll() is None
            for system in systems:
                await system.stop()
            with anyio.fail_after(15 * busy()):
                assert await anyio.to_thread.run_sync(process.wait) == 0
        finally:
            for system in systems:
                system.kill()


@pytest.mark.slow
@pytest.mark.anyio
async def test_an_autoscaler_sees_a_run_with_a_priority_before_the_first_worker(tmp_path: Path) -> None:
    """``autoscale.py`` from none on: what it does not see it starts no worker for."""
    with serving(tmp_path / "broker") as broker:
        await anyio.to_thread.run_sync(until_ready, broker)
        async with connect(str(tmp_path / "broker" / "join" / "client.join")) as gym:
            seen: list[int] = []
            for settings in (RolloutSettings(), RolloutSettings(priority=1), RolloutSettings(share=2.0)):
                await gym.publish([ROW] * 5, settings, environment=NAME)
                (depth,) = (await gym.status()).queues.values()
                seen.append(depth.waiting)
    assert seen == [5, 10, 15]


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.timeout(180)
async def test_three_brokers_keep_everything_three_times_and_one_may_end(tmp_path: Path) -> None:
    folder, port = tmp_path / "broker", free_port()
    hosts = loopback_hosts(3)
    with ExitStack() as stack:
        nodes = [
            stack.enter_context(
                serving(folder, "--nodes", ",".join(hosts), "--node", host, host=host, port=port)
            )
            for host in hosts
        ]
        for node in nodes:
            until_ready(node)
        details = jetstream(hosts[0], port + 1)["account_details"][0]["stream_detail"]
        assert {stream["config"]["num_replicas"] for stream in details} == {3}
        systems = workers(folder)
        try:
            for system in systems:
                await system.until("all_ready")
            async with connect(str(folder / "join" / "client.join")) as gym:
                assert await make(gym, 5) == [Completed] * 5
                for process in (nodes[0], *nodes[0].children(recursive=True)):
                    process.kill()
                with anyio.fail_after(60 * busy()):
                    assert await make(gym, 5) == [Completed] * 5
        finally:
            for system in systems:
                await system.stop()


@pytest.mark.slow
def test_a_node_that_waits_for_the_others_ends_at_a_signal(tmp_path: Path) -> None:
    hosts, port = loopback_hosts(3), free_port()
    more = ("--nodes", ",".join(hosts), "--node", hosts[0])
    with serving(tmp_path / "broker", *more, host=hosts[0], port=port) as process:
        end_s = time.monotonic() + 20 * busy()
        while not answers(hosts[0], port + 1):
            assert time.monotonic() < end_s
            time.sleep(0.05)
        children = process.children(recursive=True)
        process.terminate()
        assert process.wait(30) == 0
        assert not [child for child in children if child.is_running()]


def answers(host: str, port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex((host, port)) == 0


@pytest.mark.anyio
async def test_a_server_that_does_not_keep_the_permissions_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    server = tmp_path / "nats-server"
    server.write_text("#!/bin/sh\necho nats-server: v2.12.5\n")
    server.chmod(0o700)
    listen, monitor = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    plan = BrokerPlan(folder=tmp_path / "keys", listen=listen, monitor=monitor)
    with pytest.raises(UsageError, match=r"nats-server is v2\.12\.5, which .* install 2\.12\.6 or later"):
        await serve(plan, ready=lambda: None)


def test_a_damaged_key_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "agent.seed").write_text("SUAGARBAGE")
    with pytest.raises(
        UsageError, match=r"agent\.seed holds no key .*; restore it, or delete it for a new key"
    ):
        configure(BrokerPlan(folder=tmp_path))


@pytest.mark.slow
def test_a_node_that_its_own_client_does_not_trust_ends_with_the_reason(tmp_path: Path) -> None:
    folder, port = tmp_path / "broker", free_port()
    folder.mkdir(mode=0o700)
    own_authority(folder, "basicConstraints=critical,CA:FALSE")
    first, *others = loopback_hosts(3)
    nodes = ("--nodes", ",".join((first, *others)), "--node", first)
    with serving(folder, *nodes, host=first, port=port) as process:
        assert process.wait(30) == 2
    assert "cannot connect to the broker" in (tmp_path / f"broker-{first}.log").read_text()


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_broker_whose_disk_was_full_is_started_again(tmp_path: Path) -> None:
    folder = tmp_path / "broker"
    with serving(folder) as process:
        until_ready(process)
        (before,) = process.children()
        async with nats.connect(str(folder / "join" / "agent.join"), role="agent") as bus:
            break_disk(before.pid)
            # It waits until the broker stores again.
            await bus.append("journal.r.0.0.0", b"turn")
        assert not before.is_running()
