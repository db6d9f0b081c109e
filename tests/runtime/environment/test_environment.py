"""An environment's declaration: what does not fit is refused where it stands, and what is left out."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gym_runtime import Environment, Episode, Reply, Session, Task, Verdict
from gym_runtime.environment import catalogue
from gym_runtime.errors import UsageError
from tables import table


def verify(task: Task, reply: Reply) -> Verdict:
    return Verdict(1.0)


class Desk(Session[Task]):
    """Tools and state."""


class Game(Episode[Task]):
    """Step by step."""


@table(
    ("field", "value", "expected"),
    [
        ("max_turns", "5", "Expected `int | None`, got `str`"),
        ("max_turns", 5.5, "Expected `int | None`, got `float`"),
        ("max_turns", 0, "Expected `int` >= 1"),
        ("max_turns", True, "Expected `int | None`, got `bool`"),
        ("timeout_s", "60", "Expected `float`, got `str`"),
        ("timeout_s", 0, "Expected `float` > 0.0"),
        ("timeout_s", math.nan, "Expected `float` > 0.0"),
        ("timeout_s", math.inf, "it must be a finite number"),
        ("verify_timeout_s", -1, "Expected `float` > 0.0"),
        ("gold_reward", math.nan, "it must be a finite number"),
        ("parallel_tools", "no", "Expected `bool`, got `str`"),
        ("domain", "Home banking", "it must be a word in small letters, such as agent, coding, e2e, games, "),
        ("domain", ["math"], "it must be a word in small letters, such as agent, coding, e2e, games, "),
        ("agent", None, "Expected `str`, got `None`"),
        ("description", None, "Expected `str`, got `None`"),
        ("agent_refs", "mine_agent", "Expected `array`, got `str`"),
        ("resource", 5, "it must be a function verify(task, reply), or a class that derives from Session"),
        ("resource", int, "it must be a function verify(task, reply), or a class that derives from Session"),
        ("generate", "rows", "it must be a function generate(size, seed)"),
    ],
)
def test_a_value_that_does_not_fit_is_one_line_with_what_is_expected(
    field: str, value: Any, expected: str
) -> None:
    fields: dict[str, Any] = {"resource": verify, "description": "", field: value}
    with pytest.raises(UsageError) as caught:
        Environment(**fields)
    message = str(caught.value)
    assert f"{Path(__file__).name}:" in message
    assert f": Environment({field}={value!r}): {expected}" in message
    assert "\n" not in message


def test_a_module_with_such_a_value_is_refused_with_its_place(tmp_path: Path) -> None:
    module = tmp_path / "placed.py"
    module.write_text(
        "from gym_runtime import Environment, Reply, Task, Verdict\n"
        "def verify(task: Task, reply: Reply) -> Verdict: return Verdict(1.0)\n"
        "environment = Environment(\n    resource=verify,\n    description='',\n    max_turns='5',\n)\n"
    )
    with pytest.raises(UsageError) as caught:
        catalogue.environment(str(module))
    assert str(caught.value) == f"{module}:3: Environment(max_turns='5'): Expected `int | None`, got `str`"


@pytest.mark.parametrize(
    ("resource", "agent"), [(verify, "tool_loop"), (Desk, "tool_loop"), (Game, "step_loop")]
)
def test_the_agent_goes_by_the_shape_where_it_is_left_out(resource: Any, agent: str) -> None:
    environment = Environment(resource=resource, description="")
    assert environment.agent == agent
    assert Environment(resource=resource, description="", agent="single_turn").agent == "single_turn"
    assert msgspec.structs.replace(environment, max_turns=3).agent == agent


def test_a_domain_may_be_of_ones_own() -> None:
    assert Environment(resource=verify, description="", domain="banking").domain == "banking"
