"""The connection as the other parts of the NATS bus see it: subjects, raw headers and bytes.

Subjects here are those on the wire, with the prefix. `gym_runtime.bus.connection` keeps these promises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

from gym_runtime.bus.socket import Traffic
from gym_runtime.bus.stop import Stop

Role = Literal["client", "agent", "resource", "model"]
"""What a connection is for; brokers may let each role do less than all."""


class RawAnswer(NamedTuple):
    """What came back on a request: raw headers and payload."""

    header: bytes
    payload: bytes


class Listener(Protocol):
    """Takes one message of a subscription: subject, reply subject, raw headers, payload. Never blocks."""

    def __call__(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, /) -> None: ...


class Link(Protocol):
    """A connection that comes back by itself, until it is closed."""

    @property
    def up(self) -> bool:
        """Whether the connection is there now."""
        ...

    @property
    def url(self) -> str:
        """The broker connected to now, without credentials; empty while disconnected."""
        ...

    @property
    def traffic(self) -> Traffic:
        """What has passed, over all connections to the broker."""
        ...

    @property
    def round_trip_s(self) -> float:
        """How long pings to the broker take; 0 while that is not known."""
        ...

    @property
    def closed(self) -> bool:
        """Whether it is closed for good."""
        ...

    @property
    def clustered(self) -> bool:
        """Whether the broker is one of several that store together."""
        ...

    @property
    def max_payload(self) -> int:
        """The largest message the broker takes, headers included."""
        ...

    async def wait_up(self) -> None:
        """Wait for the connection.

        Raises:
            ConnectionLost: The connection is closed for good.
        """
        ...

    def watch(self, changed: Callable[[bool], None]) -> Callable[[], None]:
        """Call ``changed`` with False when the connection breaks and True when it is back.

        Returns a function that ends the watch.
        """
        ...

    def inbox(self) -> str:
        """A new subject that no other process uses."""
        ...

    def listen(self, subject: str, listener: Listener, *, queue: str = "") -> int:
        """Subscribe; survives reconnections. Returns the subscription's id."""
        ...

    def denied(self, sid: int) -> bool:
        """Whether the broker refused a subscription; known after a `settle`."""
        ...

    def unlisten(self, sid: int) -> None:
        """End a subscription at once; what arrives afterwards is dropped."""
        ...

    def mute(self, sid: int) -> None:
        """Ask the broker to end a subscription, but hand over what is still on its way.

        `unlisten` must follow, after a `settle`.
        """
        ...

    async def settle(self) -> None:
        """Return when the broker has acted on everything sent before; at once when disconnected."""
        ...

    def post(self, subject: str, payload: bytes, *, reply: str = "", header: bytes = b"") -> None:
        """Send without waiting for room in the outgoing buffer: for small control messages."""
        ...

    async def send(self, subject: str, payload: bytes, *, reply: str = "", header: bytes = b"") -> None:
        """Send; waits while the outgoing buffer is full, and can be cancelled there.

        Raises:
            PayloadTooLarge: Headers and payload exceed ``max_payload``.
            ConnectionLost: The connection is closed for good.
        """
        ...

    @property
    def crowded(self) -> bool:
        """Whether what is sent now has to wait for what was sent before."""
        ...

    async def ease(self) -> None:
        """Return when it is not crowded, in the order of the calls; also when the connection breaks."""
        ...

    async def ask(
        self,
        subject: str,
        payload: bytes,
        *,
        within_s: float,
        header: bytes = b"",
        stop: Stop | None = None,
    ) -> RawAnswer:
        """Send and wait for one answer. While disconnected it waits for the connection first.

        Raises:
            NoWorker: no process listens on the subject.
            ConnectionLost: The connection broke while waiting for the answer.
            DeadlineExceeded: Nothing came within ``within_s`` seconds.
            BrokerError: We may not publish there.
            PayloadTooLarge: As for `send`.
            Stopped: ``stop`` was used.
        """
        ...

    async def close(self) -> None:
        """Send what is buffered, for two seconds at most, and disconnect for good."""
        ...
