"""``pause``: a run waits, until ``resume``."""

from __future__ import annotations

from gym_runtime.cli import remote
from gym_runtime.cli.options import BROKER, AsJson, Broker


def pause(run: str, /, *, json: AsJson = False, broker: Broker = BROKER) -> None:
    """Pause a run: nothing of it starts, and its rollouts stop before their next turn.

    What a rollout has done is kept: after 'gym-runtime resume RUN' it goes on there. A pause outlives
    workers, clients and the broker, and its time does not count towards --timeout.

    Args:
        run: The run's id, as publish, run and status print it.
    """
    remote.show_control(remote.ask(broker, lambda gym: gym.pause(run)), as_json=json)
