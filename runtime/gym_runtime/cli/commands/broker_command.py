"""``broker``: a broker for the machines of a system."""

from __future__ import annotations

import sys
from functools import partial

import anyio
from gym_deploy.broker import serve
from gym_deploy.broker_plan import BrokerPlan, configure

from gym_runtime import logs
from gym_runtime.cli import terminal
from gym_runtime.cli.options.shared_options import parse_urls
from gym_runtime.cli.options.system_options import BrokerStartOptions


def broker(options: BrokerStartOptions) -> int:
    """Run it until SIGTERM or SIGINT; the exit status.

    Raises:
        UsageError, BrokerError: it cannot be started; the message says why.
    """
    plan = BrokerPlan(
        folder=options.folder,
        listen=options.listen,
        hosts=options.hosts,
        nodes=parse_urls(options.nodes),
        node=options.node,
        monitor=options.monitor,
        leaves=options.leaves,
        leaf_of=parse_urls(options.leaf_of),
        prefix=options.prefix,
        linger_s=options.linger_s,
    )
    if options.keys_only:
        configure(plan)
        return 0
    logs.start("broker")
    ready = partial(_show_ready, plan)
    anyio.run(serve, plan, ready, backend_options={"use_uvloop": sys.platform != "win32"})
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
