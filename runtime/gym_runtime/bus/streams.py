"""The five streams at the broker, and patient requests to JetStream.

A store or management request waits for the connection and is repeated until it is answered, for
`PATIENCE_S` at most; each is safe to repeat. A worker's store is repeated until the broker stores again: its
content was paid for, and its rollout has its own deadline. A stored message carries an id, by which the
broker recognises a repetition, or a conditional store recognises its own earlier attempt.
"""

from __future__ import annotations

import base64
import math
import random
import secrets
import time
from typing import Any, TypeVar

import anyio
import msgspec
import structlog

from gym_runtime.bus.headers import NO_HEADERS, checked, decode, status
from gym_runtime.bus.interface import Headers
from gym_runtime.bus.jetstream import (
    ALREADY_STORED,
    NO_LEADER,
    NO_MESSAGE,
    UNAVAILABLE,
    ApiAnswer,
    Found,
    Kept,
    Purged,
    Stored,
    StreamInfo,
    StreamSetup,
)
from gym_runtime.bus.link import Link
from gym_runtime.bus.requests import RawAnswer
from gym_runtime.bus.subjects import Names
from gym_runtime.errors import BrokerError, ConnectionLost, DeadlineExceeded, NoWorker
from gym_runtime.timing import PATIENCE_S, PAUSES_S

STORE_ANSWER_S = 10.0
"""How long one try to store waits for the broker's answer. A repeated try is recognised by its id."""
STORE_LONGEST_PAUSE_S = 8.0
"""The longest pause between tries to store a message that the broker refuses."""

log = structlog.get_logger(__name__)

FULL = ("no space left", "insufficient")  # the file system says the one, JetStream's own limits the other
FULL_REMEDY = (
    "make room at the broker, then go on with --resume (restart a nats-server that gym-runtime did not start)"
)
OURS = "Gym-Id"
STORES_IN_FLIGHT = 512
"""More would only wait in the broker, and time out there."""

T = TypeVar("T", bound=ApiAnswer)
_decode_stored = msgspec.json.Decoder(Stored).decode


