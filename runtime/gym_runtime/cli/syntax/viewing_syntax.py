"""What can be typed to look around: at files of rollouts, and at a running system."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from gym_runtime.cli.options.data_options import ViewOptions
from gym_runtime.cli.options.shared_options import FLAT, AsJson, Broker, BrokerOptions, FailuresAsZero
from gym_runtime.cli.options.system_options import MetricsOptions


def metrics(*, options: Annotated[MetricsOptions, FLAT] = MetricsOptions()) -> int:
    """Serve the metrics of a whole running system in one place, for Prometheus.

    OTEL_EXPORTER_OTLP_ENDPOINT has them pushed to an OpenTelemetry collector besides.
    """
    from gym_runtime.cli.commands import metrics_command

    return metrics_command.metrics(options)


def status(*, json: AsJson = False, broker: Broker = BrokerOptions()) -> None:
    """Show a running system: its workers and their load, what waits, which runs are active."""
    from gym_runtime.cli.commands import status_command

    status_command.status(broker, as_json=json)


def top(*, once: bool = False, json: AsJson = False, broker: Broker = BrokerOptions()) -> int:
    """Watch a running system: workers, runs, engines, failures, and which hop is the limit.

    Keys cancel a run and pause or resume a model's weights; both ask first.

    Args:
        once: Print it once, with rates over a second; needs no terminal.
    """
    from gym_runtime.cli.commands import top_command

    return top_command.top(broker, once=once, as_json=json)


def ls(
    what: Literal["environments", "agents", "models", "tools", "runs"] = "environments",
    /,
    *,
    json: AsJson = False,
    markdown: bool = False,
    broker: Broker = BrokerOptions(),
) -> None:
    """List what there is: environments (if not said otherwise), agents, model providers, tool packs, or runs.

    Args:
        what: What to list.
        markdown: Print the environments as a Markdown table.
    """
    from gym_runtime.cli.commands import ls_command

    ls_command.ls(what, broker, as_json=json, markdown=markdown)


def view(*places: Path, options: Annotated[ViewOptions, FLAT] = ViewOptions()) -> int:
    """Show rollouts on a page: why this reward, which tasks carry signal, what failed, two runs compared.

    For NeMo Gym's files too. The page is served to this machine only; the address carries a token. With a
    broker it shows the running system as well.

    Args:
        places: Files of rollouts, or folders; by default results.
    """
    from gym_runtime.cli.commands import view_command

    return view_command.view(replace(options, places=places))


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
    from gym_runtime.cli.commands import show_command

    return show_command.show(show_command.ShowOptions(rollout=rollout, folder=folder, json=json))


def compare(a: Path, b: Path, /, *, json: AsJson = False, failures_as_zero: FailuresAsZero = False) -> int:
    """Compare two runs task by task: which is better, by how much, and which tasks flipped.

    Args:
        a: Rollouts of the first run.
        b: Rollouts of the second.
    """
    from gym_runtime.cli.commands import compare_command

    return compare_command.compare(
        compare_command.CompareOptions(a=a, b=b, json=json, failures_as_zero=failures_as_zero)
    )
