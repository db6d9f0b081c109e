"""How often an environment's verifier is wrong, in a few words: from ``audits.jsonl`` beside its module.

`gym-runtime audit --keep-rates` writes that file.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import msgspec
from gym_runtime.errors import UNREADABLE

RATES = {"fp": "false_positive", "fn": "false_negative"}


class _Rate(msgspec.Struct):
    rows: int
    found: int | None = None


class _Audit(msgspec.Struct):
    environment: str
    environment_sha256: str
    audit: str
    rates: dict[str, _Rate]


class Badge(msgspec.Struct, frozen=True, kw_only=True):
    """What an audit found: rows with a finding of all that were measured, ``?`` where nothing was.

    Attributes:
        text: such as ``fp 3/200 fn 1/200``, of false positives and false negatives; empty without an audit.
        version: of the audit's set of replies.
        outdated: the module was changed since.
    """

    text: str = ""
    version: str = ""
    outdated: bool = False


def badge(name: str, source: Path) -> Badge:
    """The badge of an environment with its module's path; without a readable file, an empty one."""
    found = _audits(source.parent).get(name)
    if found is None:
        return Badge()
    text = " ".join(f"{short} {_share(found.rates.get(kind))}" for short, kind in RATES.items())
    changed = hashlib.sha256(source.read_bytes()).hexdigest() != found.environment_sha256
    return Badge(text=text, version=found.audit, outdated=changed)


def _share(rate: _Rate | None) -> str:
    return "?" if rate is None or rate.found is None else f"{rate.found}/{rate.rows}"


@cache
def _audits(folder: Path) -> dict[str, _Audit]:
    try:
        lines = msgspec.json.Decoder(_Audit).decode_lines((folder / "audits.jsonl").read_bytes())
    except (OSError, *UNREADABLE):  # a badge is no reason for a listing to fail
        return {}
    return {one.environment: one for one in lines}
