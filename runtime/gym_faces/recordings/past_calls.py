"""Finds, for the calls of a program that runs again, the calls that it made in an earlier attempt.

A call is compared only with those that continue the same recorded call, so the two must have had the same
conversation so far. It is *the same* if its items are, apart from what differs between any two runs: ids,
clocks, process numbers, temporary names, commit hashes, the kernel (`plain`). It has *drifted* if only tools'
outputs or the system's instructions differ. Either gets the recorded answer, and what the model is shown
from then on is what was recorded. Calls are found by content, not by order, because a program may make
several at once. A call like none of those that an earlier attempt made in its place is a new one, unless one
of these has the same tools and is still to come: then the program has *diverged*. Pure: no I/O, no waiting.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec
from gym_runtime.errors import UNREADABLE, JournalMismatch
from gym_runtime.messages import NULL
from msgspec import Raw

from gym_faces.recordings.canonical import element

PLAIN_CHARS = 2**15
"""Of a longer text only so much is read for what differs: the interpreter is held meanwhile."""
SHOWN_CHARS = 160
"""So much of two texts that differ is in the error, from a little before the difference."""

# Each run of letters and spaces has a bound, because a tool's output may be nothing else.
_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}"
_DAY = "(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{0,6},? )?"
_NOISE = [
    (re.compile(pattern), word)
    for pattern, word in (
        (r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", "<uuid>"),
        (r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?", "<time>"),
        (
            rf"\b{_DAY}{_MONTH} {{1,2}}\d\d?,?(?: {{1,2}}\d\d?:\d\d(?::\d\d)?)?"
            r"(?: [A-Z]{3,4})?(?: {1,2}\d{4})?",
            "<time>",
        ),
        (r"\d\d:\d\d:\d\d(?:[.,]\d+)?", "<time>"),
        (r"(?:OS Version: |Linux )[\w.\-]{0,40}\d[\w.\-]{0,40}(?: [\w.\-]{1,40})?", "<kernel>"),
        (r"Chunk ID: [0-9a-f]{6}", "<chunk>"),
        (r"(?i:(?:wall time|duration|elapsed|took):? )[\d.]+ ?m?s?", "<seconds>"),
        (r"(?i:\bp?pid[ =:]{1,3})\d+", "<pid>"),
        (r"/tmp/[\w.\-]+", "<folder>"),
        (r"http://127\.0\.0\.1:\d+", "<gateway>"),
        (r"~[0-9a-f]{32}\b", "~<key>"),
        (r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{7,64}\b", "<hash>"),
    )
]

_encode = msgspec.json.Encoder().encode
_decode_tools: Callable[[Raw], list[dict[str, Any]] | None] = msgspec.json.Decoder(
    list[dict[str, Any]] | None
).decode
_FROM_SYSTEM = ("system", "developer")


class PastCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a call is found by; stored with it.

    Attributes:
        name: its own, within the rollout.
        after: the name of the call that it continues, or empty.
        added: the items that its conversation has beyond that call and its answer.
        tools: a digest of the names of the tools that it offered.
        instructions: its instructions as JSON, where the call that it continues has others.
    """

    name: str
    after: str = ""
    added: list[Raw] = []
    tools: str = ""
    instructions: str = ""


class Found(NamedTuple):
    """A recorded call, its place among them, and whether the new one has drifted from it."""

    place: int
    call: PastCall
    drifted: bool


