"""The subscriptions of a connection: whoever listens, by the number that the broker knows him by.

The client library subscribes anew from this table after a reconnection.
"""

from __future__ import annotations

import structlog

from gym_runtime.bus.link import Listener

log = structlog.get_logger(__name__)


class Interest:
    """One subscription. ``denied`` is whether the broker refused it."""

    # What the client library reads of its own subscriptions.
    _max_msgs = 0
    _received = 0
    _wait_for_msgs_task = None
    _message_iterator = None
    _pending_next_msgs_calls = None

    def __init__(self, subject: str, queue: str, listener: Listener) -> None:
        self._subject = self.subject = subject
        self._queue = queue
        self.listener = listener
        self.denied = False


class Interests(dict[int, Interest]):
    """All of them."""

    def receive(self, sid: int, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        """Hand a message to its listener; what nobody listens to any more is dropped."""
        interest = self.get(sid)
        if interest is None:
            return
        try:
            interest.listener(subject, reply, header, payload)
        except Exception:
            # The boundary to a subscriber: its bug must not end the reading for all the others.
            log.exception("receive failed", subject=subject.decode("utf-8", "replace"))

    def deny(self, subject: str) -> None:
        """The broker does not let us listen on a subject."""
        for interest in self.values():
            if interest.subject == subject:
                interest.denied = True
