"""What holds for each trainer of several trained seats: none is trained with another's reward."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from gym_runtime.errors import UsageError
from gym_trainers import training_rollouts
from gym_trainers.rollout_source import RolloutSource
from gym_trainers.trl_async import sample_fields
from gym_trainers.trl_columns import Batch
from trainers import test_openrlhf, test_skyrl, test_verl
from trainers.test_branches_contract import masked
from trainers.test_seats import game
from trainers.trainers_engine import Servers, counter_row

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]
# The ids that a seat sampled are the length of its name.
FIRST, SECOND = [5], [6]
GAMES = [game(1.0, first=1.0, second=-1.0), game(-1.0, first=-1.0, second=1.0)]
Trained = list[tuple[list[int], float]]
"""What is trained on, with its reward or its advantage."""


@pytest.fixture(autouse=True)
def played(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two games, which every source gives."""
    waiting = list(GAMES)

    async def one(*_: Any, **__: Any) -> Any:
        return waiting.pop(0)

    async def each(*_: Any, **__: Any) -> Any:
        return GAMES

    monkeypatch.setenv("GYM_NATS_URL", "nats://nowhere")
    monkeypatch.setattr(RolloutSource, "rollout", one)
    monkeypatch.setattr(RolloutSource, "rollouts", each)
    training_rollouts._say_once.cache_clear()


async def trl() -> Trained:
    batch = Batch(end=0)
    batch.add(0, GAMES)
    columns = batch.columns()
    ids = [masked(*pair) for pair in zip(columns["completion_ids"], columns["env_mask"], strict=True)]
    return list(zip(ids, [one.reward or 0.0 for one in GAMES], strict=True))


async def trl_async() -> Trained:
    samples = sample_fields(GAMES, group=0, version=0)
    return [(masked(one["input_ids"], one["completion_mask"]), round(one["advantage"], 6)) for one in samples]


async def openrlhf() -> Trained:
    found = [
        (await test_openrlhf.group(test_openrlhf.executor(), test_openrlhf.Actor(), counter_row()))[0]
        for _ in GAMES
    ]
    return [
        (
            [one["observation_tokens"][at] for span in one["action_ranges"] for at in range(*span)],
            one["reward"],
        )
        for one in found
    ]


async def verl() -> Trained:
    found = [one for _ in GAMES for one in await test_verl.run(Servers(), counter_row(), test_verl.V1)]
    return [(masked(one.response_ids, one.response_mask), one.reward_score) for one in found]


async def skyrl(**options: Any) -> tuple[Trained, Any]:
    given = test_skyrl.batch(counter_row(), counter_row(), names="aa")
    output = await test_skyrl.generated(test_skyrl.InferenceClient(), given, by_steps=True, **options)
    lists = zip(output["response_ids"], output["loss_masks"], output["rewards"], strict=True)
    return [(masked(ids, mask), reward) for ids, mask, reward in lists], output


async def main_of_skyrl() -> Trained:
    return (await skyrl())[0]


Trainer = Callable[[], Coroutine[Any, Any, Trained]]


@pytest.mark.parametrize("trainer", [trl, openrlhf, verl, main_of_skyrl])
async def test_trainers_of_one_seat_get_the_main_one_and_the_log_says_so(
    trainer: Trainer, capfd: pytest.CaptureFixture[str]
) -> None:
    assert await trainer() == [(FIRST, 1.0), (FIRST, -1.0)]
    said = "".join(capfd.readouterr())
    assert said.count("of several seats only the main one is trained on") == 1


async def test_trl_async_takes_all_seats_each_with_its_own_advantage() -> None:
    assert await trl_async() == [(FIRST, 1.0), (SECOND, -1.0), (FIRST, -1.0), (SECOND, 1.0)]


async def test_skyrl_takes_all_seats_each_in_a_group_of_its_own() -> None:
    trained, output = await skyrl(seats=True)
    assert trained == [(FIRST, 1.0), (SECOND, -1.0), (FIRST, -1.0), (SECOND, 1.0)]
    named = [(one.instance_id, one.repetition_id) for one in output["trajectory_ids"]]
    assert named == [("a/first", 0), ("a/second", 0), ("a/first", 1), ("a/second", 1)]
    assert output["is_last_step"] == [True] * 4


async def test_skyrl_without_steps_refuses_seats_with_the_remedy() -> None:
    client = test_skyrl.InferenceClient()
    given = test_skyrl.batch(counter_row(), names="a")
    with pytest.raises(UsageError, match=r"seats=True: .*step_wise_trajectories=true"):
        await test_skyrl.generated(client, given, seats=True)
