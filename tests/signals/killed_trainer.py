"""A trainer that is killed: it samples batches, and logs what its curriculum has loaded, seen and stored.

python tests/signals/killed_trainer.py URL LOG OPTIONS
"""

from __future__ import annotations

import sys
from typing import Any

import anyio
import msgspec
from gym_runtime import connect
from gym_signal import Posterior, Seen, signal_batches
from gym_signal import stored as stored_module

TASKS = 30


class Logged(Posterior):
    """Logs what it observes, once it was loaded."""

    def __init__(self, log: Any) -> None:
        super().__init__(TASKS, 4)
        self.loaded, self.seen = False, 0
        self._log = log

    def observe(self, seen: Seen) -> None:
        super().observe(seen)
        if self.loaded:
            self.seen += 1
            self.note({"seen": msgspec.to_builtins(seen)})

    def note(self, what: dict[str, Any]) -> None:
        self._log.write(msgspec.json.encode(what) + b"\n")
        self._log.flush()


def beliefs(posterior: Posterior) -> list[float]:
    """What a posterior believes of each task."""
    return [posterior.chance(task, [0.0], 3) for task in range(TASKS)]


async def main(url: str, log: Any, options: dict[str, Any]) -> None:
    curriculum = Logged(log)
    load, store = stored_module.StoredCurriculum.load, stored_module.StoredCurriculum.store

    async def noted_load(self: Any) -> None:
        await load(self)
        curriculum.note({"loaded": beliefs(curriculum)})
        curriculum.loaded = True

    async def noted_store(self: Any, *, whole: bool) -> None:
        before = curriculum.seen
        await store(self, whole=whole)
        # What is seen meanwhile may be stored by the next call only.
        curriculum.note({"stored": before})

    stored_module.StoredCurriculum.load = noted_load
    stored_module.StoredCurriculum.store = noted_store
    rows = [{"responses_create_params": {"input": f"task {n}"}, "number": n} for n in range(TASKS)]
    async with (
        connect(nats=url) as gym,
        signal_batches(
            gym, rows, want=4, repeats=4, curriculum=curriculum, name="exp", environment="guess", **options
        ) as batches,
    ):
        while True:
            curriculum.note({"batch": len(await batches.next())})


if __name__ == "__main__":
    with open(sys.argv[2], "ab") as log:
        anyio.run(main, sys.argv[1], log, msgspec.json.decode(sys.argv[3]))
