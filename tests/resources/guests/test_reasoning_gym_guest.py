"""reasoning-gym's own tasks by name; what judges them is the environment ``reasoning_gym``."""

from __future__ import annotations

import msgspec
import pytest
from gym_runtime.environment import catalogue
from gym_runtime.errors import UsageError
from gym_testing.small_system import answer
from installed import needs
from resources.guests.guest_runs import guest, made, own_rows

pytestmark = [pytest.mark.anyio, pytest.mark.slow, needs("reasoning_gym", "reasoning-gym")]

SUMS = "reasoning-gym:chain_sum?size=3&seed=7&min_terms=2&max_terms=2"


def test_rows_follow_from_the_address() -> None:
    rows = own_rows(SUMS)
    assert len(rows) == 3
    assert own_rows(SUMS) == rows
    assert own_rows(SUMS, 2) == rows[:2]
    assert own_rows(SUMS.replace("seed=7", "seed=8")) != rows
    assert all(row["metadata"]["source_dataset"] == "chain_sum" for row in rows)
    assert all(row["question"].count("+") + row["question"].count(" - ") == 1 for row in rows)
    assert len(own_rows("reasoning-gym:spell_backward")) == 50


def test_rows_with_numpys_texts_are_json() -> None:
    rows = own_rows("reasoning-gym:knights_knaves?size=2&seed=1")
    assert msgspec.json.decode(msgspec.json.encode(rows)) == rows


def test_names_and_settings() -> None:
    for wrong, problem in (
        ("reasoning-gym:chain_sun", "did you mean 'chain_sum'"),
        ("reasoning-gym:chain_sum?min_ters=1", "min_ters"),
        ("reasoning-gym:chain_sum?size=0", "size is a number above 0"),
        ("reasoning-gym:chain_sum?min_terms=9&max_terms=2", "max_terms"),
    ):
        with pytest.raises(UsageError, match=problem):
            catalogue.environment(wrong)


async def test_a_reply_is_judged_in_a_process_of_its_own() -> None:
    rows = own_rows(SUMS, 2)
    async with guest(SUMS, answer(f"<answer>{rows[0]['answer']}</answer>")) as system:
        right, wrong = await made(system, SUMS, rows)
    assert right.reward == 1.0
    assert wrong.reward is not None
    assert wrong.reward < 1.0


async def test_a_stream_of_rows_and_a_standing_run_take_the_address() -> None:
    rows = own_rows(SUMS, 1)
    async with guest(SUMS, answer("x")) as system:
        stream = system.client.rollouts(iter(rows), environment=SUMS)
        assert [record.ending async for record in stream] == ["completed"]
        async with system.client.standing_run(environment=SUMS) as run:
            assert (await run.rollout(rows[0])).ending == "completed"
        # An address may have a dot, which no name has.
        names = [info.environments for info in await system.client.runs()]
    assert names == [[catalogue.environment(SUMS).name]] * 2
