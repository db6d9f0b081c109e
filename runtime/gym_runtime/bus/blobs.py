"""Large payloads: what travels inline, and what as a reference to a blob.

A broker keeps what a client has not read yet in a buffer, and disconnects the client when that exceeds
``max_pending``: everything in it is lost and sent again, which fills the buffer again. That limit is 64 MiB
by default. The broker announces only ``max_payload``, so this is taken as a hint of the buffers' size: a
broker that takes messages of `ROOMY_PAYLOAD_BYTES` has large buffers too, as in
`gym_runtime.system.private_broker` and ``deploy/nats``, and every payload that it takes travels inline. At
any other broker inline payloads stay small. The receivers limit what may wait in the buffer: unanswered
requests are counted here, and a pull for tasks, like a reader of records, says how many bytes it takes
(`pull_terms`). Blobs need no such limits, because their receiver asks for one chunk after the other.

A payload that is too large to travel inline is cut into chunks that are stored apart, and travels as a
reference: a zero byte, which no JSON begins with, a magic word, and a small record. An inline payload that
happens to begin like a reference is stored as a blob too, so the two cannot be confused.

Chunks are encrypted, with a key that only the reference holds, because every worker may read and write the
stream of blobs: without the reference, which travels in a message of the task, the journal, the result or the
request, a chunk is unreadable. Each chunk is authenticated with its place, so an exchanged chunk is reported
and never used. The broker itself refuses to replace a chunk (`gym_runtime.bus.streams.ESSENTIALS`).

Subjects: ``blob.run.<run>.<id>.<chunk>`` where the blob is part of a run, and is forgotten with it
(`of_run`); ``blob.brief.<id>.<chunk>`` otherwise. Each chunk has a time to live too: as long as the message
that names it may.

Source: XChaCha20-Poly1305 (IETF), libsodium's, by PyNaCl.
"""

from __future__ import annotations

import secrets
from base64 import b64decode, b64encode
from typing import Annotated

import anyio
import msgspec

from gym_runtime.bus.interface import BLOB_BYTES, HEADER_BYTES
from gym_runtime.bus.jetstream_answers import Kept
from gym_runtime.bus.link import Link
from gym_runtime.bus.streams import LIFE_S, Streams
from gym_runtime.bus.wire import run_of
from gym_runtime.errors import UNREADABLE, BrokerError, PayloadTooLarge

REPLICA_PAUSES_S = (0.02, 0.1, 0.3)
"""The pauses between tries to read a chunk that a replica does not have yet."""
SIGNAL_LIFE_S = 300
"""For requests, answers and signals: the other side fetches them when they arrive."""


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

MAGIC = b"\x00gym-blob\x00"
CHUNK_BYTES = 1024 * 1024
CHUNK_SLACK_BYTES = 16 * 1024
"""Room for the headers that the broker adds when it reads a chunk back, and for the authentication tag."""
# The sizes of XChaCha20-Poly1305.
KEY_BYTES = 32
NONCE_BYTES = 24
TAG_BYTES = 16

SPARE = 1.25
"""How much longer than its message a chunk is kept: that is stored after its chunks, and these one by one."""


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """What travels in place of a large payload.

    Attributes:
        run: the run that the blob is part of, or empty.
        id: 128 random bits in hexadecimal.
        key: the secret key of its chunks, in base64.
    """

    run: Annotated[str, msgspec.Meta(pattern=r"^[^\s.*>\x00-\x1f]{0,128}\Z")] = ""
    id: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
    key: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9+/]{43}=$")]
    size_bytes: Annotated[int, msgspec.Meta(ge=0, le=BLOB_BYTES)]
    chunk_bytes: Annotated[int, msgspec.Meta(ge=1)]

    @property
    def chunks(self) -> int:
        # Rounded up, without floats.
        return -(-self.size_bytes // self.chunk_bytes)

    @property
    def root(self) -> str:
        """The subject of its chunks, without their numbers."""
        return f"blob.run.{self.run}.{self.id}" if self.run else f"blob.brief.{self.id}"


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Reference).decode


def of_run(run: str) -> str:
    """The pattern of a run's blobs, for `gym_runtime.bus.interface.Bus.forget`."""
    return f"blob.run.{run}.>"


def is_reference(payload: bytes) -> bool:
    """Whether a payload stands for a blob."""
    return payload.startswith(MAGIC)


class Damaged(BrokerError):
    """A reference is malformed, or the stored blob differs from what its sender stored."""


