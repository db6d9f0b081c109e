"""A trainer's connection to a running system, where the trainer serves its own engine."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import anyio
from gym_runtime import (
    GymError,
    RolloutRecord,
    RolloutSettings,
    SyncClient,
    UsageError,
    connect,
    connect_sync,
)
from gym_runtime.client import Client, Lifetime, StandingRun, background, serve_model
from gym_runtime.logs import logger
from gym_runtime.plurals import counted
from gym_runtime.timing import TRAINER_DRAIN_S
from gym_runtime.training import Group
from gym_signal import SignalBatches, Useful, signal_batches

from gym_trainers.token_engine import TokenEngine
from gym_trainers.training_rollouts import why_failed

if TYPE_CHECKING:
    from gym_runtime.adapters import Adapter


def system_url(nats: str = "") -> str:
    """The URL of the running system's broker: the given one, or ``GYM_NATS_URL``.

    Raises:
        UsageError: neither is set.
    """
    url = nats or os.environ.get("GYM_NATS_URL", "")
    if not url:
        raise UsageError("no system is named: set GYM_NATS_URL to the URL that 'gym-runtime start' prints")
    return url


def shared_client() -> SyncClient:
    """This process's connection to the system of ``GYM_NATS_URL``, for code without an event loop.

    Raises:
        UsageError, BrokerError: the message says what is missing.
    """
    with _CONNECTING:
        return _client()


_CONNECTING = threading.Lock()


@cache
def _client() -> SyncClient:
    return connect_sync(system_url())


class RolloutSource:
    """Rollouts that the trainer's own engine samples. It connects at its first use, and may be shared.

    All methods are called in one event loop, in which the trainer's engine is asked, too.

    Args:
        engine: the trainer's.
        nats: see `system_url`.
        settings: fields of `RolloutSettings`.

    Raises:
        UsageError: no system is named.
    """

    def __init__(
        self,
        engine: TokenEngine,
        *,
        nats: str = "",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._nats = system_url(nats)
        self._engine = engine
        self._settings = RolloutSettings().with_keywords({**(settings or {}), "return_token_ids": True})
        self._joined: _Joined | None = None
        self._lifetime: Lifetime | None = None
        self._opening = anyio.Lock()
        self._sampling: Lifetime | None = None
        self._batches: SignalBatches | None = None
        self._asked = (0, 0)
        self._in_progress = 0
        self._asked_to_leave = anyio.Event()
        self._idle = anyio.Event()

    async def rollout(self, row: str, sampling: Mapping[str, Any], *, tries: int = 1) -> RolloutRecord:
        """One rollout; it has no reward if it failed for good, ``tries`` times.

        Args:
            row: as JSON text.
            sampling: fields of `Sampling` for this rollout.

        Raises:
            TaskError, UsageError: the row or a setting is wrong.
            GymError: the connection is lost, or this worker was asked to leave (``gym-runtime drain``).
        """
        async with self._working() as (_, run, _):
            record = await run.rollout(row, **sampling)
            for _ in range(tries - 1):
                if record.reward is not None:
                    break
                logger().warning("a failed rollout is run again", why=why_failed(record))
                record = await run.rollout(row, **sampling)
        return record

    async def rollouts(
        self, rows: Sequence[str], keys: Sequence[Any], sampling: Mapping[str, Any]
    ) -> list[RolloutRecord]:
        """One rollout per row, in their order; neighbours with one key are a group.

        Failed ones keep their places. Between two batches (`batch`) the engine is asked nothing afterwards.

        Args:
            sampling: fields of `Sampling` for all of them.

        Raises:
            TaskError, UsageError: a row or a setting is wrong.
            GymError: the run was cancelled, the connection is lost, or this worker was asked to leave.
        """
        parts = [list(members) for _, members in groupby(range(len(rows)), key=lambda place: keys[place])]
        found: dict[int, RolloutRecord] = {}
        async with self._working() as (gym, _, pool):
            self._engine.go_on()
            for size in sorted({len(part) for part in parts}):
                chosen = [part for part in parts if len(part) == size]
                async for group in gym.groups(
                    [rows[part[0]] for part in chosen],
                    self._settings,
                    on_failure="mask",
                    keys=chosen,
                    repeats=size,
                    model_pool=pool,
                    **sampling,
                ):
                    found.update(zip(group.key, group.rollouts, strict=True))
            # Calls of parked rollouts that came after the last batch have gone on meanwhile.
            if self._batches is not None:
                await self._engine.pause()
        if len(found) < len(rows):
            what = f"{len(rows) - len(found)} of {counted(len(rows), 'rollout')} did not come"
            raise GymError(f"{what}: the run was cancelled")
        return [found[place] for place in range(len(rows))]

    async def batch(
        self,
        rows: Sequence[str],
        want: int,
        size: int,
        sampling: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> tuple[list[Group], Useful]:
        """The next batch of groups with signal, and what became of the tokens since the batch before.

        The engine has the weights that were trained on all batches before. It is asked nothing between two
        batches: what is unfinished is parked (`partial`).

        Args:
            rows, options: as of the first call: see `signal_batches`.
            want, size: as of the first call: groups, and rollouts in each of them.

        Raises:
            TaskError, UsageError: a row or a setting is wrong; or the first batch had another size.
            GymError: as `SignalBatches.next`; or this worker was asked to leave.
        """
        async with self._working() as (gym, _, pool):
            self._engine.go_on()
            if self._batches is None:
                how: Any = {**options, **sampling, "model_pool": pool}
                context = signal_batches(
                    gym, rows, self._settings, want=want, repeats=size, partial=True, ahead=0, **how
                )
                self._sampling = Lifetime(self._sample(context))
                await self._sampling.open()
                self._asked = want, size
            assert self._batches is not None, "the open context has set it"
            if self._asked != (want, size):
                groups, rollouts = self._asked
                raise UsageError(
                    f"a batch of {want} groups of {size} follows one of {groups} of {rollouts}: "
                    "groups with signal need batches of one size; drop the last rows of an epoch"
                )
            groups = await self._batches.next()
            await self._engine.pause()
            return groups, self._batches.step

    @asynccontextmanager
    async def _sample(self, context: AbstractAsyncContextManager[SignalBatches]) -> AsyncGenerator[None]:
        async with context as self._batches:
            yield
        self._batches = None

    def add_use(self, environment: str, use: str, tokens: int) -> None:
        """Count sampled tokens by what became of them, in the figures of this process's run."""
        if self._joined is not None:
            self._joined.run.add_use(environment, use, tokens)

    def leave(self) -> None:
        """As `close`, without waiting; called in the event loop of the other methods."""
        if self._lifetime is not None:
            self._lifetime.end()

    async def close(self) -> None:
        """Leave the system."""
        lifetime, self._lifetime, self._joined = self._lifetime, None, None
        if lifetime is not None:
            await lifetime.close()

    @asynccontextmanager
    async def _working(self) -> AsyncGenerator[_Joined]:
        """Rollouts run within this context; the process leaves the system only while no rollout runs."""
        joined = await self._open()
        self._in_progress += 1
        try:
            yield joined
        finally:
            self._in_progress -= 1
            if not self._in_progress:
                self._idle.set()

    async def _open(self) -> _Joined:
        if self._asked_to_leave.is_set():
            raise GymError(
                "the worker of this trainer's engine was asked to leave the system (gym-runtime drain): it "
                "runs no more rollouts; start the training again"
            )
        async with self._opening:
            if self._joined is None:
                self._lifetime = Lifetime(self._join())
                await self._lifetime.open()
            assert self._joined is not None, "the open context has set it"
            return self._joined

    @asynccontextmanager
    async def _join(self) -> AsyncGenerator[None]:
        adapter = cast("Adapter", self._engine)  # it is not made of settings
        async with (
            connect(self._nats) as gym,
            serve_model(self._nats, adapter, self._asked_to_leave.set) as pool,
            gym.standing_run(self._settings, model_pool=pool) as run,
            background() as tasks,
        ):
            self._joined = _Joined(gym, run, pool)
            assert self._lifetime is not None, "it opens this context"
            tasks.start_soon(self._drain, self._lifetime)
            try:
                yield
            finally:
                if self._sampling is not None:
                    await self._sampling.close()

    async def _drain(self, lifetime: Lifetime) -> None:
        """When a client asks for it, leave: with the last rollout in progress, or after `TRAINER_DRAIN_S`."""
        await self._asked_to_leave.wait()
        with anyio.move_on_after(TRAINER_DRAIN_S):
            while self._in_progress:
                self._idle = anyio.Event()
                await self._idle.wait()
        lifetime.end()


class _Joined(NamedTuple):
    """An open connection, its standing run, and the pool of the trainer's engine."""

    gym: Client
    run: StandingRun
    pool: str
