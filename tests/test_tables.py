"""A table runs all of its cases, and says of each that fails which it was."""

from __future__ import annotations

import inspect

import pytest
from tables import table


def test_each_case_is_run_and_all_failures_are_raised_with_their_cases() -> None:
    seen: list[int] = []

    @table("number, most", [(1, 2), (3, 2), (2, 2), (4, 2)])
    def test(number: int, most: int) -> None:
        seen.append(number)
        if number > most:
            pytest.fail(f"{number} is above {most}")

    with pytest.raises(BaseExceptionGroup, match="2 cases fail") as raised:
        test()
    assert seen == [1, 3, 2, 4]
    notes = [one.__notes__[0] for one in raised.value.exceptions]
    assert notes == ["in the case {'most': 2, 'number': 3}", "in the case {'most': 2, 'number': 4}"]


def test_a_single_failure_is_raised_as_it_is_and_a_case_may_have_a_name() -> None:
    @table("number", [1, 2], ids=["one", "two"])
    def test(number: int) -> None:
        assert number == 1

    with pytest.raises(AssertionError) as raised:
        test()
    assert raised.value.__notes__ == ["in the case two"]


def test_tables_multiply_and_leave_the_fixtures_to_pytest() -> None:
    seen: list[tuple[str, str, int]] = []

    @table("letter", "ab")
    @table("number", [1, 2])
    def test(folder: str, letter: str, number: int) -> None:
        seen.append((folder, letter, number))

    assert list(inspect.signature(test).parameters) == ["folder"]
    test(folder="here")
    assert seen == [("here", letter, number) for letter in "ab" for number in (1, 2)]


@pytest.mark.anyio
@table("number", [1, 2])
async def test_a_coroutine_is_awaited(number: int) -> None:
    assert number in (1, 2)


def test_a_table_must_fit_its_test() -> None:
    with pytest.raises(AssertionError, match="without cases"):
        table("number", [])
    with pytest.raises(AssertionError, match="takes no digit"):
        table("digit", [1])(test_a_coroutine_is_awaited)
    with pytest.raises(AssertionError, match="3 values for a, b"):
        table("a, b", [(1, 2, 3)])
