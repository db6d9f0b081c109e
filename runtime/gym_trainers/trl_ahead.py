"""Rollouts of the next step, made while TRL trains on those of this one: one step off-policy.

In step n the trainer gets what was begun in step n - 1, with that step's weights. If it is not finished, the
engines load the new weights in mid-rollout: generation pauses and goes on with them. So no token is older
than one step, and the trainer corrects for that with the engine's log-probabilities (`GymSpec.attach`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from gym_runtime.errors import GymError

from gym_trainers.trl_columns import Columns

Make = Callable[[Sequence[str], Any, int], Columns]


class Ahead:
    """Has the rollouts of a step made in a thread.

    The first step waits for its own, and its prompts are used twice: no step came before it. A step's
    completions belong to the prompts of the step before, so a reward function that reads ``prompts`` beside
    them reads others; what the verifier said comes with the rollouts.

    Args:
        make: makes a batch's rollouts: its prompts, the trainer, the size of a group.
    """

    def __init__(self, make: Make) -> None:
        self._make = make
        # Two at a time: the first step has its own rollouts and the next one's made together.
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="rollouts")
        self._next: Future[Columns] | None = None

    def step(self, prompts: Sequence[str], trainer: Any) -> Columns:
        """The rollouts that are due, and those of the next step are begun. The engines have the new weights.

        Raises:
            GymError: batches differ in size, or the rollouts were not made.
        """
        due = self._next or self._begin(prompts, trainer)
        args, state = trainer.args, trainer.state
        each = args.steps_per_generation * args.num_iterations
        last = state.global_step + each >= state.max_steps
        self._next = None if last else self._begin(prompts, trainer)
        columns = due.result()
        if len(columns["prompt_ids"]) != len(prompts):
            raise GymError(
                f"a batch of {len(prompts)} prompts follows one of {len(columns['prompt_ids'])}: "
                "asynchronous rollouts need batches of one size (dataloader_drop_last=True)"
            )
        return columns

    def _begin(self, prompts: Sequence[str], trainer: Any) -> Future[Columns]:
        return self._threads.submit(self._make, prompts, trainer, trainer.num_generations)
