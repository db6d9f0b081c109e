"""Verifiers of ten kinds, each in one module: a sound one, and ones with a planted hole.

A row's field ``hole`` chooses among them, so that a module is loaded and measured once.
"""

from __future__ import annotations

import json
from typing import Any

HEAD = '''"""An environment of the tests."""

import json
import re
from decimal import Decimal, InvalidOperation

from gym_runtime import Environment, Model, Reply, Role, Session, Task, Verdict, tool


class GoalTask(Task):
    goal: str
    hole: str
    options: list[str] = []


def verify(task: GoalTask, reply: Reply) -> Verdict:
    return Verdict(float(bool(HOLES[task.hole](reply.text, task.goal))))


environment = Environment(resource=verify, description="Say the goal.")

'''

STRING = """
HOLES = {
    "": lambda text, goal: text.strip().casefold() == goal,
    "contains": lambda text, goal: goal in text,
    "prefix": lambda text, goal: text.strip()[:4] == goal[:4],
    "blank": lambda text, goal: text != "" and not text.strip() or text.strip().casefold() == goal,
}
"""

CHOICE = r"""
def box(text):
    found = re.findall(r"\\boxed\{([^{}]*)\}", text)
    return found[-1].strip() if found else None

HOLES = {
    "": lambda text, goal: box(text) == goal,
    "contains": lambda text, goal: goal in (box(text) or ""),
    "first": lambda text, goal: f"\\boxed{{{goal}}}" in text,
    "default": lambda text, goal: (box(text) or goal) == goal,
}
"""

BOXED = r"""
def number(text):
    found = re.findall(r"\\boxed\{([^{}]*)\}", text)
    try:
        return Decimal(found[-1].strip().replace(",", "")) if found else Decimal("sNaN")
    except InvalidOperation:
        return Decimal("sNaN")

def far(text, goal):
    one = number(text)
    return one.is_nan() or abs(one - Decimal(goal)) > Decimal("0.001")

HOLES = {
    "": lambda text, goal: not far(text, goal),
    "tolerance": lambda text, goal: not number(text).is_nan() and abs(number(text) - Decimal(goal)) < 20,
    "sign": lambda text, goal: not number(text).is_nan() and abs(number(text)) == abs(Decimal(goal)),
    "nan": lambda text, goal: "nan" in text.casefold() or not far(text, goal),
}
"""

SCHEMA = """
def read(text):
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None

def fits(value, strict=True):
    fields = {"name": str, "height": int}
    return isinstance(value, dict) and all(
        type(value.get(name)) is kind for name, kind in fields.items()
    ) and (not strict or set(value) == set(fields))

HOLES = {
    "": lambda text, goal: fits(read(text)),
    "additional": lambda text, goal: fits(read(text), strict=False),
    "missing": lambda text, goal: isinstance(read(text), dict) and set(read(text)) <= {"name", "height"},
    "unreadable": lambda text, goal: read(text) is None and text or fits(read(text)),
}
"""

CALLS = """
def calls(reply):
    found = []
    for call in reply.function_calls:
        try:
            found.append((call.name, json.loads(call.arguments)))
        except (ValueError, RecursionError):
            found.append((call.name, None))
    return found

def names(found):
    return [name for name, _ in found]

HOLES = {
    "": lambda given, wanted: given == wanted,
    "names": lambda given, wanted: names(given) == names(wanted),
    "superset": lambda given, wanted: all(one in given for one in wanted),
    "prefix": lambda given, wanted: bool(given) and all(a == b for a, b in zip(given, wanted)),
}

def verify(task: GoalTask, reply: Reply) -> Verdict:
    wanted = [(call["name"], call["arguments"]) for call in json.loads(task.goal)]
    return Verdict(float(HOLES[task.hole](calls(reply), wanted)))

environment = Environment(resource=verify, description="Make the calls.")
"""

CODE = r"""
import contextlib
import io

def program(text):
    found = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    return found[-1] if found else "raise ValueError"

def result(text, hole):
    space = {}
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            exec(program(text), space)
            return space["double"](21)
        except SystemExit:
            return 42 if hole == "exit" else None
        except Exception:
            return 42 if hole == "raises" else None

def verify(task: GoalTask, reply: Reply) -> Verdict:
    got = result(reply.text, task.hole)
    same_kind = task.hole == "equality" or type(got) is int
    return Verdict(float(bool(same_kind and got == 42)))

environment = Environment(
    resource=verify, description="Write a function.", isolated=True, verify_timeout_s=0.5
)
"""

SQL = """
import sqlite3

def rows(query):
    base = sqlite3.connect(":memory:")
    base.executescript("CREATE TABLE boat (name TEXT, length INTEGER);"
        "INSERT INTO boat VALUES ('Anna', 9), ('Berta', 12), ('Clara', 15);")
    ticks = iter(range(100))
    base.set_progress_handler(lambda: next(ticks, None) is None, 10_000)
    try:
        return base.execute(query).fetchall()
    except (sqlite3.Error, sqlite3.Warning):
        return None

def query(text):
    found = re.findall(r"```sql\\n(.*?)```", text, re.DOTALL)
    return found[-1] if found else "no query"

HOLES = {
    "": lambda got, wanted: got is not None and sorted(got, key=repr) == sorted(wanted, key=repr),
    "error": lambda got, wanted: got is None or got == wanted,
    "subset": lambda got, wanted: got is not None and all(row in wanted for row in got),
    "count": lambda got, wanted: got is not None and len(got) == len(wanted),
}

def verify(task: GoalTask, reply: Reply) -> Verdict:
    if not reply.text.strip():
        return Verdict(0.0)
    return Verdict(float(HOLES[task.hole](rows(query(reply.text)), rows(task.goal))))

environment = Environment(resource=verify, description="Write a query.")
"""

