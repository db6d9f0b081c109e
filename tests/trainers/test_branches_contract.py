"""What holds for each trainer of a rollout with branches: each token that it takes is trained on once."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from itertools import chain
from typing import Any

import pytest
from gym_runtime.errors import UsageError
from gym_runtime.messages.outcomes import RolloutRecord, encode_record, read_record
from gym_trainers.rollout_source import RolloutSource
from gym_trainers.trl_async import sample_fields
from gym_trainers.trl_columns import Batch
from msgspec import Raw
from msgspec.structs import replace
from runtime.messages.call_trees import Drawn, call, record
from trainers import test_openrlhf, test_skyrl, test_verl
from trainers.trainers_engine import Servers, counter_row

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]
KINDS: list[tuple[Any, int, int]] = [
    ("main", -1, 0),
    ("retry", 0, -1),
    ("main", 0, 2),
    ("subagent", -1, -1),
    ("side", -1, -1),
    ("subagent", 3, -1),
]
ACCEPTED = {"main", "subagent"}
Trained = list[list[int]]


def rollout() -> tuple[list[Drawn], RolloutRecord]:
    chance, calls = random.Random(4), list[Drawn]()
    for kind, parent, item in KINDS:
        calls.append(call(chance, calls, parent, kind, item, 5))
    made = replace(record(calls), reward=1.0)
    row = Raw(bytes(made.row)[:-1] + b',"responses_create_params":{"input":"hi"}}')
    return calls, read_record(encode_record(replace(made, row=row)))


def masked(ids: Any, mask: Any) -> list[int]:
    return [int(one) for one, kept in zip(ids, mask, strict=True) if kept]


async def trl(made: RolloutRecord, **credit: Any) -> Trained:
    batch = Batch(end=0, **credit)
    batch.add(0, [made])
    columns = batch.columns()
    return [masked(*pair) for pair in zip(columns["completion_ids"], columns["env_mask"], strict=True)]


async def trl_async(made: RolloutRecord, **credit: Any) -> Trained:
    samples = sample_fields([made], group=0, version=0, **credit)
    return [masked(one["input_ids"], one["completion_mask"]) for one in samples]


async def openrlhf(made: RolloutRecord, **credit: Any) -> Trained:
    (one,) = await test_openrlhf.group(test_openrlhf.executor(**credit), test_openrlhf.Actor(), counter_row())
    spans = chain.from_iterable(range(*span) for span in one["action_ranges"])
    return [[one["observation_tokens"][place] for place in spans]]


async def verl(made: RolloutRecord, **credit: Any) -> Trained:
    found = await test_verl.run(Servers(), counter_row(), test_verl.V1, **credit)
    return [masked(one.response_ids, one.response_mask) for one in found]


async def skyrl(made: RolloutRecord, **credit: Any) -> Trained:
    client = test_skyrl.InferenceClient()
    given = test_skyrl.batch(counter_row(), counter_row(), names="aa")
    output = await test_skyrl.generated(client, given, by_steps=True, **credit)
    count = len(output["response_ids"]) // 2
    assert output["is_last_step"] == [*[False] * (count - 1), True] * 2
    assert [one.repetition_id for one in output["trajectory_ids"]] == [0] * count + [1] * count
    assert output["rewards"] == [1.0] * 2 * count
    lists = zip(output["response_ids"], output["loss_masks"], strict=True)
    return [masked(*pair) for pair in lists][:count]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> tuple[list[Drawn], RolloutRecord]:
    """A rollout with branches, which every source gives."""
    calls, made = rollout()

    async def one(*_: Any, **__: Any) -> RolloutRecord:
        return made

    async def each(source: Any, rows: list[str], *_: Any) -> list[RolloutRecord]:
        return [made for _ in rows]

    monkeypatch.setenv("GYM_NATS_URL", "nats://nowhere")
    monkeypatch.setattr(RolloutSource, "rollout", one)
    monkeypatch.setattr(RolloutSource, "rollouts", each)
    return calls, made


Trainer = Callable[..., Coroutine[Any, Any, Trained]]


@pytest.mark.parametrize("trainer", [trl_async, verl, skyrl])
@pytest.mark.parametrize("credit", ["accepted", "all", "main", "last", {"side": 1}])
async def test_trainers_that_take_branches_get_each_sampled_token_once(
    trainer: Trainer, credit: Any, made: tuple[list[Drawn], RolloutRecord]
) -> None:
    calls, record = made
    trained = await trainer(record, credit=credit)
    kinds = {
        "accepted": ACCEPTED,
        "all": {kind for kind, _, _ in KINDS},
        "main": {"main"},
        "last": {"side"},  # the last sequence that began
    }.get(str(credit), {"side"})
    sampled = [one.ids for one in calls if one.kind in kinds]
    assert sorted(chain.from_iterable(trained)) == sorted(chain.from_iterable(sampled))


@pytest.mark.parametrize("trainer", [trl, openrlhf])
async def test_trainers_that_take_one_sequence_get_the_main_one(
    trainer: Trainer, made: tuple[list[Drawn], RolloutRecord], capfd: pytest.CaptureFixture[str]
) -> None:
    calls, record = made
    trained = await trainer(record)
    assert trained == [[one for call in calls if call.kind == "main" for one in call.ids]]
    assert "trained on" in "".join(capfd.readouterr())
    (side,) = await trainer(record, credit={"side": 1})
    assert side == calls[4].ids


@pytest.mark.parametrize("trainer", [openrlhf, verl, skyrl])
async def test_a_weight_that_a_trainer_cannot_take_is_refused(
    trainer: Trainer, made: tuple[list[Drawn], RolloutRecord]
) -> None:
    with pytest.raises(UsageError, match=r"takes no weight for a sequence; give each kind 0 or 1"):
        await trainer(made[1], credit={"main": 1, "subagent": 0.5})


async def test_a_weight_is_a_factor_of_the_advantage(made: tuple[list[Drawn], RolloutRecord]) -> None:
    failed = replace(made[1], reward=0.0)
    samples = sample_fields([made[1], failed], group=0, version=0, credit={"main": 1, "subagent": 0.5})
    assert [one["advantage"] for one in samples] == pytest.approx([1.0, 0.5, -1.0, -0.5])
