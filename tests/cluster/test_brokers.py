"""Three brokers on three hosts, which know each other by name as the certificates do.

GYM_TEST_NAMESPACES=1 pytest tests/cluster/test_brokers.py
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

import pytest
from cluster.namespaces import cluster, lacking
from runtime.cli.started import SCRIPT

WHY_NOT = (
    "set GYM_TEST_NAMESPACES=1 to make network namespaces"
    if not os.environ.get("GYM_TEST_NAMESPACES")
    else lacking()
)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(120), pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]

HOSTS = ("a", "b", "c")
GOSSIP_S = 5.0
"""Brokers tell each other of the third one as soon as they are connected, and try again twice a second."""


def test_brokers_verify_the_certificates_of_those_that_they_are_told_of(tmp_path: Path) -> None:
    logs = {host: tmp_path / f"{host}.log" for host in HOSTS}
    command = [SCRIPT, "broker", "--dir", str(tmp_path / "keys"), "--nodes", ",".join(HOSTS), "--linger", "0"]
    brokers: list[subprocess.Popen[bytes]] = []
    with cluster(tmp_path, *HOSTS) as hosts:
        try:
            for host, path in logs.items():
                with path.open("wb") as log:
                    mine = hosts.command(host, *command, "--node", host)
                    brokers.append(subprocess.Popen(mine, stdout=log, stderr=log))
            give_up = time.monotonic() + 60
            while not all("ready; to join" in path.read_text() for path in logs.values()):
                assert time.monotonic() < give_up
                time.sleep(0.2)
            time.sleep(GOSSIP_S)
        finally:
            for broker in brokers:
                broker.terminate()
            for broker in brokers:
                broker.wait(30)
    refused = re.compile(r"handshake error: (?!EOF)")
    # EOF: a client first reads, on a connection of its own, what the broker says of itself.
    assert {host for host, path in logs.items() if refused.search(path.read_text())} == set()
