"""The delays say what they are: a unit in the name, and a reason."""

from __future__ import annotations

import ast
import inspect

from gym_runtime import timing


def test_every_delay_has_a_unit_or_is_a_count_and_says_why() -> None:
    body = ast.parse(inspect.getsource(timing)).body
    documented = 0
    for statement, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(statement, ast.Assign):
            continue
        (target,) = statement.targets
        assert isinstance(target, ast.Name)
        assert target.id.endswith("_S") or target.id.endswith("_MISSES"), target.id
        assert isinstance(after, ast.Expr), f"{target.id} does not say why"
        documented += 1
    assert documented > 20
