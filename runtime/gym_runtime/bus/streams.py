"""JetStream over one link: its vocabulary, our five streams, and patient requests.

The streams are created where they are missing; what is essential of existing ones is corrected.

A store or management request waits for the connection and is repeated until it is answered, for
`PATIENCE_S` at most; each is safe to repeat. A worker repeats a store until the broker takes it, because the
content has cost model calls; the rollout's deadline is the only limit. Each stored message has an id, by
which the broker drops repetitions and a conditional store finds out whether what is stored is its own.
"""

from __future__ import annotations

import asyncio
import base64
import math
import secrets
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import msgspec

from gym_runtime.bus.interface import Headers
from gym_runtime.bus.jetstream_answers import Answer, Kept, decode_answer
from gym_runtime.bus.link import Link
from gym_runtime.bus.receiving import RawAnswer
from gym_runtime.bus.wire import NO_HEADERS, Names, checked, decode, status
from gym_runtime.errors import BrokerError, ConnectionLost, DeadlineExceeded, NoWorker
from gym_runtime.logs import logger
from gym_runtime.retrying import Backoff, Pauses
from gym_runtime.timing import API_ANSWER_S, PATIENCE_S

log = logger()

PAUSES = Pauses(0.05, 1.0)
"""Between tries of a request that was not answered."""
STORE_PAUSES = Pauses(1.0, 8.0)
"""Between tries to store a message that the broker refuses."""
RESTORED_AGAIN_S, REFUSED_AGAIN_S = 1.0, 10.0
"""How long all requests of a process leave missing streams alone after one has tried to create them; the
second, after the broker has refused it. Hundreds that wait would ask hundreds of times a second."""
STORE_ANSWER_S = 10.0
"""How long one try to store waits for the broker's answer. A repeated try is recognised by its id."""
DUPLICATE_WINDOW_S = 75
"""How long the broker remembers the ids of what it stored: longer than anything is repeated for."""
STORES_IN_FLIGHT = 512
"""More would only wait in the broker, and time out there."""
OURS = "Gym-Id"

# "Wrong last sequence" has two codes: one with the sequence that was found, one without.
ALREADY_STORED = {10071, 10164}
# These are values of `err_code`, as nats-server lists them in its errors.json.
STREAM_NAME_IN_USE = 10058
NO_CONSUMER = 10014
NO_STREAM = 10059
NOT_CLUSTERED = 10074
NO_PEERS = {10005, NOT_CLUSTERED}
NO_MESSAGE = 10037
PASSING = {10008, 10118, 10119}
"""A cluster elects a leader, or a stream or a consumer is offline; the answer is soon another."""
JETSTREAM_OFF = {10039, 10076}
UNAVAILABLE = 503
NO_JETSTREAM = (
    "the broker has no JetStream: start it with 'nats-server -js', or enable JetStream for this account"
)
# The file system says the first two, JetStream's own limits the last.
FULL = ("no space left", "file too large", "insufficient")
FULL_REMEDY = (
    "make room at the broker (restart a nats-server that gym-runtime did not start), "
    "then repeat the command; 'run' goes on with --resume"
)


ESSENTIALS: dict[str, dict[str, Any]] = {
    "task": {"retention": "workqueue", "allow_direct": True},
    "rollout": {"retention": "limits", "allow_direct": True},
    "journal": {"retention": "limits", "allow_direct": True},
    "runs": {"retention": "limits", "allow_direct": True, "max_msgs_per_subject": 1},
    "blob": {
        "retention": "limits",
        "allow_direct": True,
        "max_msgs_per_subject": 1,
        "allow_msg_ttl": True,
        # A chunk is never replaced: every worker may store chunks, and no worker may exchange another's.
        "discard": "new",
        "discard_new_per_subject": True,
    },
}
"""What a stream must be for the promises to hold, by kind; operators may set everything else."""

