"""What holds for each trainer that samples with its own engine, whatever form it takes rollouts in."""

from __future__ import annotations

from itertools import chain
from typing import Any, NamedTuple

import pytest
from gym_runtime.client import SyncClient
from gym_runtime.errors import GymError
from trainers import test_openrlhf, test_skyrl, test_verl
from trainers.trainers_engine import CALL, END, END_ID, Servers, TurnEngine, counter_row

pytestmark = [pytest.mark.slow, pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]
TOO_LONG = counter_row() | {"responses_create_params": {"input": "x" * 800}}


class Taken(NamedTuple):
    """A rollout as its trainer got it, over the prompt and all that came after it."""

    ids: list[int]
    mask: list[int]
    log_probs: list[float]
    reward: float


async def openrlhf(rows: list[Any]) -> tuple[TurnEngine, list[Taken | None]]:
    actor = test_openrlhf.Actor()
    found = list[Taken | None]()
    for one in await test_openrlhf.group(test_openrlhf.executor(), actor, *rows):
        ids = one["observation_tokens"]
        sampled = set(chain.from_iterable(range(*span) for span in one["action_ranges"]))
        mask = [int(place in sampled) for place in range(len(ids))]
        found.append(Taken(ids, mask, one["rollout_log_probs"], one["reward"]))
    return actor.engine, found


async def verl(rows: list[Any]) -> tuple[TurnEngine, list[Taken | None]]:
    servers, found = Servers(), list[Taken | None]()
    for row in rows:
        try:
            (one,) = await test_verl.run(servers, row, test_verl.V1)
        except GymError:
            found.append(None)
            continue
        before = [0] * len(one.prompt_ids)
        log_probs = [0.0] * len(before) + one.response_logprobs
        ids, mask = one.prompt_ids + one.response_ids, before + one.response_mask
        found.append(Taken(ids, mask, log_probs, one.reward_score))
    return servers.engine, found


async def skyrl(rows: list[Any]) -> tuple[TurnEngine, list[Taken | None]]:
    client = test_skyrl.InferenceClient()
    names = "".join(chr(ord("a") + place) for place in range(len(rows)))
    output = await test_skyrl.generated(client, test_skyrl.batch(*rows, names=names))
    columns = ("prompt_token_ids", "response_ids", "loss_masks", "rollout_logprobs", "rewards")
    found = list[Taken | None]()
    for prompt, ids, mask, log_probs, reward in zip(*(output[name] for name in columns), strict=True):
        before = len(prompt)
        found.append(Taken(prompt + ids, [0] * before + mask, [0.0] * before + log_probs, reward))
    return client.engine, found


trainers = pytest.mark.parametrize("trainer", [openrlhf, verl, skyrl])


@trainers
async def test_what_is_trained_on_is_what_the_engine_sampled(system: SyncClient, trainer: Any) -> None:
    engine, (taken,) = await trainer([counter_row()])
    (first_prompt, first), (prompt, ids) = engine.seen
    assert prompt[: len(first_prompt) + len(first)] == first_prompt + first
    assert taken.ids == prompt + ids
    sampled = [place for place, kept in enumerate(taken.mask) if kept]
    kept = [taken.ids[place] for place in sampled]
    assert kept == first + ids
    assert [taken.log_probs[place] for place in sampled] == pytest.approx(TurnEngine.log_probs(kept))
    assert sum(taken.log_probs) == pytest.approx(sum(TurnEngine.log_probs(kept))), "elsewhere they are 0"
    assert test_openrlhf.byte_tokenizer().decode(kept) == f"{CALL}{END}Done.{END}"


@trainers
async def test_rewards_are_the_verifiers_and_a_failure_is_none(system: SyncClient, trainer: Any) -> None:
    _, (right, wrong, failed) = await trainer([counter_row(), counter_row(5), TOO_LONG])
    assert (right.reward, wrong.reward) == (1.0, 0.0)
    # Left out where the trainer can do that; else one token of no weight.
    assert failed is None or (set(failed.ids), set(failed.log_probs)) == ({END_ID}, {0.0})
