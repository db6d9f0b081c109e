"""An orchestrator: the model divides the task, each part is answered on its own, then they are put together.

The plan has one line ``SUBTASK n: question`` for each part; without one the task itself is the only part. The
parts are asked at the same time, each in a new conversation, and the last call answers the task with
their answers at hand. Every call is a separate token sequence. After NeMo Gym's agent of this name.
"""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
from gym_runtime import Prompt
from gym_runtime.adapters import Rollout
from gym_runtime.messages import user_message

from gym_agents._asking import said, shown, stopped, task_of, turns_left

PLAN_CHARS = 100_000
"""Of a plan that is read."""
PART_CHARS = 4000
PART = re.compile(r"^[ \t*-]{0,8}SUBTASK[ \t]{1,4}\d{1,4}[ \t*]{0,4}:(.+)$", re.MULTILINE | re.IGNORECASE)
PLAN = Prompt("""\
Below is a task, between <quoted> tags. Do not solve it yet. Divide it into at most {count} questions that
can be answered one without the other, each with all that is needed to answer it.

{task}

Write one line for each question, and nothing else:
SUBTASK 1: the first question
""")
SOLVE = Prompt("""\
Answer a question that is a part of a larger task. The task, as a background:

{task}

The question:
{question}

Reason briefly, and end with the answer.
""")
COMBINE = Prompt("""\
The task was divided, and its parts were answered, each on its own. The answers may be wrong.

{answers}

Put them together and answer the task, in full and in the form that it asks for.
""")


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Into how many parts a task is divided.

    Attributes:
        max_subtasks: parts at most; further ones of a plan are left out.
    """

    max_subtasks: Annotated[int, msgspec.Meta(ge=1, le=64)] = 5


def parts(plan: str) -> list[str]:
    """The questions of a plan, each on its line; in linear time.

    >>> parts("I divide:\\nSUBTASK 1: How many?\\n- subtask 2: How much?\\nSUBTASK: none")
    ['How many?', 'How much?']
    """
    found = (match[1].strip()[:PART_CHARS] for match in PART.finditer(plan[:PLAN_CHARS]))
    return [question for question in found if question]


class Agent:
    """A planner, workers, and an editor: one model in all of them."""

    async def run(self, rollout: Rollout) -> None:
        count, task = rollout.options(Options).max_subtasks, task_of(rollout)
        planned = await rollout.respond_apart([user_message(PLAN.fill(task=shown(task), count=str(count)))])
        if stopped(rollout, planned):
            return
        questions = (parts(said(planned[0])) or [task])[: min(count, turns_left(rollout) - 1)]
        solved = await rollout.respond_apart(
            *[
                [user_message(SOLVE.fill(task=shown(task), question=shown(question)))]
                for question in questions
            ]
        )
        if stopped(rollout, solved):
            return
        answers = "\n\n".join(
            f"{shown(question)}\n{shown(said(turn))}"
            for question, turn in zip(questions, solved, strict=True)
        )
        combine = user_message(COMBINE.fill(answers=answers))
        rollout.output.append(combine)
        turn = await rollout.respond([*rollout.input, combine])
        if turn.incomplete is not None:
            rollout.truncate(turn.incomplete)
