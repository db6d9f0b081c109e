"""A broker that others can reach: TLS, four identities, the streams, and one node or three.

`configure` writes what ``nats-server`` needs into a folder; `serve` runs it until a signal. The broker's log
goes to standard error. Monitoring listens on loopback unless the plan says otherwise: it needs no password.
"""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from importlib.resources import files
from pathlib import Path

import anyio
import msgspec

from gym_runtime.bus.interface import Bus
from gym_runtime.bus.join import read_join
from gym_runtime.bus.nats import connect
from gym_runtime.deploy import identities
from gym_runtime.errors import BrokerError, GymError, UsageError, leaf
from gym_runtime.logs import logger
from gym_runtime.rpc.roll_call import all_workers
from gym_runtime.system.private_broker import die_with_parent, find_binary
from gym_runtime.timing import BROKER_AGAIN_S, BROKER_LINGER_S, SERVER_STOP_S, SIGNALLED_S

ROUTE_PORT = 6222
_CLUSTER = """
cluster {{
  name: gym
  listen: "{host}:{port}"
  tls {{ cert_file: $SERVER_CERTIFICATE, key_file: $SERVER_KEY, ca_file: $CA, verify: true }}
  routes: [{routes}]
}}
"""


class BrokerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What broker to run.

    Attributes:
        folder: for its keys, configuration and streams; nodes may share it.
        listen: ``HOST:PORT`` for clients and workers.
        hosts: names and addresses by which they reach it; by default this machine's.
        nodes: the hosts of all nodes of a cluster, this one included; empty for a broker alone.
        node: this one's host; by default this machine's name.
        monitor: ``HOST:PORT`` of the broker's statistics.
        prefix: of the system's subjects.
        linger_s: how many seconds it stays for workers that still finish their work after it was told to
        stop.
    """

    folder: Path
    listen: str = "0.0.0.0:4222"
    hosts: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    node: str = ""
    monitor: str = "127.0.0.1:8222"
    prefix: str = "gym"
    linger_s: float = BROKER_LINGER_S

    @property
    def name(self) -> str:
        """This node's."""
        return self.node or socket.gethostname()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens.

        Raises:
            UsageError: that is no ``HOST:PORT``.
        """
        host, _, port = self.listen.rpartition(":")
        if not host or not port.isdecimal():
            raise UsageError(f"--listen {self.listen}: expected HOST:PORT, such as 0.0.0.0:4222")
        return host, int(port)

    @property
    def reached_at(self) -> tuple[str, ...]:
        """The hosts in the URLs of join files."""
        return self.nodes or self.hosts[:1] or (self.name,)


def configure(plan: BrokerPlan) -> Path:
    """Write keys, certificates, join files and the configuration; its path.

    Raises:
        UsageError: the plan contradicts itself, or the folder cannot be used.
    """
    host, port = plan.address
    if plan.nodes and plan.name not in plan.nodes:
        raise UsageError(f"--nodes {','.join(plan.nodes)}: which of them is this? --node NAME")
    folder = plan.folder.absolute()
    here = () if host in ("0.0.0.0", "::", "[::]") else (host,)
    hosts = [*plan.hosts, plan.name, socket.getfqdn(), *here, "localhost", "127.0.0.1"]
    urls = [f"tls://{one}:{port}" for one in plan.reached_at]
    identities.make(folder, node=plan.name, hosts=hosts, urls=urls)
    settings = {
        "SERVER_NAME": plan.name,
        "LISTEN": plan.listen,
        "MONITOR": plan.monitor,
        "SERVER_CERTIFICATE": str(folder / f"{plan.name}.pem"),
        "SERVER_KEY": str(folder / f"{plan.name}.key"),
        "CA": str(folder / "ca.pem"),
        "STORE": str(folder / f"jetstream-{plan.name}"),
    }
    text = (files("gym_runtime.deploy") / "templates" / "secure.conf").read_text()
    text = text.replace("gym_", re.sub(r"\W", "_", plan.prefix) + "_").replace("gym.", f"{plan.prefix}.")
    if plan.nodes:
        others = [one for one in plan.nodes if one != plan.name]
        routes = ", ".join(f'"nats-route://{one}:{ROUTE_PORT}"' for one in others)
        text += _CLUSTER.format(host=host, port=ROUTE_PORT, routes=routes)
    path = folder / f"{plan.name}.conf"
    lines = [f"{name}: {_quoted(value)}\n" for name, value in settings.items()]
    identities.write_secret(path, "".join(lines) + 'include "identities.conf"\n' + text)
    return path


async def serve(plan: BrokerPlan, ready: Callable[[], None]) -> None:
    """Run the broker until SIGTERM or SIGINT; ``ready`` is called when it has the streams.

    A signal may come to all processes of a machine at once. So the broker stays while workers are there,
    ``linger_s`` at most, and a nats-server that the signal has ended is started again meanwhile. A second
    SIGINT ends it at once. At SIGHUP it makes the keys that are missing, and who has another one is
    disconnected.

    Raises:
        UsageError: see `configure`.
        BrokerError: it is not installed, does not start, or ended by itself; its log says why.
    """
    configuration = configure(plan)
    stopping = anyio.Event()
    server = _Server(configuration)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.keep, stopping)
            tasks.start_soon(_hear_signals, plan, server, stopping, tasks.cancel_scope)
            async with AsyncExitStack() as stack:
                bus = await _enter(stack, plan)
                ready()
                await stopping.wait()
                await _until_idle(bus, plan.linger_s)
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise leaf(group) from None
    finally:
        server.stop()


class _Server:
    """The nats-server process."""

    def __init__(self, configuration: Path) -> None:
        self._configuration = configuration
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [find_binary(), "-c", str(self._configuration)],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=die_with_parent() if sys.platform == "linux" else None,
        )

    async def keep(self, stopping: anyio.Event) -> None:
        """Start it again when the signal that stops us has ended it, too.

        Raises:
            BrokerError: it ended by itself.
        """
        while True:
            code = await anyio.to_thread.run_sync(self._process.wait, abandon_on_cancel=True)
            with anyio.move_on_after(SIGNALLED_S):
                await stopping.wait()
            if not stopping.is_set():
                raise BrokerError(f"nats-server ended with code {code}; its log is above")
            self._process = self._started()

    def reload(self) -> None:
        """Have it read its configuration; connections with keys that are no longer in it end."""
        self._process.send_signal(signal.SIGHUP)

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(SERVER_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


async def _hear_signals(
    plan: BrokerPlan, server: _Server, stopping: anyio.Event, scope: anyio.CancelScope
) -> None:
    interruptions = 0
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async for number in signals:
            if number == signal.SIGHUP:
                try:
                    configure(plan)
                except UsageError as error:
                    logger().error("the keys stay as they are", reason=str(error))
                else:
                    server.reload()
                continue
            stopping.set()
            interruptions += number == signal.SIGINT
            if interruptions > 1:
                scope.cancel()


async def _until_idle(bus: Bus, limit_s: float) -> None:
    """Return when no worker is there any more."""
    with anyio.move_on_after(limit_s):
        while True:
            with suppress(GymError):
                if not await all_workers(bus):
                    return
            await anyio.sleep(BROKER_AGAIN_S)


async def _enter(stack: AsyncExitStack, plan: BrokerPlan) -> Bus:
    """Connect as a client, which creates the streams; in a cluster that takes a majority of its nodes.

    Raises:
        BrokerError: the broker refuses it.
    """
    host, port = plan.address
    local = "127.0.0.1" if host in ("0.0.0.0", "::", "[::]") else host
    folder = plan.folder.absolute()
    trust = read_join(folder / "join" / "client.join").trust()
    while True:
        connection = connect(
            f"tls://{local}:{port}",
            prefix=plan.prefix,
            credentials=folder / "client.seed",
            tls=trust,
            replicas=min(3, len(plan.nodes)) or None,
        )
        try:
            return await stack.enter_async_context(connection)
        except GymError as error:
            if not plan.nodes and not (isinstance(error, BrokerError) and error.silent):
                raise
        await anyio.sleep(BROKER_AGAIN_S)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
