"""``set``: a run is changed while it goes on."""

from __future__ import annotations

from gym_runtime.cli import remote
from gym_runtime.cli.options import BROKER, AsJson, Broker, parse_row_fields
from gym_runtime.errors import UsageError


def set(run: str, /, *settings: str, json: AsJson = False, broker: Broker = BROKER) -> None:  # noqa: A001 - the command's name
    """Change a run while it goes on, such as its concurrency.

    Rollouts that start have the new values; those in progress keep theirs, unless they are paused and
    resumed.

    Args:
        run: The run's id, as publish, run and status print it.
        settings: KEY=VALUE: concurrency (of the run's rollouts in progress at most, for each agent),
            share (its weight among runs), priority (runs of a lower one wait), max_attempts, max_turns,
            timeout_s, call_timeout_s. KEY=null takes a change back.
    """
    if not settings:
        raise UsageError(f"say what to set: gym-runtime set {run} concurrency=100")
    chosen = parse_row_fields(settings, "set", "KEY=VALUE")
    remote.show_control(remote.ask(broker, lambda gym: gym.set_run(run, **chosen)), as_json=json)
