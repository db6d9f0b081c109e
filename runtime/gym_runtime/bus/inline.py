"""What travels inline, and what as a reference to a blob.

A broker keeps what a client has not read yet in a buffer, and disconnects the client when that exceeds
``max_pending``: everything in it is lost and sent again, which fills the buffer again. That limit is 64 MiB
by default and is not announced; ``max_payload`` is, so it has to speak for both: a broker that takes messages
of `ROOMY_PAYLOAD_BYTES` has large buffers too (`gym_runtime.system.private_broker` and ``deploy/nats`` have
them). At any other broker inline payloads stay small.

Blobs need no such limits, because their receiver asks for one chunk after the other.
"""

from __future__ import annotations

from gym_runtime.bus.interface import INLINE_BYTES

ROOMY_PAYLOAD_BYTES = 32 * 1024 * 1024
SMALL_INLINE_BYTES = 256 * 1024
COUNTED_BYTES = 16 * 1024
"""Smaller requests are not counted: ten thousand of them are no load, and counting costs each of them."""
ROOMY_REQUESTS_BYTES = 256 * 1024 * 1024
"""A quarter of the ``max_pending`` of such a broker."""
SMALL_REQUESTS_BYTES = 32 * 1024 * 1024
"""Half of the smallest ``max_pending`` to expect: two agent workers may ask the same model worker."""


class Inline:
    """What one connection may send inline, at a broker that takes messages of ``max_payload`` bytes.

    Attributes:
        waiting_bytes: the requests of more than `COUNTED_BYTES` that travelled inline and have no answer
            yet, together.
    """

    def __init__(self) -> None:
        self.waiting_bytes = 0

    def takes(self, size_bytes: int, max_payload: int) -> bool:
        """Whether a payload may travel inline."""
        roomy = max_payload >= ROOMY_PAYLOAD_BYTES
        return size_bytes <= (INLINE_BYTES if roomy else SMALL_INLINE_BYTES)

    def takes_request(self, size_bytes: int, max_payload: int) -> bool:
        """Whether a request may travel inline. A worker that answers slowly may have all of them to read."""
        if size_bytes <= COUNTED_BYTES:
            return True
        roomy = max_payload >= ROOMY_PAYLOAD_BYTES
        most = ROOMY_REQUESTS_BYTES if roomy else SMALL_REQUESTS_BYTES
        return self.takes(size_bytes, max_payload) and self.waiting_bytes + size_bytes <= most

    def sent(self, size_bytes: int) -> int:
        """A request travels inline; returns what to subtract from `waiting_bytes` when it is over."""
        counted = size_bytes if size_bytes > COUNTED_BYTES else 0
        self.waiting_bytes += counted
        return counted
