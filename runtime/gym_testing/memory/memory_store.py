"""Where a session saves its larger parts, in memory: for tests of `save` and `on_restore`."""

from __future__ import annotations

import hashlib


class MemoryStore:
    """A store in memory, of parts of at most ``limit_bytes`` each."""

    def __init__(self, limit_bytes: int = 64 << 20) -> None:
        self.limit_bytes = limit_bytes
        self.parts: dict[str, bytes] = {}

    async def put(self, part: bytes) -> str:
        name = hashlib.sha256(part).hexdigest()
        self.parts[name] = part
        return name

    async def get(self, name: str) -> bytes:
        return self.parts[name]
