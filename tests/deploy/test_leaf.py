"""A second site: its own broker, which stores nothing, in one system with the first site's."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from gym_deploy.broker_plan import BrokerPlan, configure
from gym_runtime import connect
from gym_runtime.client import Client, make_pools
from gym_runtime.errors import UsageError
from gym_runtime.messages.outcomes import Completed
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import System, launch
from ports import free_port
from runtime.cli.started import SCRIPT
from time_limits import busy

from deploy import brokers

NAME = "example_session_state_mgmt"
ROW = {"responses_create_params": {"input": "count"}, "initial_count": 3, "expected_count": 3}
FIRST, SECOND = "127.0.0.1", "127.0.0.2"


def test_a_leaf_is_alone_and_begins_as_a_copy(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no site.seed; it must begin as a copy"):
        configure(BrokerPlan(folder=tmp_path, leaf_of=("hub",)))
    configure(BrokerPlan(folder=tmp_path, hosts=("hub",), node="hub", leaves="0.0.0.0:7422"))
    with pytest.raises(UsageError, match="a leaf is a single broker"):
        configure(BrokerPlan(folder=tmp_path, leaf_of=("hub",), nodes=("a", "b", "c"), node="a"))
    text = configure(BrokerPlan(folder=tmp_path, leaf_of=("hub", "other:99"), node="there")).read_text()
    assert '"tls://hub:7422", "tls://other:99"' in text
    assert "store_dir" not in text
    assert "jetstream: enabled" not in text


def test_every_copy_of_a_folder_lets_the_same_sites_in(tmp_path: Path) -> None:
    """Also if the first one was made before there was a second site."""
    nodes = ("a", "b", "c")
    configure(BrokerPlan(folder=tmp_path / "a", nodes=nodes, node="a"))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    keys = set[str]()
    for node in "ab":
        plan = BrokerPlan(folder=tmp_path / node, nodes=nodes, node=node, leaves="0.0.0.0:7422")
        assert f'advertise: "{node}:7422"' in configure(plan).read_text()
        keys.add((tmp_path / node / "identities.conf").read_text())
    (public,) = keys
    assert "SITE: " in public


async def make(gym: Client, count: int) -> list[Any]:
    return [record async for record in gym.rollouts([ROW] * count, environment=NAME)]


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.timeout(120)
async def test_workers_of_two_sites_are_one_system_also_after_the_first_ones_broker_was_away(
    tmp_path: Path,
) -> None:
    first, second = tmp_path / "first" / "broker", tmp_path / "second" / "broker"
    first.parent.mkdir()
    port, other = free_port(), free_port()
    leaves = port + 2  # the next one is for its statistics
    more = ("--node", "hub", "--host", FIRST, "--leaves", f"{FIRST}:{leaves}", "--linger", "0")
    systems: list[System] = []
    with ExitStack() as stack:
        hub = brokers.started(first, *more, host=FIRST, port=port)
        stack.callback(lambda: brokers.stop(hub))
        brokers.until_ready(hub)
        shutil.copytree(first, second)
        leaf = ("--node", "leaf", "--host", SECOND, "--leaf-of", f"{FIRST}:{leaves}", "--linger", "0")
        brokers.until_ready(stack.enter_context(brokers.serving(second, *leaf, host=SECOND, port=other)))
        pools = make_pools([NAME], "scripted/message", concurrency=8)
        try:
            for pool in pools:
                # Agents at the second site, models at the first, environments at both.
                sites = {"agent": (second,), "model": (first,)}.get(pool.kind, (first, second))
                for site in sites:
                    join = str(site / "join" / f"{pool.kind}.join")
                    systems.append(launch(SystemSpec(pools=(pool,), nats=(join,))))
            for system in systems:
                await system.until("all_ready")
            for site in (first, second):
                async with connect(str(site / "join" / "client.join")) as gym:
                    assert {type(one.outcome) for one in await make(gym, 10)} == {Completed}
                    kinds = sorted(one.kind for one in (await gym.status()).workers)
                    assert kinds == ["agent", "model", "resource", "resource"]
            async with connect(str(second / "join" / "client.join")) as gym:
                brokers.stop(hub)
                hub = brokers.started(first, *more, host=FIRST, port=port)
                with anyio.fail_after(60 * busy()):
                    records = await make(gym, 40)
            assert {type(one.outcome) for one in records} == {Completed}
            assert len(records) == 40
        finally:
            for system in systems:
                await system.stop()


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.timeout(120)
@pytest.mark.soak
async def test_workers_of_a_second_site_wait_for_its_broker_and_that_for_the_first_one(
    tmp_path: Path,
) -> None:
    first, second = tmp_path / "first" / "broker", tmp_path / "second" / "broker"
    first.parent.mkdir()
    port, other = brokers.free_port(), brokers.free_port()
    leaves = port + 2  # the next one is for its statistics
    more = ("--node", "hub", "--host", FIRST, "--leaves", f"{FIRST}:{leaves}", "--linger", "0")
    plan = BrokerPlan(
        folder=first, listen=f"{FIRST}:{port}", node="hub", hosts=(FIRST,), leaves=f"{FIRST}:{leaves}"
    )
    configure(plan)
    with ExitStack() as stack:
        workers = [
            stack.enter_context(started(second, *pool))
            for pool in (("agent",), (f"resource:{NAME}",), ("model", "--model", "scripted/message"))
        ]
        for worker in workers:
            await until_said(worker, "waiting up to 60 s: ", ".join")
        shutil.copytree(first, second)
        leaf = ("--node", "leaf", "--host", SECOND, "--leaf-of", f"{FIRST}:{leaves}", "--linger", "0")
        broker = stack.enter_context(brokers.serving(second, *leaf, host=SECOND, port=other))
        for worker in workers:
            await until_said(worker, "waiting up to 60 s: ", "the leaf of another site")
        stack.enter_context(brokers.serving(first, *more, host=FIRST, port=port))
        await anyio.to_thread.run_sync(brokers.until_ready, broker)
        async with connect(str(second / "join" / "client.join")) as gym:
            with anyio.fail_after(60 * busy()):
                records = await make(gym, 10)
        assert {type(one.outcome) for one in records} == {Completed}


@contextmanager
def started(site: Path, *pool: str) -> Generator[subprocess.Popen[str]]:
    """``start`` with patience until the end of the block; its join file need not be there."""
    join = site / "join" / f"{pool[0].partition(':')[0]}.join"
    command = [SCRIPT, "start", *pool, "--wait", "60", "--drain", "1", "--nats", str(join)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


async def until_said(process: subprocess.Popen[str], *parts: str) -> None:
    """Return when a line of its log has all parts."""
    assert process.stderr is not None
    with anyio.fail_after(40 * busy()):
        while line := await anyio.to_thread.run_sync(process.stderr.readline):
            if all(part in line for part in parts):
                return
    raise AssertionError(f"{process.args} ended, and did not say {parts}")
