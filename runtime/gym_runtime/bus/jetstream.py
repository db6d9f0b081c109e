"""JetStream's own vocabulary: the answers of its interface, its error codes, and our streams' settings."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from gym_runtime.bus.protocol import description
from gym_runtime.bus.subjects import Names

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
"""A cluster elects a leader; the answer is different in a moment."""
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

    subject: bytes
    header: bytes
    payload: bytes
    sequence: int
    stored_s: float = 0.0
    """By the broker's clock, in seconds since the epoch; 0 where it was not asked for."""


_COMPLETED = ("Batch Completed", "Message Size Exceeds MaxBytes")


def is_completed(header: bytes) -> bool:
    """Whether a status says that a pull with a limit of bytes has brought what it may."""
    return description(header) in _COMPLETED


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
