"""The table of ``docs/what-runs-where.md`` has every environment once, and agrees with what each declares."""

from __future__ import annotations

import re
from itertools import takewhile

from docs.pages import ROOT
from gym_runtime.environment import catalogue
from tables import table

_TEXT = (ROOT / "docs/what-runs-where.md").read_text()
_LINES = takewhile(bool, _TEXT.partition("| environment |")[2].splitlines()[2:])
ROWS = [
    (re.findall(r"`([^`]+)`", names), where.strip())
    for names, _, where in (line.strip("|").split(" | ", 2) for line in _LINES)
]
INSTALLED = sorted(catalogue.names("environments"))


def test_every_environment_and_guest_stands_in_it_once() -> None:
    guests = [f"{scheme.replace('_', '-')}:…" for scheme in catalogue.names("guests")]
    assert sorted(name for names, _ in ROWS for name in names) == sorted([*INSTALLED, *guests])


@table("name", INSTALLED)
def test_it_says_isolated_of_those_that_declare_it(name: str) -> None:
    (where,) = [where for names, where in ROWS if name in names]
    assert where.startswith("isolated") == catalogue.environment(name).definition.isolated
