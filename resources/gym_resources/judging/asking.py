"""Questions to a judge about one rollout, and what the row keeps of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import anyio
import msgspec
from gym_runtime import Answer, Model, Task, UnusableAnswer
from gym_runtime.environment import create_params
from gym_runtime.errors import leaf
from msgspec import Raw

from gym_resources.judging.labels import LabelRule


class JudgedTask(Task):
    """A row whose reply is judged. Subclasses with required fields say ``kw_only=True``.

    Attributes:
        judge_responses_create_params: how the judge samples, over what the environment says.
        label_rule: which label counts where the judge names several.
        unreadable_judge: what to do when the judge's answer has no label but NeMo Gym would still give a
            reward. ``failed``: count it as the judge's failure. ``rewarded``: give the reward, which a policy
            can learn to provoke.
    """

    judge_responses_create_params: dict[str, Any] = {}  # noqa: RUF012 - a msgspec field, copied for each
    label_rule: LabelRule = "last"
    unreadable_judge: Literal["failed", "rewarded"] = "failed"

    def __post_init__(self) -> None:
        if not self.judge_responses_create_params:
            return
        try:
            create_params(msgspec.json.encode(self.sampling))
        except msgspec.ValidationError as error:
            raise ValueError(f"'judge_responses_create_params': {error}") from None

    @property
    def sampling(self) -> dict[str, Any]:
        """What the row says of the judge's sampling; the input is the prompt's."""
        return {name: value for name, value in self.judge_responses_create_params.items() if name != "input"}


class Judging:
    """What one judge is asked about one rollout.

    Args:
        read: the label that an answer's text settles on; None if it cannot be told.
        sampling: how the judge samples where the row does not say.

    Attributes:
        evaluations: NeMo Gym's ``judge_evaluations``, in the order of the questions.
        texts: what the judge said, in the same order.
        unparseable: answers without a label.
    """

    def __init__(
        self,
        judge: Model,
        task: JudgedTask,
        read: Callable[[str], str | None],
        sampling: Mapping[str, Any] | None = None,
    ) -> None:
        self.evaluations: list[dict[str, Any]] = []
        self.texts: list[str] = []
        self.unparseable = 0
        self._judge = judge
        self._task = task
        self._sampling = {**(sampling or {}), **task.sampling}
        self._read = read

    async def label(
        self, prompt: str, *, system: str = "", tries: int = 1, rewarded: bool = False
    ) -> str | None:
        """Ask, until there is a label; the one that the judge settles on, None if it gives none.

        Args:
            tries: how often it is asked at most.
            rewarded: by NeMo Gym's rule the reply gets a reward where there is no label.

        Raises:
            UnusableAnswer: its last answer was cut short; or it has no label, which NeMo Gym would reward.
        """
        found: str | None = None
        for left in reversed(range(tries)):
            place = len(self.evaluations)
            self.evaluations.append({})  # questions that are asked at once keep their order
            self.texts.append("")
            answer = await self._judge.ask(prompt, system=system, whole=not left, **self._sampling)
            self.texts[place] = answer.text
            found = None if answer.incomplete else self._read(answer.text)
            self.unparseable += found is None
            self.evaluations[place] = evaluation(answer, found)
            if found is not None:
                return found
        if rewarded and self._task.unreadable_judge == "failed":
            raise UnusableAnswer(
                "the judge's answer has no label, for which NeMo Gym's rule gives a reward; take a better "
                "judge, or keep that rule: --set unreadable_judge=rewarded",
                stage=self._judge.role.name,
            )
        return None

    async def labels(
        self, prompts: Sequence[str], *, system: str = "", rewarded: Sequence[bool] = ()
    ) -> list[str | None]:
        """The label of each of these questions, which are asked at once.

        Args:
            rewarded: whether NeMo Gym gives a reward without a label, for each question; by default not.

        Raises:
            UnusableAnswer, GymError: as `label`, the first that happens.
        """
        found: list[str | None] = [None] * len(prompts)

        async def ask(number: int) -> None:
            rewards = bool(rewarded) and rewarded[number]
            found[number] = await self.label(prompts[number], system=system, rewarded=rewards)

        try:
            async with anyio.create_task_group() as tasks:
                for number in range(len(prompts)):
                    tasks.start_soon(ask, number)
        except BaseExceptionGroup as group:
            raise leaf(group) from group
        return found

    def fields(self) -> dict[str, Any]:
        """The row's fields."""
        return {"judge_evaluations": self.evaluations, "judge_unparseable": self.unparseable}


def evaluation(answer: Answer, label: str | None) -> dict[str, Any]:
    """One entry of ``judge_evaluations``; its ``verdict_label`` is null where the answer has no label."""
    return {
        "responses_create_params": answer.asked,
        "response": Raw(bytes(answer.raw)),
        "verdict_label": label,
    }
