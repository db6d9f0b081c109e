"""The next commands at a terminal, compared with those of an expert as strings.

The texts of all the model's messages, joined by line breaks and without all before the last ``</think>``,
must be one JSON object, in the form of the agent that ``metadata.harness`` names: Terminal-Bench's
``terminus_1`` (``state_analysis``, ``explanation``, ``commands`` of ``keystrokes``, ``is_blocking`` and
``timeout_sec``, ``is_task_complete``) or ``terminus_2`` (``analysis``, ``plan``, ``commands`` of
``keystrokes`` and an optional ``duration``, optionally ``task_complete``), and nothing else. It must call the
task complete if ``expected_answer`` does. Then the reward is 1 if the keystrokes of all commands, put
together, reach the row's ``threshold`` of similarity to the expected ones, by the ratio of Python's
``difflib.SequenceMatcher``. Two empty lists of commands are alike, an empty and another one are not.

Rows and rewards are those of NeMo Gym's environment of this name without its judge. The threshold of its
default configuration is 0.95, that of its string-only one, which is selected by the rows' ``agent_ref``, 0.9.
The simple configuration has 0.9, too, but its rows look like those of the default: use ``--set
threshold=0.9``. A row whose ``expected_answer`` is not in its harness's form, worth 0 there, is refused here.

The ratio can take time that grows with the square of the texts, so it is computed in a process that can be
killed; for keystrokes of more than `LONG` characters whose length alone rules the threshold out it is not
computed, and ``similarity`` is null.
Source: the rule of NeMo Gym's ``terminus_judge``; the forms are those of github.com/laude-institute/
terminal-bench (Apache-2.0); the example rows are our own.
"""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import Annotated, Literal

import msgspec
from gym_runtime import Environment, Reply, Task, Verdict

from gym_resources.extract import jsons

NAME = "terminus_judge"
THOUGHT_END = "</think>"
LONG = 20_000
_NUMBERS = {b"-", *(b"%d" % digit for digit in range(10))}


class Terminus1Command(msgspec.Struct, forbid_unknown_fields=True):
    keystrokes: str
    is_blocking: bool
    timeout_sec: msgspec.Raw

    def __post_init__(self) -> None:
        check_number(self.timeout_sec)


class Terminus1(msgspec.Struct, forbid_unknown_fields=True):
    state_analysis: str
    explanation: str
    commands: list[Terminus1Command]
    is_task_complete: bool


class Terminus2Command(msgspec.Struct, forbid_unknown_fields=True):
    keystrokes: str
    duration: msgspec.Raw = msgspec.Raw(b"1")

    def __post_init__(self) -> None:
        check_number(self.duration)


class Terminus2(msgspec.Struct, forbid_unknown_fields=True):
    analysis: str
    plan: str
    commands: list[Terminus2Command]
    is_task_complete: bool = msgspec.field(default=False, name="task_complete")


def check_number(value: msgspec.Raw) -> None:
    """Accepts any JSON number of any size; its value is not used.

    Raises:
        ValueError: the value is not a number.
    """
    if bytes(value).lstrip()[:1] not in _NUMBERS:
        raise ValueError("expected a number")


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
        """The commands that a text holds in the harness's form; None for a text of another form."""
        return jsons.decode(text, FORMS[self.metadata.harness])


def keystrokes(batch: Terminus1 | Terminus2) -> str:
    return "".join(command.keystrokes for command in batch.commands)


def similarity(wanted: Terminus1 | Terminus2, given: Terminus1 | Terminus2, threshold: float) -> float | None:
    """How alike the keystrokes of two batches are, 0 to 1; None if they are far too long to be alike."""
    if not wanted.commands or not given.commands:
        return float(not wanted.commands and not given.commands)
    expected, typed = keystrokes(wanted), keystrokes(given)
    matcher = SequenceMatcher(None, expected, typed)
    hopeless = max(len(expected), len(typed)) > LONG and matcher.real_quick_ratio() < threshold
    return None if hopeless else matcher.ratio()


async def verify(task: TerminusTask, reply: Reply) -> Verdict:
    said = reply.lines_text.rpartition(THOUGHT_END)[2]
    batch, expected = task.batch(said), task.batch(task.expected_answer)
    if batch is None or expected is None:
        return Verdict(0.0, fields={"valid": False, "completion_matches": False, "similarity": 0.0})
    matches = batch.is_task_complete or not expected.is_task_complete
    alike = similarity(expected, batch, task.threshold) if matches else 0.0
    return Verdict(
        float(matches and alike is not None and alike >= task.threshold),
        fields={"valid": True, "completion_matches": matches, "similarity": alike},
    )


environment = Environment(
    resource=verify,
    description="Write the next terminal commands in an agent's JSON form, close to an expert's.",
    domain="coding",
    isolated=True,
    agent_settings={f"{NAME}_string_only": {"threshold": 0.9}},
)
