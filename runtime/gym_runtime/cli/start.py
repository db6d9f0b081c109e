"""``start``: a system, or a part of one, that stays until it is told to stop."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, get_args

import anyio
import anyio.lowlevel
from cyclopts import Parameter
from cyclopts.validators import Number
from msgspec.structs import replace
from rich.table import Table

from gym_runtime import logs
from gym_runtime.bus.identity import names_file, without_credentials
from gym_runtime.bus.nats import connect
from gym_runtime.cli import formatting, terminal
from gym_runtime.cli.config import PoolConfig, load_config
from gym_runtime.cli.interruption import INTERRUPTED
from gym_runtime.cli.models import EMBEDDED_CONCURRENCY, fetch_weights, parse_model, parse_roles
from gym_runtime.cli.options import (
    AT_LEAST_ONE,
    DEFAULT_CONCURRENCY,
    FLAT,
    HIDDEN_DEFAULT,
    MODEL,
    MODEL_GROUP,
    POLICY,
    ROLES,
    SYSTEM,
    Hosted,
    Model,
    Port,
    Roles,
    StateDir,
    WeakSandbox,
    parse_urls,
)
from gym_runtime.cli.remote import run_async
from gym_runtime.client.runs import Runs
from gym_runtime.client.streaming import background
from gym_runtime.environment import catalogue, requirements
from gym_runtime.errors import GymError, UsageError
from gym_runtime.plugins import load_plugin
from gym_runtime.plurals import counted
from gym_runtime.system.hosting import host, together
from gym_runtime.system.spec import Event, Kind, PoolSpec, SystemSpec
from gym_runtime.system.starting import received
from gym_runtime.system.system import System, launch
from gym_runtime.workers.adapter import ModelSettings

UNCOLLECTED_S = 2.0
"""How long a signal may wait for the count of finished rollouts that would be lost."""
FOREVER_S = 1e9
"""JSON has no infinity."""
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, kw_only=True)
class StartOptions:
    """What ``start`` was asked to do.

    Attributes:
        config: A system described in TOML; POOLs pick parts of it. Options given here override it.
        concurrency: Rollouts in flight, over all agent workers; by default 1024.
        workers: Processes of each kind; by default 1.
        hosted: Let agent workers host the environments and models that may share their process, which takes
            less processor time; by default every worker has its own process.
        call_timeout_s: Seconds that one call of an engine may take, as for 'gym-runtime run', where a run
            does not say it itself.
        nats: The broker to join, as for 'gym-runtime run'; by default one is started.
        prefix: Tells systems that share a broker apart; by default gym.
        metrics: Serve the metrics of the whole system for Prometheus at this port of 127.0.0.1; 0 lets the
            system choose.
        wait_s: Seconds to wait for a broker, its streams and engines that have not started yet; inf for ever.
            By default anything missing is an error.
        drain_s: Seconds that rollouts may take to finish when the workers stop; by default 25, for platforms
            that kill after 30.
    """

    config: Path | None = None
    model: Model = MODEL
    roles: Roles = ROLES
    concurrency: Annotated[int | None, SYSTEM, AT_LEAST_ONE] = None
    workers: Annotated[int | None, SYSTEM, AT_LEAST_ONE] = None
    hosted: Hosted = False
    call_timeout_s: Annotated[float | None, Parameter(group=MODEL_GROUP, validator=Number(gte=0))] = None
    nats: Annotated[str, SYSTEM, Parameter(env_var="GYM_NATS_URL", show_default=False)] = ""
    prefix: Annotated[str, SYSTEM, HIDDEN_DEFAULT] = ""
    state_dir: StateDir = ""
    allow_weak_sandbox: WeakSandbox = False
    metrics: Port | None = None
    wait_s: Annotated[
        float, SYSTEM, Parameter(env_var="GYM_WAIT_S", show_default=False, validator=Number(gte=0))
    ] = 0.0
    drain_s: Annotated[
        float | None, SYSTEM, Parameter(env_var="GYM_DRAIN_S", show_default=False, validator=Number(gte=0))
    ] = None


START = StartOptions()


def start(*pools: str, options: Annotated[StartOptions, FLAT] = START) -> int:
    """Start workers that stay, and a broker unless --nats names one; prints what is ready.

    Ctrl-C or SIGTERM lets rollouts finish for --drain seconds, then stops; only a second Ctrl-C ends at once.
    If finished rollouts would go with the broker, the first Ctrl-C names their runs and stops nothing.

    --config FILE describes a system in TOML, and POOLs pick parts of it; "gym-runtime deploy init systemd"
    writes an example.

    Args:
        pools: agent, resource or model; or with names: resource:mcqa,reasoning_gym. Environments are named as
            for 'gym-runtime run'. By default all agents, all environments whose packages are installed, and
            one model.
    """
    logs.start()
    weak_sandbox = requirements.weak_sandbox(allowed=options.allow_weak_sandbox)
    system = replace(plan(options, pools), weak_sandbox=weak_sandbox)
    for pool in system.pools:
        if pool.model is not None:
            fetch_weights(pool.model)
    return INTERRUPTED if run_async(_stay, system, options.metrics) == signal.SIGINT else 0


# -- what to start ------------------------------------------------------------------------------------


def plan(options: StartOptions, names: Iterable[str] = ()) -> SystemSpec:
    """The requested system: the file's, with the settings of the command line.

    Raises:
        UsageError: a name, a kind or the file is wrong.
    """
    config = load_config(options.config)
    wanted = [_parse_pool(text) for text in names]
    roles = parse_roles(options.roles)
    if config.pools:
        chosen = [pool for pool in config.pools if not wanted] or _pick(config.pools, wanted)
    else:
        chosen = wanted or [
            *(PoolConfig(kind=kind) for kind in KINDS),
            *(PoolConfig(kind="model", names=(role,)) for role in roles),
        ]
    served = {name for pool in chosen if pool.kind == "model" for name in pool.names}
    for role in roles:
        if role not in served:
            raise UsageError(f"--role {role}=…: no pool of that name is to be started; add 'model:{role}'")
    of_models = {
        f"--model {options.model.model}": options.model.model,
        "--requests-per-minute": options.model.requests_per_minute,
        "--call-timeout": options.call_timeout_s is not None,
    }
    for option, given in of_models.items():
        if given and not any(pool.kind == "model" for pool in chosen):
            raise UsageError(f"{option}: no model pool is to be started; add 'model'")
    pools = together(_complete(pool, options, roles) for pool in chosen)
    catalogue.environments(name for pool in pools if pool.kind == "resource" for name in pool.names)
    if options.concurrency is None and any(
        pool.model and pool.model.provider == "embedded" for pool in pools
    ):
        # More would only wait for the small engine, and use up their time.
        pools = tuple(
            replace(pool, capacity=min(pool.slots, -(-EMBEDDED_CONCURRENCY // pool.processes)))
            if pool.kind == "agent"
            else pool
            for pool in pools
        )
    return SystemSpec(
        pools=host(pools) if options.hosted else pools,
        nats=parse_urls(options.nats) or config.urls,
        prefix=options.prefix or config.prefix,
        state_dir=options.state_dir or config.state_dir,
        wait_s=min(options.wait_s, FOREVER_S),
        drain_s=config.drain_s if options.drain_s is None else options.drain_s,
    )


def _parse_pool(text: str) -> PoolConfig:
    kind, _, names = text.partition(":")
    if kind not in KINDS:
        if catalogue.exists("environments", text):
            raise UsageError(f"'{text}' is an environment; its workers are started by: resource:{text}")
        near = catalogue.nearest(kind, [*KINDS])
        hint = f"did you mean '{near}'?" if near else "agent, resource or model, as in resource:mcqa"
        raise UsageError(f"there is no kind of pool '{kind}'; {hint}")
    if kind == "resource":
        return PoolConfig(kind=kind, names=catalogue.several([names] if names else []))
    return PoolConfig(kind=kind, names=tuple(name.strip() for name in names.split(",") if name.strip()))


def _pick(pools: Iterable[PoolConfig], wanted: Iterable[PoolConfig]) -> list[PoolConfig]:
    """The file's pools of these kinds, with these of their names only."""
    picked: list[PoolConfig] = []
    for want in wanted:
        found = [pool for pool in pools if pool.kind == want.kind]
        if want.names:
            found = [
                replace(pool, names=names)
                for pool in found
                if (names := tuple(name for name in want.names if not pool.names or name in pool.names))
            ]
        if not found:
            names = f":{','.join(want.names)}" if want.names else ""
            raise UsageError(f"the file has no pool '{want.kind}{names}'")
        picked += found
    return picked


