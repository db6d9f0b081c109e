"""JetStream's own vocabulary (the answers of its interface, its error codes), and our five streams.

The streams are created where they are missing; what is essential of existing ones is corrected.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar

import anyio
import msgspec
import structlog

from gym_runtime.bus.headers import description
from gym_runtime.bus.interface import Headers
from gym_runtime.bus.link import Link
from gym_runtime.bus.subjects import Names
from gym_runtime.errors import BrokerError, ConnectionLost, DeadlineExceeded, NoWorker
from gym_runtime.timing import API_ANSWER_S, PAUSES_S

log = structlog.get_logger(__name__)

T = TypeVar("T")

DUPLICATE_WINDOW_S = 75
"""How long the broker remembers the ids of what it stored: longer than anything is repeated for."""


DAY_S = 24 * 3600

# "Wrong last sequence" has two codes: one with the sequence that was found, one without.
ALREADY_STORED = {10071, 10164}
# These are values of `err_code`, as nats-server lists them in its errors.json.
STREAM_NAME_IN_USE = 10058
STREAM_STORE_FAILED = 10049
NO_CONSUMER = 10014
NO_STREAM = 10059
NOT_CLUSTERED = 10074
NO_PEERS = {10005, NOT_CLUSTERED}
NO_MESSAGE = 10037
UNAVAILABLE = 503
NO_LEADER = 10008
"""A cluster elects a leader; the answer is soon another."""
JETSTREAM_OFF = {10039, 10076}
NO_JETSTREAM = (
    "the broker has no JetStream: start it with 'nats-server -js', or enable JetStream for this account"
)


class ApiError(msgspec.Struct):
    """Why the broker does not do it; ``err_code`` is one of the constants above."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class ApiAnswer(msgspec.Struct, kw_only=True):
    """What every answer of the interface may say instead of the rest."""

    error: ApiError | None = None


class Stored(msgspec.Struct):
    """The broker's answer to a stored message."""

    seq: int = 0
    duplicate: bool = False
    error: ApiError | None = None


class State(msgspec.Struct, frozen=True):
    """How many messages a stream has under each subject, where that was asked for."""

    subjects: dict[str, int] | None = None


class StreamInfo(ApiAnswer):
    """A stream; ``total`` is how many subjects match, over all pages."""

    config: dict[str, Any] = {}
    state: State = State()
    total: int = 0


class AccountInfo(msgspec.Struct):
    """What the account has of JetStream: how many streams, over all systems."""

    streams: int = 0
    error: ApiError | None = None


class Purged(ApiAnswer):
    """How many messages were deleted."""

    purged: int = 0


class Consumer(ApiAnswer):
    """What is known of a consumer."""

    name: str = ""
    num_pending: int = 0
    num_ack_pending: int = 0
    ts: datetime | None = None
    """When the broker answered, by its own clock."""


class Message(msgspec.Struct, frozen=True):
    """A stored message; headers and data in base64."""

    seq: int = 0
    subject: str = ""
    hdrs: str = ""
    data: str = ""


class Found(ApiAnswer):
    """The answer to a search for one message."""

    message: Message = Message()


class Kept(msgspec.Struct, frozen=True):
    """One stored message, as it is in the stream."""

    subject: str
    headers: Headers
    payload: bytes
    sequence: int
    stored_s: float = 0.0
    """By the broker's clock, in seconds since the epoch; 0 where it was not asked for."""


_COMPLETED = ("Batch Completed", "Message Size Exceeds MaxBytes")


def is_completed(headers: Headers) -> bool:
    """Whether a status says that a pull with a limit of bytes has brought what it may."""
    return description(headers) in _COMPLETED


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
    def of(reply: str) -> Stamp:
        """``$JS.ACK.[domain.account.]stream.consumer.deliveries.sequence.consumed.time.pending[.token]``"""
        words = reply.split(".")
        # Two forms are in use: without a domain and an account hash in front, and with them.
        at = 4 if len(words) < 11 else 6
        deliveries, sequence, consumed, stored_ns, pending = map(int, words[at : at + 5])
        return Stamp(deliveries, sequence, consumed, stored_ns / 1e9, pending)


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

_LIFE_DAYS = {"task": 30, "runs": 30, "rollout": 37, "journal": 2, "blob": 47}
"""How long what is stored stays, unless it is deleted before. A result outlives every chance of a second
attempt: its task is delivered for 30 days at most, so only an attempt that lasts for more than a week could
find the result gone. A blob outlives the message that names it."""
LIFE_S = {kind: days * DAY_S for kind, days in _LIFE_DAYS.items()}


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
    """

    def __init__(self, link: Link, names: Names, replicas: int | None) -> None:
        self._link = link
        self._names = names
        self._replicas = replicas
        self._missing = ""

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
        account = await self._once("INFO", None, AccountInfo)
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
        replicas = self._replicas or (3 if self._link.clustered else 1)
        wanted = definition(self._names, kind, replicas)
        name = wanted["name"]
        info = await self._created(name, wanted)
        # Only our default is lowered, never a number that the operator gave.
        if info.error is not None and info.error.err_code in NO_PEERS and self._replicas is None:
            if info.error.err_code != NOT_CLUSTERED:  # a single broker with sites has a cluster's name, too
                log.warning("a stream is stored once only", stream=name, reason=info.error.description)
            wanted = definition(self._names, kind, 1)
            info = await self._created(name, wanted)
        if info.error is None:
            return
        if info.error.err_code in JETSTREAM_OFF:
            raise BrokerError(f"{NO_JETSTREAM} ({info.error.description})")
        if info.error.err_code != STREAM_NAME_IN_USE:
            raise BrokerError(f"the broker refuses the stream {name}: {info.error.description}")
        present = await self._once(f"STREAM.INFO.{name}", None, StreamInfo)
        # The broker leaves out of its answer what is switched off.
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
            # A stream that was just deleted still occupies its directory.
            await anyio.sleep(pause_s)
            info = await self._once(f"STREAM.CREATE.{name}", wanted, StreamInfo)
        return info

    async def _once(self, verb: str, body: dict[str, Any] | None, kind: type[T]) -> T:
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

    async def restored(self, *, quiet: bool = False) -> bool:
        """Create the streams that are missing; says whether they exist now.

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
