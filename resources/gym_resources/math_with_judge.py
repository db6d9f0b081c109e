r"""Mathematics problems with a known answer, compared symbolically.

The texts of all the assistant's messages, put together, are searched for an answer: LaTeX (a box first of
all) or a plain expression, the last one that can be read. It is right if the library `math-verify` finds it
equal to the expected answer, read as the LaTeX ``\boxed{expected_answer}`` without ``\(…\)`` and then ``$…$``
around it: ``0.5`` is ``\frac12``, but sets are no tuples, and names of variables matter. ``library_reward``
says so, ``extracted_answer`` is the answer as it was written. Rows and rewards as of NeMo Gym's environment
of this name, whose data are DAPO17k, Math StackOverflow and OpenMathReasoning.

With a model in the role ``judge``, what the library does not find equal is compared by it, in both orders: it
is right if both agree. The judge sees the answer that the library found, or the whole text. A row that says
``should_use_judge`` false is not shown to it. Where it was not asked, ``judge_evaluations`` is null.

Symbolic mathematics can run for ever. What the library does with one text, or one comparison, ends after
`STEP_LIMIT_S` seconds of the processor, all of it after `LIMIT_S`. If nothing was found equal by then and
something was cut off, the library has said nothing: ``library_reward`` is null and the judge decides.
Without a judge the rollout has failed, because a faster machine might find the answer right; in NeMo Gym the
answer is wrong. All of it happens in a process that is killed after `KILL_S` seconds if it does not heed
that; this is a failure of the rollout, too. A row whose expected answer is empty or cannot be read is
refused; there it is worth 0.
Source: github.com/huggingface/Math-Verify (Apache-2.0); the rows are our own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

from gym_runtime import Environment, Model, Reply, ResourceError, Role, TaskError, Verdict, published
from gym_sandbox.processes import within

from gym_resources.judging.asking import JudgedTask
from gym_resources.judging.equality import judged_equal
from gym_resources.judging.math_answers import bare, load_library, whole_number
from gym_resources.judging.texts import all_messages

STEP_LIMIT_S = 5.0
LIMIT_S = 10.0
KILL_S = 20.0
CONFIGURATIONS = (
    "dapo17k",
    "dapo17k_bytedtsinghua",
    "math_stack_overflow",
    "OpenMathReasoning",
    "open_math_reasoning",
    "aime24_bytedtsinghua",
    "library_judge_math",
    "math_with_local_judge",
)


class MathTask(JudgedTask, kw_only=True):
    expected_answer: str
    should_use_judge: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not bare(self.expected_answer):
            raise ValueError("'expected_answer' is empty")


async def verify(task: MathTask, reply: Reply) -> Verdict:
    library = load_library()
    end_s = time.process_time() + LIMIT_S
    cut_off = False

    def limited(step: Callable[[], Any]) -> Any:
        nonlocal cut_off
        found = within(min(STEP_LIMIT_S, end_s - time.process_time()), step, None)
        cut_off = cut_off or found is None
        return found

    def read(text: str, *ways: object) -> list[Any]:
        return limited(partial(library.parse, text, ways, parsing_timeout=None)) or []

    def equal(pair: tuple[Any, Any]) -> bool:
        compare = partial(library.verify, *pair, float_rounding=6, timeout_seconds=None)
        return limited(compare) is True

    answer = bare(task.expected_answer)
    expected = whole_number(answer) or read(rf"\boxed{{{answer}}}", library.latex)
    if not expected and not cut_off:
        raise TaskError(f"the expected answer {task.expected_answer!r} cannot be read as LaTeX")
    found = read(reply.joined_text, library.plain, library.latex)
    reward = float(any(map(equal, product(expected, found))))
    fields = {
        "library_reward": None if cut_off and not reward else reward,
        "extracted_answer": as_written(found),
        "judge_evaluations": None,
    }
    return Verdict(reward, fields=fields)


async def review(task: MathTask, reply: Reply, verdict: Verdict, judge: Model | None) -> Verdict:
    said = all_messages(reply)
    if judge is None or not task.should_use_judge or verdict.reward > 0.5 or not said:
        if verdict.fields["library_reward"] is None:
            raise ResourceError(
                f"comparing the answer was cut off after {STEP_LIMIT_S:g} s of processor time, so whether it "
                "is right is not known; let a judge decide: --judge PROVIDER/NAME",
                stage="verify",
            )
        return verdict
    candidate = verdict.fields["extracted_answer"] or said
    equal, fields = await judged_equal(judge, task, task.expected_answer, candidate)
    return Verdict(float(equal), fields={**verdict.fields, **fields})


def as_written(found: list[Any]) -> str | None:
    """The answer's text, which the library gives beside what it reads in it; that may be slow to print."""
    return next((answer for answer in found if isinstance(answer, str)), None)


environment = Environment(
    resource=verify,
    description="Mathematics problems whose answers are compared symbolically.",
    domain="math",
    isolated=True,
    verify_timeout_s=KILL_S,
    roles=(Role(name="judge", optional=True),),
    review=review,
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