class Streams:
    """JetStream over one link.

    Args:
        patient: a store is repeated for as long as its caller waits, not for `PATIENCE_S`.

    Attributes:
        setup: creates the streams.
    """

    def __init__(self, link: Link, names: Names, replicas: int | None, *, patient: bool = False) -> None:
        self._link = link
        self.names = names
        self.setup = StreamSetup(link, names, replicas)
        self._in_flight = anyio.Semaphore(STORES_IN_FLIGHT, fast_acquire=True)
        self._patient = patient
        self._refused: dict[str, str] = {}
        self._accepted = anyio.Event()

    @property
    def refused(self) -> str:
        """Why the broker refuses the messages being stored now; empty if it does not."""
        return next(iter(self._refused.values()), "")

    async def stores(self) -> None:
        """Return when nothing that is being stored is refused."""
        while self._refused:
            await self._accepted.wait()

    async def ask(
        self, subject: str, payload: bytes, *, headers: Headers = NO_HEADERS, patience_s: float | None = None
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
                # At least one try, also when the pause before has used up the rest.
                left_s = max(0.1, give_up - time.monotonic())
                answer = await self._link.ask(
                    subject, payload, headers=headers, within_s=min(STORE_ANSWER_S, left_s)
                )
                return answer, attempts
            except (NoWorker, ConnectionLost, DeadlineExceeded) as error:
                if self._link.closed:
                    raise
                if time.monotonic() > give_up:
                    raise _silent(patience_s, error) from error
                # The broker answers "no responders" for a stream that is missing; for consumers JetStream
                # itself answers (`consumers.create`).
                missing = isinstance(error, NoWorker) and not subject.startswith("$JS.API.CONSUMER")
                # At once only the first time: streams that exist and still do not answer are waited for.
                if missing and await self.setup.restored() and attempts == 1:
                    continue
                await anyio.sleep(PAUSES_S[min(attempts, len(PAUSES_S)) - 1] * random.uniform(0.5, 1.5))

    async def api(
        self, verb: str, body: dict[str, Any] | None, kind: type[T], *, patience_s: float | None = None
    ) -> T:
        """A request to JetStream's management interface; it is repeated while a cluster elects a leader."""
        payload = b"" if body is None else msgspec.json.encode(body)
        give_up = time.monotonic() + PATIENCE_S
        while True:
            answer, _ = await self.ask(f"$JS.API.{verb}", payload, patience_s=patience_s)
            found = msgspec.json.decode(answer.payload, type=kind)
            if found.error is None or found.error.err_code != NO_LEADER or time.monotonic() > give_up:
                return found
            await anyio.sleep(random.uniform(*PAUSES_S[-2:]))

    async def store(
        self, subject: str, payload: bytes, headers: Headers, *, expect: int | None = None
    ) -> Stored | None:
        """Store a message under a wire subject; None if the subject's newest message is not the expected one.

        Raises:
            BrokerError: The broker refuses, or does not answer.
        """
        nonce = secrets.token_hex(12)
        if expect is None:
            ours = {"Nats-Msg-Id": nonce}
        else:
            # The expected sequence refuses repetitions, so the broker need not remember ids as well.
            ours = {OURS: nonce, "Nats-Expected-Last-Subject-Sequence": str(expect)}
        headers = ours | checked(headers)
        patience_s = math.inf if self._patient else PATIENCE_S
        give_up = time.monotonic() + patience_s
        attempts, pause_s = 0, PAUSES_S[-1]
        try:
            while True:
                try:
                    answer, sent = await self.ask(
                        subject, payload, headers=headers, patience_s=min(STORE_ANSWER_S, patience_s)
                    )
                except BrokerError as error:
                    if not error.silent:
                        raise
                    if time.monotonic() > give_up:
                        raise _silent(patience_s, error.__cause__ or error) from error
                    # A stream that failed to write refuses all that follows without an answer.
                    self._note_refusal(nonce, "it does not answer")
                    attempts += 1
                    continue
                attempts += sent
                stored = _decode_stored(answer.payload)
                if stored.error is None:
                    return stored
                if expect is not None and stored.error.err_code in ALREADY_STORED:
                    # Only a repeated request can have met its own earlier attempt.
                    return await self._ours(subject, nonce) if attempts > 1 else None
                # 503 passes: no leader at the moment, or too much waits. Any other refusal would come again.
                if stored.error.code != UNAVAILABLE or time.monotonic() > give_up:
                    said = stored.error.description
                    remedy = f": {FULL_REMEDY}" if any(word in said for word in FULL) else ""
                    raise BrokerError(f"the broker refuses {subject!r}: {said}{remedy}")
                self._note_refusal(nonce, stored.error.description)
                await anyio.sleep(random.uniform(0.5, 1) * pause_s)
                pause_s = min(pause_s * 2, STORE_LONGEST_PAUSE_S)
        finally:
            if self._refused.pop(nonce, "") and not self._refused:
                log.warning("nothing waits for the broker to store it any more")
                self._accepted.set()
            self._in_flight.release()

    def _note_refusal(self, nonce: str, why: str) -> None:
        """Only the first of many refusals is logged."""
        if not self._refused:
            self._accepted = anyio.Event()
            log.warning("the broker does not store; trying again", reason=why)
        self._refused[nonce] = why

    async def _ours(self, subject: str, nonce: str) -> Stored | None:
        # An earlier attempt of this very call may have been stored while its acknowledgement was lost.
        kept = await self.last(subject)
        if kept is None or kept.headers.get(OURS) != nonce:
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
            subject=message.subject,
            headers=decode(base64.b64decode(message.hdrs)),
            payload=base64.b64decode(message.data),
            sequence=message.seq,
        )

    async def direct(self, subject: str) -> Kept | None:
        """The newest message under a wire subject as any replica has it, which may be a moment old."""
        answer, _ = await self.ask(f"$JS.API.DIRECT.GET.{self._stream(subject)}.{subject}", b"")
        # A found message has headers without a status; 404 says that no message was found.
        if status(answer.headers):
            return None
        return Kept(subject=subject, headers=answer.headers, payload=answer.payload, sequence=0)

    def _stream(self, subject: str) -> str:
        return self.names.stream(self.names.bare(subject))

    async def purge(self, pattern: str, *, before: int | None = None) -> int:
        """Delete the messages under a wire pattern, or ``before`` a sequence; returns how many."""
        body: dict[str, Any] = {"filter": pattern} if before is None else {"filter": pattern, "seq": before}
        purged = await self.api(f"STREAM.PURGE.{self._stream(pattern)}", body, Purged)
        if purged.error is not None:
            raise BrokerError(f"the broker does not delete {pattern!r}: {purged.error.description}")
        return purged.purged

    async def counts(self, pattern: str) -> dict[str, int]:
        """How many messages are stored under each wire subject of a wire pattern."""
        found: dict[str, int] = {}
        while True:
            # The broker sends at most 100,000 subjects at a time.
            body = {"subjects_filter": pattern, "offset": len(found)}
            info = await self.api(f"STREAM.INFO.{self._stream(pattern)}", body, StreamInfo)
            if info.error is not None:
                raise BrokerError(f"the broker does not count {pattern!r}: {info.error.description}")
            page = info.state.subjects or {}
            found |= page
            # The total may shrink while this reads; an empty page ends it in any case.
            if not page or len(found) >= info.total:
                return found


def _silent(patience_s: float, error: BaseException) -> BrokerError:
    return BrokerError(
        f"the broker stored or answered nothing within {patience_s:.0f} s ({error}): see its log; if its "
        f"disk is full, {FULL_REMEDY}",
        silent=True,
    )
