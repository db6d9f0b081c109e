"""Sound verifiers as authors write them, three of each of ten kinds: `mutants` changes one step of each.

A verifier gets the reply's text, its calls (name and arguments as text) and what is right. It is one
function, so that a change of its source is a change of the verifier.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

Calls = list[tuple[str, str]]
Rule = Callable[[str, Calls, Any], bool]


@dataclass(frozen=True)
class Sound:
    """A sound verifier: its rows' answers, the right reply of each, and fields that rows have besides."""

    rule: Rule
    goals: tuple[Any, ...]
    write: Callable[[Any], Any]
    fields: dict[str, Any]


SOUND: dict[str, Sound] = {}


def sound(goals: tuple[Any, ...], write: Callable[[Any], Any], **fields: Any) -> Callable[[Rule], Rule]:
    def add(rule: Rule) -> Rule:
        SOUND[rule.__name__] = Sound(rule, goals, write, fields)
        return rule

    return add


# -- a string -----------------------------------------------------------------------------------------


@sound(("marble arch", "green tea", "Saturn"), lambda goal: f"I thought of it.\nFinal answer: {goal}")
def string_a(text: str, calls: Calls, goal: str) -> bool:
    lines = [line for line in text.splitlines() if line.startswith("Final answer:")]
    if len(lines) != 1 or len(text) > 2_000:
        return False
    said = " ".join(lines[-1].removeprefix("Final answer:").casefold().split())
    return said == goal.casefold()


@sound(("willow", "old bridge", "Lake Como"), lambda goal: json.dumps({"answer": goal}))
def string_b(text: str, calls: Calls, goal: str) -> bool:
    try:
        value = json.loads(text)
    except ValueError:
        return False
    if not isinstance(value, dict) or list(value) != ["answer"] or not isinstance(value["answer"], str):
        return False
    words = re.findall(r"\w+|[^\w\s]", value["answer"].lower())
    return words == re.findall(r"\w+|[^\w\s]", goal.lower())


@sound(("amber, jade, onyx", "oak, elm", "salt, rye, mace"), lambda goal: f"These:\n<answer>{goal}</answer>")
def string_c(text: str, calls: Calls, goal: str) -> bool:
    found = re.findall(r"<answer>([^<>]*)</answer>", text)
    if len(found) != 1:
        return False
    given = [one.strip().lower() for one in found[0].split(",")]
    wanted = [one.strip() for one in goal.split(",")]
    if len(given) != len(wanted):
        return False
    return all(one in given for one in wanted)


# -- an option ----------------------------------------------------------------------------------------

OPTIONS = ["tin", "iron", "gold", "lead"]


@sound(("B", "D", "A"), lambda goal: f"Hence the answer is \\boxed{{{goal}}}", options=OPTIONS)
def choice_a(text: str, calls: Calls, goal: str) -> bool:
    found = re.findall(r"\\boxed\{([^{}]*)\}", text)
    if not found or len(set(found)) > 1:
        return False
    letter = re.fullmatch(r"\(?([A-D])\)?", found[-1].strip())
    if letter is None:
        return False
    return letter[1] == goal


@sound(("C", "A", "D"), lambda goal: f"Answer: {goal}", options=OPTIONS)
def choice_b(text: str, calls: Calls, goal: str) -> bool:
    last = text.strip().splitlines()[-1:]
    if not last or not last[0].startswith("Answer: "):
        return False
    said = last[0].split(": ", 1)[1].strip(" .").upper()
    if len(said) != 1 or said not in "ABCD":
        return False
    return "ABCD".index(said) == "ABCD".index(goal)


@sound(("D", "B", "C"), lambda goal: f"<answer>{goal}</answer>", options=OPTIONS)
def choice_c(text: str, calls: Calls, goal: str) -> bool:
    start, end = text.rfind("<answer>"), text.rfind("</answer>")
    if start < 0 or end < start or text.count("<answer>") > 1:
        return False
    said = text[start + len("<answer>") : end].strip()
    names = dict(zip("ABCD", ("tin", "iron", "gold", "lead"), strict=True))
    if said in names:
        return said == goal
    return said == names[goal]


