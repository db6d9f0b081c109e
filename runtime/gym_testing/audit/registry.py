"""The registry of makers: functions that make replies to a row, and what a sound verifier says of these.

The package's own makers are in `exploits` and `mutations`. An author adds some in the environment's module by
the same decorators; these count for that module's environment only.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from gym_runtime.errors import UsageError

from gym_testing.audit.target import KINDS, Target

Expect = Literal["nothing", "less", "full"]
"""What a sound verifier gives: no more than silence gets; less than the perfect rollout; as much as it."""

Reply = str | list[list[Any]]
"""A final text, or turns as in an example row's ``gold``."""

Doubt = Literal["suspect", "either"]
Suspect = tuple[Reply, Doubt]
Make = Callable[[Target], Iterable[Reply | Suspect]]
"""Makes replies to a row.

One whose outcome the maker cannot be sure of is paired with ``"suspect"``: it is reported, and not counted.
Of those that a maker pairs with ``"either"`` a sound verifier pays for one at most, such as for the first or
for the last of two answers: the second that is paid is counted.
"""


class Maker(msgspec.Struct, frozen=True):
    """A registered function.

    Attributes:
        kinds: it is asked for rows that have all of these kinds (`Target.kinds`).
        last: its replies may take long to judge, so they come after all others.
    """

    name: str
    make: Make
    expect: Expect
    kinds: frozenset[str]
    last: bool = False


class Probe(msgspec.Struct, frozen=True):
    """A reply to be judged, and what a sound verifier says."""

    source: str
    expect: Expect
    turns: list[list[Any]]
    suspect: bool = False
    last: bool = False
    either: bool = False


_makers: dict[str, list[Maker]] = {}
"""By the file of the function."""


def exploit(*kinds: str, last: bool = False) -> Callable[[Make], Make]:
    """Register a maker of replies that try to be paid for nothing: a sound verifier gives what silence gets.

    Args:
        kinds: the kinds of rows that it is for, such as ``"boxed"`` or ``"code"``; all by default.
        last: its replies may take long to judge.

    Raises:
        UsageError: there is no such kind: no row would ever get its replies.
    """
    return _registering("nothing", kinds, last=last)


def near_miss(*kinds: str) -> Callable[[Make], Make]:
    """Register a maker of wrong replies near the right one: a sound verifier gives less than full reward."""
    return _registering("less", kinds)


def same_answer(*kinds: str) -> Callable[[Make], Make]:
    """Register a maker of right replies in other forms: a sound verifier gives full reward."""
    return _registering("full", kinds)


def _registering(expect: Expect, kinds: Sequence[str], *, last: bool = False) -> Callable[[Make], Make]:
    for kind in kinds:
        if kind not in KINDS:
            call = traceback.extract_stack(limit=3)[0]
            known = ", ".join(KINDS)
            raise UsageError(
                f"{call.filename}:{call.lineno}: there is no kind of rows {kind!r}; there are: {known}"
            )

    def register(make: Make) -> Make:
        file = str(Path(make.__code__.co_filename).resolve())
        name = f"{Path(file).stem}:{make.__name__}"
        of_file = _makers.setdefault(file, [])
        known = (name, frozenset(kinds))
        of_file[:] = [one for one in of_file if (one.name, one.kinds) != known]  # a file may be loaded twice
        of_file.append(Maker(name, make, expect, frozenset(kinds), last))
        return make

    return register


def makers(*files: str) -> list[Maker]:
    """The makers of some files, in their order."""
    return [maker for file in files for maker in _makers.get(str(Path(file).resolve()), [])]


def probes(target: Target, all_makers: Iterable[Maker]) -> Iterator[Probe]:
    """The replies to a row, each once and without the perfect rollout itself.

    Raises:
        UsageError: a maker raised.
    """
    seen = {_key(target.turns)}
    for maker in all_makers:
        if not maker.kinds <= target.kinds:
            continue
        try:
            replies = list(maker.make(target))
        except Exception as error:
            problem = f"{maker.name} made no replies to row {target.example.number}: {error!r}"
            raise UsageError(problem) from error
        for made in replies:
            reply, doubt = made if isinstance(made, tuple) else (made, None)
            turns = [[reply]] if isinstance(reply, str) else reply
            key = _key(turns)
            if key not in seen:
                seen.add(key)
                yield Probe(
                    maker.name, maker.expect, turns, doubt == "suspect", maker.last, doubt == "either"
                )


def _key(turns: list[list[Any]]) -> bytes:
    return msgspec.json.encode(turns)
