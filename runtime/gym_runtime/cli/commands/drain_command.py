"""``drain``: asking workers to leave."""

from __future__ import annotations

from collections.abc import Sequence

from gym_runtime.cli import remote, terminal
from gym_runtime.cli.options.shared_options import BrokerOptions
from gym_runtime.errors import UsageError


def drain(names: Sequence[str], broker: BrokerOptions, *, as_json: bool) -> None:
    """Ask them, and print what each has to finish.

    Raises:
        UsageError: no name is given, or no worker is, serves or runs on one.
    """
    if not names:
        raise UsageError("name what is to drain: a worker, a kind such as agent, a pool or a host")
    asked = remote.ask(broker, lambda gym: gym.drain(*names))
    if as_json:
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
        terminal.output().print(
            f"{worker.kind} worker {worker.worker} on {worker.host} drains: {answer.in_flight:,} in flight, "
            f"at most {answer.within_s:.0f} s",
            soft_wrap=True,
        )
    if not asked:
        terminal.output().print("they have left already")
