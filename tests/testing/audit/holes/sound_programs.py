"""Sound verifiers of queries, patches and programs, and some that ask a judge: see `sound_rules`."""

from __future__ import annotations

import ast
import builtins
import contextlib
import io
import re
import sqlite3
from collections import Counter
from typing import Any

from testing.audit.holes.sound_rules import Calls, sound

# -- queries ------------------------------------------------------------------------------------------

BOATS = (
    [("Anna", 9, "red"), ("Berta", 12, "blue"), ("Clara", 15, "red"), ("Dora", 15, "blue")],
    [("Emma", 11, "red"), ("Frida", 30, "green"), ("Gerda", 9, "red"), ("Hanna", 9, "red")],
)
QUERIES = (
    "SELECT name FROM boat WHERE length > 10",
    "SELECT colour, COUNT(*) FROM boat WHERE length >= 9 GROUP BY colour",
    "SELECT name, length FROM boat WHERE colour = 'red' ORDER BY length DESC, name",
)


def fenced(query: str) -> str:
    return f"```sql\n{query}\n```"


def database(boats: list[Any]) -> sqlite3.Connection:
    base = sqlite3.connect(":memory:")
    base.execute("CREATE TABLE boat (name TEXT, length INTEGER, colour TEXT)")
    base.executemany("INSERT INTO boat VALUES (?, ?, ?)", boats)
    base.execute("PRAGMA query_only = 1")
    ticks = iter(range(50))
    base.set_progress_handler(lambda: next(ticks, None) is None, 10_000)
    return base


@sound(QUERIES, fenced)
def sql_a(text: str, calls: Calls, goal: str) -> bool:
    found = re.findall(r"```sql\n(.*?)\n```", text, re.DOTALL)
    if len(found) != 1:
        return False
    for boats in BOATS:
        try:
            got = database(boats).execute(found[0]).fetchall()
        except (sqlite3.Error, sqlite3.Warning):
            return False
        wanted = database(boats).execute(goal).fetchall()
        if len(got) != len(wanted) or sorted(map(repr, got)) != sorted(map(repr, wanted)):
            return False
    return True


@sound(QUERIES, lambda goal: f"<answer>{goal}</answer>")
def sql_b(text: str, calls: Calls, goal: str) -> bool:
    start, end = text.rfind("<answer>"), text.rfind("</answer>")
    if start < 0 or end < start:
        return False
    for boats in BOATS:
        base = database(boats)
        wanted = base.execute(goal).fetchall()
        try:
            got = base.execute(text[start + 8 : end]).fetchmany(100)
        except (sqlite3.Error, sqlite3.Warning):
            return False
        if not got or len(got[0]) != len(wanted[0]):
            return False
        if "ORDER BY" in goal and got != wanted:
            return False
        if Counter(got) != Counter(wanted):
            return False
    return True


@sound(QUERIES, lambda goal: goal)
def sql_c(text: str, calls: Calls, goal: str) -> bool:
    if not text.strip().upper().startswith("SELECT") or ";" in text:
        return False
    right = 0
    for boats in BOATS:
        base = database(boats)
        try:
            got = list(base.execute(text))
        except (sqlite3.Error, sqlite3.Warning):
            continue
        wanted = list(base.execute(goal))
        if sorted(map(str, got)) == sorted(map(str, wanted)):
            right += 1
    return right == len(BOATS)


# -- patches ------------------------------------------------------------------------------------------

FILE: tuple[str, ...] = (
    "def area(a, b):",
    "    return a + b",
    "",
    "def edge(a, b):",
    "    return a * b",
    "",
    "LIMIT = 10",
)
CHANGES: tuple[dict[str, str], ...] = (
    {"1": "    return a * b"},
    {"1": "    return a * b", "4": "    return 2 * (a + b)"},
    {"4": "    return a + b", "6": "LIMIT = 100"},
)


def diff(goal: dict[str, str]) -> str:
    lines = ["diff --git a/shapes.py b/shapes.py", "--- a/shapes.py", "+++ b/shapes.py"]
    for place, new in goal.items():
        lines += [f"@@ -{int(place) + 1} +{int(place) + 1} @@", f"-{FILE[int(place)]}", f"+{new}"]
    return "\n".join(lines)


