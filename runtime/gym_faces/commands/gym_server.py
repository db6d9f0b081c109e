"""``gym-server``: serves a running system with NeMo Gym's HTTP API, until a signal."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import sys
from contextlib import AsyncExitStack

import anyio
from gym_data.web.listener import serving
from gym_data.web.public_addresses import parsed
from gym_runtime import connect, logs
from gym_runtime.cli import (
    BROKER,
    ROLE_POOLS,
    ROLLOUTS,
    Broker,
    Port,
    RolePools,
    RolloutsAsked,
    run_async,
    terminal,
)
from gym_runtime.client import unserved

from gym_faces.gym_server import GymServer, agents_yaml
from gym_faces.gym_server.gym_http_server import USER

KEY = "GYM_SERVER_KEY"
_ANY = ("0.0.0.0", "::")


def gym_server(
    *environments: str,
    host: str = "127.0.0.1",
    port: Port = 11000,
    print_config: bool = False,
    rollouts: RolloutsAsked = ROLLOUTS,
    roles: RolePools = ROLE_POOLS,
    broker: Broker = BROKER,
) -> int:
    """Serve a running system to programs that know NeMo Gym's servers: NeMo RL, TRL, verifiers, its own.

    Head server, /run, /seed_session, tools, /verify and /aggregate_metrics, all at one address.

    Args:
        environments: The environments to serve; by default all that the system serves now.
        host: The address to listen on. Clients of other machines need the key: that of GYM_SERVER_KEY, or a
            new one, which is printed.
        port: 0 lets the system choose; NeMo Gym's head server has 11000.
        print_config: Print the YAML of external agents for NeMo Gym's config_paths, and serve nothing.
    """
    urls = broker.required()
    logs.start("gym-server")
    settings = rollouts.chosen(roles=roles.pools())
    key = os.environ.get(KEY, "")

    async def stay() -> None:
        async with AsyncExitStack() as stack:
            gym = await stack.enter_async_context(connect(urls, prefix=broker.prefix))
            found = await gym.environments(*environments)
            if print_config:
                address = socket.gethostname() if host in _ANY else host
                print(agents_yaml(found, f"{USER}:{key}@{address}" if key else address, port), end="")
                return
            made = "" if key or _is_loopback(host) else secrets.token_urlsafe(24)
            served = GymServer(gym, found, settings, key=key or made, hosts=(host,))
            signals = stack.enter_context(anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM))
            await stack.enter_async_context(served.working())
            url = await stack.enter_async_context(serving(served, host=host, port=port))
            agents = sorted({agent for one in found for agent in one.definition.agent_names})
            for line in unserved(await gym.workers(), agents=agents, models=[settings.model_pool]):
                logs.logger().warning(line)
            console = terminal.output()
            names = ", ".join(one.name for one in found)
            console.print(f"serving {url}, head server and all agents of: {names}", soft_wrap=True)
            if made:
                console.print(f"export {KEY}={made}", soft_wrap=True)
            sys.stdout.flush()
            async for _ in signals:
                return

    run_async(stay)
    return 0


def _is_loopback(host: str) -> bool:
    address = parsed(host)
    return host == "localhost" if address is None else address.is_loopback
