"""A second site loses its broker, its link and the first site's broker: every rollout is made, and once.

Each site is a host with an engine and workers of every kind; the client is at the first one.

    GYM_TEST_NAMESPACES=1 pytest tests/cluster/test_leaf_cuts.py
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from bench.counter_rows import ENVIRONMENT, counter_rows
from cluster import test_cuts
from cluster.namespaces import cluster
from cluster.test_cuts import ENGINE, MODEL, SLOTS, Hosts, until
from gym_runtime.rpc.watch import LISTS_COMPARED_S
from stubs.stub_engine import COMMAND

pytestmark = [pytest.mark.timeout(360), *test_cuts.pytestmark]

ROLLOUTS = 1200
CUT_S = 12.0
"""Longer than everything that notices a lost worker."""
LEAVES_AT = 7422
READY = "ready; to join"


def kill(broker: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the command and to its server, as when a machine loses its power."""
    command = psutil.Process(broker.pid)
    for process in (command, *command.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    broker.wait(10)


def test_a_site_whose_broker_link_and_hub_fail_loses_and_repeats_no_result(tmp_path: Path) -> None:
    rows, output = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    rows.write_bytes(b"".join(row.replace(b"\n", b" ") + b"\n" for row in counter_rows(ROLLOUTS)))
    first, second = tmp_path / "broker", tmp_path / "second"
    hub = (
        "broker",
        "--dir",
        str(first),
        "--host",
        "head",
        "--leaves",
        f"0.0.0.0:{LEAVES_AT}",
        "--linger",
        "0",
    )
    leaf = (
        "broker",
        "--dir",
        str(second),
        "--host",
        "far",
        "--leaf-of",
        f"head:{LEAVES_AT}",
        "--linger",
        "0",
    )
    [python, *engine] = COMMAND
    with cluster(tmp_path, "head", "far") as made, Hosts(made, tmp_path, {"far": second}) as hosts:
        at_head = hosts.begin("head", "broker", *hub)
        until(lambda: READY in (tmp_path / "head-broker.log").read_text())
        shutil.copytree(first, second, ignore=shutil.ignore_patterns("jetstream-*"))
        at_far = hosts.begin("far", "leaf", *leaf)
        until(lambda: READY in (tmp_path / "far-leaf.log").read_text())
        for host in ("head", "far"):
            hosts.begin(host, "engine", *engine, *ENGINE, program=python)
            hosts.begin(host, "model", "start", *MODEL, "--wait", "60")
            hosts.begin(host, "resource", "start", f"resource:{ENVIRONMENT}", "--wait", "60")
            agent = ("start", "agent:tool_loop", "--concurrency", str(SLOTS), "--wait", "60")
            hosts.begin(host, "agent", *agent)
        until(lambda: hosts.kinds() == {"model": 2, "resource": 2, "agent": 2})
        run = hosts.ask("publish", str(rows), "--environment", ENVIRONMENT).split()[-1]
        collecting = hosts.begin("head", "client", "collect", run, "-o", str(output))

        def in_the_middle(fault: Callable[[], None]) -> None:
            until(lambda: hosts.in_use() == {"head": SLOTS, "far": SLOTS})
            so_far = output.read_bytes().count(b"\n") if output.exists() else 0
            fault()
            until(lambda: output.exists() and output.read_bytes().count(b"\n") >= so_far + 3 * SLOTS)

        def cut() -> None:
            made.cut("far")
            time.sleep(CUT_S)
            made.heal("far")

        def restart() -> None:
            kill(at_head)
            hosts.begin("head", "broker", *hub)

        in_the_middle(lambda: kill(at_far))
        hosts.begin("far", "leaf", *leaf)
        in_the_middle(cut)
        in_the_middle(restart)
        assert collecting.wait(120) == 0
        until(lambda: hosts.kinds() == {"model": 2, "resource": 2, "agent": 2}, 2 * LISTS_COMPARED_S)
    found = [json.loads(line) for line in output.read_text().splitlines()]
    assert len({row["_gym"]["rollout_id"] for row in found}) == len(found) == ROLLOUTS
    assert Counter(row["_gym"]["outcome"]["type"] for row in found) == {"completed": ROLLOUTS}
