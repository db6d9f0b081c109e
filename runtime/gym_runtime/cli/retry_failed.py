"""``retry-failed``: failed rollouts of a published run are run again before they are collected."""

from __future__ import annotations

from gym_runtime.cli import remote, terminal
from gym_runtime.cli.options import BROKER, AsJson, Broker
from gym_runtime.plurals import counted


def retry_failed(run: str, /, *, json: AsJson = False, broker: Broker = BROKER) -> None:
    """Run the failed rollouts of a published run again, before they are collected.

    Failures that are in a file already are run again by 'gym-runtime run --resume --retry-failed'.

    Args:
        run: The run's id, as publish printed it.
    """
    again = remote.ask(broker, lambda gym: gym.retry_failed(run))
    if json:
        terminal.print_json({"run": run, "retried": again})
        return
    what = counted(again, "failed rollout is", "failed rollouts are")
    terminal.say(f"{what} run again" if again else f"run {run} has no failures")
