"""``resume``: a paused run goes on."""

from __future__ import annotations

from gym_runtime.cli import remote
from gym_runtime.cli.options import BROKER, AsJson, Broker


def resume(run: str, /, *, json: AsJson = False, broker: Broker = BROKER) -> None:
    """Let a run go on that 'gym-runtime pause' has paused.

    A run that was interrupted goes on by 'gym-runtime run --resume' instead, with its files.

    Args:
        run: The run's id, as publish, run and status print it.
    """
    remote.show_control(remote.ask(broker, lambda gym: gym.resume(run)), as_json=json)
