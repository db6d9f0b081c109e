"""TRL's AsyncGRPOTrainer on this runtime's rollouts: its rollout worker and its weight transfer.

The worker runs groups continuously and puts their samples on the queue from which the trainer takes them. The
trainer saves its weights every few steps, and the engines load them during rollouts. A sample names the
oldest weights that sampled one of its tokens, so that the trainer can drop samples that are too old.

A token segment is a sample, with the advantage of its rollout. A rollout that failed gives none, and its
group's mean and deviation are those of the others.

Source: TRL 1.16, ``trl/experimental/async_grpo``: ``RolloutWorkerProtocol``, ``WeightTransferProtocol``,
``AsyncRolloutWorker`` for the advantages and the metrics.
"""

from __future__ import annotations

import asyncio
import queue
import random
import threading
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, takewhile
from typing import Any

import anyio
from gym_runtime import RolloutRecord, RolloutSettings
from gym_runtime.client import Client, StandingRun, SyncClient
from gym_runtime.errors import GymError, UsageError, leaf
from gym_runtime.logs import logger
from gym_runtime.statistics import bounded, deviation, mean
from gym_runtime.training import Credit, TokenSequence
from gym_signal import signal_batches

from gym_trainers.seats import seats_of
from gym_trainers.training_rollouts import (
    NO_LOG_PROBS,
    only_seat,
    require_no_experts,
    roles_apart,
    why_failed,
)
from gym_trainers.trl_weights import Weights, write_shards

EPSILON = 1e-8
"""Added to the standard deviation, as TRL's worker adds it."""


def version_name(number: int) -> str:
    """How rows name the weights of the trainer's n-th transfer."""
    return f"step-{number}"


def _nothing() -> object:
    return None


