"""``openenv-server``: serves one environment of a running system with OpenEnv's API, until a signal."""

from __future__ import annotations

import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
from gym_data.web.listener import serving
from gym_runtime import UsageError, connect, logs
from gym_runtime.cli import BROKER, Broker, Port, run_async, terminal

from gym_faces.gym_server.openenv_server import OpenEnvServer


def openenv_server(
    environment: str,
    /,
    *,
    input: Path,  # noqa: A002 - the name of the option
    host: str = "127.0.0.1",
    port: Port = 8000,
    sessions: int = 64,
    broker: Broker = BROKER,
) -> int:
    """Serve an environment of a running system to clients of OpenEnv: TRL, SkyRL, verifiers, its own.

    Args:
        environment: The environment.
        input: The rows, JSONL: reset with index N takes row N.
        host: The address to listen on. Any client that reaches it can play.
        port: 0 lets the system choose.
        sessions: Connections at a time.
    """
    urls = broker.required()
    logs.start("openenv-server")
    try:
        rows = [line for line in input.read_bytes().splitlines() if line.strip()]
    except OSError as error:
        raise UsageError(f"cannot read {input}: {error.strerror}") from None
    if not rows:
        raise UsageError(f"{input} has no rows")

    async def stay() -> None:
        async with AsyncExitStack() as stack:
            gym = await stack.enter_async_context(connect(urls, prefix=broker.prefix))
            (found,) = await gym.environments(environment)
            server = OpenEnvServer(gym, found, rows, sessions=sessions, hosts=(host,))
            signals = stack.enter_context(anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM))
            url = await stack.enter_async_context(serving(server, host=host, port=port))
            terminal.say(f"serving {found.name} at {url}, {len(rows)} rows")
            sys.stdout.flush()
            async for _ in signals:
                return

    run_async(stay)
    return 0
