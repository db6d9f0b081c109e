"""What an audit found beside its rates, in sentences: for the terminal, and for the page of its replies."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from gym_testing.audit.artifact import Artifact
from gym_testing.audit.difficulty import Difficulty
from gym_testing.audit.duplicates import Duplicates
from gym_testing.audit.judges import Agreement

SHOWN_NAMES = 3
SHOWN = 50


def notes(made: Artifact) -> Iterator[str]:
    """The sentences; the document may be of anyone, so a name in it may be long."""
    if made.cost.not_reached:
        yield f"{made.cost.not_reached:,} replies were not judged: the time was over (--seconds)"
    if made.agreement is not None:
        yield from _agreement(made.agreement)
    if made.duplicates is not None:
        yield from _duplicates(made.duplicates)
    if made.difficulty is not None:
        yield from _difficulty(made.difficulty)
    if made.unobserved:
        yield f"unobserved: {', '.join(made.unobserved[:SHOWN])}"


def _agreement(found: Agreement) -> Iterator[str]:
    if found.verdicts:
        models = ", ".join(f"{role} {model}" for role, model in found.models.items())
        yield (
            f"{models} agrees with itself in {found.agreed / found.verdicts:.0%}"
            f"{_interval(found.low, found.high)} of {found.verdicts:,} verdicts; in all of them on "
            f"{found.unanimous} of {found.replies} replies"
        )


def _duplicates(found: Duplicates) -> Iterator[str]:
    if found.within:
        first = ", ".join(" and ".join(map(str, pair)) for pair in found.pairs[:3])
        yield f"near-duplicates: {found.within} of {found.prompts} prompts, such as rows {first}"
    for name, one in islice(found.against.items(), SHOWN):
        rows = f": rows {', '.join(map(str, one.rows[:10]))}" if one.rows else ""
        has = f"it has {one.contains} of {found.prompts} prompts, {one.touches} touch it"
        yield f"against {name}: {has}{rows}"
    if left := list(found.not_compared):
        shown = ", ".join(left[:SHOWN_NAMES]) + (", …" if len(left) > SHOWN_NAMES else "")
        yield (
            f"not compared with {len(left)} published benchmarks ({shown}): 'gym-runtime prepare NAME' "
            "fetches one; the artifact says why"
        )


def _difficulty(found: Difficulty) -> Iterator[str]:
    said = f"{found.model}: no rollout was rated"
    if found.pass_rate is not None:
        rated = sum(one.rated > 0 for one in found.rows)
        said = (
            f"{found.model} passes {found.pass_rate:.0%}{_interval(found.low, found.high)} of {rated} rows, "
            f"{found.tries} tries each"
        )
    if found.signal_rows:
        share = _interval(found.signal_low, found.signal_high)
        said += f"; rewards differ in {found.signal}/{found.signal_rows} rows{share}"
    if found.length_p50 is not None and found.length_p95 is not None:
        said += f"; half write at most {found.length_p50:,.0f} tokens, 95 % at most {found.length_p95:,.0f}"
    yield said + (f"; {found.failed} rollouts failed" if found.failed else "")
    shown = ", ".join(f"{place * 10} %: {count}" for place, count in enumerate(found.tenths[:10]) if count)
    if shown:
        yield f"rows by pass rate, from: {shown}"


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f" ({low:.0%}–{high:.0%})"
