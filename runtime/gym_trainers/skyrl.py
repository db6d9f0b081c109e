"""SkyRL: a generator whose rollouts run here, for ``BasePPOExp.get_generator``.

SkyRL starts its engines, changes their weights and pauses them; its inference engine client samples, ids in
and ids out. The generator serves it to the system as a model (`gym_trainers.token_engine`), so
agents, tools, judges and retries are ours, and comparisons of a whole group too: a batch holds its groups.

With SkyRL's ``step_wise_trajectories`` each sequence of a rollout is a step of its trajectory; without it
one of them is taken.

A failed rollout is one masked token with the mean reward of its group: SkyRL counts every reward in its
group's mean, and so its advantage is 0 and the mean does not change.

Source: SkyRL 0.4, ``skyrl/train/generators/base.py``, ``skyrl/train/utils/trainer_utils.py``.
"""

# pyright: reportMissingImports=false, reportUnknownVariableType=false
# SkyRL is not installed where types are checked.

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import anyio
from gym_runtime import GymError, RolloutRecord, Truncated, UsageError
from gym_runtime.files import token_uses
from gym_runtime.training import Credit

from gym_trainers.rollout_source import RolloutSource
from gym_trainers.signal_settings import WEIGHTS, require_not, signal_rows
from gym_trainers.token_engine import MakeRenderer, Read, Sampled, TokenEngine
from gym_trainers.training_rollouts import (
    NO_LOG_PROBS,
    ROW,
    Piece,
    base_class,
    engine_sampling,
    lacks_log_probs,
    only_piece,
    only_seat,
    pieces,
    roles_apart,
    standing_in,
    unweighted,
)


