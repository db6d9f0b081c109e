"""The options of commands that start a part of a system: workers, a broker, a gateway, its metrics."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from gym_runtime.cli.options.shared_options import (
    AT_LEAST_ONE,
    Broker,
    BrokerOptions,
    Model,
    ModelOptions,
    Output,
    RoleOptions,
    Roles,
    System,
    WeakSandbox,
)


@dataclass(frozen=True, kw_only=True)
class StartOptions:
    """What ``start`` was asked to do.

    Attributes:
        config: A system described in TOML, of which POOLs pick a part. Options given here win.
        concurrency: Rollouts in flight, over all agent workers; by default 1024.
        workers: Processes of each kind; by default 1.
        nats: The broker to join, as for 'gym-runtime run'; by default one is started.
        prefix: Tells systems that share a broker apart; by default gym.
        state_dir: Where a private broker keeps its queue; by default a temporary directory.
        allow_weak_sandbox: Where this machine cannot isolate, run code with limits only; GYM_SANDBOX=weak
            does so in any case.
        metrics: Serve the metrics of the whole system for Prometheus at this port of 127.0.0.1; 0 lets the
            system choose.
        wait_s: Seconds to wait for a broker, its streams and engines that are not there yet; inf for ever. By
            default what is not there is an error.
        drain_s: Seconds that rollouts may take to finish when the workers stop; by default 25, for platforms
            that kill after 30.
    """

    pools: Annotated[tuple[str, ...], Parameter(parse=False)] = ()
    config: Path | None = None
    model: Model = ModelOptions()
    roles: Roles = RoleOptions()
    concurrency: Annotated[int | None, System, AT_LEAST_ONE] = None
    workers: Annotated[int | None, System, AT_LEAST_ONE] = None
    nats: Annotated[str, System, Parameter(env_var="GYM_NATS_URL", show_default=False)] = ""
    prefix: Annotated[str, System, Parameter(show_default=False)] = ""
    state_dir: Annotated[str, System, Parameter(show_default=False)] = ""
    allow_weak_sandbox: WeakSandbox = False
    metrics: Annotated[int | None, Parameter(validator=Number(gte=0, lte=65535))] = None
    wait_s: Annotated[
        float, System, Parameter(env_var="GYM_WAIT_S", show_default=False, validator=Number(gte=0))
    ] = 0.0
    drain_s: Annotated[
        float | None, System, Parameter(env_var="GYM_DRAIN_S", show_default=False, validator=Number(gte=0))
    ] = None


@dataclass(frozen=True, kw_only=True)
class BrokerStartOptions:
    """What ``broker`` was asked to do.

    Attributes:
        folder: For keys, configuration and streams; it is made if need be, and what is there is kept. The
            nodes of a cluster share it, or have copies.
        listen: HOST:PORT for clients and workers.
        hosts: A name or address by which they reach it; repeatable, the first one stands in the join files.
            By default this machine's name.
        nodes: The hosts of all brokers of a cluster, separated by commas: three, so that one may fail.
        node: Which of them this one is; by default this machine's name.
        monitor: HOST:PORT of its statistics. Everybody who reaches it may read them.
        leaves: HOST:PORT where brokers of other sites may connect, such as 0.0.0.0:7422.
        leaf_of: The brokers of the first site, HOST or HOST:PORT, separated by commas: this one serves a
            second site and stores nothing. Its folder begins as a copy of theirs.
        prefix: Of the system's subjects; one broker's identities are for one system.
        linger_s: Seconds that it stays after SIGTERM for workers that still finish their work.
        keys_only: Make the keys and join files, and start nothing.
    """

    folder: Annotated[Path, Parameter(name="--dir")] = Path("gym-broker")
    listen: str = "0.0.0.0:4222"
    hosts: Annotated[tuple[str, ...], Parameter(name="--host", show_default=False)] = ()
    nodes: Annotated[str, Parameter(show_default=False)] = ""
    node: Annotated[str, Parameter(show_default=False)] = ""
    monitor: str = "127.0.0.1:8222"
    leaves: Annotated[str, Parameter(show_default=False)] = ""
    leaf_of: Annotated[str, Parameter(show_default=False)] = ""
    prefix: str = "gym"
    linger_s: Annotated[float, Parameter(validator=Number(gte=0))] = 28.0
    keys_only: bool = False


@dataclass(frozen=True, kw_only=True)
class DeployOptions:
    """What ``deploy init`` was asked to write.

    Attributes:
        folder: Where the files go.
        image: The container image.
        package: What pip installs into it, with extras.
        environments: An environment to serve, or several with commas; repeatable.
        model: PROVIDER/NAME.
        model_urls: Where the model is served; once per replica.
        concurrency: Rollouts in flight per agent worker.
        prefix: Tells systems that share a broker apart.
        overwrite: Replace files that are there.
    """

    folder: Annotated[Path, Parameter(name="--dir")] = Path("deploy")
    image: str = "localhost/gym-runtime"
    package: str = "gym-runtime"
    environments: Annotated[tuple[str, ...], Parameter(name="--environment")] = ("mcqa",)
    model: str = "scripted/message"
    model_urls: Annotated[tuple[str, ...], Parameter(name="--model-url", show_default=False)] = ()
    concurrency: Annotated[int, AT_LEAST_ONE] = 256
    prefix: str = "gym"
    overwrite: bool = False


@dataclass(frozen=True, kw_only=True)
class GatewayOptions:
    """What ``gateway`` was asked to do.

    Attributes:
        host: Where to listen; every program that reaches it may use the models.
        port: 0 lets the system choose.
        model_pool: A model pool that clients may name as their model; the first serves all other names.
        output: Write each captured call here as well, JSONL.
        return_tokens: Put token ids and log-probabilities on the captured calls.
        concurrency: Calls in progress; more are answered 429.
        timeout_s: Seconds that one call may take.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Parameter(validator=Number(gte=0, lte=65535))] = 0
    model_pool: tuple[str, ...] = ("policy",)
    output: Output = None
    return_tokens: bool = False
    concurrency: Annotated[int, AT_LEAST_ONE] = 1024
    timeout_s: Annotated[float, Parameter(validator=Number(gt=0))] = 600.0
    broker: Broker = BrokerOptions()


@dataclass(frozen=True, kw_only=True)
class MetricsOptions:
    """What ``metrics`` was asked to do.

    Attributes:
        host: Where to listen; every program that reaches it may read the metrics.
        port: 0 lets the system choose.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Parameter(validator=Number(gte=0, lte=65535))] = 9464
    broker: Broker = BrokerOptions()
