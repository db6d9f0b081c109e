"""The step loop: the environment answers the model until one of them, or a limit, ends it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from gym_agents.step_loop import Agent as StepLoop
from gym_runtime import Environment, Episode, Reply, Step, Task
from gym_runtime.messages.outcomes import Completed, Failed, Outcome, RolloutRecord, Truncated
from gym_testing.small_system import (
    Engine,
    answer,
    environment,
    function_call,
    reasoning,
    rollout_spec,
    small_system,
)

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


class GuessTask(Task):
    secret: int
    greet: bool = True


class Guess(Episode[GuessTask]):
    """Guess a number; ``peek`` is a tool that the environment itself answers."""

    async def reset(self) -> str | None:
        self.guesses = 0
        return "guess" if self.task.greet else None

    async def step(self, reply: Reply) -> Step:
        self.guesses += 1
        info = {"guesses": self.guesses}
        if reply.function_calls:
            outputs = {call.call_id: "no peeking" for call in reply.function_calls}
            return Step(tool_outputs=outputs, observation="go on", reward=-0.25, info=info)
        if reply.text == "give up":
            return Step(truncated=True, info=info)
        if reply.text == "nan":
            return Step(reward=float("nan"))
        guess = int(reply.text)
        if guess == self.task.secret:
            return Step(reward=1.0, terminated=True, info=info)
        return Step(observation="higher" if guess < self.task.secret else "lower", info=info)


class Played:
    def __init__(self, record: RolloutRecord, engine: Engine) -> None:
        self.record = record
        self.row: dict[str, Any] = msgspec.json.decode(record.row)
        self.engine = engine

    @property
    def output(self) -> list[str]:
        return [short(item) for item in self.row["response"]["output"]]

    def inputs(self) -> list[list[str]]:
        return [
            [short(msgspec.json.decode(item)) for item in call.input] for call, _ in self.engine.calls.items
        ]


def short(item: dict[str, Any]) -> str:
    if "output" in item:
        return f"{item['call_id']}: {item['output']}"
    if "content" not in item:
        return item.get("name", "…")
    content = item["content"]
    return content if isinstance(content, str) else content[0]["text"]


async def play(*turns: Any, greet: bool = True, **more: Any) -> Played:
    engine = Engine(*turns)
    row = msgspec.json.encode({"responses_create_params": {"input": "play"}, "secret": 5, "greet": greet})
    loaded = environment(Environment(resource=Guess, description="", agent="step_loop"), "sample")
    async with small_system() as system:
        await system.add_resource(loaded)
        await system.add_model(engine)
        await system.add_agent({"step_loop": StepLoop()})
        (record,) = await system.make(rollout_spec(row, agent="step_loop", **more))
    return Played(record, engine)


INCOMPLETE = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}


async def test_an_episode_from_its_first_observation_to_its_end() -> None:
    played = await play(answer("3"), answer(reasoning("hm"), "7"), answer("5"), answer("not asked"))
    assert played.record.outcome == Completed()
    assert played.output == ["3", "higher", "…", "7", "lower", "5"]
    assert played.inputs() == [
        ["play", "guess"],
        ["play", "guess", "3", "higher"],
        ["play", "guess", "3", "higher", "…", "7", "lower"],
    ]
    assert (played.record.reward, played.record.turns) == (1.0, 3)
    assert played.row["guesses"] == 3


async def test_the_result_row_shows_the_first_observation_as_input() -> None:
    played = await play(answer("5"))
    assert [short(item) for item in played.row["responses_create_params"]["input"]] == ["play", "guess"]


async def test_without_a_first_observation_the_row_is_as_it_was() -> None:
    played = await play(answer("5"), greet=False)
    assert played.row["responses_create_params"]["input"] == "play"
    assert played.inputs() == [["play"]]


async def test_rewards_of_all_steps_add_up_and_tools_are_answered_by_the_environment() -> None:
    played = await play(answer(function_call("peek")), answer(function_call("peek")), answer("5"))
    assert played.output == [
        *["peek", "call_peek: no peeking", "go on"] * 2,
        "5",
    ]
    assert played.record.reward == 0.5


@pytest.mark.parametrize(
    ("turns", "more", "outcome", "output"),
    [
        ([answer("give up")], {}, Truncated(reason="environment"), ["give up"]),
        ([answer("3")], {"max_turns": 2}, Truncated(reason="max_turns"), ["3", "higher"] * 2),
        ([answer("3"), answer("5")], {"max_turns": 2}, Completed(), ["3", "higher", "5"]),
        (
            [answer("3"), answer("5", **INCOMPLETE)],
            {},
            Truncated(reason="max_output_tokens"),
            ["3", "higher", "5"],
        ),
    ],
)
async def test_what_ends_an_episode(
    turns: list[Any], more: dict[str, Any], outcome: Outcome, output: list[str]
) -> None:
    played = await play(*turns, **more)
    assert played.record.outcome == outcome
    assert played.output == output
    assert played.record.reward is not None


@pytest.mark.parametrize("text", ["five", "nan"])
async def test_a_step_that_goes_wrong_fails_the_rollout_as_the_environments_fault(text: str) -> None:
    played = await play(answer("3"), answer(text))
    assert isinstance(played.record.outcome, Failed)
    fault = played.record.outcome.fault
    assert (fault.kind, fault.stage, fault.retryable) == ("resource", "step", False)
    assert played.output == ["3", "higher", text]
    assert "reward" not in played.row
