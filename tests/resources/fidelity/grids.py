"""Rules of the environments whose answer is a list in a text: arc_agi and calendar."""

from __future__ import annotations

import json
from typing import Any

from resources.fidelity.rules import REFUSED, Item, Rule, Worth, made, said, thought

GRID = [[5, 0], [7, 12]]


def arc_agi(says: str, *cases: tuple[Item | list[Item], Worth]) -> Rule:
    return Rule(environment="arc_agi", says=says, task={"expected_output": GRID}, cases=cases)


ARC_AGI = [
    arc_agi(
        "the parts of all messages are joined by line breaks",
        ([said("[[5, 0],", "[7, 12]]")], 1.0),
        (["[[5, 0], [7, 1", "2]]"], 0.0),
        (["[[5,0],[7,12]]", "As I said."], 1.0),
    ),
    arc_agi(
        "a box holds exactly a list of lists of digits, commas and spaces",
        (r"\boxed{[[5, 0], [7, 12]]}", 1.0),
        (r"\boxed{[[5.0, 0], [7, 12]]}", 0.0),
        (r"\boxed{[[9]]} \boxed{[[5, 0], [7, 12]] }", 0.0),  # the only box is the first
        (r"\boxed{[[-9]]} then [[5, 0], [7, 12]]", 1.0),
    ),
    arc_agi(
        "if there is any such box only boxes are looked at, else the same pattern anywhere",
        (r"[[5, 0], [7, 12]] or \boxed{[[1]]}", 0.0),
        (r"\boxed{x} [[5, 0], [7, 12]]", 1.0),
    ),
    arc_agi(
        "the first candidate that parses, is not empty and has a first row counts",
        (r"\boxed{[[1,,2]]} \boxed{[[]]} \boxed{[[5,0],[7,12]]} \boxed{[[1]]}", 1.0),
        ("[[03]] [[5,0],[7,12]]", 1.0),
        ("[[1]] [[5,0],[7,12]]", 0.0),
    ),
    arc_agi("cells are integers", ("[[5.0, 0.0], [7.0, 12.0]]", 0.0)),
]

TEA = {"event_id": 1, "duration": 30, "min_time": "9am", "max_time": "5pm", "constraint": "after 10am"}
WALK = {"event_id": 2, "duration": 45, "min_time": "9am", "max_time": "5pm", "constraint": None}


def shown(*events: dict[str, Any]) -> str:
    return json.dumps(list(events))


def calendar(says: str, *cases: tuple[Item | list[Item], Worth], events: object = None) -> Rule:
    state = {"1": TEA} if events is None else events
    return Rule(environment="calendar", says=says, task={"exp_cal_state": state}, cases=cases)


AT_TEN = {"event_id": 1, "event_name": "tea", "start_time": "10am", "duration": 30}
AT_NOON = {"event_id": 2, "event_name": "walk", "start_time": "12pm", "duration": 45}
CALENDAR = [
    calendar(
        "only the first part of the last item is read",
        ([said(shown(AT_TEN), "Good?")], 1.0),
        ([said("Good?", shown(AT_TEN))], 0.0),
        (["Wait.", shown(AT_TEN)], 1.0),
        ([shown(AT_TEN), "Good?"], 0.0),
        ([shown(AT_TEN), made("f", {})], 0.0),
        ([shown(AT_TEN), thought("done")], 0.0),
        ([said("", shown(AT_TEN))], 0.0),
    ),
    calendar(
        "an empty text is worth 0 even where nothing is expected; a blank one is not empty",
        ("", 0.0),
        ([], 0.0),
        (" ", 1.0),
        ("no calendar needed", 1.0),
        ("It is <think> free", 0.0),
        events={},
    ),
    calendar(
        "<think> anywhere is worth 0", (shown(AT_TEN) + "<think>", 0.0), ("</think>" + shown(AT_TEN), 1.0)
    ),
    calendar(
        "the list is the first pair of brackets with an object and no other bracket in it, as strict JSON",
        (f"[no] then {shown(AT_TEN)}", 1.0),
        (f"{shown({**AT_TEN, 'with': ['Ann']})}{shown(AT_NOON)}", 0.0),
        (f"[{{}}] {shown(AT_TEN)}", 0.0),
        (shown(AT_TEN).replace('"', "'"), 0.0),
        (shown(AT_TEN)[:-1] + ",]", 0.0),
    ),
    calendar(
        "ids are texts; a repeated one keeps the last event, and the number of distinct ones must match",
        (shown({**AT_TEN, "event_id": "1"}), 1.0),
        (shown({**AT_TEN, "start_time": "2pm", "duration": 5}, AT_TEN), 1.0),
        (shown(AT_TEN, AT_NOON), 0.0),
        (shown({**AT_TEN, "event_id": 3}), 0.0),
    ),
    calendar(
        "events must not overlap each other; an identical copy does not",
        (shown(AT_TEN, AT_TEN), 1.0),
        (shown({**AT_TEN, "event_name": "old"}, AT_TEN), 0.0),
    ),
    calendar(
        "events that touch do not overlap",
        (shown(AT_TEN, {**AT_NOON, "start_time": "10:30"}), 1.0),
        (shown(AT_TEN, {**AT_NOON, "start_time": "10:29"}), 0.0),
        events={"1": TEA, "2": WALK},
    ),
    calendar(
        "times are of 24 hours or with am and pm in small letters, spaces around allowed",
        *((shown({**AT_TEN, "start_time": time}), 1.0) for time in ("14:15", "2:15pm", " 2pm ", "10:00 am")),
        *((shown({**AT_TEN, "start_time": time}), 0.0) for time in ("14", "2PM", "25:00", "noon")),
    ),
    calendar(
        "the duration must be exactly equal, as a number",
        (shown({**AT_TEN, "duration": 30.0}), 1.0),
        (shown({**AT_TEN, "duration": 30.5}), 0.0),
        (shown({**AT_TEN, "duration": "30"}), 0.0),
    ),
    calendar(
        "a constraint of no known kind is satisfied",
        (shown(AT_TEN), 1.0),
        events={"1": {**TEA, "constraint": "when the moon is full"}},
    ),
    calendar(
        "a constraint whose time cannot be read, which no answer satisfies, is a bad row",
        (shown(AT_TEN), REFUSED),
        events={"1": {**TEA, "constraint": "before sunset"}},
    ),
]
RULES = [*ARC_AGI, *CALENDAR]
