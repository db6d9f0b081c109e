"""``broker``: a broker for the machines of a system."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from gym_runtime import logs
from gym_runtime.cli import HIDDEN_DEFAULT, NOT_NEGATIVE, parse_urls, run_async, terminal

from gym_deploy.broker import serve
from gym_deploy.broker_plan import BrokerPlan, configure

FOLDER = Path("gym-broker")


def broker(
    *,
    folder: Annotated[Path, Parameter(name="--dir")] = FOLDER,
    listen: str = "0.0.0.0:4222",
    hosts: Annotated[tuple[str, ...], Parameter(name="--host", show_default=False)] = (),
    nodes: Annotated[str, HIDDEN_DEFAULT] = "",
    node: Annotated[str, HIDDEN_DEFAULT] = "",
    monitor: str = "127.0.0.1:8222",
    leaves: Annotated[str, HIDDEN_DEFAULT] = "",
    leaf_of: Annotated[str, HIDDEN_DEFAULT] = "",
    prefix: str = "gym",
    linger_s: Annotated[float, NOT_NEGATIVE] = 28.0,
    keys_only: bool = False,
) -> int:
    """Run a broker for the machines of a system: TLS, an identity for each role, the streams, join files.

    A single broker, or three with --nodes. Its folder holds every secret of the system.

    Args:
        folder: For keys, configuration and streams. It is created if it does not exist; existing files are
            kept. The nodes of a cluster share it, or have copies.
        listen: HOST:PORT for clients and workers.
        hosts: A name or address by which they reach it; repeatable; join files have the first one.
            By default this machine's name.
        nodes: The hosts of all brokers of a cluster, separated by commas: three, so that one may fail.
        node: This broker's host among them; by default this machine's name.
        monitor: HOST:PORT of its statistics. They need no password.
        leaves: HOST:PORT where brokers of other sites may connect, such as 0.0.0.0:7422.
        leaf_of: The brokers of the first site, HOST or HOST:PORT, separated by commas: this one serves a
            second site and stores nothing. Its folder begins as a copy of theirs.
        prefix: Of the system's subjects; one broker's identities are for one system.
        linger_s: Seconds that it waits after SIGTERM for workers to finish their work.
        keys_only: Make the keys and join files, and start nothing.
    """
    plan = BrokerPlan(
        folder=folder,
        listen=listen,
        hosts=hosts,
        nodes=parse_urls(nodes),
        node=node,
        monitor=monitor,
        leaves=leaves,
        leaf_of=parse_urls(leaf_of),
        prefix=prefix,
        linger_s=linger_s,
    )
    if keys_only:
        configure(plan)
        return 0
    logs.start("broker")
    run_async(serve, plan, partial(_show_ready, plan))
    return 0


def _show_ready(plan: BrokerPlan) -> None:
    console = terminal.output()
    folder = plan.folder.absolute() / "join"
    with_prefix = "" if plan.prefix == BrokerPlan(folder=folder).prefix else f" --prefix {plan.prefix}"
    console.print("ready; to join, each machine with its role's file:", style="bold", soft_wrap=True)
    for pool in ("agent", "resource", "model --model PROVIDER/NAME"):
        join = folder / f"{pool.split()[0]}.join"
        console.print(f"gym-runtime start {pool} --nats {join}{with_prefix}", soft_wrap=True)
    console.print(f"gym-runtime status --nats {folder}/client.join{with_prefix}", soft_wrap=True)
    sys.stdout.flush()
