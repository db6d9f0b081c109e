"""What the broker stores: the six streams, and asking JetStream patiently.

A store or management request waits for the connection and is repeated until it is answered, for
`PATIENCE_S` at most; each is safe to repeat. A stored message carries an id, by which the broker recognises a
repetition, or by which a conditional one recognises its own earlier attempt.
"""

from __future__ import annotations

import base64
import random
import time
from typing import Any, TypeVar

import anyio
import msgspec
import structlog

from gym_runtime.bus.jetstream import (
    ALREADY_STORED,
    ESSENTIALS,
    JETSTREAM_OFF,
    NO_JETSTREAM,
    NO_MESSAGE,
    NO_PEERS,
    STREAM_NAME_IN_USE,
    STREAM_STORE_FAILED,
    UNAVAILABLE,
    AccountInfo,
    Found,
    Kept,
    Purged,
    Stored,
    StreamInfo,
    definition,
)
from gym_runtime.bus.link import Link, RawAnswer
from gym_runtime.bus.requests import random_names
from gym_runtime.bus.subjects import Names
from gym_runtime.bus.wire import decode_headers, encode_headers, status
from gym_runtime.errors import BrokerError, ConnectionLost, DeadlineExceeded, NoWorker
from gym_runtime.timing import API_ANSWER_S, PATIENCE_S, PAUSES_S, STORE_ANSWER_S

log = structlog.get_logger(__name__)

FULL = ("no space left", "insufficient")  # the file system says the one, JetStream's own limits the other
FULL_REMEDY = ": make room at the broker, then go on with --resume"
OURS = "Gym-Id"
STORES_IN_FLIGHT = 512
"""More would only wait in the broker, and time out there."""

T = TypeVar("T")
_decode_stored = msgspec.json.Decoder(Stored).decode