class _Buffer(queue.Queue[Any]):
    """A queue that tells the worker when the trainer has taken a sample."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: Callable[[], object] = _nothing

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        sample = super().get(block, timeout)
        self.taken()
        return sample


class RolloutWorker:
    """For ``rollout_worker``. Made by `GymSpec.rollout_worker`.

    Args:
        rows: as JSON text; they are shuffled for each epoch.
        settings: sample as the trainer assumes.
        args: the trainer's ``AsyncGRPOConfig``: sizes of groups and queue, seed.
        credit: which sequences are trained on, with which weight.
        seat: the only one that is trained on; by default all that the policy has.
        signal: arguments of `gym_signal.signal_batches`; None to run every row in turn.
        start: begin with the group of this number, as a worker that had run all before.

    Attributes:
        rollout_buffer: samples for the trainer.
        metrics_queue: stays empty.
    """

    def __init__(
        self,
        gym: SyncClient,
        rows: Sequence[str],
        settings: RolloutSettings,
        args: Any,
        *,
        environment: str | None = None,
        credit: Credit = "accepted",
        seat: str = "",
        signal: Mapping[str, Any] | None = None,
        start: int = 0,
    ) -> None:
        self._signal, self._start = signal, start
        self._credit: Credit = credit
        self._seat, self._apart = seat, roles_apart(settings)
        self.rollout_buffer = _Buffer()
        self.metrics_queue: queue.Queue[Any] = queue.Queue()
        self._gym = gym
        self._rows = rows
        self._settings = settings
        self._args = args
        self._environment = environment
        self._version = 0
        self._made_s = time.monotonic()
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._groups = 0
        self._changed = anyio.Event()
        self._waiting: anyio.CancelScope | None = None

    def start(self) -> None:
        """Begin to run rollouts. The engines have the trainer's weights."""
        self._made_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="rollouts", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Cancel the rollouts in progress, and return when that is done."""
        self._stopping = True
        self.rollout_buffer.taken()
        if self._thread is not None:
            self._thread.join()

    def update_model_version(self, model_version: int) -> None:
        """The engines have the weights of this transfer."""
        self._version = model_version

    def check_health(self, stale_after_s: float) -> None:
        """
        Raises:
            GymError: no more rollouts are run, or no group with a reward came within ``stale_after_s``, not
                counting the time in which the queue was full.
        """
        if self._failure is not None:
            raise GymError(f"no more rollouts are run: {self._failure}") from self._failure
        silent_s = time.monotonic() - self._made_s
        if silent_s > stale_after_s:
            raise GymError(f"no group of rollouts with a reward came for {silent_s:.0f} s: see the log")

    def _run(self) -> None:
        try:
            self._gym.call(self._work)
        except BaseException as error:  # noqa: BLE001 - not handled: `check_health` raises it in the trainer
            self._failure = leaf(error)

    async def _work(self, client: Client) -> None:
        """Run groups, as many samples and rollouts at a time as the trainer wants, until `stop`."""
        loop = asyncio.get_running_loop()
        # The trainer's thread takes samples.
        self.rollout_buffer.taken = partial(loop.call_soon_threadsafe, self._look_again)
        try:
            await (
                self._all_rows(client) if self._signal is None else self._with_signal(client, self._signal)
            )
        finally:
            self.rollout_buffer.taken = _nothing

    async def _all_rows(self, client: Client) -> None:
        async with (
            client.standing_run(self._settings, environment=self._environment) as run,
            anyio.create_task_group() as tasks,
        ):
            rows = enumerate(_epochs(self._rows, self._args.seed))
            for number, row in islice(rows, self._start, None):
                if await self._is_over():
                    break
                self._groups += 1
                tasks.start_soon(self._group, run, number, row)
            tasks.cancel_scope.cancel()

    async def _with_signal(self, client: Client, options: Mapping[str, Any]) -> None:
        """As the trainer takes samples, batches that fill its queue are made."""
        size, number = self._args.num_generations, 0
        chosen: dict[str, Any] = {
            "want": max(1, self._args.max_inflight_tasks // size),
            **options,
            "repeats": size,
        }
        async with signal_batches(
            client, self._rows, self._settings, environment=self._environment, **chosen
        ) as batches:
            while not await self._is_over():
                version = self._version
                with anyio.CancelScope() as self._waiting:
                    for group in await batches.next():
                        self._put(group.rollouts, number, version, group.weight)
                        number += 1

    async def _is_over(self) -> bool:
        """Wait until more is wanted; whether `stop` was called instead."""
        while self._has_enough and not self._stopping:
            full = self._is_full
            self._changed = anyio.Event()
            await self._changed.wait()
            if full:  # while the trainer worked nothing was wanted, and that was no silence
                self._made_s = time.monotonic()
        return self._stopping

    @property
    def _is_full(self) -> bool:
        return self.rollout_buffer.qsize() >= self._args.max_inflight_tasks

    @property
    def _has_enough(self) -> bool:
        most, size = self._args.max_inflight_tasks, self._args.num_generations
        return self._is_full or self._groups >= max(1, most // size)

    def _look_again(self) -> None:
        self._changed.set()
        if self._stopping and self._waiting is not None:
            self._waiting.cancel()

    async def _group(self, run: StandingRun, number: int, row: str) -> None:
        version = self._version
        records: list[RolloutRecord] = []

        async def one() -> None:
            records.append(await run.rollout(row))

        try:
            async with anyio.create_task_group() as tasks:
                for _ in range(self._args.num_generations):
                    tasks.start_soon(one)
        finally:
            self._groups -= 1
            self._look_again()
        self._put(records, number, version)

    def _put(self, records: Sequence[RolloutRecord], number: int, version: int, weight: float = 1.0) -> None:
        from trl.experimental.async_grpo.async_rollout_worker import RolloutSample  # pyright: ignore

        chosen: dict[str, Any] = {"credit": self._credit, "seat": self._seat, "apart": self._apart}
        for fields in sample_fields(records, group=number, version=version, weight=weight, **chosen):
            self.rollout_buffer.put_nowait(RolloutSample(**fields, enqueued_at=time.time()))
            self._made_s = time.monotonic()


def _epochs(rows: Sequence[str], seed: int) -> Iterator[str]:
    chance = random.Random(seed)
    while True:
        yield from chance.sample(rows, len(rows))


def sample_fields(
    records: Sequence[RolloutRecord],
    *,
    group: int,
    version: int,
    credit: Credit = "accepted",
    seat: str = "",
    apart: Container[str] = (),
    weight: float = 1.0,
) -> list[dict[str, Any]]:
    """The samples of a group, each as the fields of TRL's ``RolloutSample``.

    Arrays have one entry per token of the whole sequence, the prompt included.

    Args:
        version: of the weights when the group began, for engines that do not say theirs.
        credit: which sequences are samples; a sample's advantage is multiplied by its weight.
        seat: the only one whose sequences are samples; empty for all.
        apart: the roles that another model has: what such a seat sampled is not the trainer's.
        weight: of the whole group (`Group.weight`), another factor of its advantages.

    Raises:
        UsageError: the engine gives no log-probabilities, or routed experts, which TRL has no place for; the
            policy has no such seat; or numpy is not installed.
    """
    import numpy as np

    def trained(record: RolloutRecord) -> list[TokenSequence]:
        ours = [one for one in record.sequences(credit) if one.weight and seat in ("", one.seat)]
        return [one for one in ours if one.seat.partition("/")[0] not in apart]

    sequences = {place: trained(one) for place, one in enumerate(records) if one.reward is not None}
    whole = [
        place for place in sequences if all(np.isfinite(one.log_probs).all() for one in sequences[place])
    ]
    if sequences and not whole:
        raise UsageError("the engine gives no log-probabilities, and AsyncGRPOTrainer needs them")
    scored = [records[place] for place in whole]
    if len(scored) < len(records):
        failed = next(record for place, record in enumerate(records) if place not in whole)
        counts = {"count": len(records) - len(scored), "of": len(records)}
        logger().warning("rollouts without a reward", **counts, why=why_failed(failed) or NO_LOG_PROBS)
    spreads: dict[str, tuple[float, float]] = {}
    for name in {"", *seats_of(scored)}:
        rewards = [reward for one in scored if (reward := one.reward_of(name)) is not None]
        spreads[name] = mean(rewards) or 0.0, deviation(rewards, ddof=0) or 0.0
    found: list[dict[str, Any]] = []
    for place, record in zip(whole, scored, strict=True):
        messages = record.messages
        prompted = sum(1 for _ in takewhile(lambda one: one["role"] != "assistant", messages))
        metrics = {
            "reward": record.reward,
            "reward_std": spreads[""][1],
            "rewards/gym_reward": record.reward,
        }
        require_no_experts(sequences[place], "TRL")
        if seat:
            only_seat(record, seat, apart, "TRL")
        for one in sequences[place]:
            if (reward := record.reward_of(one.seat)) is None:
                continue
            center, spread = spreads[one.seat]
            before = np.zeros(len(one.prompt_ids))
            found.append(
                {
                    "prompt": messages[:prompted],
                    "completion": messages[prompted:],
                    "input_ids": np.concatenate([one.prompt_ids, one.completion_ids]),
                    "completion_mask": np.concatenate([before, one.mask]).astype(np.int64),
                    "old_log_probs": np.concatenate([before, one.log_probs]).astype(np.float32),
                    "advantage": bounded(weight * one.weight * (reward - center) / (spread + EPSILON)),
                    "model_version": _oldest(one.versions, version),
                    "group_id": group,
                    "metrics": dict(metrics),
                }
            )
    return found


def _oldest(names: Sequence[str], version: int) -> int:
    """The oldest of the weights with these names; ``version`` if a name is not the trainer's.

    >>> _oldest(["step-11", "step-9"], 8), _oldest(["default"], 8), _oldest([], 8)
    (9, 8, 8)
    """
    numbers = [name.removeprefix("step-") for name in names]
    return min(map(int, numbers)) if numbers and all(map(str.isdecimal, numbers)) else version


class WeightTransfer:
    """For ``weight_transfer``. Made by `GymSpec.weight_transfer`.

    The weights are written to a folder, and all engines load them from there. Rollouts go on while they are
    written, and wait while they are loaded.

    Args:
        model: the trainer's model, whose configuration engines need beside the weights.
    """

    def __init__(self, weights: Weights, model: str) -> None:
        self._weights = weights
        self._model = model
        self._sent = 0

    def init_weight_transfer(self) -> None:
        """Nothing is to be set up."""

    def pause(self) -> None:
        """The engines pause while they load, and not before."""

    def send_weights(self, iterator: Iterator[tuple[str, Any]]) -> None:
        """Write the weights, and have all engines load them.

        Raises:
            GymError: not all engines have them.
        """
        from transformers import AutoConfig  # pyright: ignore

        self._sent += 1
        path = self._weights.folder
        config: Any = AutoConfig.from_pretrained(self._model)  # pyright: ignore
        config.save_pretrained(path)
        write_shards(iterator, path)
        self._weights.load(path, version_name(self._sent))

    def resume(self) -> None:
        """The engines go on already."""

    def destroy(self) -> None:
        """Nothing is held."""