_LIFE_DAYS = {"task": 30, "runs": 400, "rollout": 37, "journal": 37, "blob": 500}
LIFE_S = {kind: days * 24 * 3600 for kind, days in _LIFE_DAYS.items()}
"""How long what is stored stays, unless it is deleted before. A result outlives every chance of a second
attempt: its task is delivered for 30 days at most, so only an attempt that lasts for more than a week could
find the result gone. A journal lives as long, because a run may be paused for weeks, and failed tasks, which
`retry-failed` runs again, are beside it. Beside the runs are the weights that an engine loads when it starts,
and curricula: they must not go while a system stands for months. A blob outlives the message that names
it."""


def definition(names: Names, kind: str, replicas: int) -> dict[str, Any]:
    """The configuration of the stream of one kind, as the broker's API takes it."""
    return {
        "name": names.stream(kind),
        "subjects": [names.pattern(f"{kind}.>")],
        "storage": "file",
        "discard": "old",
        # Durations are in nanoseconds in the broker's API.
        "max_age": LIFE_S[kind] * 10**9,
        "duplicate_window": DUPLICATE_WINDOW_S * 10**9,
        "num_replicas": replicas,
        # Last: what is essential replaces the defaults above.
        **ESSENTIALS[kind],
    }


class StreamSetup:
    """The streams of one system at one broker.

    Args:
        replicas: how often each stream is kept; by default three times in a cluster.

    Attributes:
        missing: why streams that are missing could not be created; empty if none are known to be missing.
    """

    def __init__(self, link: Link, names: Names, replicas: int | None) -> None:
        self._link, self._names, self._replicas = link, names, replicas
        self.missing = ""
        self._restoring = anyio.Lock()
        self._exist, self._again_s = False, 0.0

    async def open(self, *, create: bool = True, needed: bool = False) -> None:
        """Create the streams that are missing. Without ``create`` only if no system has its streams there.

        Args:
            needed: missing streams that may not be created are an error. It is ``silent``, because a client
                may create them later.

        Raises:
            BrokerError: The broker has no JetStream, or refuses a stream that is to be created.
        """
        if create:
            for kind in ESSENTIALS:
                await self._ensure(kind)
            return
        account = await self._once("INFO")
        if account.error is not None:
            raise BrokerError(f"{NO_JETSTREAM} ({account.error.description})")
        # Roles other than a client may not read streams, but may ask for the account, which counts those of
        # all systems.
        if account.streams < len(ESSENTIALS) and not await self.restored(quiet=needed) and needed:
            raise BrokerError(
                "the broker has no streams for this system yet, and these credentials may not create them: "
                "run 'gym-runtime status' with a client's",
                silent=True,
            )

    async def _ensure(self, kind: str) -> None:
        wanted = definition(self._names, kind, self._replicas or (3 if self._link.clustered else 1))
        name = wanted["name"]
        info = await self._once(f"STREAM.CREATE.{name}", wanted)
        # Only our default is lowered, never a number that the operator gave.
        if info.error is not None and info.err_code in NO_PEERS and self._replicas is None:
            if info.err_code != NOT_CLUSTERED:  # a single broker with sites has a cluster's name, too
                log.warning("a stream is stored once only", stream=name, reason=info.error.description)
            info = await self._once(f"STREAM.CREATE.{name}", definition(self._names, kind, 1))
        if info.error is None:
            return
        if info.err_code in JETSTREAM_OFF:
            raise BrokerError(f"{NO_JETSTREAM} ({info.error.description})")
        if info.err_code != STREAM_NAME_IN_USE:
            raise BrokerError(f"the broker refuses the stream {name}: {info.error.description}")
        present = (await self._once(f"STREAM.INFO.{name}")).config
        if wanted["subjects"][0] not in present.get("subjects", ()):
            raise BrokerError(
                f"the stream {name} is for {', '.join(present.get('subjects', ()))}: another system's prefix "
                "differs from yours in '.' and '_' only; use another prefix"
            )
        # The broker leaves out of its answer what is switched off.
        wrong = {key: value for key, value in ESSENTIALS[kind].items() if present.get(key, False) != value}
        if not wrong:
            return
        updated = await self._once(f"STREAM.UPDATE.{name}", present | wrong)
        if updated.error is not None:
            raise BrokerError(
                f"the stream {name} exists with other settings and cannot be changed to {wrong} "
                f"({updated.error.description}): delete it, or use another prefix"
            )

    async def _once(self, verb: str, body: dict[str, Any] | None = None) -> Answer:
        payload = b"" if body is None else msgspec.json.encode(body)
        try:
            answer = await self._link.ask(f"$JS.API.{verb}", payload, within_s=API_ANSWER_S)
        # Without JetStream there is no process that listens on its subjects.
        except NoWorker as error:
            raise BrokerError(
                "the broker has no JetStream: if it is the leaf of another site, the broker there cannot be "
                "reached now (its log says why; 'start --wait' waits); else start it with 'nats-server -js', "
                f"or enable JetStream for this account ({error})",
                silent=True,
            ) from error
        except DeadlineExceeded as error:
            why = f"the broker's JetStream does not answer ({error})"
            raise BrokerError(f"{why}: see its log; a cluster may have no leader", silent=True) from error
        except BrokerError as error:
            raise BrokerError(
                f"{error}: streams that are missing are created by 'gym-runtime status' with a client's "
                "credentials"
            ) from error
        return decode_answer(answer.payload)

    async def restored(self, *, quiet: bool = False) -> bool:
        """Create the streams that are missing; says whether they exist now.

        Why they are not is logged once, unless ``quiet``: this is tried again and again.
        """
        async with self._restoring:
            if time.monotonic() < self._again_s:
                return self._exist
            self._exist, pause_s = True, RESTORED_AGAIN_S
            # We are the first here, or a broker that lost its state directory has lost the streams as well.
            try:
                await self.open()
            except (BrokerError, ConnectionLost) as error:
                self._exist = False
                if isinstance(error, BrokerError) and not error.silent:
                    pause_s = REFUSED_AGAIN_S
                if not quiet and str(error) != self.missing:
                    self.missing = str(error)
                    log.warning("streams not created", error=str(error))
            else:
                self.missing = ""
            self._again_s = time.monotonic() + pause_s
            return self._exist


