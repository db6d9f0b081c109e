r"""Mathematics problems with a known answer, compared symbolically.

The texts of all the assistant's messages, put together, are searched for an answer: LaTeX (a box first of
all) or a plain expression, the last one that can be read. It is right if the library `math-verify` finds it
equal to the expected answer, read as the LaTeX ``\boxed{expected_answer}``: ``0.5`` is ``\frac12``, but sets
are no tuples, and names of variables matter. ``library_reward`` says so, ``extracted_answer`` is the answer
as it was written. Rows and rewards as of NeMo Gym's environment of this name, whose data are DAPO17k, Math
StackOverflow and OpenMathReasoning; its judge for what the library does not find equal is off by default
there and not here yet, so ``judge_evaluations`` is null.

Symbolic mathematics can run for ever, so it happens in a process that is killed after `LIMIT_S` seconds.
That is a failure of the rollout, not a wrong answer; what the library itself gives up on, after 5 seconds
for a text or a comparison, is wrong. A row whose expected answer cannot be read is refused.
Source: github.com/huggingface/Math-Verify (Apache-2.0); the rows are our own.
"""

from __future__ import annotations

from typing import Any, cast

from gym_runtime import Environment, Reply, Task, Verdict
from gym_runtime.environment.environment import published
from gym_runtime.errors import TaskError

LIMIT_S = 10.0
CONFIGURATIONS = (
    "dapo17k",
    "dapo17k_bytedtsinghua",
    "math_stack_overflow",
    "OpenMathReasoning",
    "open_math_reasoning",
    "aime24",
    "aime24_bytedtsinghua",
    "library_judge_math",
    "math_with_local_judge",
)


class MathTask(Task):
    expected_answer: str


async def verify(task: MathTask, reply: Reply) -> Verdict:
    import math_verify  # pyright: ignore[reportMissingImports]

    latex, plain = math_verify.LatexExtractionConfig(), math_verify.ExprExtractionConfig()
    expected = cast("list[Any]", math_verify.parse(rf"\boxed{{{task.expected_answer}}}", (latex,)))
    if not expected:
        raise TaskError(f"the expected answer {task.expected_answer!r} cannot be read as LaTeX")
    found = cast("list[Any]", math_verify.parse(reply.all_text, (plain, latex)))
    reward = float(math_verify.verify(expected, found, float_rounding=6))
    return Verdict(
        reward,
        fields={"library_reward": reward, "extracted_answer": as_written(found), "judge_evaluations": None},
    )


def as_written(found: list[Any]) -> str | None:
    """The answer's text, which the library gives beside what it reads in it; that may be slow to print."""
    return next((answer for answer in found if isinstance(answer, str)), None)


environment = Environment(
    resource=verify,
    description="Mathematics problems whose answers are compared symbolically.",
    domain="math",
    heavy=True,
    verify_timeout_s=LIMIT_S,
    data_license="Apache-2.0 (DAPO17k), CC-BY-4.0 (OpenMathReasoning)",
    extra="math-verify",
    imports=("math_verify",),
    agent_refs=tuple(
        f"{configuration}{agent}"
        for configuration in CONFIGURATIONS
        for agent in ("", "_agent", "_simple_agent", "_math_with_judge_simple_agent")
    ),
    datasets=(
        *published("nvidia/Nemotron-RL-math-OpenMathReasoning", "CC-BY-4.0"),
        *published(
            "nvidia/Nemotron-RL-math-stack_overflow",
            "CC-BY-SA-4.0",
            train="math_stack_overflow_problems.jsonl",
            validation="",
            name="stack_overflow",
        ),
    ),
)
