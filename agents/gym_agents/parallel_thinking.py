"""Several trains of thought about a task at once, each in another way; then the model answers with them.

Each of ``num_parallel_paths`` thoughts is asked for in a new conversation, in one of `WAYS`, all at
the same time. What they come to is given to the model before its answer, which counts. Models in the role
``thinker`` think, if the run names one (``--role thinker=PROVIDER/NAME``); else the model itself does, and
each thought is a separate token sequence, to train on like the answer. After NeMo Gym's agent of this name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import anyio
import msgspec
from gym_runtime import Prompt, Role
from gym_runtime.adapters import Rollout
from gym_runtime.errors import leaf
from gym_runtime.messages import user_message

from gym_agents._asking import said, shown, stopped, task_of, turns_left

WAYS = (
    "Deduce the answer step by step from what is given.",
    "List the possible answers and rule them out one by one.",
    "Begin with an answer that seems likely, and work backwards to what is given.",
    "Write what is given as a table or a list, and read the answer from it.",
)
THINKER = Prompt("Think about the user's task. {way} Be brief, and end with the answer that you arrive at.")
THINK = Prompt("""\
{task}

Think about the task between the <quoted> tags. {way} Be brief, and end with the answer that you arrive at.
""")
THOUGHTS = Prompt("""\
Others have thought about this task, each in another way. They may be wrong.

{thoughts}

Compare them, decide, and answer the task in the form that it asks for.
""")


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many think.

    Attributes:
        num_parallel_paths: thoughts; from the fifth on the ways are taken again.
    """

    num_parallel_paths: Annotated[int, msgspec.Meta(ge=1, le=64)] = len(WAYS)


class Agent:
    """Thoughts in parallel, and one answer."""

    async def run(self, rollout: Rollout) -> None:
        count = rollout.options(Options).num_parallel_paths
        ways = [WAYS[number % len(WAYS)] for number in range(count)]
        if "thinker" in rollout.task.roles:
            thoughts = await self._of_thinkers(rollout, ways)
        else:
            ways = ways[: turns_left(rollout) - 1]
            task = shown(task_of(rollout))
            turns = await rollout.respond_apart(
                *[[user_message(THINK.fill(task=task, way=way))] for way in ways]
            )
            if stopped(rollout, turns):
                return
            thoughts = [said(turn) for turn in turns]
        told = "\n\n".join(shown(thought) for thought in thoughts if thought)
        asked = [user_message(THOUGHTS.fill(thoughts=told))] if told else []
        rollout.output += asked
        turn = await rollout.respond([*rollout.input, *asked])
        if turn.incomplete is not None:
            rollout.truncate(turn.incomplete)

    async def _of_thinkers(self, rollout: Rollout, ways: Sequence[str]) -> list[str]:
        thinker, task = rollout.model(Role(name="thinker", concurrency=256)), task_of(rollout)
        thoughts = [""] * len(ways)

        async def think(number: int) -> None:
            answer = await thinker.ask(task, system=THINKER.fill(way=ways[number]), whole=False)
            thoughts[number] = answer.text.rpartition("</think>")[2].strip()

        try:
            async with anyio.create_task_group() as tasks:
                for number in range(len(ways)):
                    tasks.start_soon(think, number)
        except BaseExceptionGroup as group:
            raise leaf(group) from group
        return thoughts
