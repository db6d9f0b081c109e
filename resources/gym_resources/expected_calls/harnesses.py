"""What the harnesses of terminal agents compare of a call and the demonstrated one.

Source: the rulebooks of NeMo Gym's ``terminal_multi_harness`` for ``codex`` and ``agent006``; those of
``opencode`` and ``stirrup`` are our own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Literal, TypeVar

from gym_runtime.messages import FunctionCall

from gym_resources.expected_calls.expected import ExpectedCall, decoded
from gym_resources.extract.similarity import ratio

Harness = Literal["codex", "opencode", "agent006", "stirrup"]
How = Literal["command", "code", "json", "query", "filled"]
COMPARED: dict[Harness, dict[str, tuple[str, How]]] = {
    "codex": {"exec_command": ("cmd", "command"), "update_plan": ("plan", "filled")},
    "opencode": {"bash": ("command", "command")},
    "agent006": {"execute_python": ("code", "code"), "return_result": ("result", "json")},
    "stirrup": {"code_exec": ("cmd", "command"), "web_search": ("query", "query")},
}
"""Of each tool the argument that is compared, and how."""
COMPARES_ALL: frozenset[Harness] = frozenset({"opencode", "stirrup"})
"""Of the other tools of these, every argument of the call is compared as JSON; elsewhere none is."""
_Call = TypeVar("_Call", ExpectedCall, FunctionCall)


def compared(harness: Harness, tool: str, given: Iterable[str]) -> list[tuple[str, How]]:
    """The arguments of a call with these arguments that are compared, and how.

    >>> compared("opencode", "read", ["filePath"]), compared("codex", "write_stdin", ["chars"])
    ([('filePath', 'json')], [])
    """
    if rule := COMPARED[harness].get(tool):
        return [rule]
    return [(argument, "json") for argument in given] if harness in COMPARES_ALL else []


def aligned(harness: Harness, calls: Sequence[_Call]) -> list[_Call]:
    """The calls in the order of their tools' names, with ``agent006`` also of their arguments."""

    def key(call: _Call) -> tuple[str, str]:
        arguments = decoded(call.arguments) if harness == "agent006" else None
        return call.name, json.dumps(arguments, sort_keys=True) if isinstance(arguments, dict) else ""

    return sorted(calls, key=key)


def similarity(how: How, expected: object, given: object, least: float) -> float | None:
    """How alike the compared argument of two calls is, 0 to 1, as `ratio` says; null is no argument."""
    if given is None:
        return 0.0
    if how == "filled":
        return float(bool(given))
    if how == "json":
        return ratio(json.dumps(expected, sort_keys=True), json.dumps(given, sort_keys=True), least)
    if not isinstance(expected, str) or not isinstance(given, str):
        return 0.0
    if how == "code":
        return ratio(expected, given, least) if expected and given else 0.0
    return ratio(_trimmed(expected), _trimmed(given), least)


def _trimmed(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").strip()
