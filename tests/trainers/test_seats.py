"""Advantages of trained seats: each is compared with its own kind."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from gym_runtime.errors import UsageError
from gym_runtime.messages.call_tokens import Tokens, pack_ids, pack_logprobs
from gym_runtime.messages.outcomes import Completed, RolloutRecord
from gym_runtime.rollout.groups import Group
from gym_testing.small_system import small_system
from gym_trainers.seats import SeatBaselines, seat_advantages, seat_samples
from msgspec import Raw


def game(reward: float | None, seat: str = "first", **rewards: float) -> RolloutRecord:
    """A rollout with one call of each seat, whose ids are the seat's length."""
    ids = {name: [len(name)] for name in (seat, *rewards)}
    item = {"prompt_token_ids": [1], "generation_token_ids": ids[seat], "generation_log_probs": [-1.0]}
    message = {"type": "message", "role": "assistant", "content": "", **item}
    calls: list[Any] = [{"item": 0, "seat": seat}]
    for name in rewards:
        if name != seat:
            tokens = Tokens(
                prompt_ids=pack_ids([1]), generation_ids=pack_ids(ids[name]), log_probs=pack_logprobs([-1.0])
            )
            calls.append({"seat": name, "tokens": tokens})
    row = {
        "responses_create_params": {"input": "hi"},
        "response": {"output": [message]},
        "_gym": {"calls": calls},
    }
    return RolloutRecord(
        run="r",
        task_index=0,
        rollout_index=0,
        environment="nim",
        outcome=Completed(),
        row=Raw(msgspec.json.encode(row)),
        reward=reward,
        seat=seat,
        rewards=rewards,
    )


def group(*rollouts: RolloutRecord) -> Group:
    return Group(run="r", task_index=0, environment="nim", rollouts=list(rollouts))


def test_a_seat_is_compared_with_the_same_seat_of_its_group() -> None:
    games = group(game(1.0, first=1.0, second=-1.0), game(-1.0, first=-1.0, second=1.0), game(None))
    assert games.rewards_of("second") == [-1.0, 1.0, None]
    assert seat_advantages(games) == [
        {"first": 1.0, "second": -1.0},
        {"first": -1.0, "second": 1.0},
        {},
    ]
    assert seat_advantages(games, "rloo")[0] == {"first": 2.0, "second": -2.0}
    assert seat_advantages(group(game(1.0, first=1.0, second=-1.0))) == [{"first": 0.0, "second": 0.0}]
    with pytest.raises(UsageError, match="there is no advantage 'other'"):
        seat_advantages(games, "other")


def test_solvers_are_compared_within_their_rollout_and_proposers_across_rollouts() -> None:
    def posed(proposer: float, *solvers: float) -> RolloutRecord:
        numbered = {f"solver/{number}": reward for number, reward in enumerate(solvers, 1)}
        return game(proposer, "proposer", proposer=proposer, **numbered)

    first, second = seat_advantages(group(posed(0.5, 1.0, 0.0), posed(0.0, 1.0, 1.0)))
    assert first == {"proposer": 0.25, "solver/1": 0.5, "solver/2": -0.5}
    assert second == {"proposer": -0.25, "solver/1": 0.0, "solver/2": 0.0}


def test_baselines_are_of_each_seat_and_go_on_from_their_state() -> None:
    games = [group(game(1.0, first=1.0, second=-1.0)), group(game(1.0, first=1.0, second=-1.0))]
    whole = SeatBaselines()
    found = [whole.advantages(one) for one in games]
    assert found[0] == [{"first": 1.0, "second": -1.0}]
    assert found[1] == [{"first": pytest.approx(0.95), "second": pytest.approx(-0.95)}]
    begun = SeatBaselines()
    begun.advantages(games[0])
    stored = msgspec.json.decode(msgspec.json.encode(begun.state))
    assert SeatBaselines(state=stored).advantages(games[1]) == found[1]
    with pytest.raises(UsageError, match=r"decay=1\.0: give a number"):
        SeatBaselines(1.0)
    with pytest.raises(UsageError, match=r"give what `SeatBaselines\.state` was"):
        SeatBaselines(state={"nim": {"first": "much"}})  # pyright: ignore[reportArgumentType]


@pytest.mark.slow
@pytest.mark.anyio
async def test_baselines_outlive_a_trainer_that_is_killed() -> None:
    games = [group(game(1.0, first=1.0, second=-1.0)), group(game(1.0, first=1.0, second=-1.0))]
    async with small_system() as system:
        first, killed, next_one = SeatBaselines(), SeatBaselines(), SeatBaselines()
        await first.load(system.client, "other")  # nothing is stored
        killed.advantages(games[0])
        await killed.store(system.client, "exp")
        killed.advantages(games[1])  # lost with it
        await next_one.load(system.client, "exp")
        assert next_one.state == {"nim": {"first": pytest.approx(0.05), "second": pytest.approx(-0.05)}}
        assert next_one.advantages(games[1]) == [{"first": 0.95, "second": -0.95}]
        await next_one.store(system.client, "exp")
        with pytest.raises(UsageError, match="another trainer uses the seats' baselines 'exp' now"):
            await killed.store(system.client, "exp")


def test_each_sequence_gets_its_own_seats_advantage() -> None:
    games = group(game(1.0, first=1.0, second=-1.0), game(-1.0, first=-1.0, second=1.0), game(None))
    samples = seat_samples(games, seat_advantages(games))
    assert [(one.seat, one.completion_ids.tolist(), value) for one, value in samples] == [
        ("first", [5], 1.0),
        ("second", [6], -1.0),
        ("first", [5], -1.0),
        ("second", [6], 1.0),
    ]
    with pytest.raises(UsageError, match="0 advantages for 3 rollouts"):
        seat_samples(games, [])


def test_a_rollout_without_seats_is_trained_with_its_own_reward() -> None:
    """A run may have rows of a game and of an environment without seats, which were left out in silence."""
    plain = group(game(1.0, ""), game(0.0, ""), game(None, ""))
    assert seat_advantages(plain) == [{"": 0.5}, {"": -0.5}, {}]
    assert [value for _, value in seat_samples(plain, seat_advantages(plain))] == [0.5, -0.5]
    baselines = SeatBaselines()
    assert baselines.advantages(plain) == [{"": 1.0}, {"": pytest.approx(-0.05)}, {}]
    assert SeatBaselines(state=baselines.state).state == baselines.state
