"""What the broker stores: the six streams, and asking JetStream patiently.

A store or management request waits for the connection and is repeated until it is answered, for
`PATIENCE_S` at most; each is safe to repeat. A stored message carries a message id, by which the broker
recognises a repetition, and by which a commit recognises its own earlier attempt.
"""

from __future__ import annotations

import base64
import random
import secrets
import time
from datetime import datetime
from typing import Any, TypeVar

import anyio
import msgspec
import structlog

from gym_runtime.bus.link import Answer, Link
from gym_runtime.bus.subjects import Names
from gym_runtime.bus.wire import decode_headers, encode_headers
from gym_runtime.errors import BrokerError, ConnectionLost, DeadlineExceeded, NoWorker

log = structlog.get_logger(__name__)

PATIENCE_S = 60.0
ATTEMPT_S = 10.0
OPEN_S = 5.0
PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1.0)
STORES_IN_FLIGHT = 512
"""More would only wait in the broker, and time out there."""

DAY_S = 24 * 3600
DUPLICATE_WINDOW_S = 120

ALREADY_STORED = {10071, 10164}
STREAM_NAME_IN_USE = 10058
STREAM_STORE_FAILED = 10049
NO_CONSUMER = 10014
NO_MESSAGE = 10037
UNAVAILABLE = 503
JETSTREAM_OFF = {10039, 10076}
NO_JETSTREAM = (
    "the broker has no JetStream: start it with 'nats-server -js', or enable JetStream for this account"
)

T = TypeVar("T")


