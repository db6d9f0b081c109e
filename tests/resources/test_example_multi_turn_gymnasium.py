from __future__ import annotations

import json

import msgspec
import pytest
from gym_agents.step_loop import Agent as StepLoop
from gym_runtime import Episode, Reply
from gym_runtime.environment import catalogue
from gym_runtime.environment.replaying import session_of
from gym_runtime.messages.outcomes import Truncated
from gym_testing.small_system import Engine, answer, small_system
from resources.judging import nemo_gym_rows, row
from tables import table

pytestmark = pytest.mark.anyio
RESOURCE = catalogue.environment("example_multi_turn_gymnasium").resource


async def talk(*answers: str, **script: object) -> tuple[list[str], float, bool]:
    """What the user says, the reward, and whether the conversation is over."""
    said: list[str] = []
    over = False
    async with session_of(RESOURCE, row(**script)) as session:
        assert isinstance(session, Episode)
        assert await RESOURCE.reset(session) == []
        for answer in answers:
            step = await RESOURCE.step(session, Reply.of(answer).raw)
            said += [msgspec.json.decode(item)["content"] for item in step.items]
            over = step.terminated
        return said, (await RESOURCE.verify(session, Reply.of(*answers).raw)).reward, over


async def test_the_user_follows_the_script_and_the_last_answer_counts() -> None:
    script = {"follow_ups": ["And now?", "And then?"], "expected_answer": "12"}
    assert await talk("12", **script) == (["And now?"], 0.0, False)
    assert await talk("12", "12", **script) == (["And now?", "And then?"], 0.0, False)
    assert await talk("1", "2", "It is 12.", **script) == (["And now?", "And then?"], 1.0, True)
    assert await talk("12", "12", "13", **script) == (["And now?", "And then?"], 0.0, True)


@table(
    ("expected", "answer", "reward"),
    [
        ("basil", "Basil.", 1.0),
        ("Basil", "basilisk", 1.0),
        ("12", "12k", 1.0),
        ("12", "1 2", 0.0),
        ("a.c", "abc", 0.0),
        ("C++", "In C++!", 1.0),
        ("STRASSE", "straße", 0.0),  # lower case, no more
        (None, "Anything", 0.0),
        ("", "Anything", 0.0),
        ("", "", 0.0),
    ],
)
async def test_the_answer_is_looked_for_anywhere_in_the_last_message(
    expected: str | None, answer: str, reward: float
) -> None:
    assert await talk(answer, follow_ups=[], expected_answer=expected) == ([], reward, True)


async def test_only_output_text_of_the_last_answer_counts() -> None:
    task = row(follow_ups=["And?"], expected_answer="12")
    refusal = {"role": "assistant", "type": "message", "content": [{"type": "refusal", "refusal": "12"}]}
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "12"}]}
    for last, reward in ((["1", "2"], 1.0), ([refusal], 0.0), ([thought], 0.0)):
        async with session_of(RESOURCE, task) as session:
            await RESOURCE.step(session, Reply.of("12").raw)
            assert (await RESOURCE.step(session, Reply.of(*last).raw)).reward == reward


async def test_it_is_cut_off_after_ten_answers_with_what_it_has_earned() -> None:
    engine = Engine(answer("12"))
    async with small_system() as system:
        await system.add_resource(catalogue.environment("example_multi_turn_gymnasium"))
        await system.add_agent({"step_loop": StepLoop()})
        await system.add_model(engine)
        line = row(follow_ups=[str(number) for number in range(10)], expected_answer="12")
        made = system.client.rollouts([line], environment="example_multi_turn_gymnasium")
        (record,) = [record async for record in made]
    assert (record.outcome, record.turns, record.reward) == (Truncated(reason="max_turns"), 10, 0.0)


async def test_rows_in_nemo_gyms_format_are_won_by_their_answer() -> None:
    for theirs in map(json.loads, nemo_gym_rows("example_multi_turn_gymnasium")):
        answers = [*theirs["follow_ups"], f"It is {theirs['expected_answer'].upper()}!"]
        script = {name: theirs[name] for name in ("follow_ups", "expected_answer")}
        assert await talk(*answers, **script) == (theirs["follow_ups"], 1.0, True)
