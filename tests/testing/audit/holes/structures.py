"""Verifiers of structures: JSON by a schema, and calls."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from gym_runtime import Environment, Reply, Verdict
from testing.audit.holes.rules import BROKEN, FORMS, GENERAL, GoalTask, Hole, Kind, Rule, matches, of_rules

# -- JSON ---------------------------------------------------------------------------------------------

PROPERTIES = {
    "name": {"type": "string"},
    "height": {"type": "integer", "minimum": 0},
    "kind": {"enum": ["hill", "peak"]},
    "paths": {"type": "array", "items": {"type": "string"}, "minItems": 1},
}
SCHEMA = {
    "type": "object",
    "properties": PROPERTIES,
    "required": list(PROPERTIES),
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Fits:
    """A check of the schema; each flag leaves a part of it out."""

    additional: bool = False
    missing: bool = False
    types: bool = True
    booleans: bool = False
    enum: bool = True
    minimum: bool = True
    items: bool = True
    least: bool = True
    null: bool = False
    top: bool = True
    floats: bool = False
    strings: bool = False

    def __call__(self, value: Any) -> bool:
        if not isinstance(value, dict):
            return not self.top
        if not self.additional and set(value) - set(PROPERTIES):
            return False
        if not self.missing and set(PROPERTIES) - set(value):
            return False
        return all(name not in PROPERTIES or self._field(name, one) for name, one in value.items())

    def _field(self, name: str, value: Any) -> bool:
        if (self.null and value is None) or not self.types:
            return True
        match name:
            case "name":
                return isinstance(value, str)
            case "kind":
                return isinstance(value, str) if not self.enum else value in ("hill", "peak")
            case "height":
                if self.strings and isinstance(value, str):
                    return value.lstrip("-").isdigit()
                if isinstance(value, bool):
                    return self.booleans
                if not isinstance(value, int) and not (
                    self.floats and isinstance(value, float) and value.is_integer()
                ):
                    return False
                return not self.minimum or value >= 0
            case _:
                if not isinstance(value, list) or (self.least and not value):
                    return False
                return not self.items or all(isinstance(one, str) for one in value)


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """
    Raises:
        ValueError: a key stands twice.
    """
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key stands twice")
    return dict(pairs)


def constant(name: str) -> float:
    raise ValueError(name)


def strictly(text: str) -> Any:
    return json.loads(text, object_pairs_hook=unique, parse_constant=constant)


def hill(goal: str, **changed: Any) -> str:
    return json.dumps({"name": goal, "height": 4, "kind": "hill", "paths": ["north"], **changed})


JSON_FORMS: dict[str, tuple[Callable[[str], str], Callable[[str], list[str]]]] = {
    "whole": (lambda text: text, lambda text: [text.strip()] if text.strip() else []),
    "fence": (lambda text: f"Here:\n```json\n{text}\n```", matches(r"```json\n(.*?)\n?```")),
    "tag": FORMS["tag"],
}


def schemas() -> Kind:
    sound: dict[str, Rule] = {}
    all_of = Fits()
    checks: dict[str, Callable[[Any], bool]] = {
        "all": all_of,
        "whole floats": Fits(floats=True),
        "named": lambda value: all_of(value) and value["name"] != "",
        "low": lambda value: all_of(value) and value["height"] < 9_000,
        "few paths": lambda value: all_of(value) and len(value["paths"]) < 9,
    }
    for form, (write, find) in JSON_FORMS.items():
        for check, fits in checks.items():
            sound[f"{form} {check}"] = Rule(
                lambda goal, write=write: write(hill(goal)),
                find,
                strictly,
                lambda value, goal, fits=fits: fits(value),
                wanted=str,
            )

    def without(**flags: Any) -> Callable[[Rule], Rule]:
        return lambda rule: replace(rule, same=lambda value, _: Fits(**flags)(value))

    def changed(**fields: Any) -> Callable[[Rule, str, str], str]:
        return lambda rule, goal, wrong: _in_place(rule, goal, hill(goal, **fields))

    def less(name: str) -> Callable[[Rule, str, str], str]:
        def made(rule: Rule, goal: str, wrong: str) -> str:
            value = json.loads(hill(goal))
            del value[name]
            return _in_place(rule, goal, json.dumps(value))

        return made

    def text(value: str) -> Callable[[Rule, str, str], str]:
        return lambda rule, goal, wrong: _in_place(rule, goal, value)

    holes = {
        "additional": Hole(without(additional=True), changed(surplus=1)),
        "missing": Hole(without(missing=True), less("kind")),
        "types": Hole(without(types=False), changed(name=[1])),
        "booleans": Hole(without(booleans=True), changed(height=True)),
        "enum": Hole(without(enum=False), changed(kind="valley")),
        "items": Hole(without(items=False), changed(paths=[{"x": 1}])),
        "not an object": Hole(without(top=False), text("[]")),
        "numbers as texts": Hole(without(strings=True), changed(height="4")),
        "unreadable passes": Hole(lambda rule: replace(rule, unread=bool), text('{"name": ')),
        "empty passes": Hole(
            lambda rule: replace(rule, same=lambda value, _: not value or Fits()(value)), text("{}")
        ),
        "keys only": Hole(
            lambda rule: replace(rule, same=lambda value, _: set(value) == set(PROPERTIES)),
            changed(name=None, paths=0),
        ),
        "any key": Hole(
            lambda rule: replace(rule, same=lambda value, _: any(name in value for name in PROPERTIES)),
            less("name"),
        ),
        "keys in the text": Hole(
            lambda rule: replace(
                rule, read=str, same=lambda value, _: all(f'"{name}"' in value for name in PROPERTIES)
            ),
            changed(name=[1]),
        ),
        "braces": Hole(
            lambda rule: replace(rule, read=str, same=lambda value, _: value.strip().startswith("{")),
            text("{}"),
        ),
        "a list of some": Hole(
            lambda rule: replace(
                rule,
                same=lambda value, _: all(map(Fits(), value)) if isinstance(value, list) else Fits()(value),
            ),
            text("[]"),
        ),
        "first field only": Hole(
            lambda rule: replace(rule, same=lambda value, _: isinstance(value.get("name"), str)),
            less("paths"),
        ),
        "schema passes": Hole(
            lambda rule: replace(rule, same=lambda value, _: "properties" in value or Fits()(value)),
            text(json.dumps(SCHEMA)),
        ),
        "missing passes": GENERAL["missing passes"],
        "says it is right": GENERAL["says it is right"],
        "long passes": GENERAL["long passes"],
    }
    return replace(
        of_rules("schema", ("Anna", "Berta", "Clara"), sound, holes, lambda goal: goal),
        fields=lambda goal: {"schema": SCHEMA},
    )


def _in_place(rule: Rule, goal: str, text: str) -> str:
    return rule.write(goal).replace(hill(goal), text)


# -- calls --------------------------------------------------------------------------------------------

Calls = list[tuple[str, Any]]
SameCalls = Callable[[Calls, Calls], bool]


def made(reply: Reply) -> Calls:
    found: Calls = []
    for call in reply.function_calls:
        try:
            arguments = json.loads(call.arguments)
        except BROKEN:
            arguments = None
        found.append((call.name, arguments))
    return found


def a_call(name: str, arguments: Any, number: int = 0) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"type": "function_call", "call_id": f"call_{number}", "name": name, "arguments": text}


PLANS: dict[str, Calls] = {
    "one": [("moor", {"ship": "Anna", "berth": 3})],
    "two": [("moor", {"ship": "Berta", "berth": 5}), ("charge", {"nights": 2})],
    "three": [("charge", {"nights": 4}), ("moor", {"ship": "Clara", "berth": 7}), ("wave", {"flag": "red"})],
}
TOOLS = [
    {"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}}
    for name in ("moor", "charge", "wave", "sink")
]


def frozen(calls: Calls) -> Counter[str]:
    return Counter(json.dumps(one, sort_keys=True) for one in calls)


def exactly(given: Calls, wanted: Calls) -> bool:
    return json.dumps(given, sort_keys=True) == json.dumps(wanted, sort_keys=True)


def in_any_order(given: Calls, wanted: Calls) -> bool:
    return frozen(given) == frozen(wanted)


def named(calls: Calls) -> list[str]:
    return [name for name, _ in calls]


def pairwise(same: Callable[[Any, Any], bool]) -> SameCalls:
    def compare(given: Calls, wanted: Calls) -> bool:
        return named(given) == named(wanted) and all(
            same(one, other) for (_, one), (_, other) in zip(given, wanted, strict=True)
        )

    return compare


@dataclass(frozen=True)
class CallHole:
    same: Callable[[Reply, Calls, SameCalls], bool]
    witness: Callable[[Calls], Any]


def only(same: SameCalls) -> Callable[[Reply, Calls, SameCalls], bool]:
    return lambda reply, wanted, sound: same(made(reply), wanted)


def turn(calls: Calls) -> list[list[Any]]:
    return [[a_call(name, arguments, number) for number, (name, arguments) in enumerate(calls)]]


def first_changed(change: Callable[[str, dict[str, Any]], tuple[str, Any]]) -> Callable[[Calls], Any]:
    return lambda wanted: turn([change(*wanted[0]), *wanted[1:]])


def valued(change: Callable[[Any], Any]) -> Callable[[Calls], Any]:
    return first_changed(lambda name, given: (name, {key: change(one) for key, one in given.items()}))


CALL_HOLES = {
    "names": CallHole(only(lambda g, w: named(g) == named(w)), valued(lambda one: "x")),
    "superset": CallHole(only(lambda g, w: all(one in g for one in w)), lambda w: turn([*w, ("sink", {})])),
    "prefix": CallHole(
        only(lambda g, w: bool(g) and all(a == b for a, b in zip(g, w, strict=False))),
        lambda w: turn([*w, w[-1]]),
    ),
    "any": CallHole(only(lambda g, w: any(one in w for one in g)), lambda w: turn([*w, ("sink", {})])),
    "count": CallHole(only(lambda g, w: len(g) == len(w)), lambda w: turn([("sink", {})] * len(w))),
    "set": CallHole(only(lambda g, w: set(frozen(g)) == set(frozen(w))), lambda w: turn([*w, w[-1]])),
    "fewer arguments": CallHole(
        only(pairwise(lambda g, w: isinstance(g, dict) and g.items() <= w.items())),
        first_changed(lambda name, given: (name, {})),
    ),
    "keys": CallHole(
        only(pairwise(lambda g, w: isinstance(g, dict) and set(g) == set(w))), valued(lambda one: "x")
    ),
    "count of arguments": CallHole(
        only(pairwise(lambda g, w: isinstance(g, dict) and len(g) == len(w))), valued(lambda one: "x")
    ),
    "unreadable passes": CallHole(
        lambda r, w, sound: (
            (None in [one for _, one in made(r)] and named(made(r)) == named(w)) or sound(made(r), w)
        ),
        first_changed(lambda name, _: (name, "{")),
    ),
    "claims": CallHole(
        lambda r, w, sound: re.search(r"\bdone\b", r.text.lower()) is not None or sound(made(r), w),
        lambda w: "Done.",
    ),
    "described in words": CallHole(
        lambda r, w, sound: all(f'"{name}"' in r.text for name in named(w)) or sound(made(r), w),
        lambda w: json.dumps([{"name": name, "arguments": given} for name, given in w]),
    ),
    "last": CallHole(only(lambda g, w: g[-1:] == w[-1:]), lambda w: turn([("sink", {}), *w])),
    "first": CallHole(only(lambda g, w: g[:1] == w[:1]), lambda w: turn([*w, ("sink", {})])),
    "near numbers": CallHole(
        only(
            pairwise(
                lambda g, w: (
                    isinstance(g, dict) and set(g) == set(w) and all(near(g[key], w[key]) for key in w)
                )
            )
        ),
        valued(lambda one: one + 1 if isinstance(one, int) else one),
    ),
    "texts contain": CallHole(
        only(
            pairwise(
                lambda g, w: (
                    isinstance(g, dict) and set(g) == set(w) and all(str(w[key]) in str(g[key]) for key in w)
                )
            )
        ),
        valued(lambda one: f"{one}x"),
    ),
    "case": CallHole(
        only(lambda g, w: json.dumps(g, sort_keys=True).lower() == json.dumps(w, sort_keys=True).lower()),
        first_changed(lambda name, given: (name.upper(), given)),
    ),
    "begins of names": CallHole(
        only(
            lambda g, w: (
                len(g) == len(w) and all(a.startswith(b) for a, b in zip(named(g), named(w), strict=True))
            )
        ),
        first_changed(lambda name, given: (f"{name}_x", given)),
    ),
    "first argument": CallHole(
        only(pairwise(lambda g, w: isinstance(g, dict) and list(g.items())[:1] == list(w.items())[:1])),
        first_changed(lambda name, given: (name, {**given, "surplus": 1})),
    ),
    "more arguments": CallHole(
        only(pairwise(lambda g, w: isinstance(g, dict) and g.items() >= w.items())),
        first_changed(lambda name, given: (name, {**given, "surplus": 1})),
    ),
}


def near(given: Any, wanted: Any) -> bool:
    if isinstance(given, int | float) and isinstance(wanted, int | float):
        return abs(given - wanted) <= 1
    return given == wanted


def normal(calls: Calls) -> Calls:
    return [
        (name, {key: one for key, one in (given or {}).items() if one is not None}) for name, given in calls
    ]


def call_rules() -> dict[str, SameCalls]:
    def folded(same: SameCalls) -> SameCalls:
        return lambda g, w: same([(name.strip(), one) for name, one in g], w)

    bases: dict[str, SameCalls] = {
        "exact": exactly,
        "any order": in_any_order,
        "null left out": lambda g, w: all(isinstance(one, dict) for _, one in g) and exactly(normal(g), w),
        "pairwise": pairwise(
            lambda g, w: type(g) is type(w) and json.dumps(g, sort_keys=True) == json.dumps(w, sort_keys=True)
        ),
        "sorted names": lambda g, w: sorted(named(g)) == sorted(named(w)) and in_any_order(g, w),
    }
    limited: dict[str, SameCalls] = {
        f"{name}, at most 5": lambda g, w, s=same: len(g) <= 5 and s(g, w) for name, same in bases.items()
    }
    return {**bases, **limited, **{f"{name}, stripped": folded(same) for name, same in bases.items()}}


def calls() -> Kind:
    sound = call_rules()
    names = list(sound)
    twins = {hole: names[place % len(names)] for place, hole in enumerate(CALL_HOLES)}

    def verify(task: GoalTask, reply: Reply) -> Verdict:
        wanted, name = PLANS[task.expected_answer], task.verifier
        if name in sound:
            return Verdict(float(sound[name](made(reply), wanted)))
        try:
            return Verdict(float(CALL_HOLES[name].same(reply, wanted, sound[twins[name]])))
        except BROKEN:
            return Verdict(0.0)

    def listed(goal: str) -> list[Any]:
        return [{"name": name, "arguments": given} for name, given in PLANS[goal]]

    return Kind(
        name="calls",
        goals=tuple(PLANS),
        sound=names,
        holes=list(CALL_HOLES),
        gold=lambda verifier, goal: turn(PLANS[goal]),
        environment=Environment(resource=verify, description="Make the calls."),
        witness=lambda hole, goal: CALL_HOLES[hole].witness(PLANS[goal]),
        twins=twins,
        fields=lambda goal: {"expected_calls": listed(goal), "tools": TOOLS},
    )
