"""TRL's GRPOTrainer on this runtime's rollouts: one object, whose properties are the trainer's arguments.

Either this runtime samples, and TRL trains on the exact ids that its engine sampled (`GymSpec.rollout_func`);
or TRL samples, and the environments' tools and verifiers are called from its own loop
(`GymSpec.environment_factory`).

A rollout that failed has no reward: None, which TRL makes NaN. Its group's mean and deviation are those of
the others, and its advantage is 0.

Source: TRL 1.16, ``GRPOTrainer``; its specs for other environments have this shape too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields
from functools import partial
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from gym_runtime import Client, RolloutSettings, Sampling
from gym_runtime.client import AnyRow, SyncClient, line
from gym_runtime.errors import GymError, UsageError, require_at_least
from gym_runtime.logs import logger
from gym_runtime.plurals import counted
from gym_runtime.timing import WORKERS_BACK_S
from gym_runtime.training import Credit

from gym_trainers.training_rollouts import dataset_rows, roles_apart, unweighted
from gym_trainers.trl_async import RolloutWorker, WeightTransfer
from gym_trainers.trl_columns import Batch, Columns, found_no_engine
from gym_trainers.trl_environment import TrlEnvironment, environment_class, gym_reward
from gym_trainers.trl_signal import SignalSteps, of_process
from gym_trainers.trl_weights import Weights


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
        settings: how rollouts are run. The sampling settings of the trainer's arguments win over it:
            ``temperature``, ``top_p``, ``top_k``, ``min_p``, ``repetition_penalty``,
            ``max_completion_length``, ``chat_template_kwargs``, ``generation_kwargs``.
        asynchronous: run a step's rollouts while the trainer works on the step before; see `NextStep`.
        credit: which sequences of a rollout with branches are trained on. ``GRPOTrainer`` takes one of them
            and no weight; ``AsyncGRPOTrainer`` takes all, each with its weight.
        seat: of rollouts with several trained seats, the one to train on, such as one player of a game;
            ``AsyncGRPOTrainer`` trains all of them without it, and ``GRPOTrainer`` has to be told.
        signal: arguments of `gym_signal.signal_batches`, such as ``{"curriculum": "posterior"}``: the rows to
            train on are chosen there, whatever prompts the trainer draws. Evaluation keeps its prompts.

    Raises:
        UsageError: ``signal`` and ``asynchronous``; or a client of ``connect``.
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
        asynchronous: bool = False,
        credit: Credit = "accepted",
        seat: str = "",
        signal: Mapping[str, Any] | None = None,
    ) -> None:
        # The methods of the other client only return coroutines, so the engines would keep their weights.
        if isinstance(gym, Client):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("TRL is no asynchronous code: give it a client of gym_runtime.connect_sync(...)")
        self._credit: Credit = credit
        self._seat = seat
        self._gym = gym
        self._rows = [line(row).decode() for row in rows]
        self._environment = environment
        self._signal = signal
        self._steps: SignalSteps | None = None
        if signal is not None and asynchronous:
            raise UsageError("leave asynchronous out: with signal, staleness=1 samples ahead of the trainer")
        self._weights = None if weights is None else Weights(gym, Path(weights), model)
        self._settings = (settings or RolloutSettings()).with_keywords({"model_pool": model})
        self._next_step = NextStep(self._made) if asynchronous else None

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
            {"prompt": [one["prompt"] for one in dataset_rows(self._rows)], "row": list(self._rows)}
        )

    @property
    def reward_funcs(self) -> Any:
        """For ``reward_funcs``, alone or in a list: the verifiers' rewards; None for a failed rollout.

        Others in the list have to return None where ``gym_outcome`` is ``failed``, too.
        """
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

    def rollout_worker(self, args: Any, *, start: int = 0) -> RolloutWorker:
        """For ``rollout_worker`` of ``AsyncGRPOTrainer``, with the trainer's ``args``.

        Args:
            start: how many groups were trained on before: a trainer that resumes goes on in the rows.

        Raises:
            UsageError: there are no rows; the settings ask for another temperature than the trainer's; or
                ``start`` is given with ``signal``, which has a curriculum.
        """
        require_at_least(0, start=start)
        if start and self._signal is not None:
            raise UsageError("start is for rows in turn: with signal, give the curriculum a name")
        if not self._rows:
            raise UsageError("there are no rows")
        if self._signal is not None and "repeats" in self._signal:
            raise UsageError("signal takes no repeats here: they are the trainer's num_generations")
        settings = sampled_as(self._settings, args)
        return RolloutWorker(
            self._gym,
            self._rows,
            settings,
            args,
            environment=self._environment,
            credit=self._credit,
            seat=self._seat,
            signal=self._signal,
            start=start,
        )

    def weight_transfer(self, model: str) -> WeightTransfer:
        """For ``weight_transfer`` of ``AsyncGRPOTrainer``: the trainer's model, by its name or path.

        Raises:
            UsageError: the spec has no folder for weights.
        """
        if self._weights is None:
            raise UsageError("the engines load weights from a folder: GymSpec(..., weights=FOLDER)")
        return WeightTransfer(self._weights, model)

    def attach(self, trainer: Any) -> None:
        """Have the trainer use the engine's log-probabilities for its importance correction.

        TRL then reads ``args.vllm_importance_sampling_*`` and logs ``sampling/sampling_logp_difference/*``:
        how far the engine's probabilities are from its own. Call it before ``train()``, on a trainer that was
        made with ``use_vllm=False``.

        Raises:
            UsageError: the trainer has its own engine, or too few rows for one batch.
        """
        if trainer.use_vllm:
            raise UsageError("the trainer has use_vllm=True: make it with use_vllm=False, then attach")
        rows, batch = trainer.train_dataset, trainer.args.generation_batch_size // trainer.num_generations
        # TRL leaves out batches that are not full, and would train no step without a word.
        if isinstance(rows, Sized) and len(rows) < batch:
            had = f"a batch takes {batch} rows, and the dataset has {len(rows)}"
            raise UsageError(f"{had}: give more rows, or take smaller batches")
        # What TRL asks of its vLLM is `sync_weights` here: `rollout_func` takes the place of generation.
        trainer.vllm_generation = SimpleNamespace(sync_weights=partial(self.sync_weights, trainer))
        trainer._last_loaded_step = -1
        trainer.use_vllm = True

    def rollout_func(self, prompts: Sequence[str], trainer: Any) -> Columns:
        """For ``rollout_func``: one completion per prompt, in order; the rollouts of a row run as a group.

        Besides TRL's own columns: ``gym_reward``, ``gym_outcome`` (``completed``, ``truncated``, ``failed``),
        ``gym_fields`` (the row's numbers, such as the parts of a reward) and ``gym_versions`` (of the weights
        that sampled it), which reward functions get as keyword arguments.

        A rollout with several sequences gives the last of its main conversation, because TRL takes one per
        rollout; the log says how many such rollouts there were. When the engines die, the rollouts wait until
        they are back, at most `WORKERS_BACK_S`.

        Raises:
            UsageError: the settings ask for another temperature than the trainer's; a kind has a weight; the
                policy has several seats and none is named; the trainer is attached (`attach`), and the engine
                gives no log-probabilities; or it is not, and the rollouts are asynchronous.
            GymError: the run was cancelled, or the engines do not have the weights.
        """
        self.sync_weights(trainer)
        if self._next_step is not None and trainer.model.training:
            if not trainer.use_vllm:
                raise UsageError(
                    "asynchronous=True trains on rollouts of the step before, and TRL corrects for that only "
                    "on a trainer that is attached: spec.attach(trainer) before trainer.train()"
                )
            return self._next_step.step(prompts, trainer)
        if self._signal is not None and trainer.model.training:
            return self._with_signal(self._signal, len(prompts), trainer)
        size = trainer.num_generations if trainer.model.training else trainer.num_generations_eval
        return self._made(prompts, trainer, size)

    def _made(self, prompts: Sequence[str], trainer: Any, size: int) -> Columns:
        due = dict(enumerate(parts_of(prompts, size)))
        settings = sampled_as(self._settings, trainer.args)
        if self._next_step is not None and settings.max_staleness is None:
            settings = settings.with_keywords({"max_staleness": math.ceil(steps_of_batch(trainer.args))})
        batch = self._batch(trainer)
        until_s = time.monotonic() + WORKERS_BACK_S
        while due:
            came = sum(1 for _ in self._groups(due, settings, batch, again=time.monotonic() < until_s))
            if came < len(due):
                raise GymError(
                    f"{len(due) - came} of {counted(len(due), 'group')} did not come: the run was cancelled"
                )
            due = {key: part for key, part in due.items() if key not in batch}
        return batch.columns()

    def _batch(self, trainer: Any) -> Batch:
        credit, end = unweighted(self._credit, "GRPOTrainer"), _end_of_sequence(trainer)
        return Batch(
            end=end,
            credit=credit,
            seat=self._seat,
            apart=roles_apart(self._settings),
            log_probs=trainer.use_vllm,
        )

    def _with_signal(self, options: Mapping[str, Any], count: int, trainer: Any) -> Columns:
        size = trainer.num_generations
        if self._steps is None:
            options = {"draw_seed": int(getattr(trainer.args, "seed", 0)), **options}
            process = int(getattr(getattr(trainer, "accelerator", None), "process_index", 0))
            self._steps = SignalSteps(self._gym, self._rows, of_process(options, process), self._environment)
        if count % size:
            raise UsageError(
                f"a process gets {count} prompts, which are no whole groups of {size}: with signal, let "
                "per_device_train_batch_size be a multiple of num_generations"
            )
        batch = self._batch(trainer)
        groups = self._steps.next(count // size, size, sampled_as(self._settings, trainer.args))
        for place, group in enumerate(groups):
            batch.add(place, group.rollouts)
        return batch.columns()

    def _groups(
        self, parts: Mapping[int, Part], settings: RolloutSettings, batch: Batch, *, again: bool
    ) -> Iterator[int]:
        """Run groups; yields their places. With ``again`` the batch gets no group that found no engine."""
        for repeats in sorted({part.size for part in parts.values()}):
            chosen = {key: part.prompt for key, part in parts.items() if part.size == repeats}
            for group in self._gym.groups(
                list(chosen.values()),
                settings,
                environment=self._environment,
                on_failure="mask",
                keys=list(chosen),
                repeats=repeats,
            ):
                if again and any(found_no_engine(record) for record in group.rollouts):
                    logger().warning("no engine answered: a group's rollouts are run again", place=group.key)
                else:
                    batch.add(group.key, group.rollouts)
                yield group.key

    def sync_weights(self, trainer: Any) -> None:
        """Have all engines load the trainer's weights, if they are not of this step already.

        Raises:
            GymError: not all engines have them.
        """
        if self._weights is not None:
            self._weights.sync(trainer)


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


WHOLE: Mapping[str, float] = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""Sampling from the whole distribution. vLLM takes what a request leaves out from the model's
``generation_config.json``, and the trainer's log-probabilities would be of another distribution than that.
-1 is no limit to vLLM and to SGLang, which refuses 0."""


def sampled_as(settings: RolloutSettings, args: Any) -> RolloutSettings:
    """Settings that sample as the trainer assumes when it computes its own log-probabilities.

    Raises:
        UsageError: the settings ask for another temperature.
    """
    temperature = float(args.temperature)
    kwargs: Mapping[str, Any] = getattr(args, "generation_kwargs", None) or {}
    given = kwargs.get("temperature", settings.sampling.get("temperature", temperature))
    if given != temperature:
        raise UsageError(
            f"the settings' temperature is {given} and the trainer's {temperature}: the trainer divides its "
            "logits by its own, so its log-probabilities would be of another distribution"
        )
    sampling: dict[str, Any] = {"temperature": temperature}
    if args.max_completion_length:
        sampling["max_output_tokens"] = args.max_completion_length
    said = {name: getattr(args, name, None) for name in WHOLE}
    narrowed = {name: value for name, value in said.items() if value not in (None, WHOLE[name])}
    if narrowed.get("top_k", 1) < 1:  # another way to say that there is no limit
        del narrowed["top_k"]
    sampling |= narrowed
    own: Mapping[str, Any] = settings.sampling.get("extra_body") or {}
    whole = {name: value for name, value in WHOLE.items() if name not in own}
    sampling = _merged({**whole, **settings.sampling}, sampling)
    if template := getattr(args, "chat_template_kwargs", None):
        sampling = _merged(sampling, {"chat_template_kwargs": template})
    ours = {field.name for field in fields(Sampling)} & kwargs.keys()
    # What has no name of ours is the engine's own, such as vLLM's ``bad_words``.
    rest = {name: value for name, value in kwargs.items() if name not in ours}
    sampling = _merged(sampling, {**{name: kwargs[name] for name in ours}, "extra_body": rest})
    return settings.with_keywords({"sampling": sampling, "return_token_ids": True})


def _merged(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Sampling settings; of those that are objects themselves, the fields of both."""
    found = {**before, **after}
    for name in ("chat_template_kwargs", "extra_body"):
        both: dict[str, Any] = {**(before.get(name) or {}), **(after.get(name) or {})}
        if both:
            found[name] = both
        else:
            found.pop(name, None)
    return found


def _end_of_sequence(trainer: Any) -> int:
    tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
    return int(tokenizer.eos_token_id)


def _dataset(columns: Mapping[str, list[Any]]) -> Any:
    try:
        from datasets import Dataset
    except ModuleNotFoundError as error:
        raise UsageError("TRL is not installed: pip install 'gym-runtime[trl]'") from error
    return Dataset.from_dict(dict(columns))


def steps_of_batch(args: Any) -> float:
    """How many times the trainer updates its weights on one batch of rollouts, by which its steps count.

    ``steps_per_generation`` counts micro-batches, of which an update takes ``gradient_accumulation_steps``.
    """
    return args.steps_per_generation * args.num_iterations / args.gradient_accumulation_steps


Make = Callable[[Sequence[str], Any, int], Columns]


class NextStep:
    """Rollouts of the next step, run while TRL trains on those of this one: one step off-policy.

    In step n the trainer gets the rollouts begun in step n - 1, with that step's weights. If some are
    unfinished, the engines load the new weights during the rollouts: generation pauses and goes on with them.
    So no token is older than one step (of several updates, if a batch is used for several: `steps_of_batch`),
    and the trainer corrects for that with the engine's log-probabilities (`GymSpec.attach`).

    The first step, which has no predecessor, waits for its own rollouts, and its prompts are used twice. A
    step's completions belong to the prompts of the previous step, so a reward function that reads ``prompts``
    beside them reads the wrong prompts; the verifier's results come with the rollouts.

    Args:
        make: runs a batch's rollouts: its prompts, the trainer, the size of a group.
    """

    def __init__(self, make: Make) -> None:
        self._make = make
        # Two at a time: the first step's own rollouts run together with those of the next step.
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="rollouts")
        self._next: Future[Columns] | None = None

    def step(self, prompts: Sequence[str], trainer: Any) -> Columns:
        """The rollouts that are due, and those of the next step are begun. The engines have the new weights.

        Raises:
            GymError: batches differ in size, or the rollouts were not run.
        """
        due = self._next or self._begin(prompts, trainer)
        args, state = trainer.args, trainer.state
        last = state.global_step + max(1, int(steps_of_batch(args))) >= state.max_steps
        self._next = None if last else self._begin(prompts, trainer)
        columns = due.result()
        if len(columns["prompt_ids"]) != len(prompts):
            raise GymError(
                f"a batch of {len(prompts)} prompts follows one of {len(columns['prompt_ids'])}: "
                "asynchronous rollouts need batches of one size (dataloader_drop_last=True)"
            )
        return columns

    def _begin(self, prompts: Sequence[str], trainer: Any) -> Future[Columns]:
        return self._threads.submit(self._make, prompts, trainer, trainer.num_generations)