def _complete(pool: PoolConfig, options: StartOptions, roles: Mapping[str, ModelSettings | None]) -> PoolSpec:
    processes = options.workers or pool.processes
    model = capacity = None
    if pool.kind == "agent":
        names = _known("agents", pool.names)
        if options.concurrency or not pool.capacity:
            capacity = -(-(options.concurrency or DEFAULT_CONCURRENCY) // processes)
    elif pool.kind == "resource":
        names = _known("environments", pool.names) if pool.names else _runnable()
    else:
        names = pool.names or (POLICY,)
        model = pool.model
        of_roles = [roles[name] for name in names if name in roles]
        if of_roles:
            if len(names) > 1 or of_roles[0] is None:
                raise UsageError(
                    f"model:{','.join(names)}: a role has a separate pool; to let the policy answer in a "
                    "role, use --role NAME=policy where rollouts are published"
                )
            model = of_roles[0]
        elif options.model.model or options.model.model_urls or model is None:
            model = parse_model(options.model)
        if options.model.requests_per_minute:
            model = replace(model, requests_per_minute=options.model.requests_per_minute)
        if options.call_timeout_s is not None:
            model = replace(model, call_timeout_s=options.call_timeout_s)
    return PoolSpec(
        kind=pool.kind,
        names=names,
        processes=processes,
        capacity=pool.capacity if capacity is None else capacity,
        model=model,
    )


def _known(kind: catalogue.Kind, names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if kind == "environments":
            requirements.require(catalogue.environment(name))
        else:
            catalogue.load(kind, name)
    return names or tuple(catalogue.names(kind))


def _runnable() -> tuple[str, ...]:
    """Every environment whose packages are installed; says how many are left out."""
    names: list[str] = []
    left_out = 0
    for name in catalogue.names("environments"):
        try:
            requirements.require(catalogue.environment(name))
        except UsageError as error:
            left_out += 1
            logs.logger().info("an environment is left out", environment=name, error=str(error))
        else:
            names.append(name)
    if left_out:
        what = counted(left_out, "environment is", "environments are")
        logs.logger().warning(
            f"{what} not served, because something is missing here: 'gym-runtime ls' says what, and so does "
            "this log with GYM_LOG_LEVEL=info"
        )
    return tuple(names)


# -- staying ------------------------------------------------------------------------------------------


async def _stay(system: SystemSpec, metrics: int | None) -> signal.Signals | None:
    """Run a system until a signal or its workers end it; returns the signal."""
    running = launch(system)
    stopping = anyio.CancelScope()
    stopped_by: list[signal.Signals] = []
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_watch_signals, running, system, stopping, stopped_by)
            with stopping:
                await running.until("all_ready", lambda event: _say_waiting(event, system.wait_s))
                show_ready(running, system)
                left = sum(pool.processes for pool in system.pools)
                async with _metrics(running, system, metrics):
                    async for event in running.events():
                        if event.event == "stopped":
                            logs.logger().warning("all workers have left, as they were asked to")
                            stopping.cancel()
                            await anyio.lowlevel.checkpoint()
                        _say(event)
                        left -= event.event == "drained"
                        if event.event == "drained" and not left and not system.nats:
                            logs.logger().warning(
                                "all workers have left; this command still runs the broker, with its queue, "
                                "until Ctrl-C or SIGTERM"
                            )
                raise UsageError("the workers stopped without saying why; their log is above")
            with anyio.CancelScope(shield=True):
                await running.stop()
            tasks.cancel_scope.cancel()
    except BaseException:
        running.kill()
        raise
    return stopped_by[0] if stopped_by else None


@asynccontextmanager
async def _metrics(running: System, system: SystemSpec, port: int | None) -> AsyncGenerator[None]:
    """Serve the metrics of the whole system meanwhile, if a port is given."""
    if port is None:
        yield
        return
    serving = load_plugin("metrics", "serving")
    urls = system.nats or (running.url,)
    async with connect(urls, prefix=system.prefix, name="metrics") as bus, serving(bus, port=port) as url:
        terminal.say(f"metrics: {url}")
        sys.stdout.flush()
        yield


async def _watch_signals(
    running: System, system: SystemSpec, stopping: anyio.CancelScope, stopped_by: list[signal.Signals]
) -> None:
    """Stop at the first signal, at once at a second Ctrl-C or SIGQUIT.

    A Ctrl-C by which finished rollouts would be lost only says so. A second SIGTERM changes nothing: Slurm,
    systemd and others send it to this process and to its parent, which passes it on.
    """
    interruptions = 0
    with received(signal.SIGINT, signal.SIGTERM, signal.SIGQUIT) as signals:
        async for number in signals:
            interruptions += number == signal.SIGINT
            if number == signal.SIGQUIT or interruptions > 1:
                running.kill()
                os._exit(INTERRUPTED)
            if stopping.cancel_called:
                continue
            lost = "" if system.nats or system.state_dir else await _uncollected(running.url, system.prefix)
            if lost and number == signal.SIGINT:
                logs.logger().warning(
                    f"not stopped: {lost}, and would go with this broker: collect them first, or let "
                    "'gym-runtime start --state-dir DIR' keep them; a second Ctrl-C ends at once"
                )
                continue
            logs.logger().warning(
                f"stopping: rollouts in flight have {system.drain_s:.0f} s to finish, then they go back to "
                "the queue; a second Ctrl-C ends at once"
                + (f". {lost}, and go with this broker" if lost else "")
            )
            stopped_by.append(number)
            stopping.cancel()


async def _uncollected(url: str, prefix: str) -> str:
    """How many finished rollouts of published runs the broker holds; empty for none, or if it is silent."""
    counts: dict[str, int] = {}
    # The signal must have its effect, whatever the broker does.
    with anyio.move_on_after(UNCOLLECTED_S), suppress(GymError):
        if url:
            async with connect(url, prefix=prefix, name="start") as bus, background() as tasks:
                runs = Runs(bus, tasks)
                for info in await runs.runs():
                    if info.state == "active" and not info.attached:
                        counts[info.run] = await runs.made(info.run)
    kept = [run for run, count in counts.items() if count]
    finished = counted(sum(counts.values()), "finished rollout is", "finished rollouts are")
    return f"{finished} not collected (run {formatting.listed(kept)})" if kept else ""


def _say_waiting(event: Event, wait_s: float) -> None:
    if event.event == "waiting":
        limit = "until it comes" if wait_s == FOREVER_S else f"up to {wait_s:,.0f} s"
        logs.logger().warning(f"waiting {limit}: {event.reason}")


def _say(event: Event) -> None:
    """Log it: workers log to the same stream, which has one format."""
    if event.event == "restarted":
        logs.logger().warning(f"{event.reason}; it is started again")
    elif event.event == "drained":
        logs.logger().warning(f"{event.kind} worker {event.pid} has left, as it was asked to")
    elif event.event == "ready":
        served = formatting.listed(event.pools)
        logs.logger().warning(f"{event.kind} worker {event.pid} is ready, serving {served}")


def show_ready(running: System, system: SystemSpec) -> None:
    """Print what is ready, and how to join it."""
    console = terminal.output()
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("kind")
    table.add_column("pools", overflow="fold")
    table.add_column("worker", no_wrap=True)
    table.add_column("pid", justify="right", no_wrap=True)
    pools = {pool.names: pool for pool in system.pools}
    for event in running.workers.values():
        pool = pools.get(event.pools)
        table.add_row(event.kind, _served(event.pools, pool), event.worker, str(event.pid))
        for hosted in pool.hosted if pool else ():
            table.add_row(hosted.kind, _served(hosted.names, hosted), f"in {event.worker}", str(event.pid))
    console.print(table)
    console.print()
    if system.nats:
        where = (url if names_file(url) else without_credentials(url) for url in system.nats)
        console.print(f"joined {', '.join(where)}", soft_wrap=True)
    else:
        console.print("ready; to join from this machine:", style="bold")
        console.print(f"export GYM_NATS_URL={running.url}", soft_wrap=True)
    if system.prefix != SystemSpec().prefix:
        console.print(f"with --prefix {system.prefix}")
    sys.stdout.flush()


def _served(names: tuple[str, ...], pool: PoolSpec | None) -> str:
    model = pool and pool.model
    return formatting.listed(names) + (f" = {model.provider}/{model.name}" if model else "")
