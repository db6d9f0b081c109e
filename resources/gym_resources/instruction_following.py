"""Requests with verifiable instructions on the answer's form, each checked by a rule.

``instruction_id_list[i]`` names an instruction and ``kwargs[i]`` holds its arguments: those of IFEval (25),
of IFTrain, its 29 companions for training, and of IFBench (58). They stand in the row's
``verifier_metadata``, or in the row itself. Each is checked against the first content part of the model's
last output item; if that is a call, reasoning or a refusal, the empty text is checked instead. The reward is
1 if the text follows all instructions (``grading_mode`` binary, the default), or the share that it follows
(fraction). ``follow_instruction_list`` lists the results. An instruction that is unknown, or that lacks an
argument or has one that does not fit, is not followed by any text.

Rows and rewards are those of NeMo Gym's environment of this name. These differ: IFBench's instructions are
supported, a row without instructions is refused, no argument is drawn at random, the detection of a text's
language is deterministic, and nothing is downloaded. The docstrings in `gym_resources.instructions` name
other differences from the benchmarks' own checks. Long texts, and keywords that are regular expressions, are
checked in a process that can be killed.
Source: IFEval (Zhou et al. 2023, arXiv:2311.07911), IFBench (Pyatkin et al. 2025, arXiv:2507.02833); the
rows are our own.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from gym_runtime import Environment, Reply, Task, Verdict, published

from gym_resources.instructions.adherence import Instruction, followed_by

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
        if not self.instructions or len(self._given.kwargs) != len(self._given.instruction_id_list):
            raise ValueError(
                "'kwargs' must hold the arguments of each of 'instruction_id_list', at least of one"
            )

    @property
    def mode(self) -> GradingMode:
        return self.verifier_metadata.grading_mode or self.grading_mode or "binary"

    @property
    def instructions(self) -> list[Instruction]:
        """Each instruction's id and its arguments."""
        return list(zip(self._given.instruction_id_list, self._given.kwargs, strict=False))

    @property
    def _given(self) -> Instructions | InstructionTask:
        return self.verifier_metadata if self.verifier_metadata.instruction_id_list else self


async def verify(task: InstructionTask, reply: Reply) -> Verdict:
    text, instructions = reply.last_item_text, task.instructions
    followed = await followed_by(text, instructions)
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