class GymGenerator(base_class("skyrl.train.generators.base", "GeneratorInterface")):
    """Rollouts of rows in the dataset's column ``gym_row``.

    Args:
        generator_cfg: SkyRL's ``cfg.generator``.
        tokenizer: SkyRL's.
        inference_engine_client: SkyRL's.
        policy_model_name: what SkyRL's ``resolve_policy_model_name(cfg)`` says; needed with LoRA.
        nats: the broker of the running system; by default ``GYM_NATS_URL``.
        settings: fields of `RolloutSettings`, such as ``max_turns``.
        read: how answers are parsed, if not as Qwen and Hermes models write them.
        credit: which sequences of a rollout with branches are trained on.
        seat: the one to train on, where the policy has several: SkyRL's groups are its prompts.
        renderer: as for `TokenEngine`, but a function of the tokenizer.
        signal: ``rows`` (see `gym_trainers.signal_settings.signal_rows`), and arguments of
            `gym_signal.signal_batches`, such as ``curriculum``: a training batch has as many groups as SkyRL
            drew prompts, of these rows, and all with signal. Not for the asynchronous trainer.

    Raises:
        UsageError: a kind has a weight that is neither 0 nor 1, which SkyRL cannot take; or ``signal`` is
            wrong, or given with ``zero_reward_on_non_stop``.
    """

    def __init__(
        self,
        generator_cfg: Any,
        tokenizer: Any,
        inference_engine_client: Any,
        *,
        policy_model_name: str | None = None,
        nats: str = "",
        settings: Mapping[str, Any] | None = None,
        read: Read | None = None,
        credit: Credit = "accepted",
        signal: Mapping[str, Any] | None = None,
        seat: str = "",
        renderer: MakeRenderer | None = None,
    ) -> None:
        super().__init__()
        self._signal = None if signal is None else signal_rows(signal)
        if signal is not None and generator_cfg.zero_reward_on_non_stop:
            raise UsageError(
                "signal chooses groups by the verifier's rewards, and zero_reward_on_non_stop changes them "
                "afterwards, so the rewards of a chosen group may all be 0: leave one of the two out"
            )
        batch, step = (
            "its batches and groups are SkyRL's",
            "SkyRL's engine is asked nothing between two steps",
        )
        own = {"want": batch, "repeats": batch, "waves": WEIGHTS, "ahead": step, "partial": step}
        require_not(signal or {}, "SkyRL", **own)
        self._busy = False
        self._credit: Credit = unweighted(credit, "SkyRL")
        self._config = generator_cfg
        self._by_steps = bool(generator_cfg.step_wise_trajectories)
        self._apart, self._seat = roles_apart(settings), seat
        self._replays = bool(generator_cfg.inference_engine.enable_return_routed_experts)
        from skyrl.train.generators.utils import build_vllm_cache_salt, get_custom_chat_template

        self._client = inference_engine_client
        self._params = generator_cfg.sampling_params
        self._end = int(tokenizer.eos_token_id)

        async def generate(prompt: list[int], sampling: dict[str, Any], rollout: str) -> Sampled:
            if self._wants_log_probs:
                sampling["logprobs"] = 0  # of the chosen token alone
            request = {"prompt_token_ids": [prompt], "sampling_params": sampling, "session_ids": [rollout]}
            version = getattr(inference_engine_client, "weight_version", None)  # not in its interface
            if version is not None and generator_cfg.use_cache_salt:
                # Else the engine would go on from what older weights have computed.
                request["cache_salt"] = build_vllm_cache_salt(version, policy_model_name)
            said = await inference_engine_client.generate(request, model=policy_model_name)
            log_probs = said.get("response_logprobs")
            experts = said.get("rollout_expert_indices") if self._replays else None
            return Sampled(
                list(said["response_ids"][0]),
                log_probs[0] if log_probs else None,
                cut=said["stop_reasons"][0] == "length",
                version="" if version is None else f"step-{version}",
                experts=experts[0] if experts else None,
            )

        context = generator_cfg.max_input_length + self._params.max_generate_length
        made = renderer and renderer(tokenizer)
        template = dict(generator_cfg.chat_template_kwargs)
        if own_template := get_custom_chat_template(generator_cfg.chat_template):
            template["chat_template"] = own_template
        engine = TokenEngine(
            tokenizer, generate, context=context, read=read, renderer=made, template=template
        )
        self._source = RolloutSource(engine, nats=nats, settings=settings)

    @property
    def _wants_log_probs(self) -> bool:
        return self._params.logprobs is not None

    async def generate(self, input_batch: Mapping[str, Any]) -> dict[str, Any]:
        """A ``GeneratorOutput``, in the order of the prompts: with an entry per prompt, or per sequence.

        Raises:
            TaskError, UsageError: a row or a setting is wrong; or the policy has several seats, and none is
                named.
            GymError: the run was cancelled, or the connection is lost; or the engine did not tell experts.
        """
        rows = [str(extra[ROW]) for extra in input_batch["env_extras"]]
        names = [one.instance_id for one in input_batch.get("trajectory_ids") or ()] or list(range(len(rows)))
        params = input_batch.get("sampling_params") or self._params
        about = input_batch.get("batch_metadata")
        if self._signal is not None and about is not None and about.training_phase == "train":
            records, useful = await self._with_signal(names, _sampling(params))
        else:
            records = await self._source.rollouts(rows, names, _sampling(params))
            useful = _useful(records, names)
        async with anyio.create_task_group() as tasks:
            for record in records:
                tasks.start_soon(self._client.finish_session, record.rollout_id)
        seats = [only_seat(record, self._seat, self._apart, "SkyRL") for record in records]
        steps = [self._steps(record, seat) for record, seat in zip(records, seats, strict=True)]
        # Each entry's place among the rollouts.
        places = [place for place, found in enumerate(steps) for _ in found]
        kept = [one for found in steps for one in found]
        log_probs = [one.log_probs for one in kept]
        rewards = self._rewards(records, names, seats)
        named = input_batch.get("trajectory_ids")
        last = [place + 1 == len(found) for found in steps for place in range(len(found))]
        return {
            "prompt_token_ids": [one.prompt_ids for one in kept],
            "response_ids": [one.response_ids for one in kept],
            "rewards": [rewards[place] for place in places],
            "loss_masks": [one.mask for one in kept],
            "stop_reasons": ["length" if one.cut else "stop" for one in kept],
            "rollout_metrics": {
                "gym/failed": sum(record.reward is None for record in records),
                "gym/turns": sum(record.turns for record in records) / len(records),
                "gym/tool_calls": sum(record.tool_calls for record in records) / len(records),
                "gym/useful": useful,
            },
            "rollout_logprobs": None if None in log_probs else log_probs,
            "rollout_expert_indices": _experts(kept) if self._replays else None,
            "trajectory_ids": named and [named[place] for place in places],
            "trajectory_generation_times": [records[place].duration_s for place in places],
            "is_last_step": last if self._by_steps else None,
            "env_metrics": [dict(records[place].numbers) for place in places],
        }

    async def _with_signal(
        self, names: Sequence[Any], sampling: Mapping[str, Any]
    ) -> tuple[list[RolloutRecord], float]:
        """The rollouts of groups with signal, as many as there are names, and the share of useful tokens."""
        sizes = [len(list(group)) for _, group in groupby(names)]
        if self._busy or len(set(sizes)) > 1:
            raise UsageError(
                "signal needs whole batches of groups of one size, one after the other, as SkyRL's "
                "synchronous trainer makes them; leave it out with the asynchronous one"
            )
        assert self._signal is not None
        rows, options = self._signal
        self._busy = True
        try:
            groups, useful = await self._source.batch(rows, len(sizes), sizes[0], sampling, options)
        finally:
            self._busy = False
        return [record for group in groups for record in group.rollouts], useful.share or 0.0

    def _steps(self, record: RolloutRecord, seat: str) -> list[Piece]:
        found, why = pieces(record, self._credit, seat), ""
        if self._wants_log_probs and lacks_log_probs(found):
            found, why = [], NO_LOG_PROBS
        # A rollout without tokens is one masked token.
        if not (self._by_steps and found):
            found = [only_piece(record, found, self._end, log_probs=self._wants_log_probs, why=why)]
        # Here, because in SkyRL its own generator does it.
        if self._config.apply_overlong_filtering and isinstance(record.outcome, Truncated):
            found = [one._replace(mask=[0] * len(one.mask)) for one in found]
        return found

    def _rewards(
        self, records: Sequence[RolloutRecord], names: Sequence[Any], seats: Sequence[str]
    ) -> list[float]:
        """One number per rollout, as SkyRL demands; of a failed rollout the mean of its group."""
        given = [record.reward_of(seat) for record, seat in zip(records, seats, strict=True)]
        if self._config.zero_reward_on_non_stop:
            cut = [isinstance(record.outcome, Truncated) for record in records]
            given = [0.0 if short else reward for reward, short in zip(given, cut, strict=True)]
        found: list[float] = []
        for _, places in groupby(range(len(records)), key=lambda place: names[place]):
            group = [given[place] for place in places]
            found += [standing_in(group) if reward is None else reward for reward in group]
        return found

    async def close(self) -> None:
        """Leave the system."""
        await self._source.close()