class ApiError(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class Plain(msgspec.Struct):
    """An answer of which only success matters."""

    error: ApiError | None = None


class Stored(msgspec.Struct):
    """The broker's answer to a stored message."""

    seq: int = 0
    duplicate: bool = False
    error: ApiError | None = None


class _State(msgspec.Struct, frozen=True):
    subjects: dict[str, int] | None = None


class _Info(msgspec.Struct):
    config: dict[str, Any] = {}
    state: _State = _State()
    total: int = 0
    error: ApiError | None = None


class _Purged(msgspec.Struct):
    purged: int = 0
    error: ApiError | None = None


class Consumer(msgspec.Struct):
    """What is known of a consumer."""

    name: str = ""
    num_pending: int = 0
    num_ack_pending: int = 0
    ts: datetime | None = None
    """When the broker answered, by its own clock."""
    error: ApiError | None = None


class _Message(msgspec.Struct, frozen=True):
    seq: int = 0
    subject: str = ""
    hdrs: str = ""
    data: str = ""


class _Found(msgspec.Struct):
    message: _Message = _Message()
    error: ApiError | None = None


class Kept(msgspec.Struct, frozen=True):
    """One stored message, as it is in the stream."""

    subject: bytes
    header: bytes
    payload: bytes
    sequence: int
    stored_s: float = 0.0
    """By the broker's clock, in seconds since the epoch; 0 where it was not asked for."""


class Stamp(msgspec.Struct, frozen=True):
    """What the broker writes into the reply subject of a stored message."""

    deliveries: int
    sequence: int
    """In the stream."""
    consumed: int
    """In the consumer: how many it has delivered, this one included."""
    stored_s: float
    """By the broker's clock, in seconds since the epoch."""
    pending: int
    """How many the consumer still has to deliver."""

    @staticmethod
    def of(reply: bytes) -> Stamp:
        """``$JS.ACK.[domain.account.]stream.consumer.deliveries.sequence.consumed.time.pending[.token]``"""
        words = reply.split(b".")
        at = 4 if len(words) < 11 else 6
        deliveries, sequence, consumed, stored_ns, pending = map(int, words[at : at + 5])
        return Stamp(deliveries, sequence, consumed, stored_ns / 1e9, pending)


# What a stream must be for the promises to hold; operators may set everything else.
_ESSENTIALS: dict[str, dict[str, Any]] = {
    "task": {"retention": "workqueue", "allow_direct": True},
    "rollout": {"retention": "limits", "allow_direct": True},
    "journal": {"retention": "limits", "allow_direct": True},
    "runs": {"retention": "limits", "allow_direct": True, "max_msgs_per_subject": 1},
    "lease": {"retention": "limits", "allow_direct": True, "max_msgs_per_subject": 1, "allow_msg_ttl": True},
    "blob": {"retention": "limits", "allow_direct": True, "max_msgs_per_subject": 1, "allow_msg_ttl": True},
}
_MAX_AGE_S = {"task": 0, "rollout": 7 * DAY_S, "journal": 2 * DAY_S, "runs": 30 * DAY_S, "lease": DAY_S}
BLOB_MAX_AGE_S = 31 * DAY_S


def definition(names: Names, kind: str, replicas: int) -> dict[str, Any]:
    """The configuration of the stream of one kind, as the broker's API takes it."""
    return {
        "name": names.stream(kind),
        "subjects": [names.pattern(f"{kind}.>")],
        "storage": "file",
        "discard": "old",
        "max_age": _MAX_AGE_S.get(kind, BLOB_MAX_AGE_S) * 10**9,
        "duplicate_window": DUPLICATE_WINDOW_S * 10**9,
        "num_replicas": replicas,
        **_ESSENTIALS[kind],
    }


class Streams:
    """JetStream over one link."""

    def __init__(self, link: Link, names: Names, replicas: int) -> None:
        self._link = link
        self.names = names
        self._replicas = replicas
        self._in_flight = anyio.Semaphore(STORES_IN_FLIGHT, fast_acquire=True)

    async def open(self) -> None:
        """Create the streams that are missing.

        Raises:
            BrokerError: The broker has no JetStream, or refuses a stream.
        """
        for kind in _ESSENTIALS:
            await self._ensure(kind)

    async def _ensure(self, kind: str) -> None:
        wanted = definition(self.names, kind, self._replicas)
        name = wanted["name"]
        info = await self._once(f"STREAM.CREATE.{name}", wanted, _Info)
        for pause_s in PAUSES_S:
            if info.error is None or info.error.err_code != STREAM_STORE_FAILED:
                break
            # A stream deleted a moment ago still occupies its directory.
            await anyio.sleep(pause_s)
            info = await self._once(f"STREAM.CREATE.{name}", wanted, _Info)
        if info.error is None:
            return
        if info.error.err_code in JETSTREAM_OFF:
            raise BrokerError(f"{NO_JETSTREAM} ({info.error.description})")
        if info.error.err_code != STREAM_NAME_IN_USE:
            raise BrokerError(f"the broker refuses the stream {name}: {info.error.description}")
        present = await self._once(f"STREAM.INFO.{name}", None, _Info)
        wrong = {
            key: value for key, value in _ESSENTIALS[kind].items() if present.config.get(key, False) != value
        }
        if not wrong:
            return
        present = await self._once(f"STREAM.UPDATE.{name}", present.config | wrong, _Info)
        if present.error is not None:
            raise BrokerError(
                f"the stream {name} exists with other settings and cannot be changed to {wrong} "
                f"({present.error.description}): delete it, or use another prefix"
            )

    async def _once(self, verb: str, body: dict[str, Any] | None, kind: type[T]) -> T:
        payload = b"" if body is None else msgspec.json.encode(body)
        try:
            answer = await self._link.ask(f"$JS.API.{verb}", payload, within_s=OPEN_S)
        except (NoWorker, DeadlineExceeded) as error:
            raise BrokerError(f"{NO_JETSTREAM} ({error})") from error
        return msgspec.json.decode(answer.payload, type=kind)

    async def ask(self, subject: str, payload: bytes, *, header: bytes = b"") -> tuple[Answer, int]:
        """Ask something that is safe to repeat, until it is answered; also returns how often it was sent.

        Raises:
            BrokerError: There was no answer within `PATIENCE_S`.
        """
        give_up = time.monotonic() + PATIENCE_S
        attempts = 0
        while True:
            try:
                attempts += 1
                left_s = max(0.1, give_up - time.monotonic())
                return await self._link.ask(
                    subject, payload, header=header, within_s=min(ATTEMPT_S, left_s)
                ), attempts
            except (NoWorker, ConnectionLost, DeadlineExceeded) as error:
                if self._link.closed:
                    raise
                if time.monotonic() > give_up:
                    raise BrokerError(
                        f"the broker stored or answered nothing within {PATIENCE_S:.0f} s ({error}): "
                        "see its log; is its disk full?"
                    ) from error
                await anyio.sleep(PAUSES_S[min(attempts, len(PAUSES_S)) - 1] * random.uniform(0.5, 1.5))
                if isinstance(error, NoWorker) and not subject.startswith("$JS.API.CONSUMER"):
                    await self._restore()

    async def _restore(self) -> None:
        # A broker that lost its state directory has lost the streams as well.
        try:
            await self.open()
        except (BrokerError, ConnectionLost) as error:
            log.warning("streams not restored", error=str(error))

    async def api(self, verb: str, body: dict[str, Any] | None, kind: type[T]) -> T:
        """A request to JetStream's management interface."""
        payload = b"" if body is None else msgspec.json.encode(body)
        answer, _ = await self.ask(f"$JS.API.{verb}", payload)
        return msgspec.json.decode(answer.payload, type=kind)

    async def store(
        self, subject: str, payload: bytes, headers: dict[str, str], *, once: bool = False
    ) -> Stored | None:
        """Store a message under a wire subject; with ``once`` None if the subject had one before.

        Raises:
            BrokerError: The broker refuses, or does not answer.
        """
        nonce = secrets.token_hex(12)
        headers = {**headers, "Nats-Msg-Id": nonce}
        if once:
            headers["Nats-Expected-Last-Subject-Sequence"] = "0"
        header = encode_headers(headers)
        give_up = time.monotonic() + PATIENCE_S
        attempts = 0
        async with self._in_flight:
            while True:
                answer, sent = await self.ask(subject, payload, header=header)
                attempts += sent
                stored = msgspec.json.decode(answer.payload, type=Stored)
                if stored.error is None:
                    return stored
                if once and stored.error.err_code in ALREADY_STORED:
                    return await self._ours(subject, nonce) if attempts > 1 else None
                if stored.error.code != UNAVAILABLE or time.monotonic() > give_up:
                    raise BrokerError(f"the broker refuses {subject!r}: {stored.error.description}")
                await anyio.sleep(random.uniform(*PAUSES_S[-2:]))

    async def _ours(self, subject: str, nonce: str) -> Stored | None:
        # An earlier attempt of this very call may have been stored while its acknowledgement was lost.
        kept = await self.last(subject)
        if kept is None or decode_headers(kept.header).get("Nats-Msg-Id") != nonce:
            return None
        return Stored(seq=kept.sequence, duplicate=True)

    async def last(self, subject: str) -> Kept | None:
        """The newest message under a wire subject, as the stream's leader has it."""
        stream = self._stream(subject)
        found = await self.api(f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject}, _Found)
        if found.error is not None:
            if found.error.err_code == NO_MESSAGE:
                return None
            raise BrokerError(f"the broker does not read {subject!r}: {found.error.description}")
        message = found.message
        return Kept(
            subject=message.subject.encode(),
            header=base64.b64decode(message.hdrs),
            payload=base64.b64decode(message.data),
            sequence=message.seq,
        )

    def _stream(self, subject: str) -> str:
        return self.names.stream(self.names.bare(subject.encode()))

    async def purge(self, pattern: str) -> int:
        """Delete what is stored under a wire pattern; returns how many messages that were."""
        purged = await self.api(f"STREAM.PURGE.{self._stream(pattern)}", {"filter": pattern}, _Purged)
        if purged.error is not None:
            raise BrokerError(f"the broker does not delete {pattern!r}: {purged.error.description}")
        return purged.purged

    async def counts(self, pattern: str) -> dict[str, int]:
        """How many messages are stored under each wire subject of a wire pattern."""
        found: dict[str, int] = {}
        while True:
            body = {"subjects_filter": pattern, "offset": len(found)}
            info = await self.api(f"STREAM.INFO.{self._stream(pattern)}", body, _Info)
            if info.error is not None:
                raise BrokerError(f"the broker does not count {pattern!r}: {info.error.description}")
            page = info.state.subjects or {}
            found |= page
            if not page or len(found) >= info.total:
                return found

    async def create_consumer(self, stream: str, config: dict[str, Any]) -> Consumer:
        """Create a consumer, or adapt one of the same name.

        Raises:
            BrokerError: The broker refuses it.
        """
        verb = f"CONSUMER.CREATE.{stream}.{config['name']}.{config['filter_subject']}"
        consumer = await self.api(verb, {"stream_name": stream, "config": config, "action": ""}, Consumer)
        if consumer.error is not None:
            raise BrokerError(
                f"the broker refuses the consumer {config['name']} of {config['filter_subject']!r}: "
                f"{consumer.error.description}"
            )
        return consumer

    async def consumer(self, stream: str, name: str) -> Consumer | None:
        """A consumer's present state; None when there is none."""
        consumer = await self.api(f"CONSUMER.INFO.{stream}.{name}", None, Consumer)
        if consumer.error is None:
            return consumer
        if consumer.error.err_code == NO_CONSUMER:
            return None
        raise BrokerError(f"the broker does not know the consumer {name}: {consumer.error.description}")
