"""Consumers: what JetStream keeps for each reader of a stream and each work queue."""

from __future__ import annotations

import random
import secrets
import time
from typing import Any

import anyio

from gym_runtime.bus.jetstream import NO_CONSUMER, NO_STREAM, Consumer
from gym_runtime.bus.link import Link
from gym_runtime.bus.streams import PATIENCE_S, PAUSES_S, Streams
from gym_runtime.errors import BrokerError

EPHEMERAL_S = 5.0
"""An ephemeral consumer exists at once, unless its node has failed."""


MAX_ACK_PENDING = -1
"""Tasks in flight over all workers of a pattern: as many as they ask for. The default is 1000."""
MAX_WAITING = 65536
"""Open pulls over all workers of a pattern, up to eight a worker; the broker's default is 512."""


async def create(
    streams: Streams, stream: str, config: dict[str, Any], *, patience_s: float | None = None
) -> Consumer:
    """Create a consumer, or adapt one of the same name.

    Raises:
        BrokerError: The broker refuses it, or is ``silent`` for ``patience_s``.
    """
    verb = f"CONSUMER.CREATE.{stream}.{config['name']}.{config['filter_subject']}"
    body = {"stream_name": stream, "config": config, "action": ""}
    give_up = time.monotonic() + PATIENCE_S
    consumer = await streams.api(verb, body, Consumer, patience_s=patience_s)
    # A broker that lost its directory, or a first client, has the stream in a moment.
    while _lacks_stream(consumer) and time.monotonic() < give_up:
        if not await streams.setup.restored():
            await anyio.sleep(random.uniform(*PAUSES_S[-2:]))
        consumer = await streams.api(verb, body, Consumer, patience_s=patience_s)
    if consumer.error is not None:
        raise BrokerError(
            f"the broker refuses the consumer {config['name']} of {config['filter_subject']!r}: "
            f"{consumer.error.description}"
        )
    return consumer


async def create_shared(streams: Streams, pattern: str, consumer: str, ack_wait_s: float) -> Consumer:
    """Create or adapt the durable consumer that all workers on a pattern of the work queue share.

    Raises:
        BrokerError: as `create`.
    """
    name = streams.names.consumer(consumer)
    return await create(
        streams,
        streams.names.stream(pattern),
        {
            "name": name,
            "durable_name": name,
            "filter_subject": streams.names.pattern(pattern),
            "deliver_policy": "all",
            "ack_policy": "explicit",
            # The broker's API counts in nanoseconds.
            "ack_wait": int(ack_wait_s * 1e9),
            # Without a limit: after `max_deliver` the broker would keep the task and never deliver it again.
            "max_deliver": -1,
            "max_ack_pending": MAX_ACK_PENDING,
            "max_waiting": MAX_WAITING,
        },
    )


async def create_ephemeral(link: Link, streams: Streams, stream: str, config: dict[str, Any]) -> Consumer:
    """Create a consumer of one replica, under a new name.

    A cluster may place it on a node that has just died or frozen, and keeps it there as long as the same name
    is requested; so after a request without an answer, another name is tried.

    Raises:
        BrokerError: The broker refuses it, or is silent for `PATIENCE_S`.
    """
    give_up = time.monotonic() + PATIENCE_S
    while True:
        name = secrets.token_hex(8)
        try:
            return await create(
                streams, stream, {**config, "name": name, "num_replicas": 1}, patience_s=EPHEMERAL_S
            )
        except BaseException as error:
            # The request may have been carried out and only its answer be lost.
            delete(link, stream, name)
            if not isinstance(error, BrokerError) or not error.silent or time.monotonic() > give_up:
                raise


def delete(link: Link, stream: str, name: str) -> None:
    """Ask for it and do not wait; what is not deleted expires."""
    # While disconnected it would be kept and sent much later; by then the consumer has expired.
    if link.up:
        link.post(f"$JS.API.CONSUMER.DELETE.{stream}.{name}", b"")


async def look_up(streams: Streams, stream: str, name: str) -> Consumer | None:
    """A consumer's present state; None if the consumer does not exist."""
    consumer = await streams.api(f"CONSUMER.INFO.{stream}.{name}", None, Consumer)
    if consumer.error is None:
        return consumer
    if consumer.error.err_code == NO_CONSUMER:
        return None
    raise BrokerError(f"the broker does not know the consumer {name}: {consumer.error.description}")


def _lacks_stream(consumer: Consumer) -> bool:
    return consumer.error is not None and consumer.error.err_code == NO_STREAM
