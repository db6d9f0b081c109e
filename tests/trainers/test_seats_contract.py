"""What holds for each trainer of several trained seats: none is trained with another's reward."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import ExitStack, nullcontext
from itertools import cycle
from typing import Any

import pytest
from gym_faces.gym_server.answers import of_verdict
from gym_runtime import GymError, Verdict
from gym_runtime.errors import UsageError, leaf
from gym_trainers.rollout_source import RolloutSource
from gym_trainers.trl_async import sample_fields
from gym_trainers.trl_columns import Batch
from gym_trainers.trl_environment import TrlEnvironment
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
    waiting = cycle(GAMES)

    async def one(*_: Any, **__: Any) -> Any:
        return next(waiting)

    async def each(*_: Any, **__: Any) -> Any:
        return GAMES

    monkeypatch.setenv("GYM_NATS_URL", "nats://nowhere")
    monkeypatch.setattr(RolloutSource, "rollout", one)
    monkeypatch.setattr(RolloutSource, "rollouts", each)


async def trl(seat: str = "", roles: dict[str, str] | None = None) -> Trained:
    batch = Batch(end=0, seat=seat, apart=set(roles or ()))
    batch.add(0, GAMES)
    columns = batch.columns()
    ids = [masked(*pair) for pair in zip(columns["completion_ids"], columns["env_mask"], strict=True)]
    return list(zip(ids, columns["gym_reward"], strict=True))


async def trl_async(seat: str = "", roles: dict[str, str] | None = None) -> Trained:
    samples = sample_fields(GAMES, group=0, version=0, seat=seat, apart=set(roles or ()))
    return [(masked(one["input_ids"], one["completion_mask"]), round(one["advantage"], 6)) for one in samples]


async def openrlhf(seat: str = "", roles: dict[str, str] | None = None) -> Trained:
    made = test_openrlhf.executor(seat=seat, settings={"roles": roles or {}})
    try:
        found = [(await test_openrlhf.group(made, test_openrlhf.Actor(), counter_row()))[0] for _ in GAMES]
    except ExceptionGroup as error:
        raise leaf(error) from error
    return [
        (
            [one["observation_tokens"][at] for span in one["action_ranges"] for at in range(*span)],
            one["reward"],
        )
        for one in found
    ]


async def verl(seat: str = "", roles: dict[str, str] | None = None) -> Trained:
    asked: dict[str, Any] = {"seat": seat, "settings": {"roles": roles or {}}}
    found = [
        one for _ in GAMES for one in await test_verl.run(Servers(), counter_row(), test_verl.V1, **asked)
    ]
    return [(masked(one.response_ids, one.response_mask), one.reward_score) for one in found]


async def skyrl(roles: dict[str, str] | None = None, **options: Any) -> tuple[Trained, Any]:
    given = test_skyrl.batch(counter_row(), counter_row(), names="aa")
    settings = {"roles": roles or {}}
    client = test_skyrl.InferenceClient()
    output = await test_skyrl.generated(client, given, by_steps=True, settings=settings, **options)
    lists = zip(output["response_ids"], output["loss_masks"], output["rewards"], strict=True)
    return [(masked(ids, mask), reward) for ids, mask, reward in lists], output


async def one_of_skyrl(seat: str = "", roles: dict[str, str] | None = None) -> Trained:
    return (await skyrl(seat=seat, roles=roles))[0]


Trainer = Callable[..., Coroutine[Any, Any, Trained]]
OF_ONE_SEAT = [trl, openrlhf, verl, one_of_skyrl]


@pytest.mark.parametrize("trainer", OF_ONE_SEAT)
async def test_trainers_of_one_seat_refuse_several_with_the_remedy(trainer: Trainer) -> None:
    with pytest.raises(
        UsageError,
        match=r"in nim the policy is trained in the seats first, second, and .* name one with seat='first'",
    ):
        await trainer()


@pytest.mark.parametrize("trainer", [*OF_ONE_SEAT, trl_async])
async def test_the_seat_that_is_named_is_trained_with_its_own_reward(trainer: Trainer) -> None:
    assert await trainer(seat="second") == [(SECOND, -1.0), (SECOND, 1.0)]


@pytest.mark.parametrize("trainer", [*OF_ONE_SEAT, trl_async])
async def test_a_seat_that_the_policy_has_not_is_refused(trainer: Trainer) -> None:
    with pytest.raises(UsageError, match=r"seat='third': in nim the policy is trained in first, second"):
        await trainer(seat="third")
    with pytest.raises(UsageError, match=r"seat='second': in nim the policy is trained in first$"):
        await trainer(seat="second", roles={"second": "frozen"})


@pytest.mark.parametrize("trainer", [*OF_ONE_SEAT, trl_async])
async def test_against_a_frozen_opponent_the_policys_seat_is_trained(trainer: Trainer) -> None:
    assert await trainer(roles={"second": "frozen"}) == [(FIRST, 1.0), (FIRST, -1.0)]
    assert await trainer(roles={"first": "frozen"}) == [(SECOND, -1.0), (SECOND, 1.0)]


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


# -- trainers that hold the conversation themselves --------------------------------------------------------


class Judged:
    """A client, and a session, whose verdict names two seats."""

    observation, tools = (), ()

    def verify(self, *_: Any) -> Verdict:
        return Verdict(1.0, rewards={"first": 1.0, "second": 0.0})

    def session(self, *_: Any) -> Any:
        return nullcontext(self)


def by_openrlhf() -> None:
    test_openrlhf.reward_func(["a b"], ["a"], ["{}"])


def by_verl() -> None:
    np = pytest.importorskip("numpy")
    batch = {"responses": np.array([5]), "attention_mask": np.array([1])}
    item = test_verl.Item(batch=batch, non_tensor_batch={test_verl.ROW: "{}"})
    manager = test_verl.GymRewardManager({}, Servers().tokenizer)
    asyncio.run(manager.run_single(item))


def by_skyrl() -> None:
    env = test_skyrl.GymEnv(extras={test_skyrl.ROW: "{}", "max_turns": 1})
    env.init([{"role": "user", "content": "?"}])
    env.step("a")


def by_trl() -> None:
    made = TrlEnvironment.__new__(TrlEnvironment)
    vars(made).update(_session=Judged(), _failure="", _held=ExitStack())
    made._verified("a")


def by_prime_rl() -> None:
    of_verdict(Judged().verify(), {})


@pytest.mark.parametrize("judged", [by_openrlhf, by_verl, by_skyrl, by_trl, by_prime_rl])
def test_one_conversation_gets_no_reward_of_several_seats(
    judged: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("openrlhf", "verl", "skyrl_environment"):
        monkeypatch.setattr(f"gym_trainers.{module}.shared_client", Judged)
    with pytest.raises(GymError, match=r"trains the seats first, second, each with .*: (use|run) "):
        judged()
