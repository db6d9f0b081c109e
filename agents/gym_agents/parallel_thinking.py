"""Several models think about a task at once, each in another way; then the model answers with their thoughts.

The thinkers are models in the role ``thinker``: one question for each of `WAYS`, all at the same time. What
they answer is given to the model before its one answer, which counts.
"""

from __future__ import annotations

import anyio
from gym_runtime import Message, Prompt, Role, Rollout, decode_items, quoted, user_message
from gym_runtime.errors import leaf

WAYS = (
    "Deduce the answer step by step from what is given.",
    "List the possible answers and rule them out one by one.",
    "Begin with an answer that seems likely, and work backwards to what is given.",
    "Write what is given as a table or a list, and read the answer from it.",
)
THINKER = Prompt("Think about the user's task. {way} Be brief, and end with the answer that you arrive at.")
THOUGHTS = Prompt("""\
Others have thought about this task, each in another way. They may be wrong.

{thoughts}

Compare them, decide, and answer the task in the form that it asks for.
""")


class Agent:
    """Thinkers in parallel, and one answer."""

    async def run(self, rollout: Rollout) -> None:
        thinker = rollout.model(Role(name="thinker", concurrency=256))
        said = [item for item in decode_items(rollout.input) if isinstance(item, Message)]
        task = "\n\n".join(message.text for message in said if message.role != "assistant")
        thoughts = [""] * len(WAYS)

        async def think(number: int) -> None:
            answer = await thinker.ask(task, system=THINKER.fill(way=WAYS[number]))
            thoughts[number] = answer.text.rpartition("</think>")[2].strip()

        try:
            async with anyio.create_task_group() as tasks:
                for number in range(len(WAYS)):
                    tasks.start_soon(think, number)
        except BaseExceptionGroup as group:
            raise leaf(group) from group
        shown = "\n\n".join(quoted(thought) for thought in thoughts if thought)
        if shown:
            rollout.output.append(user_message(THOUGHTS.fill(thoughts=shown)))
        turn = await rollout.respond()
        if turn.incomplete is not None:
            rollout.truncate(turn.incomplete)
