"""Rollouts as each trainer gets them, for its contract.

Where a trainer is installed, its own classes check and convert what it gets; else stand-ins have its fields.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain, cycle, islice
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import Any, NamedTuple

import anyio.lowlevel
import numpy as np
import pytest
from gym_runtime import GymError
from gym_runtime.errors import UsageError, leaf
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.messages.rollout_settings import RolloutSettings
from gym_trainers.rollout_source import RolloutSource
from gym_trainers.trl import GymSpec
from gym_trainers.trl_async import sample_fields
from trainers import test_openrlhf, test_skyrl, test_trl, test_verl
from trainers.trainer_stubs import installed
from trainers.trainers_engine import Servers, counter_row


class Taken(NamedTuple):
    """One sequence as its trainer got it, over the prompt and all that came after it."""

    ids: list[int]
    mask: list[int]
    log_probs: list[float]
    reward: float
    experts: Any = None

    @property
    def trained(self) -> list[int]:
        return [one for one, kept in zip(self.ids, self.mask, strict=True) if kept]


Rollouts = Sequence[RolloutRecord] | Sequence[dict[str, Any]]
"""Records that every source gives; or rows, whose rollouts the trainer's own engine samples."""
Take = Callable[..., Coroutine[Any, Any, tuple[Any, list[Taken | None]]]]


@contextmanager
def rows_of(rollouts: Rollouts) -> Iterator[list[dict[str, Any]]]:
    records = [one for one in rollouts if isinstance(one, RolloutRecord)]
    waiting = cycle(records)

    async def one(*_: Any, **__: Any) -> Any:
        record = next(waiting)
        await anyio.lowlevel.checkpoint()  # the rollouts of a prompt begin before the first has ended
        return record

    async def each(_: Any, rows: list[str], *__: Any) -> Any:
        return list(islice(waiting, len(rows)))

    with pytest.MonkeyPatch.context() as patch:
        if records:
            patch.setenv("GYM_NATS_URL", "nats://nowhere")
            patch.setattr(RolloutSource, "rollout", one)
            patch.setattr(RolloutSource, "rollouts", each)
        yield [counter_row() for _ in records] or [one for one in rollouts if isinstance(one, dict)]


# -- the trainers -------------------------------------------------------------------------------------------


@cache
def trl_trainer() -> Any:
    """TRL's own, with a tiny model."""
    from trainers.test_trl_trainer import trainer_of

    spec: Any = SimpleNamespace(
        train_dataset=GymSpec(None, [counter_row()]).train_dataset,  # pyright: ignore[reportArgumentType]
        rollout_func=None,
        reward_funcs=GymSpec.reward_funcs.fget(None),
    )
    return trainer_of(spec, Path(mkdtemp()))


async def grpo(rollouts: Sequence[RolloutRecord], roles: Any = None, **asked: Any) -> tuple[Any, Any]:
    size = 4
    gym: Any = SimpleNamespace(
        groups=lambda *_, **__: [SimpleNamespace(key=0, rollouts=list(islice(cycle(rollouts), size)))]
    )
    spec = GymSpec(gym, [counter_row()], settings=RolloutSettings(roles=roles or {}), **asked)
    trainer = test_trl.FakeTrainer(size, attached=True)
    columns = spec.rollout_func([json.dumps(counter_row())] * size, trainer)
    names = ("prompt_ids", "completion_ids", "env_mask", "logprobs", "gym_reward")
    found = list(zip(*(columns[name] for name in names), strict=True))
    if installed("trl"):
        trainer = trl_trainer()
        trainer.rollout_func = lambda *_: columns
        trainer.model.train()
        inputs = [dict(trainer.train_dataset[0]) for _ in range(size)]
        scored = trainer._generate_and_score_completions(inputs)
        told = [
            scored[name].tolist() for name in ("completion_ids", "tool_mask", "completion_mask", "advantages")
        ]
        rewards = [reward for *_, reward in found]
        assert told[3] == pytest.approx(_normed(rewards), abs=1e-3)
        for place, (ids, mask, real, _) in enumerate(zip(*told, strict=True)):
            prompt, _, _, log_probs, reward = found[place]
            kept = [one for one, here in zip(ids, real, strict=True) if here]
            found[place] = (prompt, kept, mask[: len(kept)], log_probs, reward)
    taken = [Taken(p + c, [0] * len(p) + m, [0.0] * len(p) + v, r) for p, c, m, v, r in found]
    return None, taken[: len(rollouts)]


def _normed(rewards: list[float | None]) -> list[float]:
    """As TRL computes them: a rollout without a reward has the advantage 0, and does not count."""
    known = np.array(rewards, float)
    return list(np.nan_to_num((known - np.nanmean(known)) / (np.nanstd(known, ddof=1) + 1e-4)))


