"""TRL's GRPOTrainer on this runtime's rollouts: one object, whose properties are the trainer's arguments.

Either this runtime samples, and TRL trains on the exact ids that its engine sampled (`GymSpec.rollout_func`);
or TRL samples, and the environments' tools and verifiers are called from its own loop
(`GymSpec.environment_factory`).

A rollout that failed has no reward: None, which TRL makes NaN. Its group's mean and deviation are those of
the others, and its advantage is 0.

Source: TRL 1.16, ``GRPOTrainer``; its specs for other environments have this shape too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from gym_runtime.client.row_sources import AnyRow, line
from gym_runtime.client.sync import SyncClient
from gym_runtime.errors import GymError, UsageError
from gym_runtime.logs import logger
from gym_runtime.messages.chat import conversation
from gym_runtime.messages.outcomes import Failed, RolloutRecord, Truncated
from gym_runtime.messages.rollout_settings import RolloutSettings
from gym_runtime.trainers.trl_environment import TrlEnvironment, environment_class, gym_reward
from gym_runtime.trainers.trl_weights import Weights

Columns = dict[str, list[Any]]


class Part(NamedTuple):
    """Neighbouring prompts of one row: a group, or what this process has of one."""

    prompt: str
    size: int


class GymSpec:
    """Rows of an environment for ``GRPOTrainer``::

        spec = GymSpec(gym, rows, environment="mcqa", weights="/dev/shm/weights")
        trainer = GRPOTrainer(
            model, args=args, train_dataset=spec.train_dataset, rollout_func=spec.rollout_func,
            reward_funcs=spec.reward_funcs,
        )
        spec.attach(trainer)

    Args:
        gym: the client; it must stay open while the trainer runs.
        rows: dataset rows, as `SyncClient.rollouts` takes them.
        environment: for rows without an ``agent_ref``.
        weights: a folder that the trainer writes and the engines read. Before a step's rollouts the model is
            saved there, and all engines load it. None: the engines are updated in another way.
        model: the pool whose engines have the policy.
        settings: how rollouts are made. The sampling settings of the trainer's arguments win over it:
            ``temperature``, ``top_p``, ``top_k``, ``min_p``, ``max_completion_length``.
    """

    def __init__(
        self,
        gym: SyncClient,
        rows: Iterable[AnyRow],
        *,
        environment: str | None = None,
        weights: str | Path | None = None,
        model: str = "policy",
        settings: RolloutSettings | None = None,
    ) -> None:
        self._gym = gym
        self._rows = [line(row).decode() for row in rows]
        self._environment = environment
        self._weights = None if weights is None else Weights(gym, Path(weights), model)
        self._settings = (settings or RolloutSettings()).with_keywords({"model_pool": model})

    @property
    def train_dataset(self) -> Any:
        """For ``train_dataset`` and ``eval_dataset``, with ``rollout_func``: a prompt is a row as JSON text.

        TRL passes nothing but the prompts on, so they carry the rows.
        """
        return _dataset({"prompt": list(self._rows)})

    @property
    def session_dataset(self) -> Any:
        """For ``train_dataset`` and ``eval_dataset``, with ``environment_factory``.

        A prompt is the row's conversation, for TRL's chat template; the column ``row`` has the row.
        """
        return _dataset(
            {"prompt": [conversation(row.encode()) for row in self._rows], "row": list(self._rows)}
        )

    @property
    def reward_funcs(self) -> Any:
        """For ``reward_funcs``, alone or in a list: the verifiers' rewards, None where there is none."""
        return gym_reward

    @property
    def environment_factory(self) -> type[TrlEnvironment]:
        """For ``environment_factory``, with `session_dataset`: sessions whose tools the model calls.

        All rows must belong to one environment with tools; an `Episode`, which has steps, is not for it.

        Raises:
            UsageError: the environment has no tools.
        """
        if not self._rows:
            raise UsageError("there are no rows")
        with self._gym.session(self._rows[0], environment=self._environment) as session:
            return environment_class(self._gym, self._environment, session.environment, session.tools)

    def attach(self, trainer: Any) -> None:
        """Have the trainer use the engine's log-probabilities for its importance correction.

        TRL then reads ``args.vllm_importance_sampling_*`` and logs ``sampling/sampling_logp_difference/*``:
        how far the engine's probabilities are from its own. Call it before ``train()``, on a trainer that was
        made with ``use_vllm=False``.

        Raises:
            UsageError: the trainer has an engine of its own.
        """
        if trainer.use_vllm:
            raise UsageError("the trainer has use_vllm=True: make it with use_vllm=False, then attach")
        # What TRL asks of its vLLM is `sync_weights` here: `rollout_func` takes the place of generation.
        trainer.vllm_generation = _Engine(self, trainer)
        trainer._last_loaded_step = -1
        trainer.use_vllm = True

    def rollout_func(self, prompts: Sequence[str], trainer: Any) -> Columns:
        """For ``rollout_func``: one completion per prompt, in their order; a row's are made as a group.

        Besides TRL's own columns: ``gym_reward``, ``gym_outcome`` (``completed``, ``truncated``, ``failed``)
        and ``gym_fields`` (the row's numbers, such as the parts of a reward), which reward functions get as
        keyword arguments.

        A rollout with several token segments gives its last one, because TRL takes one sequence per rollout;
        the log says how many there were.

        Raises:
            UsageError: the settings ask for another temperature than the trainer's.
            GymError: somebody cancelled the run, or the engines do not have the weights.
        """
        self.sync_weights(trainer)
        training = bool(trainer.model.training)
        size = trainer.num_generations if training else trainer.num_generations_eval
        parts = parts_of(prompts, size)
        settings = sampled_as(self._settings, trainer.args)
        found: dict[int, list[RolloutRecord]] = {}
        for repeats in sorted({part.size for part in parts}):
            chosen = {key: part.prompt for key, part in enumerate(parts) if part.size == repeats}
            for group in self._gym.groups(
                list(chosen.values()),
                settings,
                environment=self._environment,
                on_failure="mask",
                keys=list(chosen),
                repeats=repeats,
            ):
                found[group.key] = group.rollouts
        if len(found) < len(parts):
            raise GymError(
                f"{len(parts) - len(found)} of {len(parts)} groups did not come: the run was cancelled"
            )
        records = [record for key in range(len(parts)) for record in found[key]]
        return columns_of(records, end=_end_of_sequence(trainer))

    def sync_weights(self, trainer: Any) -> None:
        """Have all engines load the trainer's weights, if they are not of this step already.

        Raises:
            GymError: not all engines have them.
        """
        if self._weights is not None:
            self._weights.sync(trainer)


