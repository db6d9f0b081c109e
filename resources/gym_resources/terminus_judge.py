"""The next commands at a terminal, compared with those of an expert as strings.

The model's last message must be one JSON object, in the form of the agent that ``metadata.harness`` names:
Terminal-Bench's ``terminus_1`` (``state_analysis``, ``explanation``, ``commands`` of ``keystrokes``,
``is_blocking`` and ``timeout_sec``, ``is_task_complete``; nothing else) or ``terminus_2`` (``analysis``,
``plan``, ``commands`` of ``keystrokes`` and an optional ``duration``, optionally ``task_complete``). It must
call the task complete if ``expected_answer`` does. Then the reward is 1 if the keystrokes of all
commands, put together, are as similar to the expected ones as the row's ``threshold`` says, by the ratio of
Python's ``difflib.SequenceMatcher``.

Rows and rewards as its namesake in NeMo Gym without its judge. The threshold of its default configuration is
0.95, that of its string-only one, which is known by the rows' ``agent_ref``, 0.9; so is that of its simple
one, whose rows look like those of the default: say ``--set threshold=0.9``. Comparing can take time that
grows with the square of the texts, so it happens in a process that can be killed; a row whose
``expected_answer`` is not in its harness's form is refused.
Source: the rule of NeMo Gym's ``terminus_judge``; the forms are those of github.com/laude-institute/
terminal-bench (Apache-2.0); the example rows are our own.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Annotated, Literal

import msgspec
from gym_runtime import Environment, Reply, Task, Verdict

from gym_resources.extract import jsons

NAME = "terminus_judge"


class Terminus1Command(msgspec.Struct, forbid_unknown_fields=True):
    keystrokes: str
    is_blocking: bool
    timeout_sec: float


class Terminus1(msgspec.Struct, forbid_unknown_fields=True):
    state_analysis: str
    explanation: str
    commands: list[Terminus1Command]
    is_task_complete: bool


class Terminus2Command(msgspec.Struct):
    keystrokes: str
    duration: float = 1.0


class Terminus2(msgspec.Struct):
    analysis: str
    plan: str
    commands: list[Terminus2Command]
    is_task_complete: bool = msgspec.field(default=False, name="task_complete")


FORMS: dict[str, type[Terminus1 | Terminus2]] = {"terminus_1": Terminus1, "terminus_2": Terminus2}


class Metadata(msgspec.Struct):
    harness: Literal["terminus_1", "terminus_2"]


class TerminusTask(Task):
    expected_answer: str
    metadata: Metadata
    threshold: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.95

    def __post_init__(self) -> None:
        if self.batch(self.expected_answer) is None:
            raise ValueError(f"'expected_answer' is not a JSON object as {self.metadata.harness} writes it")

    def batch(self, text: str) -> Terminus1 | Terminus2 | None:
        """The commands that a text holds in the harness's form; None if it does not keep to it."""
        return jsons.decode(text, FORMS[self.metadata.harness])


def keystrokes(commands: Sequence[Terminus1Command | Terminus2Command]) -> str:
    return "".join(command.keystrokes for command in commands)


async def verify(task: TerminusTask, reply: Reply) -> Verdict:
    batch, expected = task.batch(reply.text), task.batch(task.expected_answer)
    if batch is None or expected is None:
        return Verdict(0.0, fields={"valid": False, "completion_matches": False, "similarity": 0.0})
    matches = batch.is_task_complete or not expected.is_task_complete
    wanted, given = keystrokes(expected.commands), keystrokes(batch.commands)
    similarity = SequenceMatcher(None, wanted, given).ratio() if matches else 0.0
    return Verdict(
        float(matches and similarity >= task.threshold),
        fields={"valid": True, "completion_matches": matches, "similarity": similarity},
    )


environment = Environment(
    resource=verify,
    description="Write the next terminal commands in an agent's JSON form, close to an expert's.",
    domain="coding",
    heavy=True,
    agent_settings={f"{NAME}_string_only": {"threshold": 0.9}},
)
