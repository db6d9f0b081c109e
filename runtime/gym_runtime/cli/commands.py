"""What can be typed: every command with its options.

Each body only hands over to a module of its own, which is imported when the command runs, so that help is
shown at once. Options are in `gym_runtime.cli.options`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Group, Parameter
from cyclopts.validators import Number

from gym_runtime import __version__
from gym_runtime.cli.interruption import resumable
from gym_runtime.cli.options import (
    FLAT,
    AsJson,
    BenchOptions,
    Broker,
    BrokerOptions,
    BrokerStartOptions,
    CollectOptions,
    DeployOptions,
    Everything,
    ExportOptions,
    GatewayOptions,
    MergeOptions,
    MetricsOptions,
    PrepareOptions,
    PublishOptions,
    ReverifyOptions,
    RunOptions,
    StartOptions,
    ViewOptions,
)

Index = Annotated[int | None, Parameter(validator=Number(gte=0))]


@resumable
def run(*names: str, options: Annotated[RunOptions, FLAT] = RunOptions()) -> int:
    """Make rollouts in one or several environments: everything in one command.

    Starts a broker and workers, publishes the rows, collects the verified rollouts, and reports.

    Args:
        names: Environments, or paths of modules.
    """
    from gym_runtime.cli import run as runs

    return runs.run(replace(options, names=names))


def start(*pools: str, options: Annotated[StartOptions, FLAT] = StartOptions()) -> int:
    """Start workers that stay, and a broker unless --nats names one; prints what is ready.

    Ctrl-C or SIGTERM lets rollouts finish for --drain seconds, then stops; only a second Ctrl-C ends at once.

    --config FILE describes a system in TOML, of which POOLs pick a part; "gym-runtime deploy init systemd"
    writes an example.

    Args:
        pools: agent, resource or model; or with names: resource:mcqa,reasoning_gym. By default all agents,
            all environments whose packages are installed, and one model.
    """
    from gym_runtime.cli import start as starts

    return starts.start(replace(options, pools=pools))


def broker(*, options: Annotated[BrokerStartOptions, FLAT] = BrokerStartOptions()) -> int:
    """Run a broker for the machines of a system: TLS, an identity for each role, the streams, join files.

    One alone, or three with --nodes. Its folder holds every secret of the system.
    """
    from gym_runtime.cli import broker as brokers

    return brokers.broker(options)


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
    from gym_runtime.cli import deploy as deploying

    deploying.init(platform, options)


def publish(file: Path, /, *, options: Annotated[PublishOptions, FLAT] = PublishOptions()) -> None:
    """Put a file's rollouts on the queue of a running system; prints the run's id.

    Args:
        file: Dataset rows, JSONL.
    """
    from gym_runtime.cli import publish as publishing

    print(publishing.publish(replace(options, input=file)))


def collect(run: str, /, *, options: Annotated[CollectOptions, FLAT]) -> int:
    """Write a published run's rollouts to a file, as they come; from any machine.

    Args:
        run: The run's id, as publish printed it.
    """
    from gym_runtime.cli import collect as collecting

    return collecting.collect(replace(options, run=run))


def merge(*rollouts: Path, options: Annotated[MergeOptions, FLAT]) -> int:
    """Put the result files of several runs of the same rows together: one row per rollout, with new metrics.

    The failures and inputs beside each file come along. Two different rows of one rollout are refused.

    Args:
        rollouts: Result files, such as A.jsonl B.jsonl.
    """
    from gym_runtime.cli import merge as merging

    return merging.merge(replace(options, rollouts=rollouts))


def cancel(
    run: str,
    /,
    *,
    task: Index = None,
    rollout: Index = None,
    broker: Broker = BrokerOptions(),
) -> None:
    """Stop a run, one of its tasks, or one rollout.

    Args:
        run: The run's id, as publish printed it.
        task: Only the rollouts of this task.
        rollout: Only this rollout of the task.
    """
    from gym_runtime.cli import cancel as cancelling

    cancelling.cancel(run, task, rollout, broker)


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
    from gym_runtime.cli import weights as controls

    controls.weights(action, argument, version=version, model_pool=model_pool, as_json=json, broker=broker)


def gateway(*, options: Annotated[GatewayOptions, FLAT] = GatewayOptions()) -> int:
    """Serve a running system's models to agents that know only OpenAI's or Anthropic's API.

    Every call of a rollout (base URL /rollouts/ID/v1, or key gym-ID) is captured for GET /rollouts/ID/calls.
    """
    from gym_runtime.cli import gateway as gateways

    return gateways.gateway(options)


def metrics(*, options: Annotated[MetricsOptions, FLAT] = MetricsOptions()) -> int:
    """Serve the metrics of a whole running system in one place, for Prometheus.

    OTEL_EXPORTER_OTLP_ENDPOINT has them pushed to an OpenTelemetry collector besides.
    """
    from gym_runtime.cli import metrics as serving

    return serving.metrics(options)


def drain(*names: str, json: AsJson = False, broker: Broker = BrokerOptions()) -> None:
    """Ask workers to leave: they take no new work, and finish what they have or give it back.

    From anywhere. The commands that started them end with their last worker; nothing starts again.

    Args:
        names: Workers, kinds (agent), pools (agent:tool_loop) or hosts, as 'gym-runtime status' shows them.
    """
    from gym_runtime.cli import drain as draining

    draining.drain(names, broker, as_json=json)


def status(*, json: AsJson = False, broker: Broker = BrokerOptions()) -> None:
    """Show a running system: its workers and their load, what waits, which runs are active."""
    from gym_runtime.cli import status as statuses

    statuses.status(broker, as_json=json)


def top(*, once: bool = False, json: AsJson = False, broker: Broker = BrokerOptions()) -> int:
    """Watch a running system: workers, runs, engines, failures, and which hop is the limit.

    Keys cancel a run and pause or resume a model's weights; both ask first.

    Args:
        once: Print it once, with rates over a second; needs no terminal.
    """
    from gym_runtime.cli import top as watching

    return watching.top(broker, once=once, as_json=json)


def ls(
    what: Literal["environments", "agents", "models", "runs"] = "environments",
    /,
    *,
    json: AsJson = False,
    markdown: bool = False,
    broker: Broker = BrokerOptions(),
) -> None:
    """List what there is: environments (if not said otherwise), agents, model providers, or runs.

    Args:
        what: What to list.
        markdown: Print the environments as a Markdown table.
    """
    from gym_runtime.cli import status as statuses

    statuses.ls(what, broker, as_json=json, markdown=markdown)


def view(*places: Path, options: Annotated[ViewOptions, FLAT] = ViewOptions()) -> int:
    """Show rollouts on a page: why this reward, which tasks carry signal, what failed, two runs compared.

    For NeMo Gym's files too. The page is served to this machine only; the address carries a token. With a
    broker it shows the running system as well.

    Args:
        places: Files of rollouts, or folders; by default results.
    """
    from gym_runtime.cli import view as viewing

    return viewing.view(replace(options, places=places))


def show(
    rollout: str,
    /,
    *,
    folder: Annotated[Path, Parameter(name="--in")] = Path("results"),
    json: AsJson = False,
) -> int:
    """Show one rollout in the terminal: its verdict, then its conversation.

    Args:
        rollout: A rollout's id; or a file with a line's number, or with TASK.ROLLOUT, as in FILE:N.
        folder: Where rollouts with an id are looked for.
    """
    from gym_runtime.cli import show as showing

    return showing.show(showing.ShowOptions(rollout=rollout, folder=folder, json=json))


def compare(a: Path, b: Path, /, *, json: AsJson = False) -> int:
    """Compare two runs task by task: which is better, by how much, and which tasks flipped.

    Args:
        a: Rollouts of the first run.
        b: Rollouts of the second.
    """
    from gym_runtime.cli import compare as comparing

    return comparing.compare(comparing.CompareOptions(a=a, b=b, json=json))


def new(
    name: str,
    /,
    *,
    shape: Literal["verify", "session", "episode"] = "session",
    directory: Path = Path(),
) -> None:
    """Write a new environment to start from: NAME.py and NAME.jsonl, which pass the contract.

    Args:
        name: A Python name.
        shape: verify: an answer is judged; session: tools and state; episode: step by step.
        directory: Where to put it.
    """
    from gym_runtime.cli import author

    author.new(name, shape, directory)


def check(*names: str, everything: Everything = False, json: AsJson = False) -> int:
    """Check an environment against the contract that all of them keep; needs no model and no broker.

    Args:
        names: Environments, or paths of modules.
        everything: Test every environment.
    """
    from gym_runtime.cli import author

    return author.test(names, everything=everything, as_json=json)


def reverify(name: str | None = None, /, *, options: Annotated[ReverifyOptions, FLAT]) -> int:
    """Compute the rewards of stored rollouts again, without a model, and compare them with the recorded ones.

    Recorded tool calls are repeated. Rows that cannot be judged are put into a file beside the output, with
    the reason, and make the exit status 1.

    Args:
        name: The environment; by default each row's own.
    """
    from gym_runtime.cli import reverify as rejudging

    return rejudging.reverify(replace(options, name=name))


def bench(*names: str, options: Annotated[BenchOptions, FLAT] = BenchOptions()) -> int:
    """Measure what environments cost, on their example rows: verifying, tools, sessions. Needs no model.

    With "system" instead of names it measures this installation: rollouts of two model calls and a tool call,
    with an engine that answers at once, against a bare loop of the same calls.

    Args:
        names: Environments, or paths of modules; or "system".
    """
    from gym_runtime.cli import bench as benches

    if names == ("system",):
        return benches.bench_system(options)
    return benches.bench(replace(options, names=names))


def prepare(*names: str, options: Annotated[PrepareOptions, FLAT] = PrepareOptions()) -> int:
    """Get rows, check every one, blend them, and write them with their metrics.

    Writes DIR/SPLIT.jsonl, DIR/SPLIT_metrics.json and DIR/sources.json, which pins what was downloaded; and
    all rows of each source with their metrics: as DIR/NAME_SPLIT_prepare.jsonl and
    DIR/NAME_SPLIT_metrics.json, or without -o beside an --input x.jsonl as x_prepare.jsonl and
    x_metrics.json.

    Args:
        names: Environments, blended if several; NAME:DATASET where one has several data sets.
    """
    from gym_runtime.cli import prepare as preparing

    if options.assets:
        return preparing.fetch_assets(names, as_json=options.json)
    return preparing.prepare(replace(options, names=names))


def export(*rollouts: Path, options: Annotated[ExportOptions, FLAT]) -> int:
    """Write rollouts with a verdict as Parquet, with the columns that trainers want.

    For NeMo Gym's files too. Rows that have no such form are counted and said.

    Args:
        rollouts: Result files, such as results/mcqa.jsonl.
    """
    from gym_runtime.cli import export as exporting

    return exporting.export(replace(options, rollouts=rollouts))


COMMANDS: dict[str, list[Callable[..., int | None]]] = {
    "Make rollouts": [run, start, broker, deploy, publish, collect, merge, cancel, drain, weights, gateway],
    "Look around": [view, show, compare, top, status, metrics, ls],
    "Write environments": [new, check, reverify, bench],
    "Prepare data": [prepare, export],
}
"""As the help shows them."""

RENAMED = {
    "return_tokens": "return-token-ids",
    "timeout_s": "timeout",
    "drain_s": "drain",
    "wait_s": "wait",
    "linger_s": "linger",
    "check": "test",
}


def flag(name: str) -> str:
    """The name of a field or function as its flag or command."""
    return RENAMED.get(name, name.replace("_", "-"))


app = App(
    name="gym-runtime",
    help="Make verified rollouts of language models, on this machine or on many.",
    version=f"gym-runtime {__version__}",
    default_parameter=Parameter(negative=(), name_transform=flag),
    name_transform=flag,
)
app.register_install_completion_command()
for _place, (_panel, _commands) in enumerate(COMMANDS.items()):
    _group = Group(_panel, sort_key=_place)
    for _command in _commands:
        app.command(_command, group=_group)