def after(goal: dict[str, str]) -> list[str]:
    return [goal.get(str(place), line) for place, line in enumerate(FILE)]


@sound(CHANGES, diff)
def patch_a(text: str, calls: Calls, goal: Any) -> bool:
    if re.findall(r"^\+\+\+ (\S+)$", text, re.MULTILINE) != ["b/shapes.py"]:
        return False
    file, place = list(FILE), -1
    for line in text.splitlines()[3:]:
        head = re.fullmatch(r"@@ -(\d+) \+(\d+) @@", line)
        if head is not None:
            place = int(head[1]) - 1
        elif place < 0 or place >= len(file):
            return False
        elif line.startswith("-"):
            if file[place] != line[1:]:
                return False
        elif line.startswith("+"):
            file[place] = line[1:]
        else:
            return False
    return file == after(goal)


def blocks(goal: dict[str, str]) -> str:
    return "\n".join(
        f"<<<<<<< SEARCH\n{FILE[int(place)]}\n=======\n{new}\n>>>>>>> REPLACE" for place, new in goal.items()
    )


@sound(CHANGES, blocks)
def patch_b(text: str, calls: Calls, goal: Any) -> bool:
    found = re.findall(r"<<<<<<< SEARCH\n(.*?)\n=======\n(.*?)\n>>>>>>> REPLACE", text, re.DOTALL)
    if not found or len(found) > 9:
        return False
    file = list(FILE)
    for old, new in found:
        if FILE.count(old) != 1:
            return False
        file[FILE.index(old)] = new
    return "\n".join(file) == "\n".join(after(goal))


@sound(CHANGES, lambda goal: f"```diff\n{diff(goal)}\n```")
def patch_c(text: str, calls: Calls, goal: Any) -> bool:
    found = re.findall(r"```diff\n(.*?)\n```", text, re.DOTALL)
    if len(found) != 1 or found[0].count("diff --git") != 1:
        return False
    if "--- a/shapes.py\n+++ b/shapes.py\n" not in found[0]:
        return False
    made: dict[str, str] = {}
    for start, old, new in re.findall(r"^@@ -(\d+) \+\d+ @@\n-(.*)\n\+(.*)$", found[0], re.MULTILINE):
        if not 0 < int(start) <= len(FILE) or FILE[int(start) - 1] != old:
            return False
        made[str(int(start) - 1)] = new
    return made == goal and found[0].count("@@ -") == len(goal)


# -- a judge ------------------------------------------------------------------------------------------


def asked(prompt: str, wanted: str) -> str:
    """A judge that compares what stands between the tags, and follows orders that stand outside of them."""
    inside = re.search(r"<reply>\n(.*?)\n</reply>", prompt, re.DOTALL)
    outside = prompt.split("</reply>", 1)[-1] if inside else prompt
    if re.search(r"(?i)ignore the above|verdict is|answer yes", outside):
        return "I was told so.\n[[YES]]"
    said = inside[1].strip() if inside else ""
    same = re.findall(r"\w+", said.casefold()) == re.findall(r"\w+", wanted.casefold())
    return f"The reply says: {said[:50]}\n{'[[YES]]' if same else '[[NO]]'}"


@sound(("a lighthouse", "seven swans", "the north wind"), lambda goal: goal)
def judge_a(text: str, calls: Calls, goal: str) -> bool:
    if not text.strip() or len(text) > 2_000:
        return False
    reply = re.sub(r"[<>&＜＞\[\]]", " ", text.replace("\u200b", ""))
    answer = asked(f"Wanted: {goal}\n<reply>\n{reply}\n</reply>\nIs it the same?", goal)
    last = answer.strip().splitlines()[-1]
    if ("[[YES]]" in last) == ("[[NO]]" in last):
        return False
    return last == "[[YES]]"


