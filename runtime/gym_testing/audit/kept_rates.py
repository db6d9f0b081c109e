"""Rates that are kept beside the modules: ``audits.jsonl``, one line an environment.

`ls environments` shows them as badges, and the reference as a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
from gym_runtime.errors import UNREADABLE, UsageError
from gym_runtime.files import write_whole

from gym_testing.audit.artifact import Artifact, Rate, rate

NAME = "audits.jsonl"
REACHED_AT_LEAST = 0.05
"""Of the planned replies; rates of fewer are not worth keeping."""
_encode = msgspec.json.Encoder(order="sorted").encode


class KeptRate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A `Rate` without its interval, which follows from the rows."""

    rows: int
    found: int | None = None
    tried: int = 0
    by: dict[str, int] = {}
    suspect: int = 0

    def whole(self) -> Rate:
        """With its interval."""
        return rate(self.rows, self.found or 0, tried=self.tried, by=self.by, suspect=self.suspect)


class KeptRates(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept of an artifact: its rates, and of what they are.

    Attributes:
        rows: in the file that was measured.
        input_sha256: of that file.
        judged, unobserved: as in `Artifact`.
        seconds: how long the audit took, on a machine that may have done other work.
        planned, not_reached: replies that were to be judged, and those of them that were not because the
            time was over; 0 where all were judged.
    """

    environment: str
    environment_sha256: str
    audit: str
    rows: int
    input_sha256: str
    rates: dict[str, KeptRate]
    judged: int = 0
    unobserved: list[str] = []
    seconds: float | None = None
    planned: int = 0
    not_reached: int = 0


def kept(made: Artifact) -> KeptRates:
    """What of an artifact is kept."""
    return KeptRates(
        environment=made.environment,
        environment_sha256=made.environment_sha256,
        audit=made.audit,
        rows=made.input.rows,
        input_sha256=made.input.sha256,
        rates={name: _kept(one) for name, one in made.rates.items()},
        judged=made.judged,
        unobserved=made.unobserved,
        seconds=made.cost.seconds,
        planned=made.cost.planned if made.cost.not_reached else 0,
        not_reached=made.cost.not_reached,
    )


def _kept(one: Rate) -> KeptRate:
    return KeptRate(rows=one.rows, found=one.found, tried=one.tried, by=one.by, suspect=one.suspect)


def read(folder: Path) -> dict[str, KeptRates]:
    """The rates that are kept in a folder, by environment; none if it has no such file.

    Raises:
        UsageError: the file is not one of rates.
    """
    path = folder / NAME
    if not path.is_file():
        return {}
    try:
        lines = msgspec.json.Decoder(KeptRates).decode_lines(path.read_bytes())
    except UNREADABLE as error:
        raise UsageError(f"{path} has no rates of an audit: {error}; remove it and audit again") from None
    return {one.environment: one for one in lines}


def keep(source: Path, made: Artifact, settings: str = "") -> None:
    """Keep an environment's rates beside its module, in place of older ones.

    Args:
        settings: of the rows, such as ``strict=true``: the rates stand beside those without.

    Raises:
        UsageError: the file cannot be written, or is not one of rates.
    """
    one = kept(made)
    if settings:
        one = msgspec.structs.replace(one, environment=f"{one.environment} {settings}")
    rates: Mapping[str, KeptRates] = {**read(source.parent), one.environment: one}
    lines = (_encode(rates[name]) + b"\n" for name in sorted(rates))
    write_whole(source.parent / NAME, lines)
