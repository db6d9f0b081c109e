"""Stored records, in order."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter

import anyio
from gym_runtime.bus import Record

from gym_testing.memory.subject_patterns import compiled

BATCH = 256


class Stream:
    """The records of one kind of subject. With ``newest_only`` a record replaces its subject's last one."""

    def __init__(self, kind: str, *, newest_only: bool = False) -> None:
        self.kind = kind
        self._newest_only = newest_only
        self._records: list[Record] = []
        self._newest: dict[str, Record] = {}
        self._sequence = 0
        self._waiting: dict[anyio.Event, None] = {}

    def store(self, subject: str, payload: bytes, *, expect: int | None = None) -> int | None:
        """Add a record; returns its sequence, or None if the subject's newest is not the expected one."""
        newest = self._newest.get(subject)
        if expect is not None and expect != (newest.sequence if newest else 0):
            return None
        self._sequence += 1
        record = Record(subject, payload, self._sequence)
        if self._newest_only and subject in self._newest:
            self._records.remove(self._newest[subject])
        self._records.append(record)
        self._newest[subject] = record
        for event in self._waiting:
            event.set()
        self._waiting.clear()
        return self._sequence

    def read(self, pattern: str, after: int) -> tuple[list[Record], int]:
        """Some of the next records of a pattern; and the sequence up to which nothing else is there."""
        matches = compiled(pattern).fullmatch
        found: list[Record] = []
        for record in self._records[bisect_right(self._records, after, key=_sequence) :]:
            if matches(record.subject):
                found.append(record)
                if len(found) == BATCH:
                    return found, record.sequence
        return found, max(after, self._sequence)

    def latest(self, pattern: str) -> list[Record]:
        """The newest record of each subject of a pattern, in stored order."""
        matches = compiled(pattern).fullmatch
        found = [record for subject, record in self._newest.items() if matches(subject)]
        return sorted(found, key=_sequence)

    def counts(self, pattern: str) -> dict[str, int]:
        """How many records there are under each subject of a pattern."""
        matches = compiled(pattern).fullmatch
        return dict(Counter(record.subject for record in self._records if matches(record.subject)))

    def forget(self, pattern: str, before: int | None = None) -> int:
        """Delete the records of a pattern, or those ``before`` a sequence; returns how many."""
        matches = compiled(pattern).fullmatch

        def stays(record: Record) -> bool:
            return not matches(record.subject) or (before is not None and record.sequence >= before)

        count = len(self._records)
        self._records = list(filter(stays, self._records))
        self._newest = {subject: record for subject, record in self._newest.items() if stays(record)}
        return count - len(self._records)

    def when_stored(self, event: anyio.Event) -> None:
        """Set an event at the next `store`, unless `give_up` is called before."""
        self._waiting[event] = None

    def give_up(self, event: anyio.Event) -> None:
        self._waiting.pop(event, None)


def _sequence(record: Record) -> int:
    return record.sequence
