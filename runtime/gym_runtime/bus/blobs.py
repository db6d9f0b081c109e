"""Large payloads by reference.

A payload above `INLINE_BYTES` is cut into chunks that are stored under its SHA-256 digest, and travels as
a reference: a zero byte, which no JSON begins with, a magic word, and a small record. An inline payload
that happens to begin like a reference is stored as a blob too, so the two cannot be confused.

Chunks live as long as the message that names them may: each has its own time to live. The last thing
stored is an empty record ``whole``; whoever finds it fresh enough need not send the chunks again.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Annotated

import anyio
import anyio.to_thread
import msgspec

from gym_runtime import clock
from gym_runtime.bus.interface import BLOB_BYTES, INLINE_BYTES
from gym_runtime.bus.jetstream import LIFE_S, Kept
from gym_runtime.bus.link import Link
from gym_runtime.bus.streams import Streams
from gym_runtime.bus.wire import decode_headers
from gym_runtime.errors import BrokerError, PayloadTooLarge

MAGIC = b"\x00gym-blob\x00"
CHUNK_BYTES = 1024 * 1024
CHUNK_SLACK_BYTES = 16 * 1024
"""Room for the headers that the broker adds when it reads a chunk back."""
HASH_HERE_BYTES = 1024 * 1024
"""Larger payloads are hashed in a thread: about a millisecond per megabyte."""
REMEMBERED = 1024
ALIVE_UNTIL = "Gym-Alive-Until"
"""Header: when a chunk vanishes, in seconds since the epoch."""

SPARE = 1.25
"""How much longer than need be a chunk is kept, so that messages of some later time may name it too."""
REPLICA_PAUSES_S = (0.02, 0.1, 0.3)
SIGNAL_LIFE_S = 3600
"""For requests, answers and signals."""


class Reference(msgspec.Struct, frozen=True):
    """What travels in place of a large payload. The digest is in hexadecimal."""

    digest: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    size_bytes: Annotated[int, msgspec.Meta(ge=0, le=BLOB_BYTES)]
    chunk_bytes: Annotated[int, msgspec.Meta(ge=1)]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Reference).decode


def is_reference(payload: bytes) -> bool:
    """Whether a payload stands for a blob."""
    return payload.startswith(MAGIC)


def must_travel_by_reference(payload: bytes) -> bool:
    """Whether `Blobs.put` is needed before a payload is sent."""
    return len(payload) > INLINE_BYTES or payload.startswith(MAGIC)


class Blobs:
    """Puts and fetches blobs over one link."""

    def __init__(self, link: Link, streams: Streams) -> None:
        self._link = link
        self._streams = streams
        self._alive_until_s: OrderedDict[str, float] = OrderedDict()

    async def put(self, subject: str, payload: bytes) -> bytes:
        """Store a payload for as long as a message on ``subject`` may live; returns its reference.

        Idempotent: chunks that are there already are not sent again.

        Raises:
            PayloadTooLarge: It is larger than `BLOB_BYTES`.
            BrokerError: The broker does not store it.
        """
        if len(payload) > BLOB_BYTES:
            raise PayloadTooLarge(f"{len(payload)} bytes on {subject!r}; the limit is {BLOB_BYTES}")
        life_s = LIFE_S.get(subject.partition(".")[0], SIGNAL_LIFE_S)
        digest = await _digest(payload)
        chunk_bytes = min(CHUNK_BYTES, self._link.max_payload - CHUNK_SLACK_BYTES)
        reference = MAGIC + _encode(Reference(digest, len(payload), chunk_bytes))
        root = self._streams.names.subject(f"blob.{digest}.{chunk_bytes}")
        if await self._left_s(digest, root) >= life_s:
            return reference
        kept_s = int(life_s * SPARE)
        alive_until_s = clock.now() + kept_s
        headers = {"Nats-TTL": str(kept_s), ALIVE_UNTIL: str(alive_until_s)}
        for number, start in enumerate(range(0, len(payload), chunk_bytes)):
            chunk = payload[start : start + chunk_bytes]
            await self._streams.store(f"{root}.{number}", chunk, headers)
        await self._streams.store(f"{root}.whole", b"", headers)
        self._remember(digest, alive_until_s)
        return reference

    async def _left_s(self, digest: str, root: str) -> float:
        """For how long a blob is there for certain; 0 when it is not, or not known to be."""
        alive_until_s = self._alive_until_s.get(digest)
        if alive_until_s is None:
            kept = await self._streams.direct(f"{root}.whole")
            if kept is not None:
                alive_until_s = float(decode_headers(kept.header).get(ALIVE_UNTIL, "0"))
                self._remember(digest, alive_until_s)
        return 0.0 if alive_until_s is None else alive_until_s - clock.now()

    def _remember(self, digest: str, alive_until_s: float) -> None:
        self._alive_until_s[digest] = alive_until_s
        if len(self._alive_until_s) > REMEMBERED:
            self._alive_until_s.popitem(last=False)

    async def fetch(self, payload: bytes) -> bytes:
        """The payload that a reference stands for; any other payload as it is.

        Raises:
            BrokerError: The blob is gone, or its content is not what its digest says.
        """
        if not is_reference(payload):
            return payload
        try:
            reference = _decode(payload[len(MAGIC) :])
        except msgspec.DecodeError as error:
            raise BrokerError(f"a reference to a blob is damaged: {error}") from error
        root = self._streams.names.subject(f"blob.{reference.digest}.{reference.chunk_bytes}")
        chunks: list[bytes] = []
        for number in range(-(-reference.size_bytes // reference.chunk_bytes)):
            kept = await self._chunk(f"{root}.{number}")
            if kept is None:
                raise BrokerError(f"blob {reference.digest} is gone: it outlived its time at the broker")
            chunks.append(kept.payload)
        whole = b"".join(chunks)
        if await _digest(whole) != reference.digest:
            raise BrokerError(f"blob {reference.digest} is damaged: its content has another digest")
        return whole

    async def _chunk(self, subject: str) -> Kept | None:
        # By subject and nothing else: who knows a digest may read a blob, and nobody may list them.
        for pause_s in REPLICA_PAUSES_S:
            kept = await self._streams.direct(subject)
            if kept is not None:
                return kept
            # A replica may lag behind the leader.
            await anyio.sleep(pause_s)
        return await self._streams.direct(subject)


async def _digest(payload: bytes) -> str:
    if len(payload) <= HASH_HERE_BYTES:
        return hashlib.sha256(payload).hexdigest()
    return await anyio.to_thread.run_sync(lambda: hashlib.sha256(payload).hexdigest())
