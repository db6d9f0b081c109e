"""Replies are ranked within their group, with questions to a judge; for tests of comparisons."""

from __future__ import annotations

import anyio
import msgspec
from gym_runtime import Candidates, Environment, GymError, Model, Pending, Reply, ResourceError, Task, Verdict


class Said(msgspec.Struct):
    text: str


class Rank(Task):
    n: int = 0


async def verify(task: Rank, reply: Reply) -> Verdict | Pending:
    return Verdict(-1.0) if not reply.text else Pending(Said(reply.text))


class Contest:
    """Ranks replies by their text, after as many questions to a judge as there are replies.

    Attributes:
        groups: the indices of the rollouts of each comparison that was begun.
        release: comparisons wait for it after their questions.
        trouble: what the next ones raise.
        returned: what they return instead of their verdicts.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.groups: list[list[int]] = []
        self.release = anyio.Event()
        self.release.set()
        self.trouble: list[Exception] = []
        self.returned: object = None

    async def compare(self, group: Candidates[Rank], judge: Model) -> list[Verdict | GymError]:
        self.groups.append(group.rollout_indices)
        if self.returned is not None:
            return self.returned  # pyright: ignore[reportReturnType]
        if self.trouble:
            raise self.trouble.pop(0)
        said = [one.text for one in group.features(Said)]
        answers = [(await judge.ask(f"{task_text(group.task)} {text}")).text for text in said]
        await self.release.wait()
        return [
            ResourceError("it cannot be ranked")
            if text == "odd"
            else Verdict(float(sorted(said).index(text)), {"place": 1.0}, {"of": len(said), "said": heard})
            for text, heard in zip(said, answers, strict=True)
        ]


def task_text(task: Rank) -> str:
    return f"task {task.n}:"


contest = Contest()
"""What a test sees and decides of the comparisons; it begins with `Contest.reset`."""

environment = Environment(
    resource=verify, compare=contest.compare, description="Ranks replies.", roles=("judge",)
)
