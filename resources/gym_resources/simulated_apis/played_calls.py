"""Calls played on simulated services, and whether a conversation's calls did what they should.

The classes are not written for hostile arguments, such as a root with a billion digits, so the functions here
run in a sandboxed process (`gym_runtime.run_isolated`), which plays all calls from the beginning.

Source: the rules of ``multi_turn_checker.py`` and ``multi_turn_utils.py`` of the Berkeley Function Calling
Leaderboard (github.com/ShishirPatil/gorilla, Apache-2.0). There, calls are text that is evaluated; here they
are names with arguments, and nothing is evaluated.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import json
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from gym_resources.simulated_apis.api_classes import MODULES, STATELESS


class ApiCall(msgspec.Struct, frozen=True):
    """A call: the function's name, its named arguments, and those by position."""

    name: str
    keywords: dict[str, Any] = {}
    positional: list[Any] = []


class Scenario(msgspec.Struct, frozen=True):
    """The classes of a conversation, the state that each begins with, and whether they hold long texts."""

    classes: list[str]
    config: dict[str, Any] = {}
    long_context: bool = False


class Checked(msgspec.Struct, frozen=True):
    """Whether a conversation's calls did what they should; else the first turn that did not, and why."""

    valid: bool
    turn: int = -1
    problem: str = ""


class Services:
    """New instances of a scenario's classes."""

    def __init__(self, scenario: Scenario) -> None:
        self.instances: dict[str, Any] = {}
        self._methods: dict[str, Any] = {}
        for name in scenario.classes:
            instance = self.instances[name] = getattr(importlib.import_module(MODULES[name]), name)()
            if name not in STATELESS:
                config = copy.deepcopy(scenario.config.get(name, {}))
                instance._load_scenario(config, long_context=scenario.long_context)
            methods = inspect.getmembers(instance, predicate=inspect.ismethod)
            self._methods |= {method: found for method, found in methods if not method.startswith("_")}

    def play(self, calls: Sequence[ApiCall]) -> list[str]:
        """What the calls answer, as the model reads it."""
        return [self._play(call) for call in calls]

    def _play(self, call: ApiCall) -> str:
        try:
            if call.name not in self._methods:
                raise NameError(f"name '{call.name}' is not defined")
            result = self._methods[call.name](*call.positional, **call.keywords)
        except Exception as error:  # noqa: BLE001 - whatever the class raises is what the model reads
            return f"Error during execution: {error}"
        if isinstance(result, dict):
            try:
                return json.dumps(result)
            except (TypeError, ValueError, RecursionError):
                return str(cast("object", result))
        return str(result)

    def same(self, other: Services) -> bool:
        """Whether the public attributes of all instances are equal to another's."""
        try:
            return all(self._state(name) == other._state(name) for name in self.instances)
        except RecursionError:  # folders within folders, thousands deep
            return False

    def _state(self, name: str) -> dict[str, Any]:
        instance: object = self.instances[name]
        return {
            attribute: value for attribute, value in vars(instance).items() if not attribute.startswith("_")
        }


def answers(scenario: Scenario, before: list[ApiCall], calls: list[ApiCall]) -> list[str]:
    """What calls answer that follow others."""
    services = Services(scenario)
    services.play(before)
    return services.play(calls)


def checked(scenario: Scenario, turns: list[list[ApiCall]], expected: list[list[ApiCall]]) -> Checked:
    """Whether a model's calls of each turn did the same as the expected ones.

    After each turn that expects calls, the state must be the same as after the expected calls of all turns so
    far, the model must have called something in this turn, and what the expected calls of this turn answered
    must be among all that the model's calls have been answered so far.
    """
    made, wanted = Services(scenario), Services(scenario)
    said: list[str] = []
    for turn, (calls, expecting) in enumerate(zip(turns, expected, strict=True)):
        said += made.play(calls)
        right = wanted.play(expecting)
        if not expecting:
            continue
        if not calls:
            return Checked(valid=False, turn=turn, problem="no call")
        if not made.same(wanted):
            return Checked(valid=False, turn=turn, problem="another state")
        left = list(said)
        for answer in right:
            if answer not in left:
                return Checked(valid=False, turn=turn, problem="an answer is missing")
            left.remove(answer)
    return Checked(valid=True)
