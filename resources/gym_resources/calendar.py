"""Keep a calendar over many turns: the model's last message must show it with every constraint kept.

The verifier reads the first content part of the model's last output item; if that is a call or reasoning, or
empty, the reward is 0. The calendar is the first pair of brackets there that holds an object and no further
bracket, else the JSON list at the first bracket before an object: a list of events, each with ``event_id``,
``start_time`` (``14:30``, ``2:30pm``, ``2pm``) and ``duration`` (minutes). The reward is 1 if these are the
events of ``exp_cal_state`` with their durations, none overlaps another (an exact copy does not count), all
lie within their ``min_time`` and ``max_time``, and each keeps its ``constraint``: ``before T`` (ends by
then), ``after T`` (starts no earlier), ``at T``, ``between T and T`` (starts and ends within); a constraint
of another kind has no effect. Of several events with one id the last counts, but all must not overlap. An
empty ``exp_cal_state`` asks for no calendar: any text is worth 1. A text with a ``<think>`` in it is worth 0
in any case. ``failure`` in the result row names the error.

Rows and rewards are those of NeMo Gym's environment of this name, whose configurations ``calendar`` and
``calendar_v2`` differ in their data only (in v2 the calendar need not be shown at every turn); both names
lead here. Three things differ: an event may hold brackets, in its name or as a list of guests; a row with a
``before``, ``after``, ``at`` or ``between`` whose times cannot be read, which no answer can satisfy, is
refused; and a refusal, which stops NeMo Gym's server, counts as no text.
Source: the rule of NeMo Gym's ``calendar``; the example rows are our own.
"""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec
from gym_runtime import Environment, Reply, Task, Verdict, published

from gym_resources.extract import jsons, times_of_day

_CALENDAR = re.compile(r"\[[^\[\]{]*+\{[^\[\]}]*+\}[^\[\]]*+\]")
_CONSTRAINT = re.compile(r"\s*(before|after|at|between)\b\s*(.*?)(?:\s+and\s+(.+?))?\s*", re.IGNORECASE)


class Event(msgspec.Struct):
    """An event as the model shows it."""

    event_id: int | str
    start_time: str
    duration: int | float

    @property
    def start_min(self) -> int | None:
        """In minutes of the day; None if it cannot be read, or is an hour alone."""
        return None if self.start_time.strip().isdecimal() else times_of_day.minutes(self.start_time)


class Expected(msgspec.Struct):
    """The constraints on an event."""

    event_id: int | str
    duration: int | float
    min_time: str
    max_time: str
    constraint: str | None = None

    def __post_init__(self) -> None:
        self.window()

    def window(self) -> tuple[int, int, int | None]:
        """The earliest start, the latest end, and the fixed start if there is one; minutes of the day.

        Raises:
            ValueError: a time cannot be read.
        """
        earliest, latest = (
            times_of_day.required_minutes(self.min_time),
            times_of_day.required_minutes(self.max_time),
        )
        match = _CONSTRAINT.fullmatch(self.constraint or "")
        if match is None:
            return earliest, latest, None
        kind = match[1].lower()
        if (kind == "between") is not (match[3] is not None):
            raise ValueError(f"the constraint '{self.constraint}' has too many times, or too few")
        time = times_of_day.required_minutes(match[2])
        if kind == "before":
            return earliest, min(latest, time), None
        if kind == "between":
            return max(earliest, time), min(latest, times_of_day.required_minutes(match[3])), None
        return max(earliest, time), latest, time if kind == "at" else None


class CalendarTask(Task):
    exp_cal_state: dict[str, Expected]


def failure(task: CalendarTask, text: str) -> str | None:
    """The first error in the calendar that a text shows; None if it is right."""
    if not text:
        return "no text"
    if "<think>" in text:
        return "thinking"
    if not task.exp_cal_state:
        return None
    plain = _CALENDAR.search(text)
    written = plain[0] if plain else jsons.list_of_objects(text)
    shown = jsons.decode(written, list[dict[str, Any]])
    events = jsons.convert(shown, list[Event])
    if shown is None or events is None:
        return "no calendar"
    by_id = {str(event.event_id): event for event in events}
    wanted = {str(expected.event_id): expected for expected in task.exp_cal_state.values()}
    if by_id.keys() != wanted.keys():
        return "events"
    if any(event.start_min is None for event in events):
        return "start_time"
    for event_id, expected in wanted.items():
        event, (earliest, latest, fixed) = by_id[event_id], expected.window()
        if event.duration != expected.duration:
            return "duration"
        start_min = event.start_min or 0
        if start_min < earliest or start_min + event.duration > latest or fixed not in (None, start_min):
            return "constraint"
    return "overlap" if _overlap(shown, events) else None


def _overlap(shown: list[dict[str, Any]], events: list[Event]) -> bool:
    """Whether any two different events overlap."""
    spans: dict[tuple[float, float], dict[str, Any]] = {}
    for fields, event in zip(shown, events, strict=True):
        start_min = event.start_min or 0
        span = start_min, start_min + event.duration
        if spans.setdefault(span, fields) != fields and event.duration:
            return True
    busy_until = -math.inf
    for start_min, end_min in sorted(spans):
        if start_min < busy_until:
            return True
        busy_until = max(busy_until, end_min)
    return False


async def verify(task: CalendarTask, reply: Reply) -> Verdict:
    problem = failure(task, reply.last_item_text)
    return Verdict(float(problem is None), fields={"failure": problem})


environment = Environment(
    resource=verify,
    description="Keep a calendar in dialogue, without overlaps and with every event's constraint.",
    domain="agent",
    datasets=(
        *published("nvidia/Nemotron-RL-agent-calendar_scheduling", "Apache-2.0"),
        *published("nvidia/Nemotron-RL-Instruction-Following-Calendar-v2", "CC-BY-4.0", name="v2"),
    ),
)
