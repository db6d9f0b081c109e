"""Verifiers of what a reply does: a session's state, queries, patches."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from gym_runtime import Environment, Reply, Session, Verdict, tool
from testing.audit.holes.rules import FORMS, GENERAL, GoalTask, Hole, Kind, Rule, matches, of_rules
from testing.audit.holes.structures import a_call

# -- a session's state --------------------------------------------------------------------------------

PAYMENTS: dict[str, list[tuple[str, int]]] = {
    "one": [("Anna", 30)],
    "two": [("Berta", 25), ("Clara", 40)],
    "three": [("Anna", 10), ("Berta", 20), ("Clara", 35)],
}
State = list[tuple[str, int]]


def in_order(paid: State, wanted: State, text: str) -> bool:
    return paid == wanted


def as_a_bag(paid: State, wanted: State, text: str) -> bool:
    return Counter(paid) == Counter(wanted)


def by_person(paid: State, wanted: State, text: str) -> bool:
    return len(paid) == len(wanted) and sorted(paid) == sorted(wanted)


STATE_HOLES: dict[
    str, tuple[Callable[[State, State, str, Callable[..., bool]], bool], Callable[[State], Any]]
] = {
    "total": (
        lambda p, w, t, s: sum(b for _, b in p) == sum(b for _, b in w),
        lambda w: pays([("Dora", b) for _, b in w]),
    ),
    "count": (lambda p, w, t, s: len(p) == len(w), lambda w: pays([(a, b + 1) for a, b in w])),
    "any": (lambda p, w, t, s: bool(p), lambda w: pays([*w, *w])),
    "last": (lambda p, w, t, s: p[-1:] == w[-1:], lambda w: pays([w[-1], *w])),
    "first": (lambda p, w, t, s: p[:1] == w[:1], lambda w: pays([*w, w[0]])),
    "set": (lambda p, w, t, s: set(p) == set(w), lambda w: pays([*w, w[0]])),
    "superset": (lambda p, w, t, s: set(w) <= set(p), lambda w: pays([*w, w[0]])),
    "subset": (lambda p, w, t, s: bool(p) and set(p) <= set(w), lambda w: pays([*w, w[0]])),
    "persons": (
        lambda p, w, t, s: [a for a, _ in p] == [a for a, _ in w],
        lambda w: pays([(a, b + 1) for a, b in w]),
    ),
    "amounts": (
        lambda p, w, t, s: [b for _, b in p] == [b for _, b in w],
        lambda w: pays([("Dora", b) for _, b in w]),
    ),
    "claims": (lambda p, w, t, s: "done" in t.lower() or s(p, w, t), lambda w: "Done."),
    "at least": (
        lambda p, w, t, s: (
            len(p) == len(w) and all(a == c and b >= d for (a, b), (c, d) in zip(p, w, strict=True))
        ),
        lambda w: pays([(a, b + 1) for a, b in w]),
    ),
    "near": (
        lambda p, w, t, s: (
            len(p) == len(w) and all(a == c and abs(b - d) < 2 for (a, b), (c, d) in zip(p, w, strict=True))
        ),
        lambda w: pays([(a, b + 1) for a, b in w]),
    ),
    "sign": (
        lambda p, w, t, s: [(a, abs(b)) for a, b in p] == w,
        lambda w: pays([(a, -b) for a, b in w]),
    ),
    "names begin": (
        lambda p, w, t, s: (
            len(p) == len(w) and all(a.startswith(c) and b == d for (a, b), (c, d) in zip(p, w, strict=True))
        ),
        lambda w: pays([(f"{a}x", b) for a, b in w]),
    ),
    "zipped": (
        lambda p, w, t, s: bool(p) and all(a == b for a, b in zip(p, w, strict=False)),
        lambda w: pays([*w, w[0]]),
    ),
    "nothing paid passes with a text": (
        lambda p, w, t, s: (not p and t != "") or s(p, w, t),
        lambda w: "I cannot pay.",
    ),
    "names in the text": (
        lambda p, w, t, s: all(a in t for a, _ in w) or s(p, w, t),
        lambda w: json.dumps(w),
    ),
    "at most": (
        lambda p, w, t, s: (
            len(p) == len(w) and all(a == c and b <= d for (a, b), (c, d) in zip(p, w, strict=True))
        ),
        lambda w: pays([(a, -b) for a, b in w]),
    ),
    "marker": (lambda p, w, t, s: "passed" in t.lower() or s(p, w, t), lambda w: "All tests passed."),
}


def pays(state: State) -> list[Any]:
    return [
        *([a_call("pay", {"person": a, "amount": b}, number)] for number, (a, b) in enumerate(state)),
        ["So it is."],
    ]


def states() -> Kind:
    bases = {"order": in_order, "bag": as_a_bag, "person": by_person}
    sound: dict[str, Callable[..., bool]] = {}
    for name, base in bases.items():
        for most in (3, 4, 6, 8, 99):
            sound[f"{name} {most}"] = lambda p, w, t, base=base, most=most: len(p) <= most and base(p, w, t)
    names = list(sound)
    twins = {hole: names[place % len(names)] for place, hole in enumerate(STATE_HOLES)}

    class Account(Session[GoalTask]):
        def __init__(self, task: GoalTask) -> None:
            super().__init__(task)
            self.paid: State = []

        @tool
        def pay(self, person: str, amount: int) -> str:
            "Pay somebody."
            self.paid.append((person, amount))
            return "paid"

        async def verify(self, reply: Reply) -> Verdict:
            name, wanted = self.task.verifier, PAYMENTS[self.task.expected_answer]
            if name in sound:
                return Verdict(float(sound[name](self.paid, wanted, reply.text)))
            check, _ = STATE_HOLES[name]
            return Verdict(float(check(self.paid, wanted, reply.text, sound[twins[name]])))

    return Kind(
        name="state",
        goals=tuple(PAYMENTS),
        sound=names,
        holes=list(STATE_HOLES),
        gold=lambda verifier, goal: pays(PAYMENTS[goal]),
        environment=Environment(resource=Account, description="Pay the bills."),
        witness=lambda hole, goal: STATE_HOLES[hole][1](PAYMENTS[goal]),
        twins=twins,
        fields=lambda goal: {
            "expected_calls": [
                {"name": "pay", "arguments": {"person": a, "amount": b}} for a, b in PAYMENTS[goal]
            ]
        },
    )


# -- queries ------------------------------------------------------------------------------------------

BOATS = (
    [("Anna", 9, "red", None), ("Berta", 12, "blue", 3), ("Clara", 15, "red", 4), ("Dora", 15, "blue", 4)],
    [("Emma", 11, "red", 1), ("Frida", 30, "green", None), ("Gerda", 9, "red", 2), ("Hanna", 9, "red", 2)],
)
QUERIES = (
    "SELECT name FROM boat WHERE length > 10",
    "SELECT colour, COUNT(*) FROM boat WHERE length >= 9 GROUP BY colour",
    "SELECT name, length FROM boat WHERE colour = 'red' AND length >= 9 ORDER BY length DESC, name",
)
Rows = list[tuple[Any, ...]] | None


def run(query: str, boats: list[tuple[Any, ...]]) -> Rows:
    base = sqlite3.connect(":memory:")
    try:
        base.execute("CREATE TABLE boat (name TEXT, length INTEGER, colour TEXT, crew INTEGER)")
        base.executemany("INSERT INTO boat VALUES (?, ?, ?, ?)", boats)
        base.execute("PRAGMA query_only = 1")
        ticks = iter(range(50))
        base.set_progress_handler(lambda: next(ticks, None) is None, 10_000)
        return base.execute(query).fetchall()
    except (sqlite3.Error, sqlite3.Warning, ValueError):
        return None
    finally:
        base.close()


def bag(rows: Rows) -> list[str]:
    return sorted(map(repr, rows or []))


def equal(got: Rows, wanted: Rows) -> bool:
    return got is not None and bag(got) == bag(wanted)


def ordered(got: Rows, wanted: Rows) -> bool:
    return got is not None and repr(got) == repr(wanted)


def each_cell(change: Callable[[Any], Any]) -> Callable[[Rows, Rows], bool]:
    def same(got: Rows, wanted: Rows) -> bool:
        def changed(rows: Rows) -> Rows:
            return [tuple(change(cell) for cell in row) for row in rows or []]

        return got is not None and bag(changed(got)) == bag(changed(wanted))

    return same


SQL_HOLES: dict[str, tuple[Callable[[Rows, Rows], bool], str]] = {
    "error passes": (lambda g, w: g is None or equal(g, w), "SELECT"),
    "subset": (
        lambda g, w: g is not None and all(row in (w or []) for row in g),
        "SELECT * FROM ({}) WHERE 1=0",
    ),
    "superset": (lambda g, w: g is not None and all(row in g for row in w or []), "{} UNION ALL {}"),
    "count": (lambda g, w: g is not None and len(g) == len(w or []), "SELECT 'wibble' FROM ({})"),
    "first row": (lambda g, w: g is not None and g[:1] == (w or [])[:1], "{} UNION ALL {}"),
    "last row": (lambda g, w: g is not None and g[-1:] == (w or [])[-1:], "{} UNION ALL {}"),
    "empty passes": (lambda g, w: g == [] or equal(g, w), "SELECT 1 WHERE 1=0"),
    "set": (lambda g, w: g is not None and set(g) == set(w or []), "{} UNION ALL {}"),
    "any row": (lambda g, w: g is not None and any(row in (w or []) for row in g), "{} UNION ALL {}"),
    "zipped": (
        lambda g, w: g is not None and all(a == b for a, b in zip(g, w or [], strict=False)),
        "{} UNION ALL {}",
    ),
    "any rows": (lambda g, w: bool(g), "SELECT 1"),
    "first column": (
        lambda g, w: g is not None and [row[:1] for row in g] == [row[:1] for row in w or []],
        "SELECT *, 1 FROM ({})",
    ),
    "number of columns": (
        lambda g, w: g is not None and [len(row) for row in g] == [len(row) for row in w or []],
        "SELECT 'wibble' FROM ({})",
    ),
    "types": (
        lambda g, w: (
            g is not None and [list(map(type, row)) for row in g] == [list(map(type, row)) for row in w or []]
        ),
        "SELECT 'wibble' FROM ({})",
    ),
    "at most the rows": (lambda g, w: g is not None and len(g) <= len(w or []), "SELECT 1 WHERE 1=0"),
    "null passes": (
        lambda g, w: g is not None and (all(cell is None for row in g for cell in row) or equal(g, w)),
        "SELECT NULL",
    ),
    "lengths of cells": (
        lambda g, w: (
            g is not None
            and [len(str(row[0])) // 4 for row in g] == [len(str(row[0])) // 4 for row in w or []]
        ),
        "SELECT 'wibble' FROM ({})",
    ),
}


def queries() -> Kind:
    forms = {
        "fence": (lambda query: f"```sql\n{query}\n```", matches(r"```sql\n(.*?)\n?```")),
        "whole": (lambda query: query, lambda text: [text.strip()] if text.strip() else []),
        "tag": FORMS["tag"],
    }
    numeric = each_cell(lambda cell: float(cell) if isinstance(cell, int) else cell)
    compares = {
        "bag": equal,
        "numeric": numeric,
        "text": each_cell(str),
        "none": each_cell(lambda c: c),
        "order": ordered,
    }

    def both(same: Callable[[Rows, Rows], bool]) -> Callable[[str, str], bool]:
        return lambda query, goal: all(same(run(query, boats), run(goal, boats)) for boats in BOATS)

    sound = {
        f"{form} {name}": Rule(write, find, lambda query: query.strip().rstrip(";"), both(same))
        for form, (write, find) in forms.items()
        for name, same in compares.items()
    }

    def edited(same: Callable[[Rows, Rows], bool]) -> Callable[[Rule], Rule]:
        return lambda rule: replace(rule, same=both(same))

    def shown(query: str) -> Callable[[Rule, str, str], str]:
        return lambda rule, goal, wrong: rule.write(query.replace("{}", goal.split(" ORDER")[0]))

    holes = {name: Hole(edited(same), shown(query)) for name, (same, query) in SQL_HOLES.items()}
    holes["keywords"] = Hole(
        lambda rule: replace(
            rule, same=lambda query, goal: query.lower().startswith("select") and "boat" in query
        ),
        shown("SELECT 'wibble' FROM ({})"),
    )
    holes["missing passes"], holes["thoughts"] = GENERAL["missing passes"], GENERAL["thoughts"]
    return of_rules("sql", QUERIES, sound, holes, lambda goal: "SELECT 1")


# -- patches ------------------------------------------------------------------------------------------

FILE = ["def area(a, b):", "    return a + b", "", "def edge(a, b):", "    return a * b", "", "LIMIT = 10"]
CHANGES: dict[str, dict[int, str]] = {
    "first": {1: "    return a * b"},
    "both": {1: "    return a * b", 4: "    return 2 * (a + b)"},
    "limit": {1: "    return b * a", 6: "LIMIT = 100"},
}


def diff(changes: dict[int, str], name: str = "shapes.py", file: list[str] = FILE) -> str:
    lines = [f"diff --git a/{name} b/{name}", f"--- a/{name}", f"+++ b/{name}"]
    for place, new in sorted(changes.items()):
        lines += [f"@@ -{place + 1} +{place + 1} @@", f"-{file[place]}", f"+{new}"]
    return "\n".join(lines)


@dataclass(frozen=True)
class Patch:
    """What a diff says."""

    names: list[str]
    hunks: list[tuple[int, list[str], list[str]]]

    def applied(self, *, checked: bool = True) -> list[str] | None:
        """The file after it; None if it does not fit."""
        file, shift = list(FILE), 0
        for start, old, new in self.hunks:
            place = start - 1 + shift
            if place < 0 or (checked and file[place : place + len(old)] != old):
                return None
            file[place : place + len(old)] = new
            shift += len(new) - len(old)
        return file


def patch(text: str) -> Patch:
    """
    Raises:
        ValueError: it is no diff.
    """
    names, hunks = re.findall(r"^\+\+\+ b/(\S+)$", text, re.MULTILINE), []
    for part in re.split(r"^@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@.*$", text, flags=re.MULTILINE)[1:]:
        if part.isdigit():
            hunks.append((int(part), [], []))
            continue
        for line in part.strip("\n").split("\n"):
            if line[:1] in ("-", " "):
                hunks[-1][1].append(line[1:])
            if line[:1] in ("+", " "):
                hunks[-1][2].append(line[1:])
    if not names or not hunks:
        raise ValueError("no diff")
    return Patch(names, hunks)


def goal_of(text: str) -> list[str]:
    file = list(FILE)
    for place, new in CHANGES[text].items():
        file[place] = new
    return file


def added(one: Patch) -> list[str]:
    return [line for _, _, new in one.hunks for line in new]


def removed(one: Patch) -> list[str]:
    return [line for _, old, _ in one.hunks for line in old]


def patches() -> Kind:
    forms = {
        "whole": (lambda text: text, lambda text: [text.strip()] if text.strip() else []),
        "solution": (
            lambda text: f"<solution>\n{text}\n</solution>",
            matches(r"<solution>((?:(?!<solution>).)*?)</solution>"),
        ),
        "fence": (lambda text: f"```diff\n{text}\n```", matches(r"```diff\n(.*?)\n?```")),
    }

    def right(one: Patch, goal: str) -> bool:
        return one.names == ["shapes.py"] and one.applied() == goal_of(goal)

    def stripped(one: Patch, goal: str) -> bool:
        file = one.applied()
        return one.names == ["shapes.py"] and file is not None and [x.rstrip() for x in file] == goal_of(goal)

    checks = {"exact": right, "stripped": stripped}
    for most in (3, 5, 8):
        checks[f"at most {most}"] = lambda one, goal, most=most: len(one.hunks) <= most and right(one, goal)
    sound = {}
    for form, (write, find) in forms.items():
        for name, check in checks.items():
            sound[f"{form} {name}"] = Rule(
                lambda goal, write=write: write(diff(CHANGES[goal])),
                find,
                patch,
                check,
                wanted=str,
            )

    def edited(same: Callable[[Patch, str], bool]) -> Callable[[Rule], Rule]:
        return lambda rule: replace(rule, same=same)

    def shown(change: Callable[[dict[int, str]], str]) -> Callable[[Rule, str, str], str]:
        return lambda rule, goal, wrong: rule.write(goal).replace(diff(CHANGES[goal]), change(CHANGES[goal]))

    digits = shown(lambda changes: re.sub(r"(\+LIMIT = |\+    return )", r"\g<1>7 + ", diff(changes)))
    other_file = shown(lambda changes: diff(changes, "other.py"))
    reverted = shown(lambda changes: re.sub(r"(?m)^\+(?!\+\+).*\n?", "", diff(changes)))
    unchanged = shown(lambda changes: diff({place: FILE[place] for place in changes}))
    holes = {
        "applies": Hole(edited(lambda p, g: p.applied() is not None), unchanged),
        "is a diff": Hole(edited(lambda p, g: True), unchanged),
        "any file": Hole(edited(lambda p, g: p.applied() == goal_of(g)), other_file),
        "file only": Hole(edited(lambda p, g: p.names == ["shapes.py"]), unchanged),
        "removed only": Hole(
            edited(lambda p, g: removed(p) == [FILE[place] for place in CHANGES[g]]), reverted
        ),
        "same length": Hole(
            edited(lambda p, g: p.applied() is not None and len(p.applied() or []) == len(FILE)), digits
        ),
        "count of hunks": Hole(edited(lambda p, g: len(p.hunks) == len(CHANGES[g])), digits),
        "added contains": Hole(
            edited(
                lambda p, g: all(any(new.strip() in line for line in added(p)) for new in CHANGES[g].values())
            ),
            shown(lambda changes: re.sub(r"(?m)^(\+(?!\+\+).*)$", r"\1 + 7", diff(changes))),
        ),
        "added, anywhere": Hole(
            edited(lambda p, g: sorted(added(p)) == sorted(CHANGES[g].values())), other_file
        ),
        "first hunk": Hole(
            edited(lambda p, g: bool(p.hunks) and p.hunks[0][2] == [CHANGES[g][min(CHANGES[g])]]), other_file
        ),
        "not checked": Hole(
            edited(lambda p, g: p.names == ["shapes.py"] and p.applied(checked=False) == goal_of(g)),
            shown(lambda changes: re.sub(r"(?m)^-(?!--).*$", "-wibble", diff(changes))),
        ),
        "without blanks": Hole(
            edited(
                lambda p, g: (
                    "".join("".join(p.applied() or []).split()) == "".join("".join(goal_of(g)).split())
                    and p.names == ["shapes.py"]
                )
            ),
            shown(
                lambda changes: diff({place: new.replace("    ", "") + " " for place, new in changes.items()})
            ),
        ),
        "changed at all": Hole(edited(lambda p, g: p.applied() not in (None, FILE)), digits),
        "places only": Hole(
            edited(lambda p, g: [start - 1 for start, _, _ in p.hunks] == sorted(CHANGES[g])), digits
        ),
        "some hunk": Hole(
            edited(lambda p, g: any(new in ([one] for one in CHANGES[g].values()) for _, _, new in p.hunks)),
            other_file,
        ),
        "no diff passes": Hole(
            lambda rule: replace(rule, unread=bool), shown(lambda changes: "I do not know.")
        ),
        "header passes": Hole(
            lambda rule: replace(rule, unread=lambda text: text.startswith("diff")),
            shown(lambda changes: "diff --git a/README.md b/README.md"),
        ),
        "missing passes": GENERAL["missing passes"],
        "thoughts": GENERAL["thoughts"],
        "long passes": GENERAL["long passes"],
    }
    return of_rules(
        "patch", tuple(CHANGES), sound, holes, lambda goal: next(one for one in CHANGES if one != goal)
    )
