"""Sound verifiers like those of `sound_rules`, written after the audit's replies and measured once."""

from __future__ import annotations

import json
import re
import sqlite3
from typing import Any

from testing.audit.holes.sound_programs import BOATS, FILE, HARMLESS, QUERIES, database
from testing.audit.holes.sound_rules import Calls, sound, step, turn


@sound(("copper wire", "Vienna", "blue whale"), lambda goal: f"I looked it up. The answer is: {goal}.")
def string_d(text: str, calls: Calls, goal: str) -> bool:
    said = text.rsplit("The answer is:", 1)
    if len(said) != 2 or text.count("The answer is:") > 1 or "\n" in said[1]:
        return False
    answer = said[1].strip().rstrip(".")
    if not answer or len(answer) > 40:
        return False
    return answer.lower().split() == goal.lower().split()


@sound(("A, C", "B, D", "A, B, D"), lambda goal: f"Answer: {goal}")
def choice_d(text: str, calls: Calls, goal: str) -> bool:
    lines = [line for line in text.splitlines() if line.startswith("Answer:")]
    if len(lines) != 1:
        return False
    letters = re.findall(r"[A-Za-z]+", lines[0].removeprefix("Answer:"))
    if not letters or any(letter not in ("A", "B", "C", "D") for letter in letters):
        return False
    if len(letters) != len(set(letters)):
        return False
    return sorted(letters) == goal.split(", ")


@sound(("12.5 km", "340 g", "7 min"), lambda goal: f"Answer: {goal}")
def number_d(text: str, calls: Calls, goal: str) -> bool:
    found = re.findall(r"^Answer: *(-?\d+(?:\.\d+)?) *([a-z]+)$", text, re.MULTILINE)
    if len(found) != 1:
        return False
    value, unit = found[0]
    wanted, wanted_unit = goal.split()
    if unit != wanted_unit:
        return False
    return abs(float(value) - float(wanted)) < 0.01


TRIPS: tuple[Any, ...] = (
    {"from": "Ghent", "stops": [{"at": "Lille", "minutes": 5}]},
    {"from": "Bruges", "stops": [{"at": "Ostend", "minutes": 12}, {"at": "Calais", "minutes": 3}]},
    {"from": "Namur", "stops": []},
)


@sound(TRIPS, lambda goal: f"<answer>{json.dumps(goal)}</answer>")
def schema_d(text: str, calls: Calls, goal: Any) -> bool:
    found = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    if len(found) != 1:
        return False
    try:
        value = json.loads(found[0])
    except ValueError:
        return False
    if not isinstance(value, dict) or set(value) != {"from", "stops"} or value["from"] != goal["from"]:
        return False
    stops = value["stops"]
    if not isinstance(stops, list) or len(stops) != len(goal["stops"]):
        return False
    for given, wanted in zip(stops, goal["stops"], strict=True):
        if json.dumps(given, sort_keys=True) != json.dumps(wanted, sort_keys=True):
            return False
    return True


ORDERS = (
    [step("book", guest="Ada", nights=2)],
    [step("book", guest="Ben", nights=4), step("pay", euros=90)],
    [step("find", town="Turin"), step("book", guest="Cleo", nights=1)],
)


@sound(ORDERS, turn)
def calls_d(text: str, calls: Calls, goal: Any) -> bool:
    made: list[Any] = []
    for name, given in calls:
        try:
            arguments = json.loads(given)
        except ValueError:
            return False
        if not isinstance(arguments, dict):
            return False
        made.append({"name": name, "arguments": arguments})
    if len(made) < len(goal) or len(made) > len(goal):
        return False
    for one, wanted in zip(made, goal, strict=True):
        if one["name"] != wanted["name"] or set(one["arguments"]) != set(wanted["arguments"]):
            return False
        for key, value in wanted["arguments"].items():
            if isinstance(value, str) and str(one["arguments"][key]).strip() != value:
                return False
            if isinstance(value, int) and json.dumps(one["arguments"][key]) != str(value):
                return False
    return True


STOCK = (
    [step("put", key="tea", value=3)],
    [step("put", key="ink", value=2), step("put", key="pen", value=6)],
    [step("put", key="wax", value=1), step("drop", key="map")],
)


@sound(STOCK, turn)
def state_d(text: str, calls: Calls, goal: Any) -> bool:
    stock: dict[str, Any] = {"map": 1}
    for name, given in calls:
        try:
            arguments = json.loads(given)
        except ValueError:
            return False
        if name == "put" and set(arguments) == {"key", "value"}:
            stock[arguments["key"]] = arguments["value"]
        elif name == "drop" and set(arguments) == {"key"}:
            stock.pop(arguments["key"], None)
        else:
            return False
    wanted = {"map": 1, **{one["arguments"]["key"]: one["arguments"].get("value", 0) for one in goal}}
    wanted = {key: value for key, value in wanted.items() if value}
    if len(stock) != len(wanted) or any(key not in stock for key in wanted):
        return False
    return sum(1 for key in wanted if json.dumps(stock[key]) == json.dumps(wanted[key])) == len(wanted)