# -- a number -----------------------------------------------------------------------------------------


@sound(("1408", "-57", "96"), lambda goal: f"So it is \\boxed{{{goal}}}.")
def number_a(text: str, calls: Calls, goal: str) -> bool:
    found = re.findall(r"\\boxed\{([^{}]*)\}", text)
    if not found or len(set(found)) > 1 or len(found[-1]) > 30:
        return False
    bare = found[-1].replace(",", "").strip("$ ")
    if not re.fullmatch(r"-?\d+(\.0+)?", bare):
        return False
    return float(bare) == float(goal)


@sound(("3/4", "22/7", "-5/8"), lambda goal: f"Answer: {goal}")
def number_b(text: str, calls: Calls, goal: str) -> bool:
    found = re.findall(r"^Answer: *(\S+)$", text, re.MULTILINE)
    if len(found) != 1 or not re.fullmatch(r"-?\d{1,9}(/[1-9]\d{0,8}|\.\d{1,9})?", found[0]):
        return False
    value, wanted = Fraction(found[0]), Fraction(goal)
    return value.numerator == wanted.numerator and value.denominator == wanted.denominator


@sound(("2.75", "0.125", "310.5"), lambda goal: f"<answer>{goal}</answer>")
def number_c(text: str, calls: Calls, goal: str) -> bool:
    found = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    if not found or len(found) > 1:
        return False
    try:
        value = float(found[0])
    except ValueError:
        return False
    if math.isnan(value) or math.isinf(value):
        return False
    return abs(value - float(goal)) <= 1e-6 * max(1.0, abs(float(goal)))


# -- JSON ---------------------------------------------------------------------------------------------

BOAT = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "seats": {"type": "integer"}, "open": {"type": "boolean"}},
    "required": ["name", "seats", "open"],
    "additionalProperties": False,
}


def boat(goal: str, seats: int = 4) -> str:
    return json.dumps({"name": goal, "seats": seats, "open": True})


@sound(("Anna", "Berta", "Clara"), boat, schema=BOAT)
def schema_a(text: str, calls: Calls, goal: str) -> bool:
    try:
        value = json.loads(text)
    except ValueError:
        return False
    if not isinstance(value, dict) or set(value) != {"name", "seats", "open"}:
        return False
    if not isinstance(value["name"], str) or not isinstance(value["open"], bool):
        return False
    return isinstance(value["seats"], int) and not isinstance(value["seats"], bool)


@sound(
    ({"name": "Dora", "ports": [3, 5]}, {"name": "Emma", "ports": [8]}, {"name": "Frida", "ports": [2, 9]}),
    lambda goal: f"```json\n{json.dumps(goal)}\n```",
)
def schema_b(text: str, calls: Calls, goal: Any) -> bool:
    found = re.findall(r"```json\n(.*?)\n```", text, re.DOTALL)
    if len(found) != 1:
        return False
    try:
        value = json.loads(found[0])
    except ValueError:
        return False
    if not isinstance(value, dict) or value.keys() != goal.keys():
        return False
    for key, wanted in goal.items():
        if type(value[key]) is not type(wanted) or json.dumps(value[key]) != json.dumps(wanted):
            return False
    return True


CREW = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"who": {"type": "string"}, "rank": {"enum": ["mate", "cook"]}},
        "required": ["who", "rank"],
        "additionalProperties": False,
    },
    "minItems": 1,
}


@sound(
    ("Gerda", "Hanna", "Ida"),
    lambda goal: json.dumps([{"who": goal, "rank": "mate"}, {"who": "Jo", "rank": "cook"}]),
    schema=CREW,
)
def schema_c(text: str, calls: Calls, goal: str) -> bool:
    try:
        value = json.loads(text)
    except ValueError:
        return False
    if not isinstance(value, list) or not value:
        return False
    for one in value:
        if not isinstance(one, dict) or set(one) != {"who", "rank"}:
            return False
        if not isinstance(one["who"], str) or one["rank"] not in ("mate", "cook"):
            return False
    return True


# -- calls --------------------------------------------------------------------------------------------


