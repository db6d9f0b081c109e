"""Which follower watches a member: consistent hashing over a list that all followers have."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable
from zlib import crc32


def watcher(ring: list[tuple[int, str]], member: str) -> str | None:
    """The watcher of a member: the one that follows it on the ring. None if there is no other follower."""
    # `crc32`, not `hash`: Python's differs from process to process, and all followers must agree.
    start = bisect(ring, (crc32(member.encode()), member))
    # Two steps: no follower watches itself.
    for step in range(2):
        name = ring[(start + step) % len(ring)][1]
        if name != member:
            return name
    return None


def ring_of(followers: Iterable[str]) -> list[tuple[int, str]]:
    """Followers in the order of their hashes."""
    return sorted((crc32(name.encode()), name) for name in followers)
