"""The values of a choice, which errors list."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest
from gym_runtime.environment.environment import AgentChoice
from gym_runtime.environment.settings import checked_agent
from gym_runtime.errors import UsageError
from gym_runtime.files.row_reader import BadRow, RowReader
from gym_runtime.messages import choices

Colour = Literal["red", "blue"]


class Deep(msgspec.Struct):
    colours: dict[str, list[Colour]] = {}
    one: Annotated[Colour | None, msgspec.Meta(title="x")] = msgspec.field(default=None, name="first")
    number: int = 0


@pytest.mark.parametrize(
    ("value", "there"),
    [
        ({"colours": {"a": ["red", "green"]}}, "; there are: blue, red"),
        ({"first": "green"}, "; there are: blue, red"),
        ({"number": "green"}, ""),
    ],
)
def test_the_values_are_found_where_the_wrong_one_was(value: Any, there: str) -> None:
    with pytest.raises(msgspec.ValidationError) as wrong:
        msgspec.convert(value, Deep)
    assert choices(wrong.value, Deep) == there


def test_of_a_message_that_says_nothing_of_a_choice_there_are_none() -> None:
    assert choices("Invalid enum value 'x' - at `$.nothing.there`", Deep) == ""
    assert choices("Invalid", Deep) == ""


def test_options_of_agents_and_fields_of_rows_list_theirs() -> None:
    with pytest.raises(UsageError, match=r"Invalid enum value 'maybe'.*; there are: fail, restart$"):
        checked_agent(AgentChoice("black_box", {"on_divergence": "maybe"}))
    line = b'{"responses_create_params": {"input": "x"}, "grading_mode": "lenient"}'
    with pytest.raises(BadRow) as refused:
        RowReader("mcqa").read(line)
    assert "'grading_mode': invalid enum value 'lenient'; there are: " in refused.value.message
