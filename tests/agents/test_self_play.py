"""Seats in turn: two players of a game, which are one policy or two."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from agents.exact_engine import Exact, hire, inputs, recorded, spec
from gym_resources import nim
from gym_runtime.errors import UsageError
from gym_runtime.messages.outcomes import Completed, Failed, RolloutRecord, Truncated
from gym_runtime.rollout.seats import checked_names
from gym_runtime.training import forked
from gym_testing.small_system import Hang, answer, environment, small_system

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]
ROW = {"responses_create_params": {"input": "Play."}, "heaps": [1, 2]}
FIRST, SECOND, LAST = (answer(f"<take>{move}</take>") for move in ("2 1", "1 1", "2 1"))


async def play(engine: Exact, other: Exact | None = None, **more: Any) -> RolloutRecord:
    game = environment(nim.environment, "nim")
    async with small_system() as system:
        await system.add_model(engine)
        if other is not None:
            await system.add_model(other, name="model-2", pool="opponent")
        await system.add_resource(game)
        await hire(system, "self_play")
        (record,) = await system.make(spec("self_play", ROW, environment="nim", **more))
    return record


async def test_two_seats_of_one_policy_are_two_sequences_with_rewards_of_their_own() -> None:
    engine = Exact(FIRST, SECOND, LAST)
    record = await play(engine)
    assert (record.outcome, record.reward, record.turns) == (Completed(), 1.0, 3)
    assert (record.seat, record.rewards) == ("first", {"first": 1.0, "second": 0.0})
    assert [record.reward_of(seat) for seat in ("", "first", "second", "third")] == [1.0, 1.0, 0.0, None]
    board = "heap 1: 1, heap 2: {}. Your move.".format
    assert inputs(engine) == [
        ["Play.", board(2)],
        ["Play.", board(1)],
        ["Play.", board(2), "<take>2 1</take>", "heap 1: 0, heap 2: 1. Your move."],
    ]
    first, second = sorted(record.sequences(), key=lambda one: one.seat)
    assert [(one.seat, len(one.turns), one.weight) for one in (first, second)] == [
        ("first", 2, 1.0),
        ("second", 1, 1.0),
    ]
    prompts = [(one.prompt_ids.tolist(), one.completion_ids[:2].tolist()) for one in (first, second)]
    assert prompts == engine.sampled[:2]
    assert first.completion_ids[-2:].tolist() == engine.sampled[2][1]
    row = msgspec.json.decode(record.row)
    assert row["reward"] == 1.0
    assert (row["_gym"]["seat"], row["_gym"]["rewards"]) == ("first", record.rewards)
    # NeMo Gym's tools see the main seat's tokens, and the moves of the other as what the board became.
    assert [bool(item.get("generation_token_ids")) for item in row["response"]["output"]].count(True) == 2


async def test_a_seat_may_have_a_model_of_its_own_and_its_own_sampling() -> None:
    engine, other = Exact(FIRST, LAST), Exact(SECOND)
    sampling = {"second": {"temperature": 0.25}}
    record = await play(engine, other, roles={"second": "opponent"}, role_sampling=sampling)
    assert record.rewards == {"first": 1.0, "second": 0.0}
    ((call, _),) = other.calls.items
    assert msgspec.json.decode(call.params)["temperature"] == 0.25
    assert [msgspec.json.decode(call.params)["temperature"] for call, _ in engine.calls.items] == [None] * 2
    assert {one.seat: len(one.turns) for one in record.sequences()} == {"first": 2, "second": 1}


async def test_an_illegal_move_loses_and_an_unfinished_game_is_nobodys() -> None:
    record = await play(Exact(FIRST, answer("I take all of it.")))
    assert (record.outcome, record.rewards) == (Completed(), {"first": 1.0, "second": 0.0})
    record = await play(Exact(FIRST, SECOND, LAST), max_turns=2)
    assert (record.outcome, record.rewards) == (
        Truncated(reason="max_turns"),
        {"first": 0.0, "second": 0.0},
    )


async def test_a_game_goes_on_where_its_worker_died() -> None:
    engine = Exact(by_attempt={1: [FIRST, SECOND, Hang()], 2: [LAST]})
    async with small_system() as system:
        await system.add_model(engine)
        await system.add_resource(environment(nim.environment, "nim"))
        await hire(system, "self_play")
        await system.enqueue(spec("self_play", ROW, environment="nim"))
        await engine.calls.until(3)
        await recorded(system, 2)
        system.kill("agent-1")
        await hire(system, "self_play", "agent-2")
        (record,) = await system.records(1)
    assert (record.outcome, record.attempt, record.turns) == (Completed(), 2, 3)
    assert len(engine.calls.items) == 4  # only the move that was on its way is asked for again
    assert record.rewards == {"first": 1.0, "second": 0.0}
    assert {one.seat: len(one.turns) for one in record.sequences()} == {"first": 2, "second": 1}


async def test_a_game_of_several_seats_is_forked_from_its_beginning_only() -> None:
    engine = Exact(FIRST, SECOND, LAST)
    async with small_system() as system:
        await system.add_model(engine)
        await system.add_resource(environment(nim.environment, "nim"))
        await hire(system, "self_play")
        asked: dict[str, Any] = {"environment": "nim", "agent": "self_play"}
        (played,) = await system.make(spec("self_play", ROW, environment="nim"))
        with pytest.raises(UsageError, match="several seats, and its transcript is that of 'first' alone"):
            forked(played, 1)
        system.stop("model-1")
        await system.add_model(Exact(FIRST, answer("I resign.")), name="model-2")
        (record,) = [one async for one in system.client.fork(played, 0, **asked)]
    assert (record.outcome, record.rewards, record.turns) == (Completed(), {"first": 1.0, "second": 0.0}, 2)


async def test_a_reward_of_a_seat_that_the_agent_has_not_fails_the_rollout() -> None:
    """A trainer would leave out the seat that is meant, without a word."""
    record = await play(Exact(FIRST, SECOND, LAST), agent_options={"seats": ["first", "secnd"]})
    assert isinstance(record.outcome, Failed)
    said = "verify named rewards of the seats second; the agent's seats are first, secnd"
    assert (record.outcome.fault.stage, record.outcome.fault.message) == ("verify", said)


async def test_seats_that_are_none_are_refused() -> None:
    for names in ((), ("a", "a"), ("A",), ("a b",), ("a/x",)):
        with pytest.raises(UsageError, match="give each trained seat its own name"):
            checked_names(names)
    assert checked_names(("solver/1", "solver/2", "proposer")) == ("solver/1", "solver/2", "proposer")
    record = await play(Exact(FIRST), agent_options={"seats": ["first", "first"]})
    assert isinstance(record.outcome, Failed)
