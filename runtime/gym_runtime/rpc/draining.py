"""Asking workers to leave, from anywhere in the system.

``drain.NAME`` is a request with an empty payload; the answer is `calls.Draining`. Only clients may ask
(``gym_runtime/deploy/templates/secure.conf``). The worker goes on until its supervisor tells it to drain. No
other one is started in its place.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence

import anyio

from gym_runtime import clock
from gym_runtime.bus.interface import Bus, Incoming
from gym_runtime.errors import BrokerError, DeadlineExceeded, GymError, NoWorker, UsageError
from gym_runtime.logs import logger
from gym_runtime.messages import calls
from gym_runtime.rpc.registry import Heartbeat

DRAIN_ANSWER_S = 5.0
"""How long a worker may take to answer that it drains."""


async def drained_on_request(
    bus: Bus, current: Callable[[], Heartbeat], drain_s: float, leave: Callable[[], None]
) -> None:
    """Answer requests to leave until cancelled; each calls ``leave``, which may happen several times."""
    async with anyio.create_task_group() as tasks:

        async def answer(incoming: Incoming) -> None:
            try:
                said = calls.Draining(in_flight=current().in_use, within_s=drain_s)
                await bus.publish(incoming.reply, calls.encode(said))
            except GymError as error:
                logger().info("a request to drain was not answered", error=str(error))

        def asked(incoming: Incoming) -> None:
            logger().info("asked to drain")
            leave()
            # The subscription's function must not wait for the connection.
            tasks.start_soon(answer, incoming)

        try:
            async with bus.serve(f"drain.{current().name}", asked):
                await anyio.sleep_forever()
        except BrokerError as error:
            # A broker whose permissions were made by an older version: signals still work.
            logger().info("clients cannot ask this worker to leave", reason=str(error))


def named(workers: Sequence[Heartbeat], names: Iterable[str]) -> list[Heartbeat]:
    """The workers that names mean: an id, a kind (``agent``), a pool (``agent:NAME`` or ``NAME``), or a host.

    Raises:
        UsageError: a name means no worker.
    """
    chosen: dict[str, Heartbeat] = {}
    for name in names:
        found = [worker for worker in workers if name in _names(worker)]
        if not found:
            known = sorted({known for worker in workers for known in _names(worker)})
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean '{near[0]}'?" if near else "; 'gym-runtime status' lists the workers"
            raise UsageError(f"there is no worker, pool or host '{name}'{hint}")
        chosen |= {worker.worker: worker for worker in found}
    return list(chosen.values())


def _names(worker: Heartbeat) -> set[str]:
    pools = {f"{worker.kind}:{pool}" for pool in worker.pools}
    return {worker.worker, worker.kind, worker.host, *pools, *worker.pools}


async def drain(bus: Bus, workers: Iterable[Heartbeat]) -> dict[str, calls.Draining]:
    """Ask workers to leave, all at once; their answers by worker id. One that has left already is left out.

    Raises:
        GymError: a worker did not answer within `DRAIN_ANSWER_S`, or these credentials may not ask; the
            others may drain all the same.
    """
    answers: dict[str, calls.Draining] = {}
    failures: list[GymError] = []

    async def ask(worker: Heartbeat) -> None:
        try:
            data = await bus.request(
                f"drain.{worker.name}", b"", deadline_s=clock.monotonic() + DRAIN_ANSWER_S
            )
            answers[worker.worker] = calls.decode_draining(data)
        except NoWorker:
            # It has left already, which is what was wanted.
            return
        except DeadlineExceeded:
            failures.append(
                DeadlineExceeded(
                    f"{worker.kind} worker {worker.worker} on {worker.host} did not answer within "
                    f"{DRAIN_ANSWER_S:.0f} s: it is frozen, or older than 'gym-runtime drain'; "
                    "signal its process"
                )
            )
        except GymError as error:
            failures.append(error)

    async with anyio.create_task_group() as tasks:
        for worker in workers:
            tasks.start_soon(ask, worker)
    # After all were asked: one worker that does not answer keeps no other from draining.
    if failures:
        raise failures[0]
    return answers
