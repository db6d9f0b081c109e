"""Requests with verifiable instructions on the answer's form, each checked by a rule.

``instruction_id_list[i]`` names an instruction and ``kwargs[i]`` holds its arguments: those of IFEval (25),
of IFTrain, its 29 companions for training, and of IFBench (58). They stand in the row's
``verifier_metadata``, or in the row itself. The last message is checked against each.
The reward is 1 if it follows all (``grading_mode`` binary, the default), or the share that it follows
(fraction); an empty answer follows none. ``follow_instruction_list`` tells which.

Rows and rewards as of NeMo Gym's environment of this name. Unlike there, a row with an unknown instruction,
or one that lacks an argument, is refused, where the original draws the argument at random; the language of
a text is always told alike; nothing is downloaded. Where else checks differ from the benchmarks' own, their
docstrings in `gym_resources.instructions` say.
Source: IFEval (Zhou et al. 2023, arXiv:2311.07911), IFBench (Pyatkin et al. 2025, arXiv:2507.02833); the
rows are our own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec
from anyio import to_thread
from gym_runtime import Environment, Reply, Task, Verdict
from gym_runtime.environment.environment import published

from gym_resources.instructions.registry import bind

GradingMode = Literal["binary", "fraction"]


class Instructions(msgspec.Struct, frozen=True):
    instruction_id_list: tuple[str, ...] = ()
    kwargs: tuple[dict[str, Any] | None, ...] = ()
    grading_mode: GradingMode | None = None


class InstructionTask(Task):
    verifier_metadata: Instructions = Instructions()
    instruction_id_list: tuple[str, ...] = ()
    kwargs: tuple[dict[str, Any] | None, ...] = ()
    grading_mode: GradingMode | None = None

    def __post_init__(self) -> None:
        self.checks()

    @property
    def mode(self) -> GradingMode:
        return self.verifier_metadata.grading_mode or self.grading_mode or "binary"

    def checks(self) -> list[Callable[[str], bool]]:
        """What to check, bound to its arguments.

        Raises:
            ValueError: there is nothing to check, or an instruction is unknown, or its arguments do not fit.
        """
        given = self.verifier_metadata if self.verifier_metadata.instruction_id_list else self
        if not given.instruction_id_list or len(given.kwargs) != len(given.instruction_id_list):
            raise ValueError(
                "'kwargs' must hold the arguments of each of 'instruction_id_list', at least of one"
            )
        return [bind(*pair) for pair in zip(given.instruction_id_list, given.kwargs, strict=True)]


def follow(checks: list[Callable[[str], bool]], text: str) -> list[bool]:
    return [bool(text.strip()) and check(text) for check in checks]


async def verify(task: InstructionTask, reply: Reply) -> Verdict:
    followed = await to_thread.run_sync(follow, task.checks(), reply.text)  # a long text takes milliseconds
    share = sum(followed) / len(followed)
    return Verdict(
        share if task.mode == "fraction" else float(all(followed)),
        fields={"follow_all_instructions": all(followed), "follow_instruction_list": followed},
    )


environment = Environment(
    resource=verify,
    description="Requests with instructions on the answer's form, each checked by a rule.",
    domain="instruction_following",
    extra="instruction-following",
    datasets=published(
        "nvidia/Nemotron-RL-instruction_following",
        "ODC-BY",
        train="instruction_following.jsonl",
        validation="",
    ),
)