def _useful(records: Sequence[RolloutRecord], names: Sequence[Any]) -> float:
    """The share of the sampled tokens whose advantage is not 0."""
    uses: Counter[str] = Counter()
    for _, places in groupby(range(len(records)), key=lambda place: names[place]):
        group = [records[place] for place in places]
        uses += token_uses((one.reward, int(one.numbers.get("output_tokens", 0))) for one in group)
    return uses["useful"] / max(1, uses.total())


def _experts(kept: Sequence[Piece]) -> list[Any] | None:
    """Those of each entry, in the types that SkyRL takes; None if nothing is trained on.

    Raises:
        GymError: some of an entry that is trained on are not known.
    """
    if any(one.experts is None and any(one.mask) for one in kept):
        raise GymError("enable_return_routed_experts is on, and SkyRL's engine did not tell all experts")
    known = next((one.experts for one in kept if one.experts is not None), None)
    if known is None:
        return None
    # What is not trained on has a row, because SkyRL wants one; and SkyRL knows no uint16.
    arrays = [known[:1] if one.experts is None else one.experts for one in kept]
    return [one.astype("uint8" if one.itemsize == 1 else "int16") for one in arrays]


def _sampling(params: Any) -> dict[str, Any]:
    """SkyRL's sampling parameters (training), or those of an engine's request (evaluation), as ours."""
    given: Mapping[str, Any] = params if isinstance(params, Mapping) else vars(params)
    sampling = engine_sampling({"max_tokens": given.get("max_generate_length"), **given})
    if given.get("additional_kwargs"):
        sampling["extra_body"] = given["additional_kwargs"]
    return sampling
