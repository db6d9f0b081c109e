"""TRL's batches of groups with signal: `gym_signal.signal_batches` in the place of the trainer's prompts."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from gym_runtime import RolloutSettings, UsageError
from gym_runtime.client import SyncClient
from gym_runtime.training import Group
from gym_signal import SignalBatches, signal_batches

from gym_trainers.signal_settings import WEIGHTS, require_not

PROCESS_SEEDS = 1_000_003
"""Between the seeds of two processes, so that neighbouring seeds of users stay different."""


def of_process(options: Mapping[str, Any], number: int) -> dict[str, Any]:
    """The options of one process of a training: it draws other tasks, and stores its own curriculum.

    >>> of_process({"draw_seed": 3, "name": "exp"}, 0)
    {'draw_seed': 3, 'name': 'exp'}
    >>> of_process({"draw_seed": 3, "name": "exp"}, 2)
    {'draw_seed': 2000009, 'name': 'exp-2'}
    """
    own = {**options, "draw_seed": options["draw_seed"] + number * PROCESS_SEEDS}
    if number and options.get("name"):
        own["name"] = f"{options['name']}-{number}"
    return own


class SignalSteps:
    """Batches for code without an event loop; sampling begins with the first, and ends with the client.

    Args:
        rows: as JSON text.
        options: arguments for `signal_batches`. Without one of ``staleness``, ``ahead`` and ``partial``, each
            batch is sampled from the newest weights (``staleness=0``), as `GRPOTrainer` assumes.

    Raises:
        UsageError: one of them is the trainer's, or needs what TRL does not do.
    """

    def __init__(
        self, gym: SyncClient, rows: Sequence[str], options: Mapping[str, Any], environment: str | None
    ) -> None:
        batch = "its batches and groups are the trainer's"
        require_not(options, "GRPOTrainer", want=batch, repeats=batch, waves=WEIGHTS)
        self._gym, self._rows = gym, rows
        self._options: dict[str, Any] = {**options, "environment": environment}
        if not {"staleness", "ahead", "partial"} & options.keys():
            self._options["staleness"] = 0
        self._stack = ExitStack()
        self._opening = threading.Lock()
        self._batches: SignalBatches | None = None
        self._asked = (0, 0)

    def next(self, want: int, size: int, settings: RolloutSettings) -> list[Group]:
        """``want`` groups of ``size``; the engines have the weights that were trained on all batches before.

        Raises:
            UsageError: a batch of another size was asked for before; or an option is wrong.
            GymError: as `SignalBatches.next`.
        """
        connection = self._gym.connection()
        with self._opening:
            if self._batches is None:
                context = signal_batches(
                    connection.client, self._rows, settings, want=want, repeats=size, **self._options
                )
                self._batches = self._stack.enter_context(connection.held(context))
                self._asked = want, size
        if self._asked != (want, size):
            raise UsageError(
                f"a batch of {want} groups of {size} follows one of {self._asked[0]} of {self._asked[1]}: "
                "groups with signal need batches of one size (dataloader_drop_last=True)"
            )
        return connection.call(self._batches.next)