class Blobs:
    """Puts and fetches blobs over one link."""

    def __init__(self, link: Link, streams: Streams) -> None:
        self._link = link
        self._streams = streams

    async def put(self, subject: str, payload: bytes, *, run: str = "") -> bytes:
        """Store a payload for as long as a message on ``subject`` may live; returns its reference.

        ``run`` is the run that the message is part of, where its subject does not say so.

        Raises:
            PayloadTooLarge: It is larger than `BLOB_BYTES`.
            BrokerError: The broker does not store it.
        """
        if len(payload) > BLOB_BYTES:
            raise PayloadTooLarge(f"{len(payload)} bytes on {subject!r}; the limit is {BLOB_BYTES}")
        # A stored message lives for days, a request or signal for minutes; the first token says which it is.
        life_s = LIFE_S.get(subject.partition(".")[0], SIGNAL_LIFE_S)
        key = secrets.token_bytes(KEY_BYTES)
        chunk_bytes = min(CHUNK_BYTES, self._link.max_payload - CHUNK_SLACK_BYTES)
        reference = Reference(
            run=run or run_of(subject),
            id=secrets.token_hex(16),
            key=b64encode(key).decode(),
            size_bytes=len(payload),
            chunk_bytes=chunk_bytes,
        )
        headers = {"Nats-TTL": str(int(life_s * SPARE))}
        for number in range(reference.chunks):
            chunk = payload[number * chunk_bytes : (number + 1) * chunk_bytes]
            await self._streams.store(
                f"{reference.root}.{number}", _seal(chunk, key, number), headers, once=True
            )
        return MAGIC + _encode(reference)

    async def fetch(self, payload: bytes) -> bytes:
        """The payload that a reference stands for; any other payload as it is.

        Raises:
            Damaged: A chunk, which is named, is not the one that was stored, or the reference is none.
            BrokerError: The blob is gone.
        """
        if not is_reference(payload):
            return payload
        try:
            reference = _decode(payload[len(MAGIC) :])
        except UNREADABLE as error:
            raise Damaged(f"a reference to a blob is damaged: {error}") from error
        key, root = b64decode(reference.key), reference.root
        chunks: list[bytes] = []
        for number in range(reference.chunks):
            kept = await self._chunk(f"{root}.{number}")
            if kept is None:
                raise BrokerError(
                    f"blob {root}.{number} is gone: it outlived its time at the broker, or its run is over"
                )
            chunk = _open(kept.payload, key, number)
            if chunk is None:
                raise Damaged(f"blob {root}.{number} is damaged: it is not what its sender stored there")
            chunks.append(chunk)
        whole = b"".join(chunks)
        if len(whole) != reference.size_bytes:
            raise Damaged(f"blob {root} is damaged: {len(whole)} bytes instead of {reference.size_bytes}")
        return whole

    async def _chunk(self, subject: str) -> Kept | None:
        kept = await self._streams.direct(subject)
        for pause_s in REPLICA_PAUSES_S:
            if kept is None:
                # A replica may lag behind the leader.
                await anyio.sleep(pause_s)
                kept = await self._streams.direct(subject)
        return kept


def _seal(chunk: bytes, key: bytes, number: int) -> bytes:
    # PyNaCl costs every process 30 ms, and most have no large payload.
    from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_encrypt as encrypt

    return encrypt(chunk, None, _nonce(number), key)


def _open(chunk: bytes, key: bytes, number: int) -> bytes | None:
    """The chunk, or None if it is not the one that was stored in this place."""
    from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_decrypt as decrypt
    from nacl.exceptions import CryptoError

    if len(chunk) < TAG_BYTES:
        return None
    try:
        return decrypt(chunk, None, _nonce(number), key)
    except CryptoError:
        return None


def _nonce(number: int) -> bytes:
    # Each key is used for one blob, so its chunks' numbers are nonces that never come twice.
    return number.to_bytes(NONCE_BYTES, "little")


def pull_terms(batch: int, max_payload: int) -> dict[str, int]:
    """How many tasks one pull may bring, and how many bytes of them; `FITTING` of any size fit."""
    if batch <= FITTING:
        return {"batch": batch}
    roomy = max_payload >= ROOMY_PAYLOAD_BYTES
    most = max(FITTING * max_payload, ROOMY_PULL_BYTES if roomy else SMALL_PULL_BYTES)
    return {"batch": batch, "max_bytes": most}


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