class PastCalls:
    """The calls of earlier attempts.

    Args:
        notes: each call as it was stored.

    Raises:
        JournalMismatch: they are not those of a program.
    """

    def __init__(self, notes: Sequence[Raw] = ()) -> None:
        try:
            self._calls = [msgspec.json.decode(note, type=PastCall) for note in notes]
        except UNREADABLE as error:
            raise JournalMismatch(f"the journal is another agent's: {error}", stage="agent") from error
        self._instructions: dict[str, Raw] = {}
        self._children: defaultdict[str, list[int]] = defaultdict(list)
        self._put_back: dict[bytes, Raw] = {}
        depths: dict[str, int] = {}
        longest = -1
        for place, call in enumerate(self._calls):
            self._children[call.after].append(place)
            self.begin(call)
            depths[call.name] = depths.get(call.after, 0) + 1
            if longest < 0 or depths[call.name] >= depths[self._calls[longest].name]:
                longest = place
        self._longest = longest
        self._taken: set[int] = set()

    def find(self, after: str, added: Sequence[Raw], tools: str, instructions: Raw) -> Found | None:
        """The recorded call that a new one repeats, each once; None for one that is to be asked.

        Args:
            after, tools: as of `PastCall`.
            added: the items that its conversation has beyond the call that it continues.
            instructions: as JSON.

        Raises:
            JournalMismatch: an earlier attempt made another call in its place.
        """
        left = [place for place in self._children.get(after, ()) if place not in self._taken]
        if not left:
            return None
        new = _read(added)
        known = {place: _read(self._calls[place].added) for place in left}
        said = plain(instructions)
        for place in left:
            recorded = self._instructions[self._calls[place].name]
            if new.whole == known[place].whole and said == plain(recorded):
                return self._take(place, instructions, drifted=False)
        for place in left:
            if new.course == known[place].course and tools == self._calls[place].tools:
                return self._take(place, instructions, drifted=True)
        alike = [place for place in left if self._calls[place].tools == tools]
        if not alike:
            return None
        raise JournalMismatch(_difference(new.course, known[alike[0]].course), stage="agent")

    def require_caught_up(self) -> None:
        """
        Raises:
            JournalMismatch: the longest recorded conversation was longer than the new one.
        """
        names = {call.name: place for place, call in enumerate(self._calls)}
        place: int | None = self._longest if self._calls else None
        while place is not None:
            if place not in self._taken:
                raise JournalMismatch(
                    "the program has ended, and in an earlier attempt it asked on: it does not repeat itself",
                    stage="agent",
                )
            place = names.get(self._calls[place].after)

    @property
    def over(self) -> bool:
        """Whether each recorded call was found."""
        return len(self._taken) == len(self._calls)

    def begin(self, call: PastCall) -> None:
        """Remember a new call, whose answer others may continue."""
        told = Raw(call.instructions.encode()) if call.instructions else self.instructions_of(call.after)
        self._instructions[call.name] = told

    def instructions_of(self, name: str) -> Raw:
        """The instructions of a recorded call; empty of an unknown one."""
        return self._instructions.get(name, NULL)

    def put_back(self, instructions: Raw) -> Raw:
        """The recorded instructions in place of those that a repeated call had."""
        return self._put_back.get(bytes(instructions), instructions)

    def _take(self, place: int, instructions: Raw, *, drifted: bool) -> Found:
        self._taken.add(place)
        call = self._calls[place]
        recorded = self._instructions[call.name]
        if bytes(recorded) != bytes(instructions):
            self._put_back[bytes(instructions)] = recorded
        return Found(place, call, drifted)


def tools_digest(tools: Raw) -> str:
    """A digest of the names of the tools that a call offers; of tools as JSON."""
    try:
        offered = _decode_tools(tools) or []
    except UNREADABLE:
        return ""
    named = sorted(str(one.get("name") or one.get("type")) for one in offered)
    return blake2b(_encode(named), digest_size=8).hexdigest() if named else ""


def plain(text: Raw | bytes | str) -> str:
    """A text without what differs between any two runs of one program.

    >>> plain("[main 1c2d3e4] at 2026-11-24 10:00, pid 77, in /tmp/tmp.Xy12")
    '[main <hash>] at <time>, <pid>, in <folder>'
    """
    whole = text if isinstance(text, str) else bytes(text).decode(errors="replace")
    found = whole[:PLAIN_CHARS]
    for pattern, word in _NOISE:
        found = pattern.sub(word, found)
    return found + whole[PLAIN_CHARS:]


class _Items(NamedTuple):
    """Items by what must be equal for the same call, and for a drifted one."""

    whole: list[str]
    course: list[str]


def _read(items: Sequence[Raw]) -> _Items:
    whole: list[str] = []
    course: list[str] = []
    for raw in items:
        item = msgspec.json.decode(raw, type=dict[str, Any])
        whole.append(plain(element(item)))
        if item.get("type") == "function_call_output":
            course.append(f"the output of {item.get('call_id')}")
        # Claude Code reminds its model between turns, of how long something has run for example.
        elif item.get("role") not in _FROM_SYSTEM:
            course.append(whole[-1])
    return _Items(whole, sorted(course))  # a program that runs tools at once may list them in any order


def _difference(new: Sequence[str], known: Sequence[str]) -> str:
    """In words, where a call first differs."""
    ours = next((Counter(new) - Counter(known)).elements(), "nothing more")
    theirs = next((Counter(known) - Counter(new)).elements(), "nothing more")
    same = 0
    while same < min(len(ours), len(theirs)) and ours[same] == theirs[same]:
        same += 1
    start = max(0, same - 40)
    return (
        f"the program asks {ours[start : start + SHOWN_CHARS]!r}, and in an earlier attempt it asked "
        f"{theirs[start : start + SHOWN_CHARS]!r}: it does not repeat itself"
    )
