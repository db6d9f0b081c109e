"""The link of a host is cut in the middle of a run and healed: every rollout is made, and has one result.

A broker, environments, models and the client are on one host, an agent worker and an environment worker on
each of two others, in network namespaces. So a cut is silent, as that of a cable: no connection is closed,
and nothing arrives. It takes root and a minute, so it runs when it is asked for:

    GYM_TEST_NAMESPACES=1 pytest tests/cluster/test_cuts.py      # apt install iproute2
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from bench.counter_rows import ENVIRONMENT, counter_rows
from cluster.namespaces import Cluster, cluster, lacking
from runtime.cli.started import SCRIPT
from stubs.stub_engine import COMMAND

WHY_NOT = (
    "set GYM_TEST_NAMESPACES=1 to cut links between network namespaces"
    if not os.environ.get("GYM_TEST_NAMESPACES")
    else lacking()
)
pytestmark = [
    *(pytest.mark.fault, pytest.mark.slow, pytest.mark.timeout(240)),
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT),
]

ROLLOUTS = 1500
SLOTS = 8
CUTS_S = (2.0, 12.0)
"""Shorter than the wait for a delivery, and longer than everything that notices a lost worker."""
ENGINE = ("--host", "127.0.0.1", "--port", "8000", "--latency-s", "0.3")
MODEL = ("model", "--model", "openai/stub", "--model-url", "http://127.0.0.1:8000/v1")


def until(what: Callable[[], bool], within_s: float = 60.0) -> None:
    give_up = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < give_up
        time.sleep(0.2)


class Hosts:
    """Commands of gym-runtime on the hosts of a cluster.

    Args:
        folder: for logs; the first site's broker is in ``broker`` there.
        leaves: the folders of the brokers of other sites, by their hosts.
    """

    def __init__(self, made: Cluster, folder: Path, leaves: Mapping[str, Path] | None = None) -> None:
        self.made = made
        self._folder = folder
        self._leaves = leaves or {}
        self._stack = ExitStack()

    def __enter__(self) -> Hosts:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def begin(self, host: str, role: str, *command: str, program: str = SCRIPT) -> subprocess.Popen[bytes]:
        """Start a command, which is stopped at the end."""
        return self._stack.enter_context(self._running(host, role, program, *command))

    @contextmanager
    def _running(self, host: str, role: str, *command: str) -> Generator[subprocess.Popen[bytes]]:
        with (self._folder / f"{host}-{role}.log").open("ab") as log:
            started = subprocess.Popen(
                self.made.command(host, *command), env=self._variables(role, host), stdout=log, stderr=log
            )
        try:
            yield started
        finally:
            started.terminate()
            try:
                started.wait(40)
            finally:
                started.kill()

    def ask(self, *command: str) -> str:
        """What a client on the first host gets."""
        return self.made.run(self.made.hosts[0], SCRIPT, *command, env=self._variables("client"))

    def kinds(self) -> Counter[str]:
        """How many workers of each kind are there."""
        join = self._folder / "broker" / "join" / "client.join"
        if not join.exists():
            return Counter()
        try:
            said = self.ask("status", "--json")
        except AssertionError:  # the broker does not listen yet
            return Counter()
        return Counter(worker["kind"] for worker in json.loads(said)["workers"])

    def in_use(self) -> dict[str, int]:
        """The rollouts in flight of the agent worker of each host."""
        workers = json.loads(self.ask("status", "--json"))["workers"]
        return {worker["host"]: worker["in_use"] for worker in workers if worker["kind"] == "agent"}

    def _variables(self, role: str, host: str = "") -> dict[str, str]:
        join = self._leaves.get(host, self._folder / "broker") / "join" / f"{role}.join"
        return {**os.environ, "GYM_NATS_URL": str(join)}


def test_a_cut_link_loses_and_repeats_no_result(tmp_path: Path) -> None:
    rows, output = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    rows.write_bytes(b"".join(row.replace(b"\n", b" ") + b"\n" for row in counter_rows(ROLLOUTS)))

    def done(at_least: int) -> bool:
        return output.exists() and output.read_bytes().count(b"\n") >= at_least

    with cluster(tmp_path, "head", "n0", "n1") as made, Hosts(made, tmp_path) as hosts:
        hosts.begin(
            "head", "broker", "broker", "--dir", str(tmp_path / "broker"), "--host", "head", "--linger", "0"
        )
        [python, *engine] = COMMAND
        hosts.begin("head", "engine", *engine, *ENGINE, program=python)
        hosts.begin("head", "model", "start", *MODEL, "--wait", "60")
        for host in ("head", "n0", "n1"):
            hosts.begin(host, "resource", "start", f"resource:{ENVIRONMENT}", "--wait", "60")
        for host in ("n0", "n1"):
            hosts.begin(
                host, "agent", "start", "agent:tool_loop", "--concurrency", str(SLOTS), "--wait", "60"
            )
        until(lambda: hosts.kinds() == {"model": 1, "resource": 3, "agent": 2})
        run = hosts.ask("publish", str(rows), "--environment", ENVIRONMENT).split()[-1]
        collecting = hosts.begin("head", "client", "collect", run, "-o", str(output))
        for cut_s in CUTS_S:
            until(lambda: hosts.in_use() == {"n0": SLOTS, "n1": SLOTS})
            until(partial(done, 1))
            so_far = len(output.read_bytes().splitlines())
            made.cut("n0")
            time.sleep(cut_s)
            until(partial(done, so_far + 3 * SLOTS))  # the other host goes on
            made.heal("n0")
        # On a busy machine one look takes so long that the run may end before it.
        until(lambda: done(ROLLOUTS) or hosts.in_use() == {"n0": SLOTS, "n1": SLOTS})
        assert collecting.wait(120) == 0
    found: list[dict[str, Any]] = [json.loads(line) for line in output.read_text().splitlines()]
    assert len({row["_gym"]["rollout_id"] for row in found}) == len(found) == ROLLOUTS
    assert Counter(row["_gym"]["outcome"]["type"] for row in found) == {"completed": ROLLOUTS}
    taken_over = [row for row in found if row["_gym"]["attempt"] > 1 or row["_gym"]["resumed_turns"]]
    assert 0 < len(taken_over) <= 2 * SLOTS * len(CUTS_S), "more than were in flight on the host, or none"
