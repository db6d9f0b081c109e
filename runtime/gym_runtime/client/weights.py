"""Commands to serving models, such as new weights: all of a model's workers obey, or it is an error."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio

from gym_runtime import clock
from gym_runtime.bus.interface import Bus
from gym_runtime.client.streaming import background
from gym_runtime.errors import GymError, ModelUnavailable, NotThereYet, UsageError, from_fault
from gym_runtime.messages import calls
from gym_runtime.messages.calls import Control, ControlAnswer
from gym_runtime.messages.names import token
from gym_runtime.rpc.members import all_workers
from gym_runtime.timing import WORKERS_LOOK_S
from gym_runtime.workers.current_weights import stored

ROUNDS = 8
"""How often workers that joined meanwhile are asked too."""

GIVEN_UP_S = 5.0
"""How long a caller that gives up pausing waits until the engines go on."""


@dataclass(frozen=True)
class Engines:
    """The engines of a model: what its workers are commanded, they do within ``limit_s`` seconds.

    Every command raises:
        UsageError: no worker serves the model.
        ModelRefused: an engine cannot do it.
        GymError: a worker did not answer in time, or its engine failed; the others may have done it.
    """

    bus: Bus
    model: str
    limit_s: float

    async def control(self, command: Control) -> dict[str, ControlAnswer]:
        """Command the workers that serve now; their answers, by worker id."""
        async with stored(self.bus, self.model, command):
            return await self._ask(await self._serving(), command)

    async def update(self, path: str, version: str) -> None:
        """Have all engines load the weights at ``path`` and name them; those that start later do so too.

        Raises:
            GymError: also if the workers do not agree.
        """
        _require_name(version)
        command = Control(op="update", path=path, version=version)
        async with stored(self.bus, self.model, command):
            require_agreement(await self._command(command), version)

    @asynccontextmanager
    async def paused(self, version: str) -> AsyncGenerator[None]:
        """Generation is paused while this context lasts; then the engines' weights are named ``version``.

        If the body raises, generation stays paused: the weights may be half changed, and nothing must be
        sampled from them.
        """
        _require_name(version)
        try:
            answers = await self._command(Control(op="pause"))
            serving = sorted(worker for worker, answer in answers.items() if not answer.paused)
            if serving:
                raise ModelUnavailable(f"not paused: {', '.join(serving)}", stage="model")
        # Nothing has changed yet, so the workers that are paused may go on, also if the caller gives up.
        except BaseException as error:
            # A worker obeys in the order of its commands, also if nothing waits for it any more.
            within_s = self.limit_s if isinstance(error, Exception) else GIVEN_UP_S
            try:
                with anyio.move_on_after(within_s, shield=True):
                    await self._command(Control(op="resume"))
            except GymError as second:
                error.add_note(f"workers that were paused were not resumed either: {second}")
            raise
        try:
            yield
        # Also for Ctrl-C: the note says that the engines wait.
        except BaseException as error:
            error.add_note(
                "generation stays paused, as the weights may be half changed: gym-runtime weights resume"
            )
            raise
        command = Control(op="set_version", version=version)
        # Named while they are paused: no answer carries the old name with the new weights.
        async with stored(self.bus, self.model, command):
            await self._command(command)
        require_agreement(await self._command(Control(op="resume")), version)

    async def _command(self, command: Control) -> dict[str, ControlAnswer]:
        """Command all workers, also those that join meanwhile; their answers, by worker id."""
        answers: dict[str, ControlAnswer] = {}
        for _ in range(ROUNDS):
            new = [worker for worker in await self._serving() if worker not in answers]
            if not new:
                return answers
            # The watcher of deaths runs for ever; `background` cancels it when all have answered.
            async with background() as tasks:
                tasks.start_soon(self._fail_without, new)
                answers |= await self._ask(new, command)
        raise ModelUnavailable(
            f"workers kept joining for {ROUNDS} rounds; not all have new weights", stage="model"
        )

    async def _ask(self, workers: Iterable[str], command: Control) -> dict[str, ControlAnswer]:
        answers: dict[str, ControlAnswer] = {}

        async def ask(worker: str) -> None:
            subject, deadline_s = f"control.{token(worker, 'worker')}", clock.monotonic() + self.limit_s
            data = await self.bus.request(subject, calls.encode(command), deadline_s=deadline_s)
            reply = calls.decode_reply(data)
            if reply.fault is not None:
                raise from_fault(reply.fault)
            answers[worker] = calls.decode_control_answer(reply.body)

        # `cancel=False`: the context ends when all have answered.
        async with background(cancel=False) as tasks:
            for worker in workers:
                tasks.start_soon(ask, worker)
        return answers

    async def _fail_without(self, asked: Sequence[str]) -> None:
        """Fail when a worker that was asked is gone: its answer would be awaited until the limit."""
        while True:
            await anyio.sleep(WORKERS_LOOK_S)
            gone = set(asked).difference(await self._serving())
            if gone:
                raise ModelUnavailable(f"{', '.join(sorted(gone))} died before it answered", stage="model")

    async def _serving(self) -> list[str]:
        workers = await all_workers(self.bus)
        found = [one.worker for one in workers if one.kind == "model" and self.model in one.pools]
        if not found:
            raise NotThereYet(
                f"no worker serves model '{self.model}'; start one with: gym-runtime start model:{self.model}"
            )
        return found


def require_agreement(answers: Mapping[str, ControlAnswer], version: str) -> None:
    """
    Raises:
        ModelUnavailable: a worker has another version, or is paused; it names each.
    """
    wrong = [
        f"{worker} has version '{answer.version}'{' and is paused' if answer.paused else ''}"
        for worker, answer in sorted(answers.items())
        if answer.version != version or answer.paused
    ]
    if wrong:
        # A trainer that was killed between pause and resume leaves it so, whatever it is told afterwards.
        paused = any(answer.paused for answer in answers.values())
        remedy = " (if no trainer transfers weights now: gym-runtime weights resume)" if paused else ""
        raise ModelUnavailable(
            f"{len(wrong)} of {len(answers)} workers do not serve version '{version}': "
            f"{'; '.join(wrong)}{remedy}",
            stage="model",
        )


def _require_name(version: object) -> None:
    # Before anything is paused: a trainer's step is a number, which the workers would refuse at the end.
    if not isinstance(version, str):
        raise UsageError(f"version is {version!r}; it must be text, such as 'step-{version}'")
    if not version:
        raise UsageError("version is empty: name the weights, such as 'step-12'")