class _Engine:
    """Stands where TRL has its vLLM."""

    def __init__(self, spec: GymSpec, trainer: Any) -> None:
        self._spec = spec
        self._trainer = trainer

    def sync_weights(self) -> None:
        self._spec.sync_weights(self._trainer)


def parts_of(prompts: Sequence[str], size: int) -> list[Part]:
    """The groups in a process's prompts, in order; a group that other processes share is a smaller part.

    >>> parts_of(["a", "a", "b", "b", "b", "b", "c"], 2)
    [Part(prompt='a', size=2), Part(prompt='b', size=2), Part(prompt='b', size=2), Part(prompt='c', size=1)]
    """
    parts: list[Part] = []
    for prompt, same in groupby(prompts):
        count = sum(1 for _ in same)
        parts += [Part(prompt, min(size, count - start)) for start in range(0, count, size)]
    return parts


def columns_of(records: Sequence[RolloutRecord], *, end: int) -> Columns:
    """Rollouts as TRL's columns, in their order.

    Args:
        end: the token that stands for a rollout without tokens; TRL takes no empty completion.
    """
    columns: Columns = {
        name: []
        for name in (
            "prompt_ids",
            "completion_ids",
            "logprobs",
            "env_mask",
            "gym_reward",
            "gym_outcome",
            "gym_fields",
        )
    }
    rewritten = 0
    failures: Counter[str] = Counter()
    for record in records:
        scored = record.reward is not None
        sequences = record.sequences() if scored else []
        if sequences:
            last = sequences[-1]
            rewritten += last.segments > 1
            tokens = (last.prompt_ids, last.completion_ids, last.log_probs, last.mask.astype(int))
            values = [array.tolist() for array in tokens]
        else:
            values = [[end], [end], [0.0], [0]]
        if not scored:
            failures[_why(record)] += 1
        values += [record.reward, _outcome(record), record.numbers]
        for column, value in zip(columns.values(), values, strict=True):
            column.append(value)
    for why, count in failures.items():
        logger().warning("rollouts without a reward", count=count, of=len(records), why=why)
    if rewritten:
        logger().warning(
            "rollouts with several token segments: only their last ones are trained on",
            count=rewritten,
            of=len(records),
        )
    return columns


def sampled_as(settings: RolloutSettings, args: Any) -> RolloutSettings:
    """Settings that sample as the trainer assumes when it computes its own log-probabilities.

    Raises:
        UsageError: the settings ask for another temperature.
    """
    temperature = float(args.temperature)
    given = settings.sampling.get("temperature", temperature)
    if given != temperature:
        raise UsageError(
            f"the settings' temperature is {given} and the trainer's {temperature}: the trainer divides its "
            "logits by its own, so its log-probabilities would be of another distribution"
        )
    sampling: dict[str, Any] = {"temperature": temperature}
    if args.max_completion_length:
        sampling["max_output_tokens"] = args.max_completion_length
    if args.top_p < 1:
        sampling["top_p"] = args.top_p
    if args.top_k > 0:
        sampling["top_k"] = args.top_k
    if args.min_p:
        sampling["min_p"] = args.min_p
    return settings.with_keywords({"sampling": {**settings.sampling, **sampling}, "return_tokens": True})


def _why(record: RolloutRecord) -> str:
    if isinstance(record.outcome, Failed):
        return record.outcome.fault.message
    return "it was cancelled"


def _outcome(record: RolloutRecord) -> str:
    if record.reward is None:
        return "failed"
    return "truncated" if isinstance(record.outcome, Truncated) else "completed"


def _end_of_sequence(trainer: Any) -> int:
    tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
    return int(tokenizer.eos_token_id)


def _dataset(columns: Mapping[str, list[Any]]) -> Any:
    try:
        from datasets import Dataset
    except ModuleNotFoundError as error:
        raise UsageError("TRL is not installed: pip install 'gym-runtime[trl]'") from error
    return Dataset.from_dict(dict(columns))
