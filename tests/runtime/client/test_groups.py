"""The order of results."""

from __future__ import annotations

from gym_runtime.client.collected_groups import InputOrder
from gym_runtime.messages.rollout_spec import RolloutSpec
from msgspec import Raw


def specs(count: int) -> list[RolloutSpec]:
    rows = [Raw(b"{}")] * count
    return [
        RolloutSpec(
            run="r",
            task_index=task,
            rollout_index=0,
            environment="e",
            agent="a",
            model="m",
            row=row,
            agent_ref=Raw(b"{}"),
        )
        for task, row in enumerate(rows)
    ]


def test_a_result_that_comes_before_its_row_is_read_keeps_its_place() -> None:
    order = InputOrder[str]()
    expected = order.expecting(specs(3), lambda spec: spec.task_index)
    assert list(order.arrived(1, "one")) == []
    next(expected)
    assert list(order.arrived(0, "zero")) == ["zero"]
    next(expected)
    next(expected)
    assert list(order.arrived(2, "two")) == ["one", "two"]
    assert list(order.rest()) == []


def test_what_never_came_holds_back_the_others_until_the_end() -> None:
    order = InputOrder[str]()
    list(order.expecting(specs(3), lambda spec: spec.task_index))
    assert list(order.arrived(1, "one")) == []
    assert list(order.arrived(0, "zero")) == ["zero", "one"]
    assert list(order.arrived(2, "two")) == ["two"]