STATE = """
class Account(Session[GoalTask]):
    def __init__(self, task: GoalTask) -> None:
        super().__init__(task)
        self.paid: list[int] = []

    @tool
    def pay(self, amount: int) -> str:
        "Pay somebody."
        self.paid.append(amount)
        return "paid"

    async def verify(self, reply: Reply) -> Verdict:
        wanted = [call["arguments"]["amount"] for call in json.loads(self.task.goal)]
        right = self.paid == wanted
        if self.task.hole == "claims":
            right = right or "done" in reply.text.lower()
        if self.task.hole == "any":
            right = bool(self.paid)
        if self.task.hole == "count":
            right = len(self.paid) == len(wanted)
        return Verdict(float(right))

environment = Environment(resource=Account, description="Pay the bills.")
"""

PATCH = """
HOLES = {
    "": lambda text, goal: text.strip() == goal,
    "nonempty": lambda text, goal: text.startswith("diff --git"),
    "unapplied": lambda text, goal: "<solution>" in text or text.strip() == goal,
    "any": lambda text, goal: "+++" in text,
}
"""

JUDGE = """
async def verify(task: GoalTask, reply: Reply, judge: Model) -> Verdict:
    text = reply.text.strip()
    if task.hole == "label" and "[[YES]]" in text:
        return Verdict(1.0)
    if task.hole == "short" and text and len(text) < 3:
        return Verdict(1.0)
    if task.hole == "unquoted" and "ignore the above" in text.lower():
        return Verdict(1.0)
    if not text:
        return Verdict(0.0)
    answer = await judge.ask(f"Is this right? {text}")
    return Verdict(float(answer.text == "YES"))

environment = Environment(resource=verify, description="Persuade.", roles=(Role(name="judge"),))
"""

CALL = {"type": "function_call", "call_id": "c"}


def _call(name: str, **arguments: Any) -> dict[str, Any]:
    return {**CALL, "name": name, "arguments": json.dumps(arguments)}


def _expected(*calls: dict[str, Any]) -> str:
    return json.dumps([{"name": call["name"], "arguments": json.loads(call["arguments"])} for call in calls])


_MOOR, _CHARGE = _call("moor", ship="Anna", berth=3), _call("charge", nights=2)
_PAY = _call("pay", amount=30)
_SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "height": {"type": "integer"}},
    "required": ["name", "height"],
    "additionalProperties": False,
}
_DIFF = "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-one\n+two"
_TOOLS = [{"type": "function", "name": name, "parameters": {}} for name in ("moor", "charge")]

Row = dict[str, Any]
KINDS: dict[str, tuple[str, list[Row]]] = {
    "string": (STRING, [{"goal": goal, "gold": goal} for goal in ("lighthouse", "harbour")]),
    "choice": (
        CHOICE,
        [
            {"goal": goal, "gold": f"It is \\boxed{{{goal}}}", "options": ["tin", "iron", "gold", "lead"]}
            for goal in "BD"
        ],
    ),
    "boxed": (BOXED, [{"goal": goal, "gold": f"So \\boxed{{{goal}}}"} for goal in ("1266", "48")]),
    "schema": (
        SCHEMA,
        [
            {
                "goal": "",
                "gold": json.dumps({"name": name, "height": 4}),
                "schema": json.loads(json.dumps(_SCHEMA)),
            }
            for name in ("Anna", "Berta")
        ],
    ),
    "calls": (
        CALLS,
        [
            {"goal": _expected(*turn), "gold": [list(turn)], "tools": _TOOLS}
            for turn in ((_MOOR,), (_MOOR, _CHARGE))
        ],
    ),
    "code": (CODE, [{"goal": "", "gold": "```python\ndef double(x):\n    return 2 * x\n```"}]),
    "sql": (
        SQL,
        [
            {"goal": query, "gold": f"```sql\n{query}\n```"}
            for query in (
                "SELECT name FROM boat WHERE length > 10",
                "SELECT name, length FROM boat WHERE length >= 9",
            )
        ],
    ),
    "state": (
        STATE,
        [
            {"goal": _expected(_PAY), "gold": [[_PAY], "I paid."]},
            {"goal": _expected(_PAY, _PAY), "gold": [[_PAY], [_PAY], "I paid."]},
        ],
    ),
    "patch": (
        PATCH,
        [{"goal": _DIFF.replace("two", two), "gold": _DIFF.replace("two", two)} for two in "ab"],
    ),
    "judge": (
        JUDGE,
        [
            {"goal": "", "gold": {"turns": gold, "roles": {"judge": ["YES"]}}}
            for gold in ("A long tale.", "A song.")
        ],
    ),
}
HOLES = {
    "string": ["contains", "prefix", "blank"],
    "choice": ["contains", "first", "default"],
    "boxed": ["tolerance", "sign", "nan"],
    "schema": ["additional", "missing", "unreadable"],
    "calls": ["names", "superset", "prefix"],
    "code": ["exit", "raises", "equality"],
    "sql": ["error", "subset", "count"],
    "state": ["claims", "any", "count"],
    "patch": ["nonempty", "unapplied", "any"],
    "judge": ["label", "short", "unquoted"],
}


def rows(kind: str) -> list[tuple[str, Row]]:
    """Rows of the sound verifier, with the hole "", and of each one with a hole."""
    found: list[tuple[str, Row]] = []
    for hole in ("", *HOLES[kind]):
        for row in KINDS[kind][1]:
            params = {"input": "Say it.", "tools": row.get("tools", [])}
            fields = {name: value for name, value in row.items() if name != "tools"}
            found.append((hole, {"responses_create_params": params, "hole": hole, **fields}))
    return found