async def async_grpo(rollouts: Sequence[RolloutRecord], roles: Any = None, **asked: Any) -> tuple[Any, Any]:
    samples = sample_fields(rollouts, group=0, version=0, apart=set(roles or ()), **asked)
    names = ("input_ids", "completion_mask", "old_log_probs", "advantage")
    if installed("trl"):
        from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

        samples = [{name: getattr(RolloutSample(**one), name) for name in names} for one in samples]
    lists = [[np.asarray(one[name]).tolist() for name in names] for one in samples]
    return None, [Taken(ids, mask, logs, round(value, 6)) for ids, mask, logs, value in lists]


async def openrlhf(rollouts: Rollouts, roles: Any = None, experts: int = 0, **asked: Any) -> Any:
    actor = test_openrlhf.Actor()
    made = test_openrlhf.executor(settings={"roles": roles or {}}, **asked)
    with rows_of(rollouts) as rows, pytest.MonkeyPatch.context() as patch:
        try:
            answers = await test_openrlhf.group(made, actor, *rows)
        except ExceptionGroup as error:
            raise leaf(error) from error
        if installed("openrlhf"):
            generator = test_openrlhf.samples_generator(patch)
            real = [generator._process_response_into_experience(one, max_len=4096) for one in answers]
            masks = [[0, *one.action_mask[0].tolist()] for one in real]
            logs = [[0.0, *one.rollout_log_probs[0].tolist()] for one in real]
            found = [(one.sequences[0].tolist(), float(one.rewards)) for one in real]
        else:
            spans = [set(chain(*(range(*span) for span in one["action_ranges"]))) for one in answers]
            found = [(one["observation_tokens"], one["reward"]) for one in answers]
            lengths = [range(len(ids)) for ids, _ in found]
            masks = [[int(at in kept) for at in all_] for all_, kept in zip(lengths, spans, strict=True)]
            logs = [one["rollout_log_probs"] for one in answers]
    lists = zip(found, masks, logs, strict=True)
    return actor.engine, [Taken(ids, mask, values, reward) for (ids, reward), mask, values in lists]


async def verl(
    rollouts: Rollouts,
    roles: Any = None,
    columns: Any = test_verl.V1,
    experts: int = 0,
    replays: bool = False,
    **asked: Any,
) -> Any:
    servers, found = Servers(experts), list[Taken | None]()
    with rows_of(rollouts) as rows:
        for row in rows:
            told: dict[str, Any] = {**asked, "settings": {"roles": roles or {}}, "replays": replays}
            try:
                made = await test_verl.run(servers, row, columns, **told)
            except GymError as error:
                if isinstance(error, UsageError) or len(rows) == 1:
                    raise
                found.append(None)  # so verl leaves it out
                continue
            for one in made if isinstance(made, list) else [made]:
                found.append(_of_verl(one))
    return servers.engine, found


def _of_verl(one: Any) -> Taken:
    prompt, ids, mask = one.prompt_ids, one.response_ids, one.response_mask
    logs, reward, experts = one.response_logprobs, one.reward_score, one.routed_experts
    if installed("verl"):
        given = one.as_dict()
        names = ("prompts", "responses", "response_mask", "rollout_log_probs", "rm_scores")
        prompt, ids, mask, logs, scores = (given[name].tolist() for name in names)
        reward = sum(scores)
        experts = None if experts is None else given["routed_experts"].numpy()[: len(prompt + ids) - 1]
    before = len(prompt)
    return Taken(prompt + ids, [0] * before + mask, [0.0] * before + logs, reward, experts)


async def skyrl(
    rollouts: Rollouts,
    roles: Any = None,
    experts: int = 0,
    names: str = "",
    steps: bool = False,
    **asked: Any,
) -> Any:
    client = test_skyrl.InferenceClient(experts)
    with rows_of(rollouts) as rows:
        names = "a" * len(rows) if isinstance(rollouts[0], RolloutRecord) else "abc"[: len(rows)]
        given, settings = test_skyrl.batch(*rows, names=names), {"roles": roles or {}}
        output = await test_skyrl.generated(client, given, by_steps=steps, settings=settings, **asked)
    if installed("skyrl"):
        from skyrl.train.utils.trainer_utils import validate_generator_output

        replays = {"routes_expected": asked.get("replays", False)}
        validate_generator_output(len(rows), output, step_wise=steps, **replays)
    keys = ("prompt_token_ids", "response_ids", "loss_masks", "rollout_logprobs", "rewards")
    told = output["rollout_expert_indices"] or [None] * len(output["rewards"])
    found = [
        Taken(prompt + ids, [0] * len(prompt) + mask, [0.0] * len(prompt) + logs, reward, routed)
        for prompt, ids, mask, logs, reward, routed in zip(*(output[key] for key in keys), told, strict=True)
    ]
    client.engine.output = output
    return client.engine, found
