"""What an audit found, as it is written: ``NAME.audit.json``, and the replies beside it.

A reply's line is a row with a response and a reward, as a run stores it, so `show`, `view` and `reverify`
read it too. A rate that was not measured is null, which is not 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
from gym_runtime.environment import Example
from gym_runtime.errors import UNREADABLE, UsageError
from gym_runtime.files import write_whole
from msgspec import Raw

from gym_testing.audit.difficulty import Difficulty
from gym_testing.audit.duplicates import Duplicates
from gym_testing.audit.intervals import wilson
from gym_testing.audit.judges import Agreement
from gym_testing.audit.registry import Expect

SCHEMA = 1
VERSION = "2026.11.2"
"""Of the set of exploits and mutations: rates of different versions are not comparable."""

Class = Literal["gold_fails", "false_positive", "partial", "false_negative", "unstable", "nop", "error"]
CLASSES: dict[Class, str] = {
    "gold_fails": "the perfect rollout is not paid in full",
    "nop": "an empty reply is paid",
    "false_positive": "a wrong reply is paid in full",
    "partial": "an exploit is paid in part",
    "false_negative": "a right reply is not paid in full",
    "unstable": "the same reply gets different rewards",
    "error": "the verifier breaks",
}

_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder(order="sorted").encode


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """How many rows have at least one finding of a class.

    Attributes:
        rows: rows that were measured.
        found: rows with a finding; None if the rate is unobserved.
        low, high: the 95 % interval (Wilson) of the share of rows; None without rows.
        tried: replies that were judged.
        by: findings by their source.
        suspect: findings that may be right by the rule; they are not among ``found``.
    """

    rows: int
    found: int | None
    low: float | None = None
    high: float | None = None
    tried: int = 0
    by: dict[str, int] = {}
    suspect: int = 0


def rate(rows: int, found: int, **more: Any) -> Rate:
    """The rate of some rows; unobserved without rows."""
    low, high = wilson(found, rows) or (None, None)
    return Rate(rows=rows, found=found if rows else None, low=low, high=high, **more)


class AuditFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A reply that is judged as no sound verifier judges it.

    Attributes:
        row: the row's number in its file, from 1.
        expected: what a sound verifier gives: ``nothing``, ``less`` than full, ``full``; or ``same``.
        reward: what it got; None for an error.
    """

    id: str
    kind: Class = msgspec.field(name="class")
    row: int
    source: str
    expected: Expect | Literal["same"]
    reward: float | None
    suspect: bool = False
    detail: str = ""
    replay: str


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows were measured.

    Attributes:
        rows: in the file; perfect rollouts and silence are measured on all of them, as far as the time goes.
        sampled: of them drawn by ``seed``, for all other rates.
    """

    name: str
    rows: int
    sha256: str
    sampled: int
    seed: int


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What the audit cost; of ``planned`` replies, ``not_reached`` were not judged when its time was over."""

    seconds: float
    verifications: int
    planned: int = 0
    not_reached: int = 0

    @property
    def reached(self) -> float:
        """The share of the planned replies that were judged."""
        return 1 - self.not_reached / self.planned if self.planned else 1.0


class Stability(msgspec.Struct, frozen=True, kw_only=True):
    """How often the same replies were judged, and in which ways."""

    replies: int
    repeats: int
    ways: list[str]


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """The whole document.

    Attributes:
        environment_sha256: of the environment's module, by which a reader sees that it is another one by now.
        agreement: of the judges that were named with themselves; None if none was, or none was asked.
        judged: replies that a model in a role decided, so that nothing can be said of them without one.
        duplicates: prompts that occur twice, of all rows of the file.
        difficulty: what a model made of the sampled rows, if one was named.
        unobserved: what was not measured.
    """

    schema: int = SCHEMA
    environment: str
    environment_sha256: str
    runtime: str
    audit: str = VERSION
    made: str
    input: Input
    rates: dict[str, Rate]
    stability: Stability
    agreement: Agreement | None = None
    judged: int = 0
    duplicates: Duplicates | None = None
    difficulty: Difficulty | None = None
    findings: list[AuditFinding]
    unobserved: list[str]
    cost: Cost


def with_difficulty(made: Artifact, found: Difficulty) -> Artifact:
    """The document with what a model made of the rows."""
    left = [name for name in made.unobserved if name != "difficulty"]
    return msgspec.structs.replace(made, difficulty=found, unobserved=left)


class StoredReply(msgspec.Struct, frozen=True, kw_only=True):
    """A finding with its reply."""

    finding: AuditFinding
    example: Example
    response: bytes

    def line(self, name: str) -> bytes:
        """The reply's line, of an environment of this name."""
        fields: dict[str, Any] = dict(_decode_fields(self.example.row))
        fields |= {"response": Raw(self.response), "reward": self.finding.reward, "agent_ref": {"name": name}}
        return _encode({**fields, "_audit": self.finding}) + b"\n"


def write(path: Path, artifact: Artifact, replies: list[StoredReply]) -> None:
    """Write the document and the replies.

    Raises:
        UsageError: a file cannot be written.
    """
    document = msgspec.json.format(_encode(artifact), indent=1) + b"\n"
    write_whole(path, iter([document]))
    write_whole(replies_path(path), (reply.line(artifact.environment) for reply in replies))


def replies_path(path: Path) -> Path:
    """The file of replies beside an artifact.

    >>> str(replies_path(Path("mcqa.audit.json")))
    'mcqa.audit.replies.jsonl'
    """
    return path.with_suffix(".replies.jsonl")


class Recorded(msgspec.Struct, kw_only=True):
    """A line of the replies' file, as it is read again."""

    finding: AuditFinding = msgspec.field(name="_audit")
    response: Raw


def recorded(path: Path, wanted: str) -> tuple[Recorded, bytes]:
    """A stored reply by its finding's id, and its whole line.

    Raises:
        UsageError: there is none, or the file is not an audit's.
    """
    known: list[str] = []
    for one, line in _lines(replies_path(path)):
        if one.finding.id == wanted:
            return one, line
        known.append(one.finding.id)
    listed = f"there are: {', '.join(known[:20])}" if known else "it has none"
    raise UsageError(f"{replies_path(path)} has no reply '{wanted}'; {listed}")


def _lines(path: Path) -> Iterator[tuple[Recorded, bytes]]:
    if not path.is_file():
        raise UsageError(f"there is no file {path}; run the audit first, or name its artifact by --output")
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield msgspec.json.decode(line, type=Recorded), line
            except UNREADABLE as error:
                raise UsageError(f"{path}:{number}: not a reply of an audit: {error}") from None
