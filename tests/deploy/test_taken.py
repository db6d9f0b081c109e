"""``gym-runtime broker`` where another program has its port or its folder already."""

from __future__ import annotations

import shutil
import socket
import subprocess
from itertools import product
from pathlib import Path

import pytest
from deploy.brokers import serving, until_ready
from gym_deploy.broker_plan import ROUTE_PORT
from ports import free_port, loopback_hosts
from runtime.cli.started import SCRIPT


@pytest.mark.slow
def test_a_port_that_is_taken_is_refused_in_one_line_also_with_the_same_keys(tmp_path: Path) -> None:
    """With a copy of the other broker's folder it would join that broker, and say that it is ready."""
    port = free_port()
    with serving(tmp_path / "one", port=port) as process:
        until_ready(process)
        shutil.copytree(tmp_path / "one", tmp_path / "copy", ignore=shutil.ignore_patterns("jetstream*"))
        hosts = ["127.0.0.1", "[::]"] if socket.has_dualstack_ipv6() else ["127.0.0.1"]
        free = f"127.0.0.1:{free_port()}"
        tried = [(folder, f"{host}:{port}", free) for folder, host in product(("copy", "other"), hosts)]
        # Of two teams' brokers on one machine, the second one must have another port for its statistics.
        for folder, listen, monitor in [*tried, ("other", free, f"127.0.0.1:{port + 1}")]:
            command = [SCRIPT, "broker", "--dir", str(tmp_path / folder), "--monitor", monitor]
            done = subprocess.run(
                [*command, "--listen", listen],
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            )
            assert (done.returncode, done.stdout) == (2, "")
            taken = f"--monitor {monitor}" if listen == free else f"--listen {listen}"
            assert done.stderr == (
                f"gym-runtime: {taken}: address already in use; end the program that listens there, or give "
                "another port\n"
            )


@pytest.mark.slow
def test_a_second_cluster_on_the_same_hosts_is_refused_in_one_line(tmp_path: Path) -> None:
    host, *others = loopback_hosts(3)
    nodes = ("--nodes", ",".join((host, *others)), "--node", host)
    with socket.create_server((host, ROUTE_PORT)), serving(tmp_path / "broker", *nodes, host=host) as process:
        assert process.wait(30) == 2
    assert (tmp_path / f"broker-{host}.log").read_text() == (
        f"gym-runtime: --nodes {host}:{ROUTE_PORT}: address already in use; end the program that listens "
        "there, or give another host: brokers of a cluster meet at this port\n"
    )


@pytest.mark.slow
def test_a_second_broker_with_the_same_folder_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "broker"
    with serving(folder) as process:
        until_ready(process)
        files = [
            path for path in folder.rglob("*") if path.is_file() and path.suffix in (".conf", ".pem", ".join")
        ]
        before = {path: path.read_bytes() for path in files}
        more = (
            "--listen",
            f"127.0.0.1:{free_port()}",
            "--monitor",
            "127.0.0.1:-1",
            "--host",
            "other.example",
        )
        second = subprocess.run(
            [SCRIPT, "broker", "--dir", str(folder), *more],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert second.returncode == 2
        assert "runs with this folder already; stop it first" in " ".join(second.stderr.split())
        assert second.stdout == ""
        assert before == {path: path.read_bytes() for path in files}
