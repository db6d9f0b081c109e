"""What the broker answers about its streams, and one stored message."""

from __future__ import annotations

from typing import Any

import msgspec

from gym_runtime.bus.interface import Headers
from gym_runtime.bus.wire import STATUS


class ApiError(msgspec.Struct, frozen=True):
    """Why the broker does not do it; ``err_code`` is one of those in `gym_runtime.bus.streams`, or 0."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class Found(msgspec.Struct, frozen=True):
    """A stored message; headers and data in base64."""

    seq: int = 0
    subject: str = ""
    hdrs: str = ""
    data: str = ""


class State(msgspec.Struct, frozen=True):
    """How many messages a stream has under each subject, where that was asked for."""

    subjects: dict[str, int] | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Any answer of JetStream. Each request fills the fields that it is about.

    Attributes:
        streams: how many the account has, over all systems.
        total: how many subjects match, over all pages of `State.subjects`.
        num_pending, num_ack_pending: of a consumer.
    """

    error: ApiError | None = None
    seq: int = 0
    streams: int = 0
    config: dict[str, Any] = {}
    state: State = State()
    total: int = 0
    purged: int = 0
    message: Found = Found()
    num_pending: int = 0
    num_ack_pending: int = 0

    @property
    def err_code(self) -> int:
        return 0 if self.error is None else self.error.err_code


decode_answer = msgspec.json.Decoder(Answer).decode


class Kept(msgspec.Struct, frozen=True):
    """One stored message, as it is in the stream."""

    subject: str
    headers: Headers
    payload: bytes
    sequence: int


_BEGINNINGS = (b'{"type":"io.nats.jetstream.', b'{"stream":"', b'{"error":{')
"""Of answers of the API, and to what is stored; no message between workers and clients begins like these."""


def is_of_jetstream(reply: str, headers: Headers, payload: bytes) -> bool:
    """Whether JetStream sent a message. A request to it may name any subject for the answer, also one to
    which the asking worker may not publish."""
    marked = "Nats-Stream" in headers or STATUS in headers or reply.startswith("$JS.")
    return marked or payload.startswith(_BEGINNINGS)
