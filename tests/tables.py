"""A table of cases is one test.

``parametrize`` makes a test of each case, and pytest's own work for a test (3.6 ms with pytest-xdist) is
often more than what a case of a pure function takes. A case that fails does not stop the others: all
failures are raised together, each with its case as a note. A test whose fixtures keep state from case to
case, or whose cases are skipped one by one, stays with ``parametrize``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from reprlib import Repr
from typing import Any

import pytest

_short = Repr()
_short.maxstring = _short.maxother = 200

Test = Callable[..., Any]


def table(
    names: str | Sequence[str], cases: Iterable[Any], ids: Iterable[str] | None = None
) -> Callable[[Test], Test]:
    """Give a test the arguments ``names`` from each of ``cases``, as ``pytest.mark.parametrize`` does."""
    given = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    labels = list(ids or ())
    rows: list[dict[str, Any]] = []
    for case in cases:
        values = [case] if len(given) == 1 else list(case)
        assert len(values) == len(given), f"{len(values)} values for {', '.join(given)}: {case!r}"
        rows.append(dict(zip(given, values, strict=True)))
    assert rows, "a table without cases proves nothing"

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)
        others = [one for one in signature.parameters.values() if one.name not in given]
        assert len(others) == len(signature.parameters) - len(given), f"{test.__name__} takes no {names}"

        @functools.wraps(test)
        def each_case(**fixtures: Any) -> None:
            failures: list[BaseException] = []
            for number, row in enumerate(rows):
                with _noted(failures, labels[number] if labels else row):
                    test(**fixtures, **row)
            _raise(failures)

        @functools.wraps(test)
        async def each_case_in_turn(**fixtures: Any) -> None:
            failures: list[BaseException] = []
            for number, row in enumerate(rows):
                with _noted(failures, labels[number] if labels else row):
                    await test(**fixtures, **row)
            _raise(failures)

        made: Any = each_case_in_turn if inspect.iscoroutinefunction(test) else each_case
        made.__signature__ = signature.replace(parameters=others)
        return made

    return decorate


@contextmanager
def _noted(failures: list[BaseException], case: object) -> Generator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case {case if isinstance(case, str) else _short.repr(case)}")
        if not isinstance(error, (Exception, pytest.fail.Exception)):
            raise
        failures.append(error)


def _raise(failures: list[BaseException]) -> None:
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise BaseExceptionGroup(f"{len(failures)} cases fail", failures)
