"""What travels inline, and what as a reference to a blob.

A broker keeps what a client has not read yet in a buffer, and disconnects the client when that exceeds
``max_pending``: everything in it is lost and sent again, which fills the buffer again. That limit is 64 MiB
by default and is not announced; ``max_payload`` is, so it has to speak for both: a broker that takes messages
of `ROOMY_PAYLOAD_BYTES` has large buffers too (`gym_runtime.system.private_broker` and ``deploy/nats`` have
them): there everything travels inline that it takes. At any other broker inline payloads stay small.

What may wait in the buffer is limited by those who ask for it: requests that are not answered yet are counted
here, and a pull for tasks says how many bytes it takes (`pull_bytes`), as a reader of records does.

Blobs need no such limits, because their receiver asks for one chunk after the other.
"""

from __future__ import annotations

from gym_runtime.bus.interface import HEADER_BYTES

ROOMY_PAYLOAD_BYTES = 32 * 1024 * 1024
SMALL_INLINE_BYTES = 256 * 1024
COUNTED_BYTES = 16 * 1024
"""Smaller requests are not counted: ten thousand of them are no load, and counting costs each of them."""
ROOMY_REQUESTS_BYTES = 256 * 1024 * 1024
"""A quarter of the ``max_pending`` of such a broker."""
SMALL_REQUESTS_BYTES = 32 * 1024 * 1024
"""Half of the smallest ``max_pending`` to expect: two agent workers may ask the same model worker."""
ROOMY_PULL_BYTES = 64 * 1024 * 1024
SMALL_PULL_BYTES = 4 * 1024 * 1024
"""Of one pull for tasks. A worker has eight of them at the broker, at most (`gym_runtime.bus.pull`)."""
FITTING = 2
"""So many tasks fit into any pull, which then needs no limit. With one, its end is another message."""


def pull_terms(batch: int, max_payload: int) -> dict[str, int]:
    """How many tasks one pull may bring, and how many bytes of them; `FITTING` of any size fit."""
    if batch <= FITTING:
        return {"batch": batch}
    return {"batch": batch, "max_bytes": pull_bytes(max_payload)}


def pull_bytes(max_payload: int) -> int:
    """How many bytes of tasks a pull for more than `FITTING` may bring."""
    roomy = max_payload >= ROOMY_PAYLOAD_BYTES
    return max(FITTING * max_payload, ROOMY_PULL_BYTES if roomy else SMALL_PULL_BYTES)


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
        fits = max_payload - HEADER_BYTES
        roomy = max_payload >= ROOMY_PAYLOAD_BYTES
        return size_bytes <= (fits if roomy else min(fits, SMALL_INLINE_BYTES))

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
