"""The subscriptions of a connection: each listener, by the number that the broker knows it by."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from gym_runtime.bus.link import Listener
from gym_runtime.bus.protocol import subscribe_command

log = structlog.get_logger(__name__)


@dataclass
class Interest:
    """One subscription. ``denied`` is whether the broker refused it."""

    subject: str
    queue: str
    listener: Listener
    denied: bool = False


class Interests(dict[int, Interest]):
    """All of them."""

    def receive(self, sid: int, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        """Hand a message to its listener; a message of an ended subscription is dropped."""
        interest = self.get(sid)
        # The broker sends until it has read the UNSUB.
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
                # No `break`: several subscriptions may have the same subject.
                interest.denied = True

    def commands(self) -> bytes:
        """All subscriptions again, for a new connection."""
        return b"".join(subscribe_command(sid, one.subject, one.queue) for sid, one in self.items())
