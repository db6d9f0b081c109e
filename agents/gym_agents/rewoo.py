"""ReWOO, reasoning without observation: the model plans all steps first, then each is made, then it answers.

The plan has lines ``Plan: what for #E1 = LLM[question]``. A question may name the results of earlier steps,
``#E1``, which it is then given; each step is a new conversation. The last call answers the
task with the plan and all results. Every call is a separate token sequence. A plan without steps leads to
the answer at once.

After NeMo Gym's agent of this name, which puts results into the questions, in the place of their names. Here
they stand below the question, each once: a plan cannot make a question grow without bound.
Source: Xu et al., "ReWOO: Decoupling Reasoning from Observations for Efficient Augmented Language Models".
"""

from __future__ import annotations

import re
from typing import Annotated, NamedTuple

import msgspec
from gym_runtime import Prompt
from gym_runtime.adapters import Rollout
from gym_runtime.messages import user_message

from gym_agents._asking import said, shown, stopped, task_of, turns_left

PLAN_CHARS = 100_000
"""Of a plan that is read."""
QUESTION_CHARS = 4000
STEP = re.compile(r"(#E\d{1,4})[ \t]{0,4}=[ \t]{0,4}\w{1,40}[ \t]{0,4}\[")
NAME = re.compile(r"#E\d{1,4}")
PLAN = Prompt("""\
Below is a task, between <quoted> tags. Do not solve it yet. Plan at most {count} steps that lead to its
answer. Each step is a question that a language model answers on its own. A question may use the result of an
earlier step by its name, such as #E1.

{task}

Write one line for each step, and nothing else:
Plan: what the step is for #E1 = LLM[the question]
""")
STEP_ASKED = Prompt("""\
Answer this question:
{question}

{evidence}

Reason briefly, and end with the answer.
""")
SOLVE = Prompt("""\
A plan for the task, and the results of its steps. They may be wrong.

{plan}

{evidence}

Answer the task, in full and in the form that it asks for.
""")


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long a plan may be.

    Attributes:
        max_steps: steps at most; further ones of a plan are left out.
    """

    max_steps: Annotated[int, msgspec.Meta(ge=1, le=64)] = 10


class Step(NamedTuple):
    """A step of a plan: the name of its result, and its question."""

    name: str
    question: str


def steps(plan: str) -> list[Step]:
    """The steps of a plan, at most one for each line; in linear time.

    >>> steps("Plan: add them #E1 = LLM[2 + [3]]\\nThen: #E2 = LLM[double #E1]\\nnone")
    [Step(name='#E1', question='2 + [3]'), Step(name='#E2', question='double #E1')]
    """
    found: list[Step] = []
    for line in plan[:PLAN_CHARS].splitlines():
        match, end = STEP.search(line), line.rfind("]")
        if match and (question := line[match.end() : end].strip()[:QUESTION_CHARS]) and end > 0:
            found.append(Step(match[1], question))
    return found


class Agent:
    """A planner, workers, and a solver: one model in all of them."""

    async def run(self, rollout: Rollout) -> None:
        count, task = rollout.options(Options).max_steps, task_of(rollout)
        planned = await rollout.respond_apart([user_message(PLAN.fill(task=shown(task), count=str(count)))])
        if stopped(rollout, planned):
            return
        plan, results = said(planned[0]), dict[str, str]()
        for step in steps(plan)[: min(count, turns_left(rollout) - 1)]:
            question = STEP_ASKED.fill(question=shown(step.question), evidence=_evidence(step, results))
            turns = await rollout.respond_apart([user_message(question)])
            if stopped(rollout, turns):
                return
            results[step.name] = said(turns[0])
        evidence = "\n\n".join(f"{name}:\n{shown(result)}" for name, result in results.items())
        solve = user_message(SOLVE.fill(plan=shown(plan), evidence=evidence))
        rollout.output.append(solve)
        turn = await rollout.respond([*rollout.input, solve])
        if turn.incomplete is not None:
            rollout.truncate(turn.incomplete)


def _evidence(step: Step, results: dict[str, str]) -> str:
    """The results that a question names, each once."""
    named = [name for name in dict.fromkeys(NAME.findall(step.question)) if name in results]
    return "\n\n".join(f"{name}:\n{shown(results[name])}" for name in named)
