"""The groups of a trainer that asks for their rollouts one by one, at the same time and in one process.

verl and OpenRLHF draw prompts, and know what a group is; here a group begins with the first rollout of a
prompt and ends with the last. Its tokens are counted (`gym_runtime.files.token_uses`), and with ``signal`` a
curriculum chooses which row it runs, in the place of the one that the trainer drew.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Hashable, Mapping
from contextlib import contextmanager
from typing import Any

import anyio
from gym_runtime import RolloutRecord, UsageError
from gym_runtime.files import token_uses
from gym_signal import Curriculum, Seen, made_curriculum

from gym_trainers.signal_settings import signal_rows

GROUPS_A_VERSION = 16
"""Where a trainer tells no version of its weights, so many groups count as one."""

Count = Callable[[str, str, int], None]
"""Told an environment, a use and its tokens."""


class PromptGroup:
    """The rollouts of one prompt.

    Attributes:
        row: what is run instead of the trainer's; empty to run the trainer's.
        records: of its rollouts that have ended.
        settled: set when all have.
    """

    def __init__(self, row: str, task: int | None, version: int) -> None:
        self.row, self.task, self.version = row, task, version
        self.records: list[RolloutRecord] = []
        self.settled = anyio.Event()
        self.open = 0

    @property
    def rewards(self) -> list[float | None]:
        """Of the rollouts that have ended; None of those that failed."""
        return [record.reward for record in self.records]


class PromptGroups:
    """All groups in progress of one process.

    Args:
        signal: ``rows`` (see `signal_rows`), ``curriculum``, and ``repeats``, the rollouts in a group (8).
            None to run what the trainer draws. Other rows, such as those of an evaluation, are always run
            as they are.
        trainer: its name, for errors.

    Raises:
        UsageError: another setting is given, or one is wrong.
    """

    def __init__(self, signal: Mapping[str, Any] | None, trainer: str) -> None:
        self._open: dict[Hashable, PromptGroup] = {}
        self._rows: list[str] = []
        self._known: dict[str, int] = {}
        self._curriculum: Curriculum | None = None
        self._ended = 0
        if signal is None:
            return
        self._rows, options = signal_rows(signal)
        self._known = {row: number for number, row in enumerate(self._rows)}
        size, chosen = options.pop("repeats", 8), options.pop("curriculum", "posterior")
        if options:
            raise UsageError(
                f"signal takes rows, curriculum and repeats here, and no {', '.join(options)}: {trainer} "
                "draws its batches itself"
            )
        # Each process of a trainer has a curriculum: with one seed all would draw the same rows.
        self._curriculum = made_curriculum(chosen, len(self._rows), size, secrets.randbits(32))

    @contextmanager
    def member(
        self, key: Hashable, row: str, count: Count, version: int | None = None
    ) -> Generator[PromptGroup]:
        """One rollout of a prompt, from its beginning to its end; the caller adds its record.

        Args:
            key: of the prompt; all its rollouts begin before the first has ended.
            row: what the trainer drew.
            version: of the weights.
        """
        group = self._open.get(key) or self._begin(key, row, version)
        group.open += 1
        try:
            yield group
        finally:
            group.open -= 1
            if not group.open:
                del self._open[key]
                self._end(group, count)

    def _begin(self, key: Hashable, row: str, version: int | None) -> PromptGroup:
        task = None
        if self._curriculum is not None and row in self._known:
            # Where all others run already, the trainer's own is run.
            drawn = self._curriculum.next(1)
            task = drawn[0][0] if drawn else None
        version = self._ended // GROUPS_A_VERSION if version is None else version
        made = PromptGroup("" if task is None else self._rows[task], task, version)
        self._open[key] = made
        return made

    def _end(self, group: PromptGroup, count: Count) -> None:
        self._ended += 1
        spent = [(one.reward, int(one.numbers.get("output_tokens", 0))) for one in group.records]
        if group.task is not None and self._curriculum is not None:
            rewards = [reward for reward, _ in spent if reward is not None]
            tokens = [tokens for _, tokens in spent]
            seen = Seen(task=group.task, rewards=rewards, tokens=tokens, version=group.version)
            self._curriculum.observe(seen)
        if len(spent) > 1:
            for use, tokens in token_uses(spent).items():
                count(group.records[0].environment, use, tokens)
        group.settled.set()