class Streams:
    """JetStream over one link."""

    def __init__(self, link: Link, names: Names, replicas: int | None) -> None:
        self._link = link
        self.names = names
        self._replicas = replicas
        self._in_flight = anyio.Semaphore(STORES_IN_FLIGHT, fast_acquire=True)
        self._in_trouble = False
        self._nonces = random_names()
        self._missing = ""

    async def open(self, *, create: bool = True, needed: bool = False) -> None:
        """Create the streams that are missing. Without ``create`` only where there are none of any system.

        Args:
            needed: those that are missing and may not be created are an error, which is ``silent``: a client
                may create them later.

        Raises:
            BrokerError: The broker has no JetStream, or refuses a stream that is to be created.
        """
        if create:
            for kind in ESSENTIALS:
                await self._ensure(kind)
            return
        account = await self._once("INFO", None, AccountInfo)
        if account.error is not None:
            raise BrokerError(f"{NO_JETSTREAM} ({account.error.description})")
        if account.streams < len(ESSENTIALS) and not await self.restored(quiet=needed) and needed:
            raise BrokerError(
                "the broker has no streams for this system yet, and these credentials may not create them: "
                "run 'gym-runtime status' with a client's",
                silent=True,
            )

    async def _ensure(self, kind: str) -> None:
        replicas = self._replicas or (3 if self._link.clustered else 1)
        wanted = definition(self.names, kind, replicas)
        name = wanted["name"]
        info = await self._created(name, wanted)
        if info.error is not None and info.error.err_code in NO_PEERS and self._replicas is None:
            log.warning("a stream is stored once only", stream=name, reason=info.error.description)
            wanted = definition(self.names, kind, 1)
            info = await self._created(name, wanted)
        if info.error is None:
            return
        if info.error.err_code in JETSTREAM_OFF:
            raise BrokerError(f"{NO_JETSTREAM} ({info.error.description})")
        if info.error.err_code != STREAM_NAME_IN_USE:
            raise BrokerError(f"the broker refuses the stream {name}: {info.error.description}")
        present = await self._once(f"STREAM.INFO.{name}", None, StreamInfo)
        wrong = {
            key: value for key, value in ESSENTIALS[kind].items() if present.config.get(key, False) != value
        }
        if not wrong:
            return
        present = await self._once(f"STREAM.UPDATE.{name}", present.config | wrong, StreamInfo)
        if present.error is not None:
            raise BrokerError(
                f"the stream {name} exists with other settings and cannot be changed to {wrong} "
                f"({present.error.description}): delete it, or use another prefix"
            )

    async def _created(self, name: str, wanted: dict[str, Any]) -> StreamInfo:
        info = await self._once(f"STREAM.CREATE.{name}", wanted, StreamInfo)
        for pause_s in PAUSES_S:
            if info.error is None or info.error.err_code != STREAM_STORE_FAILED:
                break
            # A stream deleted a moment ago still occupies its directory.
            await anyio.sleep(pause_s)
            info = await self._once(f"STREAM.CREATE.{name}", wanted, StreamInfo)
        return info

    async def _once(self, verb: str, body: dict[str, Any] | None, kind: type[T]) -> T:
        payload = b"" if body is None else msgspec.json.encode(body)
        try:
            answer = await self._link.ask(f"$JS.API.{verb}", payload, within_s=API_ANSWER_S)
        except NoWorker as error:
            raise BrokerError(f"{NO_JETSTREAM} ({error})") from error
        except DeadlineExceeded as error:
            raise BrokerError(
                f"the broker's JetStream does not answer ({error}): see its log; a cluster may have no "
                "leader",
                silent=True,
            ) from error
        except BrokerError as error:
            raise BrokerError(
                f"{error}: streams that are missing are created by 'gym-runtime status' with a client's "
                "credentials"
            ) from error
        return msgspec.json.decode(answer.payload, type=kind)

    async def ask(
        self, subject: str, payload: bytes, *, header: bytes = b"", patience_s: float | None = None
    ) -> tuple[RawAnswer, int]:
        """Ask something that is safe to repeat, until it is answered; also returns how often it was sent.

        Raises:
            BrokerError: There was no answer within ``patience_s``, by default `PATIENCE_S`; it is ``silent``.
        """
        patience_s = PATIENCE_S if patience_s is None else patience_s
        give_up = time.monotonic() + patience_s
        attempts = 0
        while True:
            try:
                attempts += 1
                left_s = max(0.1, give_up - time.monotonic())
                answer = await self._link.ask(
                    subject, payload, header=header, within_s=min(STORE_ANSWER_S, left_s)
                )
                return answer, attempts
            except (NoWorker, ConnectionLost, DeadlineExceeded) as error:
                if self._link.closed:
                    raise
                if time.monotonic() > give_up:
                    raise BrokerError(
                        f"the broker stored or answered nothing within {patience_s:.0f} s ({error}): "
                        "see its log; is its disk full?",
                        silent=True,
                    ) from error
                missing = isinstance(error, NoWorker) and not subject.startswith("$JS.API.CONSUMER")
                if missing and await self.restored() and attempts == 1:
                    continue
                await anyio.sleep(PAUSES_S[min(attempts, len(PAUSES_S)) - 1] * random.uniform(0.5, 1.5))

    async def restored(self, *, quiet: bool = False) -> bool:
        """Create the streams that are missing; says whether they are there.

        Why they are not is logged once, unless ``quiet``: this is tried again and again.
        """
        # We are the first here, or a broker that lost its state directory has lost the streams as well.
        try:
            await self.open()
        except (BrokerError, ConnectionLost) as error:
            if not quiet and str(error) != self._missing:
                self._missing = str(error)
                log.warning("streams not created", error=str(error))
            return False
        self._missing = ""
        return True

    async def api(
        self, verb: str, body: dict[str, Any] | None, kind: type[T], *, patience_s: float | None = None
    ) -> T:
        """A request to JetStream's management interface."""
        payload = b"" if body is None else msgspec.json.encode(body)
        answer, _ = await self.ask(f"$JS.API.{verb}", payload, patience_s=patience_s)
        return msgspec.json.decode(answer.payload, type=kind)

    async def store(
        self, subject: str, payload: bytes, headers: dict[str, str], *, expect: int | None = None
    ) -> Stored | None:
        """Store a message under a wire subject; None if its newest is not the one that is expected.

        Raises:
            BrokerError: The broker refuses, or does not answer.
        """
        nonce = next(self._nonces)
        if expect is None:
            ours = f"Nats-Msg-Id: {nonce}"
        else:
            # What is expected refuses repetitions; the broker need not remember ids for that as well.
            ours = f"{OURS}: {nonce}\r\nNats-Expected-Last-Subject-Sequence: {expect}"
        header = encode_headers(headers, ours)
        give_up = time.monotonic() + PATIENCE_S
        attempts = 0
        async with self._in_flight:
            while True:
                answer, sent = await self.ask(subject, payload, header=header)
                attempts += sent
                stored = _decode_stored(answer.payload)
                if stored.error is None:
                    if self._in_trouble:
                        self._note_trouble("")
                    return stored
                if expect is not None and stored.error.err_code in ALREADY_STORED:
                    return await self._ours(subject, nonce) if attempts > 1 else None
                if stored.error.code != UNAVAILABLE or time.monotonic() > give_up:
                    said = stored.error.description
                    remedy = FULL_REMEDY if any(word in said for word in FULL) else ""
                    raise BrokerError(f"the broker refuses {subject!r}: {said}{remedy}")
                self._note_trouble(stored.error.description)
                await anyio.sleep(random.uniform(*PAUSES_S[-2:]))

    def _note_trouble(self, why: str) -> None:
        """Log the first of many refusals, and their end: each is tried again, for `PATIENCE_S`."""
        if why and not self._in_trouble:
            log.warning("the broker does not store; trying again", reason=why, limit_s=PATIENCE_S)
        elif self._in_trouble and not why:
            log.warning("the broker stores again")
        self._in_trouble = bool(why)

    async def _ours(self, subject: str, nonce: str) -> Stored | None:
        # An earlier attempt of this very call may have been stored while its acknowledgement was lost.
        kept = await self.last(subject)
        if kept is None or decode_headers(kept.header).get(OURS) != nonce:
            return None
        return Stored(seq=kept.sequence, duplicate=True)

    async def last(self, subject: str) -> Kept | None:
        """The newest message under a wire subject, as the stream's leader has it."""
        stream = self._stream(subject)
        found = await self.api(f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject}, Found)
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

    async def direct(self, subject: str) -> Kept | None:
        """The newest message under a wire subject as any replica has it, which may be a moment old."""
        answer, _ = await self.ask(f"$JS.API.DIRECT.GET.{self._stream(subject)}.{subject}", b"")
        if status(answer.header):
            return None
        return Kept(subject=subject.encode(), header=answer.header, payload=answer.payload, sequence=0)

    def _stream(self, subject: str) -> str:
        return self.names.stream(self.names.bare(subject.encode()))

    async def purge(self, pattern: str, *, before: int | None = None) -> int:
        """Delete what is stored under a wire pattern, or ``before`` a sequence; returns how many messages."""
        body: dict[str, Any] = {"filter": pattern} if before is None else {"filter": pattern, "seq": before}
        purged = await self.api(f"STREAM.PURGE.{self._stream(pattern)}", body, Purged)
        if purged.error is not None:
            raise BrokerError(f"the broker does not delete {pattern!r}: {purged.error.description}")
        return purged.purged

    async def counts(self, pattern: str) -> dict[str, int]:
        """How many messages are stored under each wire subject of a wire pattern."""
        found: dict[str, int] = {}
        while True:
            body = {"subjects_filter": pattern, "offset": len(found)}
            info = await self.api(f"STREAM.INFO.{self._stream(pattern)}", body, StreamInfo)
            if info.error is not None:
                raise BrokerError(f"the broker does not count {pattern!r}: {info.error.description}")
            page = info.state.subjects or {}
            found |= page
            if not page or len(found) >= info.total:
                return found