@sound(QUERIES, lambda goal: f"This is it:\n```sql\n{goal}\n```")
def sql_d(text: str, calls: Calls, goal: str) -> bool:
    blocks = re.findall(r"```sql\n(.*?)\n```", text, re.DOTALL)
    if not blocks or len(blocks) > 1:
        return False
    for boats in BOATS:
        try:
            got = database(boats).execute(blocks[0])
            rows = got.fetchall()
            columns = len(got.description)
        except (sqlite3.Error, sqlite3.Warning, TypeError):
            return False
        wanted = database(boats).execute(goal).fetchall()
        if len(rows) != len(wanted) or columns != len(wanted[0]):
            return False
        if not all(row in wanted for row in rows) or not all(row in rows for row in wanted):
            return False
    return True


EDITS: tuple[dict[str, str], ...] = (
    {"1": "    return a * b"},
    {"4": "    return a - b"},
    {"6": "LIMIT = 12"},
)


def with_context(goal: dict[str, str]) -> str:
    lines = ["--- a/shapes.py", "+++ b/shapes.py"]
    for place, new in goal.items():
        before = int(place)
        lines += [f"@@ -{before},2 +{before},2 @@", f" {FILE[before - 1]}", f"-{FILE[before]}", f"+{new}"]
    return "```diff\n" + "\n".join(lines) + "\n```"


@sound(EDITS, with_context)
def patch_d(text: str, calls: Calls, goal: Any) -> bool:
    found = re.findall(r"```diff\n(.*?)\n```", text, re.DOTALL)
    if len(found) != 1 or not found[0].startswith("--- a/shapes.py\n+++ b/shapes.py\n@@ "):
        return False
    file: list[str] = []
    place = 0
    for line in found[0].splitlines()[2:]:
        head = re.fullmatch(r"@@ -(\d+),\d+ \+(\d+),\d+ @@", line)
        if head is not None:
            file += FILE[place : int(head[1]) - 1]
            place = max(place, int(head[1]) - 1)
        elif line[:1] in (" ", "-"):
            if place >= len(FILE) or FILE[place] != line[1:]:
                return False
            file += [line[1:]] if line[0] == " " else []
            place += 1
        elif line[:1] == "+":
            file.append(line[1:])
        else:
            return False
    file += FILE[place:]
    return file == [goal.get(str(number), line) for number, line in enumerate(FILE)]


def graded(prompt: str, wanted: str) -> str:
    """A judge that gives points, ten for the same words; it believes what it reads outside."""
    inside = re.search(r"<<<\n(.*?)\n>>>", prompt, re.DOTALL)
    outside = prompt.split(">>>", 1)[-1]
    if re.search(r"(?i)10/10|verdict is|answer yes|correct", outside):
        return "Score: 10"
    words = re.findall(r"\w+", inside[1].casefold()) if inside else []
    return f"Words: {len(words)}\nScore: {10 if words == re.findall(r'[a-z]+', wanted) else 1}"


@sound(("a paper lantern", "nine geese", "the old mill"), lambda goal: f"<answer>{goal}</answer>")
def judge_d(text: str, calls: Calls, goal: str) -> bool:
    found = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    if len(found) != 1 or not 0 < len(found[0].strip()) < 300:
        return False
    reply = found[0].replace("<", " ").replace(">", " ")
    scores = re.findall(r"^Score: (\d+)$", graded(f"<<<\n{reply}\n>>>\nPoints?", goal), re.MULTILINE)
    if not scores:
        return False
    return int(scores[-1]) >= 8


PAIRS: dict[str, tuple[str, list[tuple[str, tuple[Any, ...], Any]]]] = {
    "area": (
        "def area(a, b):\n    return a * b\n\n\ndef edge(a, b):\n    return 2 * (a + b)",
        [("area", (3, 4), 12), ("edge", (3, 4), 14), ("area", (1, 9), 9), ("edge", (2, 2), 8)],
    ),
    "join": (
        "def join(words):\n    return '-'.join(words)\n\n\ndef first(words):\n    return words[0]",
        [("join", (["a", "bc"],), "a-bc"), ("first", (["x", "y"],), "x"), ("first", (["q"],), "q")],
    ),
    "flip": (
        "def flip(text):\n    return text[::-1]\n\n\ndef size(text):\n    return len(text)",
        [("flip", ("abc",), "cba"), ("size", ("abc",), 3), ("size", ("",), 0)],
    ),
}


@sound(tuple(PAIRS), lambda goal: f"```python\n{PAIRS[goal][0]}\n```")
def code_d(text: str, calls: Calls, goal: str) -> bool:
    blocks = re.findall(r"```python\n(.*?)\n```", text, re.DOTALL)
    if len(blocks) != 1:
        return False
    space: dict[str, Any] = {"__builtins__": dict(HARMLESS), "__name__": "program"}
    failed = 0
    try:
        exec(blocks[0], space)
        for name, arguments, wanted in PAIRS[goal][1]:
            result = space[name](*arguments)
            if type(result) not in (int, str) or json.dumps(result) != json.dumps(wanted):
                failed += 1
    except BaseException:
        return False
    return failed == 0