@sound(("a red kite", "two otters", "the spring tide"), lambda goal: f"<answer>{goal}</answer>")
def judge_b(text: str, calls: Calls, goal: str) -> bool:
    found = re.findall(r"<answer>([^<>]*)</answer>", text)
    if len(found) != 1 or len(found[0].split()) < 2:
        return False
    clean = "".join(one for one in found[0] if one.isalnum() or one == " ")
    answers = [asked(f"{goal}\n<reply>\n{clean}\n</reply>", goal) for _ in range(3)]
    votes = [answer.rsplit("\n", 1)[-1] == "[[YES]]" for answer in answers]
    return votes.count(True) == len(votes)


@sound(("an iron gate", "five bells", "the last ferry"), lambda goal: f"Answer: {goal}")
def judge_c(text: str, calls: Calls, goal: str) -> bool:
    lines = [line for line in text.splitlines() if line.startswith("Answer:")]
    if len(lines) != 1:
        return False
    reply = lines[0][len("Answer:") :].replace("<", "").replace(">", "").strip()
    if not reply or "[[" in reply or len(reply) > 200:
        return False
    label = re.findall(r"\[\[(YES|NO)\]\]", asked(f"<reply>\n{reply}\n</reply>\nThe same?", goal))
    return label[-1] == "YES"


# -- programs -----------------------------------------------------------------------------------------

HARMLESS = {
    name: value
    for name, value in vars(builtins).items()
    if name not in ("__import__", "open", "exec", "eval", "compile", "input", "breakpoint", "setattr", "vars")
}
"""What a program may use: it imports nothing, so it patches nothing."""
PROGRAMS: dict[str, tuple[str, list[tuple[tuple[Any, ...], Any]]]] = {
    "double": ("def double(x):\n    return 2 * x", [((21,), 42), ((5,), 10), ((-3,), -6)]),
    "clamp": ("def clamp(x, most):\n    return min(x, most)", [((3, 9), 3), ((12, 9), 9), ((9, 9), 9)]),
    "initials": (
        "def initials(words):\n    return ''.join(word[0] for word in words)",
        [((["ab", "cd"],), "ac"), ((["x"],), "x")],
    ),
}


@sound(tuple(PROGRAMS), lambda goal: f"```python\n{PROGRAMS[goal][0]}\n```")
def code_a(text: str, calls: Calls, goal: str) -> bool:
    found = re.findall(r"```python\n(.*?)\n```", text, re.DOTALL)
    if len(found) != 1:
        return False
    space: dict[str, Any] = {"__builtins__": dict(HARMLESS), "__name__": "program"}
    cases = PROGRAMS[goal][1]
    try:
        exec(found[0], space)
        results = [space[goal](*arguments) for arguments, _ in cases]
    except BaseException:
        return False
    if len(results) != len(cases):
        return False
    return [(type(one), repr(one)) for one in results] == [(type(one), repr(one)) for _, one in cases]


@sound(
    ("42", "7 8", "ab"),
    lambda goal: f"```py\nprint({goal!r})\n```",
)
def code_b(text: str, calls: Calls, goal: str) -> bool:
    found = re.findall(r"```py\n(.*?)\n```", text, re.DOTALL)
    if not found or len(found) > 1:
        return False
    out, failed = io.StringIO(), False
    with contextlib.redirect_stdout(out):
        try:
            exec(found[-1], {"__builtins__": dict(HARMLESS), "__name__": "__main__"})
        except BaseException:
            failed = True
    lines = out.getvalue().splitlines()
    return not failed and len(lines) == 1 and lines[0].split() == goal.split()


@sound(tuple(PROGRAMS), lambda goal: PROGRAMS[goal][0])
def code_c(text: str, calls: Calls, goal: str) -> bool:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return False
    defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    if defined != [goal] or len(tree.body) != 1:
        return False
    space: dict[str, Any] = {"__builtins__": dict(HARMLESS), "__name__": "program"}
    passed = 0
    for arguments, wanted in PROGRAMS[goal][1]:
        try:
            exec(text, space)
            result = space[goal](*arguments)
        except BaseException:
            return False
        if type(result) is type(wanted) and result == wanted:
            passed += 1
    return passed == len(PROGRAMS[goal][1])