def turn(calls: list[dict[str, Any]]) -> list[list[Any]]:
    made = [
        {
            "type": "function_call",
            "call_id": f"call_{number}",
            "name": one["name"],
            "arguments": json.dumps(one["arguments"]),
        }
        for number, one in enumerate(calls)
    ]
    return [made]


def step(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


PLANS = (
    [step("moor", ship="Anna", berth=3)],
    [step("moor", ship="Berta", berth=5), step("charge", nights=2)],
    [step("charge", nights=4), step("moor", ship="Clara", berth=7), step("wave", flag="red")],
)


@sound(PLANS, turn)
def calls_a(text: str, calls: Calls, goal: Any) -> bool:
    if len(calls) != len(goal):
        return False
    for (name, given), wanted in zip(calls, goal, strict=True):
        try:
            arguments = json.loads(given)
        except ValueError:
            return False
        if name != wanted["name"] or not isinstance(arguments, dict):
            return False
        if json.dumps(arguments, sort_keys=True) != json.dumps(wanted["arguments"], sort_keys=True):
            return False
    return True


@sound(PLANS, turn)
def calls_b(text: str, calls: Calls, goal: Any) -> bool:
    left = [(one["name"], json.dumps(one["arguments"], sort_keys=True)) for one in goal]
    for name, given in calls:
        try:
            one = (name, json.dumps(json.loads(given), sort_keys=True))
        except ValueError:
            return False
        if one not in left:
            return False
        left.remove(one)
    return not left


@sound(PLANS, turn)
def calls_c(text: str, calls: Calls, goal: Any) -> bool:
    names = [name for name, _ in calls]
    if names != [one["name"] for one in goal]:
        return False
    for place, (_, given) in enumerate(calls):
        try:
            arguments = json.loads(given)
        except ValueError:
            return False
        wanted = goal[place]["arguments"]
        if not isinstance(arguments, dict) or arguments.keys() != wanted.keys():
            return False
        if any(type(arguments[key]) is not type(wanted[key]) for key in wanted):
            return False
        if not all(arguments[key] == wanted[key] for key in wanted):
            return False
    return True


# -- state --------------------------------------------------------------------------------------------

SHELVES = (
    [step("put", key="rope", value=2)],
    [step("put", key="lamp", value=5), step("put", key="oil", value=1)],
    [step("put", key="sail", value=3), step("drop", key="map"), step("put", key="net", value=4)],
)


def stored(calls: Calls) -> dict[str, Any]:
    """The shelf after the calls, which begins with a map."""
    shelf: dict[str, Any] = {"map": 1}
    for name, given in calls:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            arguments = json.loads(given)
            if name == "put" and set(arguments) == {"key", "value"}:
                shelf[arguments["key"]] = arguments["value"]
            elif name == "drop" and set(arguments) == {"key"}:
                del shelf[arguments["key"]]
    return shelf


@sound(SHELVES, turn)
def state_a(text: str, calls: Calls, goal: Any) -> bool:
    shelf = stored(calls)
    wanted = stored([(one["name"], json.dumps(one["arguments"])) for one in goal])
    if shelf.keys() != wanted.keys():
        return False
    return all(type(shelf[key]) is int and shelf[key] == value for key, value in wanted.items())


@sound(SHELVES, turn)
def state_b(text: str, calls: Calls, goal: Any) -> bool:
    shelf = stored(calls)
    wanted = stored([(one["name"], json.dumps(one["arguments"])) for one in goal])
    missing = [key for key in wanted if key not in shelf]
    surplus = [key for key in shelf if key not in wanted]
    wrong = [key for key in wanted if json.dumps(shelf.get(key)) != json.dumps(wanted[key])]
    return len(missing) == 0 and len(surplus) == 0 and len(wrong) == 0


@sound(SHELVES, turn)
def state_c(text: str, calls: Calls, goal: Any) -> bool:
    wanted = stored([(one["name"], json.dumps(one["arguments"])) for one in goal])
    shelf = stored(calls)
    if "map" in wanted and "map" not in shelf:
        return False
    if len(shelf) != len(wanted):
        return False
    if json.dumps(sorted(shelf.items())) != json.dumps(sorted(wanted.items())):
        return False
    return len(calls) >= 1
