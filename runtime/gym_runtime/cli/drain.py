"""``drain``: asking workers to leave."""

from __future__ import annotations

from gym_runtime.cli import remote, terminal
from gym_runtime.cli.options import BROKER, AsJson, Broker
from gym_runtime.errors import UsageError


def drain(*names: str, json: AsJson = False, broker: Broker = BROKER) -> None:
    """Ask workers to leave: they take no new work, and finish what they have or give it back.

    This works from any machine. No worker is started again. A 'start' ends with its last worker, unless it
    runs the broker: then it goes on, until Ctrl-C or SIGTERM.

    Args:
        names: Workers, kinds (agent), pools (agent:tool_loop) or hosts, as 'gym-runtime status' shows them.
    """
    if not names:
        raise UsageError("name what to drain: a worker, a kind such as agent, a pool or a host")
    asked = remote.ask(broker, lambda gym: gym.drain(*names))
    if json:
        terminal.print_json(
            [
                {
                    "worker": worker.worker,
                    "kind": worker.kind,
                    "host": worker.host,
                    "in_flight": answer.in_flight,
                    "within_s": answer.within_s,
                }
                for worker, answer in asked
            ]
        )
        return
    for worker, answer in asked:
        terminal.say(
            f"{worker.kind} worker {worker.worker} on {worker.host} drains: {answer.in_flight:,} in flight, "
            f"at most {answer.within_s:.0f} s"
        )
    if not asked:
        terminal.say("they have left already")
