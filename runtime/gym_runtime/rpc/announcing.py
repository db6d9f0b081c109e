"""A member of the system announces when it joins, changes and leaves, and answers questions about itself.

On the wire, NAME being ``<kind>.<worker>``:

===================  ====================================================================================
``join.NAME``        signal with the member's `Heartbeat`: it joined, or its state changed
``gone.NAME``        signal: it left, and then with its last `Heartbeat`; or a watcher declared it gone; a
                     member that is alive answers with another ``join``
``alive.NAME``       request; the answer is the member's `Heartbeat`
``call``             signal, the roll call: every member announces itself
===================  ====================================================================================

A member that is asked regularly and does not change sends nothing but its answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress

import anyio
from msgspec.structs import replace

from gym_runtime.bus.interface import Bus, Incoming
from gym_runtime.errors import GymError
from gym_runtime.rpc.registry import Heartbeat, encode_heartbeat
from gym_runtime.timing import UNASKED_S

STATE_CHECKED_S = 1.0
"""How often a member compares its state with the one that it announced. Draining and a new version of the
weights are known to callers this much later."""
CALLS_ANSWERED_S = 0.25
"""The shortest time between two answers of a member to roll calls: one serves all followers that start
together, and a hundred of them cause no hundred announcements of every member."""
LEAVE_S = 1.0
"""How long a member that leaves may take to announce it."""


def _state(heartbeat: Heartbeat) -> tuple[object, ...]:
    """The part of a heartbeat whose changes are announced at once; the rest is sent when a caller asks."""
    version = heartbeat.detail.get("weight_version")
    return (heartbeat.pools, heartbeat.capacity, heartbeat.draining, heartbeat.slow, version)


async def announce(
    bus: Bus, current: Callable[[], Heartbeat], *, ready: Callable[[], None] | None = None
) -> None:
    """Be a member until cancelled, then announce that it left.

    ``ready`` is called once the member answers and has announced itself.
    """
    name = current().name
    asked_s = anyio.current_time()
    wake = anyio.Event()

    async def reply(incoming: Incoming) -> None:
        # A watcher that gets no answer asks again.
        with suppress(GymError):
            await bus.publish(incoming.reply, encode_heartbeat(current()))

    # The group is entered first: it must still be there while the subscriptions end.
    async with anyio.create_task_group() as tasks, AsyncExitStack() as stack:

        def answer(incoming: Incoming) -> None:
            nonlocal asked_s
            asked_s = anyio.current_time()
            tasks.start_soon(reply, incoming)

        def called(_: Incoming) -> None:
            wake.set()

        await stack.enter_async_context(bus.serve(f"alive.{name}", answer))
        await stack.enter_async_context(bus.serve(f"gone.{name}", called))
        await stack.enter_async_context(bus.serve("call", called))
        announced: tuple[object, ...] | None = None
        # The first call of the roll is answered at once.
        called_s = -math.inf
        try:
            while True:
                if wake.is_set():
                    await anyio.sleep(max(0.0, called_s + CALLS_ANSWERED_S - anyio.current_time()))
                    called_s = anyio.current_time()
                heartbeat = current()
                unasked = anyio.current_time() - asked_s >= UNASKED_S
                if wake.is_set() or unasked or _state(heartbeat) != announced:
                    wake = anyio.Event()
                    # Otherwise it would announce itself at each look, until a watcher has learned of it and
                    # asks.
                    asked_s = anyio.current_time()
                    # A lost announcement is repeated after `UNASKED_S`, because no watcher asks until then.
                    with suppress(GymError):
                        # Without figures: an announcement goes to all followers, and only answers carry
                        # figures.
                        await bus.publish(f"join.{name}", encode_heartbeat(replace(heartbeat, figures=None)))
                    announced = _state(heartbeat)
                if ready is not None:
                    # Only now do others know of it.
                    ready()
                    ready = None
                with anyio.move_on_after(STATE_CHECKED_S):
                    await wake.wait()
        finally:
            # If this is not sent, the watcher notices by itself; and an error here must not replace the
            # exception that ended the work.
            with anyio.move_on_after(LEAVE_S, shield=True), suppress(GymError):
                await bus.publish(f"gone.{name}", encode_heartbeat(current()))
