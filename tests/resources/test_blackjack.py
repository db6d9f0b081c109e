"""The game by its rules, and one run of it from end to end."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import anyio
import gym_runtime
import msgspec
import pytest
from gym_resources.blackjack import BEST, CARDS, Blackjack, chosen, environment, total
from gym_runtime import Reply
from gym_runtime.environment import catalogue
from gym_runtime.environment.replaying import session_of
from gym_runtime.messages.outcomes import Completed
from hypothesis import given
from hypothesis import strategies as st
from resources.judging import call, judge, row
from tables import table

pytestmark = pytest.mark.anyio
RESOURCE = catalogue.environment("blackjack").resource


def game(seed: int) -> bytes:
    return row(verifier_metadata={"seed": seed})


async def play(player: list[int], dealer: list[int], draws: list[int], *moves: str) -> tuple[float, bool]:
    """The reward with these cards, and whether the game is over."""
    async with session_of(RESOURCE, game(1)) as session:
        assert isinstance(session, Blackjack)
        session.player, session.dealer, cards = list(player), list(dealer), iter(draws)
        session.draw = lambda: next(cards)
        over = False
        for move in moves:
            over = (await RESOURCE.step(session, Reply.of(f"<action>{move}</action>").raw)).terminated
        assert next(cards, None) is None
        return (await RESOURCE.verify(session, Reply.of().raw)).reward, over


@table(
    ("player", "dealer", "draws", "moves", "reward"),
    [
        ([10, 10], [10, 9], [], ["stand"], 1.0),
        ([10, 9], [10, 9], [], ["stand"], 0.0),
        ([10, 8], [10, 9], [], ["stand"], -1.0),
        ([10, 2], [10, 6], [10], ["stand"], 1.0),  # the dealer is bust
        ([10, 8], [10, 6], [5], ["stand"], -1.0),
        ([10, 8], [1, 6], [], ["stand"], 1.0),  # the dealer stands at a soft 17
        ([10, 8], [1, 5], [10, 10], ["stand"], 1.0),
        ([10, 5], [10, 9], [10], ["hit"], -1.0),
        ([10, 5], [10, 10], [6], ["hit", "stand"], 1.0),
        ([1, 5], [10, 9], [10, 4], ["hit", "hit", "stand"], 1.0),
    ],
)
async def test_who_is_nearer_to_21_wins(
    player: list[int], dealer: list[int], draws: list[int], moves: list[str], reward: float
) -> None:
    assert await play(player, dealer, draws, *moves) == (reward, True)


async def test_a_game_left_unfinished_is_worth_what_it_has_earned() -> None:
    assert await play([2, 2], [10, 9], [2], "hit") == (0.0, False)
    assert (await judge("blackjack", game(1))).reward == 0.0


async def test_each_rank_comes_as_often_as_the_others() -> None:
    assert sorted(CARDS) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 10, 10]


@pytest.mark.parametrize(
    ("hand", "worth"), [([1, 10], 21), ([1, 1], 12), ([1, 9, 10], 20), ([1, 10, 10], 21), ([10, 10, 5], 25)]
)
async def test_an_ace_counts_eleven_where_it_can(hand: list[int], worth: int) -> None:
    assert total(hand) == worth


@table(
    ("items", "move"),
    [
        (["<action>hit</action>"], "hit"),
        (["<ACTION>Hit</Action>"], "hit"),
        (["<action>Stand</action>, since <action>hit</action> would be bold"], "stand"),
        (["<action>pass</action> then <action>hit</action>"], "hit"),
        (["<action>hit", "</action>"], "hit"),  # two messages of one answer
        (["I HIT."], "stand"),
        (["<action>hit</actio>"], "stand"),
        (["<action>hit or stand</action>"], "stand"),
        ([""], "stand"),
        ([], "stand"),
        ([call("hit", {})], "hit"),
        ([call("stand", {}), call("hit", {})], "stand"),
        ([call("split", {}), "<action>hit</action>"], "hit"),
        (["<action>hit</action>", call("stand", {})], "stand"),
    ],
)
async def test_a_move_is_the_first_tag_and_no_tag_stands(items: list[Any], move: str) -> None:
    assert chosen(Reply.of(*items)) == move


@table(
    ("items", "reward"),
    [
        (["<action>stand</action>"], 1.0),
        (["<action>stand</action> Yes: <action>Stand</action>"], 1.0),
        (["I have won."], -1.0),
        (["<action>stand</action> or <action>hit</action>"], -1.0),
        (["<action>stand</action> or <action>split</action>"], -1.0),
        ([call("stand", {}), call("hit", {})], -1.0),
    ],
)
async def test_the_strict_rule_wants_one_move(items: list[Any], reward: float) -> None:
    strict = row(verifier_metadata={"seed": 3}, strict=True)
    async with session_of(RESOURCE, strict) as session:
        assert isinstance(session, Blackjack)
        session.player, session.dealer = [10, 10], [10, 9]
        done = await RESOURCE.step(session, Reply.of(*items).raw)
        assert (done.reward, done.terminated) == (reward, True)


async def test_no_answer_takes_long() -> None:
    start_s = time.process_time()
    for text in ("<action>" * 125_000, "<action>" + " " * 1_000_000, "<action> hit " * 80_000):
        assert chosen(Reply.of(text)) == "stand"
    assert time.process_time() - start_s < 2


async def test_the_dealer_speaks_as_the_user_or_as_the_tool() -> None:
    async with session_of(RESOURCE, game(3)) as session:
        assert isinstance(session, Blackjack)
        [opening] = await RESOURCE.reset(session)
        assert msgspec.json.decode(opening) == {
            "role": "user",
            "content": f"{session.hand()} The dealer shows {session.dealer[0]}. Hit or stand?",
        }
        session.player, session.draw = [2, 2], lambda: 2
        hit = await RESOURCE.step(session, Reply.of("<action>hit</action>").raw)
        said = "You hold 2, 2, 2: 6. Hit or stand?"
        assert [msgspec.json.decode(item) for item in hit.items] == [{"role": "user", "content": said}]
        done = await RESOURCE.step(session, Reply.of(call("stand", {}, "one"), call("hit", {}, "two")).raw)
        assert [msgspec.json.decode(item)["call_id"] for item in done.items] == ["one", "two"]
        assert b"one move a turn" in bytes(done.items[1])
        assert done.terminated


@given(seed=st.integers(), stand_at=st.integers(4, 21))
def test_every_game_ends_within_its_turns(seed: int, stand_at: int) -> None:
    async def finish() -> None:
        async with session_of(RESOURCE, game(seed)) as session:
            assert isinstance(session, Blackjack)
            steps, over = 0, False
            while not over:
                move = "stand" if total(session.player) >= stand_at else "hit"
                over = (await RESOURCE.step(session, Reply.of(f"<action>{move}</action>").raw)).terminated
                steps += 1
            assert steps <= (environment.max_turns or 0)
            assert session.total_reward in ((-1.0,) if total(session.player) > BEST else (-1.0, 0.0, 1.0))

    anyio.run(finish)


async def test_the_seed_is_the_game_and_without_one_the_input_is() -> None:
    async def opening(task: bytes) -> bytes:
        async with session_of(RESOURCE, task) as session:
            assert isinstance(session, Blackjack)
            return bytes((await RESOURCE.reset(session))[0])

    assert await opening(game(1)) == await opening(game(1))
    assert len({await opening(game(seed)) for seed in range(20)}) > 10
    assert await opening(row()) == await opening(row(verifier_metadata={"deck": "new"}))
    assert await opening(row()) != await opening(row(responses_create_params={"input": "come"}))


@pytest.mark.slow
async def test_a_run_sums_the_steps_rewards(tmp_path: Path) -> None:
    script = tmp_path / "moves.jsonl"
    script.write_text('["<action>hit</action>"]\n["<action>stand</action>"]\n["Done."]\n')
    tasks = [{"responses_create_params": {"input": []}, "verifier_metadata": {"seed": s}} for s in range(8)]
    async with gym_runtime.connect(model=f"scripted/{script}", environments=["blackjack"]) as gym:
        records = [record async for record in gym.rollouts(tasks, environment="blackjack")]
    assert len(records) == len(tasks)
    for record in records:
        response = json.loads(bytes(record.row))["response"]
        items = [item["content"] for item in response["output"]]
        verdict = await judge("blackjack", game(record.task_index), *response["output"])
        assert record.reward == verdict.reward
        assert isinstance(record.outcome, Completed)
        assert record.turns == 1 if "bust" in items[-1] else 2
