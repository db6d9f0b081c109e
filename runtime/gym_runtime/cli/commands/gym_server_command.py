"""``gym-server``: NeMo Gym's HTTP face of a running system, until it is told to stop."""

from __future__ import annotations

import ipaddress
import os
import secrets
import signal
import socket
import sys
from contextlib import AsyncExitStack
from dataclasses import replace

import anyio
from gym_data.web.listener import serving
from gym_faces.gym_server import GymServer, agents_yaml
from gym_faces.gym_server.gym_http_server import USER

from gym_runtime import logs
from gym_runtime.cli import terminal
from gym_runtime.cli.chosen_rows import with_sampling
from gym_runtime.cli.model_choice import (
    parse_agent_options,
    parse_role_pools,
    parse_role_sampling,
    require_broker,
)
from gym_runtime.cli.options.run_options import GymServerOptions
from gym_runtime.cli.remote import unserved
from gym_runtime.client import connect

KEY = "GYM_SERVER_KEY"
_ANY = ("0.0.0.0", "::")


def gym_server(options: GymServerOptions) -> int:
    """Serve until SIGINT or SIGTERM; the process's exit status.

    Raises:
        UsageError: no broker was named, an environment is not served, or the address is taken.
    """
    require_broker(options.broker)
    logs.start("gym-server")
    settings = replace(
        with_sampling(options.settings, options.sampling),
        roles=parse_role_pools(options.roles),
        role_sampling=parse_role_sampling(options.role_sampling),
        agent_options=parse_agent_options(options.agent_options),
    )
    options = replace(options, settings=settings)
    anyio.run(_stay, options, backend_options={"use_uvloop": sys.platform != "win32"})
    return 0


async def _stay(options: GymServerOptions) -> None:
    key = os.environ.get(KEY, "")
    async with AsyncExitStack() as stack:
        client = connect(options.broker.urls, prefix=options.broker.prefix)
        gym = await stack.enter_async_context(client)
        environments = await gym.environments(*options.environments)
        if options.print_config:
            host = socket.gethostname() if options.host in _ANY else options.host
            print(agents_yaml(environments, f"{USER}:{key}@{host}" if key else host, options.port), end="")
            return
        made = "" if key or _is_loopback(options.host) else secrets.token_urlsafe(24)
        served = GymServer(gym, environments, options.settings, key=key or made, hosts=(options.host,))
        signals = stack.enter_context(anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM))
        await stack.enter_async_context(served.working())
        url = await stack.enter_async_context(serving(served, host=options.host, port=options.port))
        agents = sorted({agent for one in environments for agent in one.definition.agent_names})
        for line in unserved(await gym.workers(), agents=agents, models=[options.settings.model_pool]):
            logs.logger().warning(line)
        console = terminal.output()
        console.print(
            f"serving {url}, head server and all agents of: {', '.join(one.name for one in environments)}",
            soft_wrap=True,
        )
        if made:
            console.print(f"export {KEY}={made}", soft_wrap=True)
        sys.stdout.flush()
        async for _ in signals:
            return


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
