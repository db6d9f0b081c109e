"""What can be typed to have rollouts made: the commands of the first part of the help, and their texts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from gym_runtime.cli.options.data_options import MergeOptions
from gym_runtime.cli.options.run_options import (
    CollectOptions,
    GymServerOptions,
    PublishOptions,
    RunOptions,
)
from gym_runtime.cli.options.shared_options import FLAT, AsJson, Broker, BrokerOptions
from gym_runtime.cli.options.system_options import (
    BrokerStartOptions,
    DeployOptions,
    GatewayOptions,
    StartOptions,
)

Index = Annotated[int | None, Parameter(validator=Number(gte=0))]


def run(*names: str, options: Annotated[RunOptions, FLAT] = RunOptions()) -> int:
    """Make rollouts in one or several environments: everything in one command.

    Starts a broker and workers, publishes the rows, collects the verified rollouts, and reports.

    Args:
        names: Environments, or paths of modules.
    """
    from gym_runtime.cli.commands import run_command

    return run_command.run(replace(options, names=names))


def start(*pools: str, options: Annotated[StartOptions, FLAT] = StartOptions()) -> int:
    """Start workers that stay, and a broker unless --nats names one; prints what is ready.

    Ctrl-C or SIGTERM lets rollouts finish for --drain seconds, then stops; only a second Ctrl-C ends at once.

    --config FILE describes a system in TOML, of which POOLs pick a part; "gym-runtime deploy init systemd"
    writes an example.

    Args:
        pools: agent, resource or model; or with names: resource:mcqa,reasoning_gym. By default all agents,
            all environments whose packages are installed, and one model.
    """
    from gym_runtime.cli.commands import start_command

    return start_command.start(replace(options, pools=pools))


def broker(*, options: Annotated[BrokerStartOptions, FLAT] = BrokerStartOptions()) -> int:
    """Run a broker for the machines of a system: TLS, an identity for each role, the streams, join files.

    One alone, or three with --nodes. Its folder holds every secret of the system.
    """
    from gym_runtime.cli.commands import broker_command

    return broker_command.broker(options)


def deploy(
    action: Literal["init"],
    platform: Literal["slurm", "kubernetes", "compose", "systemd"],
    /,
    *,
    options: Annotated[DeployOptions, FLAT] = DeployOptions(),
) -> None:
    """Write out the files that start a system on a platform, filled in, to be read and changed.

    Args:
        action: init writes them.
        platform: For which.
    """
    from gym_runtime.cli.commands import deploy_command

    deploy_command.deploy(platform, options)


def publish(file: Path, /, *, options: Annotated[PublishOptions, FLAT] = PublishOptions()) -> None:
    """Put a file's rollouts on the queue of a running system; prints the run's id.

    Args:
        file: Dataset rows, JSONL.
    """
    from gym_runtime.cli.commands import publish_command

    print(publish_command.publish(replace(options, input=file)))


def collect(run: str, /, *, options: Annotated[CollectOptions, FLAT]) -> int:
    """Write a published run's rollouts to a file, as they come; from any machine.

    Args:
        run: The run's id, as publish printed it.
    """
    from gym_runtime.cli.commands import collect_command

    return collect_command.collect(replace(options, run=run))


def merge(*rollouts: Path, options: Annotated[MergeOptions, FLAT]) -> int:
    """Put the result files of several runs of the same rows together: one row per rollout, with new metrics.

    The failures and inputs beside each file come along. Two different rows of one rollout are refused.

    Args:
        rollouts: Result files, such as A.jsonl B.jsonl.
    """
    from gym_runtime.cli.commands import merge_command

    return merge_command.merge(replace(options, rollouts=rollouts))


def cancel(
    run: str,
    /,
    *,
    task: Index = None,
    rollout: Index = None,
    broker: Broker = BrokerOptions(),
) -> None:
    """Stop a run, one of its tasks, or one rollout.

    The results of a run that is stopped go, except those that were collected. A run whose rollouts are all
    made is left for collect.

    Args:
        run: The run's id, as publish printed it.
        task: Only the rollouts of this task.
        rollout: Only this rollout of the task.
    """
    from gym_runtime.cli.commands import cancel_command

    cancel_command.cancel(run, task, rollout, broker)


def weights(
    action: Literal["state", "pause", "resume", "version", "update"],
    argument: str = "",
    /,
    *,
    version: str = "",
    model_pool: str = "policy",
    json: AsJson = False,
    broker: Broker = BrokerOptions(),
) -> None:
    """Pause a serving model, change its weights, and resume: rollouts wait meanwhile, none is lost.

    Args:
        action: What to do.
        argument: A version's name, or where the weights are.
        version: What the weights of an update are called from then on.
        model_pool: Which model.
    """
    from gym_runtime.cli.commands import weights_command

    weights_command.weights(
        action, argument, version=version, model_pool=model_pool, as_json=json, broker=broker
    )


def gateway(*, options: Annotated[GatewayOptions, FLAT] = GatewayOptions()) -> int:
    """Serve a running system's models to agents that know only OpenAI's or Anthropic's API.

    Every call of a rollout (base URL /rollouts/ID/v1, or key gym-ID) is captured for GET /rollouts/ID/calls.
    """
    from gym_runtime.cli.commands import gateway_command

    return gateway_command.gateway(options)


def gym_server(*environments: str, options: Annotated[GymServerOptions, FLAT] = GymServerOptions()) -> int:
    """Serve a running system to programs that know NeMo Gym's servers: NeMo RL, TRL, verifiers, its own.

    Head server, /run, /seed_session, tools, /verify and /aggregate_metrics, all at one address.

    Args:
        environments: Which of the system's; by default all that are served now.
    """
    from gym_runtime.cli.commands import gym_server_command

    return gym_server_command.gym_server(replace(options, environments=environments))


def drain(*names: str, json: AsJson = False, broker: Broker = BrokerOptions()) -> None:
    """Ask workers to leave: they take no new work, and finish what they have or give it back.

    From anywhere. The commands that started them end with their last worker; nothing starts again.

    Args:
        names: Workers, kinds (agent), pools (agent:tool_loop) or hosts, as 'gym-runtime status' shows them.
    """
    from gym_runtime.cli.commands import drain_command

    drain_command.drain(names, broker, as_json=json)