class Streams:
    """What is stored, by subjects without the prefix.

    Args:
        patient: a store is repeated for as long as its caller waits, not for `PATIENCE_S`.

    Attributes:
        setup: creates the streams.
    """

    def __init__(self, link: Link, names: Names, replicas: int | None, *, patient: bool = False) -> None:
        self._link, self.names = link, names
        self.setup = StreamSetup(link, names, replicas)
        self._in_flight = asyncio.Semaphore(STORES_IN_FLIGHT)
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
        self,
        subject: str,
        payload: bytes,
        *,
        headers: Headers = NO_HEADERS,
        patience_s: float | None = None,
        silent: Callable[[], None] | None = None,
    ) -> tuple[RawAnswer, int]:
        """Ask something that is safe to repeat, until it is answered; also returns how often it was sent.

        What a slow link takes to send it is not the broker's silence, and does not count.

        Args:
            silent: called after each try once there was no answer for `STORE_ANSWER_S`.

        Raises:
            BrokerError: There was no answer within ``patience_s``, by default `PATIENCE_S`; it is ``silent``.
        """
        patience_s = PATIENCE_S if patience_s is None else patience_s
        asked_s, backoff, attempts = time.monotonic(), Backoff(PAUSES), 0
        while True:
            began_s = time.monotonic()
            # At least one try, also when the pause before has used up the rest.
            within_s = min(STORE_ANSWER_S, max(0.1, asked_s + patience_s - began_s))
            try:
                attempts += 1
                if self._link.sending.crowded:
                    await self._link.sending.ease()
                asking = self._link.ask(
                    subject, payload, headers=headers, within_s=within_s, from_arrival=True
                )
                return await asking, attempts
            except (NoWorker, ConnectionLost, DeadlineExceeded) as error:
                if self._link.closed:
                    raise
                asked_s += max(0.0, time.monotonic() - began_s - within_s)
                if time.monotonic() > asked_s + patience_s:
                    raise _silent(patience_s, error) from error
                if silent is not None and time.monotonic() > asked_s + STORE_ANSWER_S:
                    silent()
                # The broker answers "no responders" for a stream that is missing; for consumers JetStream
                # itself answers (`api`).
                missing = isinstance(error, NoWorker) and not subject.startswith("$JS.API.CONSUMER")
                # At once only the first time: streams that exist and still do not answer are waited for.
                if missing and await self.setup.restored() and attempts == 1:
                    continue
                await backoff.wait()

    async def api(
        self,
        verb: str,
        body: dict[str, Any] | None,
        failed: str,
        *,
        expected: int = 0,
        patience_s: float | None = None,
    ) -> Answer:
        """A request to JetStream's management interface; it is repeated while the answer may soon be
        another (`PASSING`), and a delete while the disk is full.

        Args:
            failed: the beginning of the error's message.
            expected: an error that is returned.

        Raises:
            BrokerError: The broker refuses it, or is ``silent`` for ``patience_s``.
        """
        payload = b"" if body is None else msgspec.json.encode(body)
        give_up_s, backoff = time.monotonic() + PATIENCE_S, Backoff(PAUSES)
        while True:
            answer, _ = await self.ask(f"$JS.API.{verb}", payload, patience_s=patience_s)
            found = decode_answer(answer.payload)
            if found.error is None or found.err_code == expected:
                return found
            said = found.error.description
            # A broker that lost its directory, or a first client, has the stream in a moment.
            lacking = found.err_code == NO_STREAM and verb.startswith("CONSUMER.CREATE")
            passes = lacking or found.err_code in PASSING
            # Nothing hurries with a delete; a run must not end for it while its broker gets space.
            passes = passes or (verb.startswith("STREAM.PURGE") and _is_full(said))
            if not passes or time.monotonic() > give_up_s:
                raise _refusal(failed, (lacking and self.setup.missing) or said)
            if not lacking or not await self.setup.restored():
                await backoff.wait()

    async def consume(
        self, pattern: str, name: str, config: dict[str, Any], *, action: str = "", **more: Any
    ) -> Answer:
        """Create a consumer of a pattern, or adapt one of the same name; ``more`` is for `api`.

        Raises:
            BrokerError: as `api`.
        """
        stream, on_wire = self.names.stream(pattern), self.names.pattern(pattern)
        config = {"name": name, "filter_subject": on_wire, **config}
        return await self.api(
            f"CONSUMER.CREATE.{stream}.{name}.{on_wire}",
            {"stream_name": stream, "config": config, "action": action},
            f"the broker refuses the consumer {name} of {on_wire!r}",
            **more,
        )

    async def store(
        self,
        subject: str,
        payload: bytes,
        headers: Headers = NO_HEADERS,
        *,
        expect: int | None = None,
        once: bool = False,
    ) -> int | None:
        """Store a message; its sequence, or None if the subject's newest has another one than ``expect``.

        Args:
            once: expect none, and do not ask whose message is there: a role that only writes may not read it.

        Raises:
            UsageError: No stream has the subject.
            BrokerError: The broker refuses, or does not answer.
        """
        self.names.stream(subject)
        on_wire, nonce = self.names.subject(subject), secrets.token_hex(12)
        if once:
            expect = 0
        if expect is None:
            ours = {"Nats-Msg-Id": nonce}
        else:
            # The expected sequence refuses repetitions, so the broker need not remember ids as well.
            ours = {OURS: nonce, "Nats-Expected-Last-Subject-Sequence": str(expect)}
        headers = ours | checked(headers)
        patience_s = math.inf if self._patient else PATIENCE_S
        # A stream that failed to write refuses all that follows without an answer.
        silent = partial(self._note_refusal, nonce, "it does not answer")
        await self._in_flight.acquire()
        give_up_s, backoff, attempts = time.monotonic() + patience_s, Backoff(STORE_PAUSES), 0
        try:
            while True:
                answer, sent = await self.ask(
                    on_wire, payload, headers=headers, patience_s=patience_s, silent=silent
                )
                attempts += sent
                stored = decode_answer(answer.payload)
                if stored.error is None:
                    return stored.seq
                said = stored.error.description
                if expect is not None and stored.err_code in ALREADY_STORED:
                    # Only a repeated request can have met its own earlier attempt.
                    return await self._ours(subject, nonce) if attempts > 1 and not once else None
                # 503 passes: no leader at the moment, or too much waits. Any other refusal would come again.
                if stored.error.code != UNAVAILABLE or time.monotonic() > give_up_s:
                    raise _refusal(f"the broker refuses {on_wire!r}", said)
                self._note_refusal(nonce, said)
                await backoff.wait()
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

    async def _ours(self, subject: str, nonce: str) -> int | None:
        # An earlier attempt of this very call may have been stored while its acknowledgement was lost.
        kept = await self.last(subject)
        return None if kept is None or kept.headers.get(OURS) != nonce else kept.sequence

    async def last(self, subject: str) -> Kept | None:
        """The newest message under a subject, as the stream's leader has it."""
        stream, on_wire = self.names.stream(subject), self.names.subject(subject)
        verb, failed = f"STREAM.MSG.GET.{stream}", f"the broker does not read {on_wire!r}"
        found = await self.api(verb, {"last_by_subj": on_wire}, failed, expected=NO_MESSAGE)
        if found.error is not None:
            return None
        message, headers = found.message, decode(base64.b64decode(found.message.hdrs))
        return Kept(subject, headers, base64.b64decode(message.data), message.seq)

    async def direct(self, subject: str) -> Kept | None:
        """The newest message under a subject as any replica has it, which may be a moment old."""
        stream, on_wire = self.names.stream(subject), self.names.subject(subject)
        answer, _ = await self.ask(f"$JS.API.DIRECT.GET.{stream}.{on_wire}", b"")
        # A found message has headers without a status; 404 says that no message was found.
        return None if status(answer.headers) else Kept(subject, answer.headers, answer.payload, 0)

    async def purge(self, pattern: str, *, before: int | None = None) -> int:
        """Delete the messages under a pattern, or ``before`` a sequence; returns how many."""
        stream, on_wire = self.names.stream(pattern), self.names.pattern(pattern)
        body: dict[str, Any] = {"filter": on_wire} if before is None else {"filter": on_wire, "seq": before}
        failed = f"the broker does not delete {on_wire!r}"
        return (await self.api(f"STREAM.PURGE.{stream}", body, failed)).purged

    async def counts(self, pattern: str) -> dict[str, int]:
        """How many messages are stored under each subject of a pattern."""
        stream, on_wire = self.names.stream(pattern), self.names.pattern(pattern)
        found: dict[str, int] = {}
        while True:
            # The broker sends at most 100,000 subjects at a time.
            body = {"subjects_filter": on_wire, "offset": len(found)}
            info = await self.api(f"STREAM.INFO.{stream}", body, f"the broker does not count {on_wire!r}")
            page = info.state.subjects or {}
            found |= {self.names.bare(subject): count for subject, count in page.items()}
            # The total may shrink while this reads; an empty page ends it in any case.
            if not page or len(found) >= info.total:
                return found


def _is_full(said: str) -> bool:
    return any(word in said for word in FULL)


def _refusal(failed: str, said: str) -> BrokerError:
    return BrokerError(f"{failed}: {said}{f': {FULL_REMEDY}' if _is_full(said) else ''}")


def _silent(patience_s: float, error: BaseException) -> BrokerError:
    return BrokerError(
        f"the broker stored or answered nothing within {patience_s:.0f} s ({error}): see its log; if its "
        f"disk is full, {FULL_REMEDY}",
        silent=True,
    )
