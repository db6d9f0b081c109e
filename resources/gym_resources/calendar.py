"""Keep a calendar over many turns: the model's last message must show it with every constraint kept.

What is judged is the first JSON list of objects in the last message, each with ``event_id``, ``start_time``
(24-hour ``HH:MM``) and ``duration`` (minutes). The reward is 1 if these are the events of ``exp_cal_state``
with their durations, none overlaps another, all lie within their ``min_time`` and ``max_time``, and each
keeps its ``constraint``: ``before T`` (ends by then), ``after T`` (starts no earlier), ``at T``, ``between T
and T`` (starts and ends within), or none. An empty ``exp_cal_state`` asks for no calendar: any answer is
worth 1. A message with a ``<think>`` in it is worth 0 in any case. ``failure`` in the result row says what
was wrong.

Rows and rewards as its namesake in NeMo Gym, whose configurations ``calendar`` and ``calendar_v2`` differ in
their data only (in v2 the calendar need not be shown at every turn); both names lead here. Unlike there, a
row whose constraint cannot be read is refused.
Source: the rule of NeMo Gym's ``calendar``; the example rows are our own.
"""

from __future__ import annotations

import re
from itertools import pairwise

import msgspec
from gym_runtime import Environment, Reply, Task, Verdict
from gym_runtime.environment.environment import published

from gym_resources.extract import jsons

_CLOCK = re.compile(r"(\d{1,2})(?::(\d{2}))?\s*(am|pm)?", re.IGNORECASE)
_HOURS_24 = re.compile(r"\d{1,2}:\d{2}")
_CONSTRAINT = re.compile(r"\s*(before|after|at|between)\s+(.+?)(?:\s+and\s+(.+?))?\s*", re.IGNORECASE)
_DAY_MIN = 24 * 60


class Event(msgspec.Struct):
    """An event as the model shows it."""

    event_id: int | str
    start_time: str
    duration: int | float

    @property
    def start_min(self) -> int | None:
        """In minutes of the day; None if it is not in 24-hour form."""
        return minutes(self.start_time) if _HOURS_24.fullmatch(self.start_time) else None


class Expected(msgspec.Struct):
    """What an event must be like."""

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
            ValueError: a time or the constraint cannot be read.
        """
        earliest, latest = _required_minutes(self.min_time), _required_minutes(self.max_time)
        if not (self.constraint or "").strip():
            return earliest, latest, None
        match = _CONSTRAINT.fullmatch(self.constraint or "")
        if match is None or (match[1].lower() == "between") is not (match[3] is not None):
            raise ValueError(
                f"the constraint '{self.constraint}' is none of before, after, at, between … and"
            )
        kind, time = match[1].lower(), _required_minutes(match[2])
        if kind == "before":
            return earliest, min(latest, time), None
        if kind == "between":
            return max(earliest, time), min(latest, _required_minutes(match[3])), None
        return max(earliest, time), latest, time if kind == "at" else None


class CalendarTask(Task):
    exp_cal_state: dict[str, Expected]


def minutes(clock: str) -> int | None:
    """A time such as ``14:30``, ``2:30pm`` or ``2pm`` in minutes of the day; None if it is none."""
    match = _CLOCK.fullmatch(clock.strip())
    if match is None:
        return None
    hour, minute, half = int(match[1]), int(match[2] or 0), (match[3] or "").lower()
    if minute > 59 or (half and not 1 <= hour <= 12):
        return None
    time_min = (hour % 12 + 12 * (half == "pm") if half else hour) * 60 + minute
    return time_min if time_min <= _DAY_MIN else None


def _required_minutes(clock: str) -> int:
    time_min = minutes(clock)
    if time_min is None:
        raise ValueError(f"'{clock}' is not a time of the day")
    return time_min


def failure(task: CalendarTask, text: str) -> str | None:
    """What is wrong with the calendar that a text shows; None if nothing is."""
    if "<think>" in text:
        return "thinking"
    if not task.exp_cal_state:
        return None
    events = jsons.convert(jsons.first_objects(text), list[Event])
    if events is None:
        return "no calendar"
    wanted = {str(expected.event_id): expected for expected in task.exp_cal_state.values()}
    if sorted(str(event.event_id) for event in events) != sorted(wanted):
        return "events"
    spans: list[tuple[int, float]] = []
    for event in events:
        expected, start_min = wanted[str(event.event_id)], event.start_min
        if start_min is None:
            return "start_time"
        if event.duration != expected.duration:
            return "duration"
        earliest, latest, fixed = expected.window()
        if start_min < earliest or start_min + event.duration > latest or fixed not in (None, start_min):
            return "constraint"
        spans.append((start_min, start_min + event.duration))
    overlapping = any(later[0] < earlier[1] for earlier, later in pairwise(sorted(spans)))
    return "overlap" if overlapping else None


async def verify(task: CalendarTask, reply: Reply) -> Verdict:
    problem = failure(task, reply.text)
    return Verdict(float(problem is None), fields={"failure": problem})


environment = Environment(
    resource=verify,
    description="Keep a calendar in dialogue, without overlaps and with every event's constraint.",
    domain="agent",
    datasets=(
        *published("nvidia/Nemotron-RL-agent-calendar_scheduling", "Apache-2.0"),
        *published(
            "nvidia/Nemotron-RL-instruction_following-calendar_scheduling-v2", "not stated", name="v2"
        ),
    ),
)
