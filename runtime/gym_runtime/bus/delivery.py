"""One delivery of one task, and what may be said about it to the broker."""

from __future__ import annotations

from gym_runtime.bus.interface import Headers
from gym_runtime.bus.jetstream import Stamp
from gym_runtime.bus.link import Link
from gym_runtime.bus.protocol import decode_headers


class QueueDelivery:
    """A `gym_runtime.bus.interface.Delivery` of the work queue."""

    def __init__(self, link: Link, subject: str, reply: bytes, header: bytes, payload: bytes) -> None:
        self._link = link
        self._reply = reply.decode()
        self._header = header
        self.subject = subject
        self.payload = payload
        stamp = Stamp.of(reply)
        self.deliveries = stamp.deliveries
        self.stored_s = stamp.stored_s
        self.settled = False

    @property
    def headers(self) -> Headers | None:
        found = decode_headers(self._header) if self._header else {}
        # Ids and conditions that the bus itself added are not the sender's headers.
        return {name: value for name, value in found.items() if not name.startswith("Nats-")} or None

    async def ack(self) -> None:
        if not self.settled:
            # Before the await: a cancelled `ack` must not be followed by a release of the same task.
            self.settled = True
            await self._link.send(self._reply, b"+ACK")

    async def release(self, delay_s: float = 0.0) -> None:
        if not self.settled:
            self.give_back(delay_s)

    def abandon(self) -> None:
        self.settled = True

    def give_back(self, delay_s: float) -> None:
        """`release`, for places that cannot wait."""
        self.settled = True
        # A plain -NAK is delivered again at once; the delay is in nanoseconds.
        self._link.post(
            self._reply, b"-NAK" + (b' {"delay": %d}' % int(delay_s * 1e9) if delay_s > 0 else b"")
        )

    def keep_alive(self) -> None:
        """Restart the broker's wait for an acknowledgement."""
        if not self.settled:
            self._link.post(self._reply, b"+WPI")
