"""Agents that ask several models for one answer: a critic, and thinkers in parallel."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from agents.exact_engine import Exact, hire, spec
from gym_agents import parallel_thinking, proposer_critic
from gym_runtime import Environment, Reply, Task, Verdict
from gym_runtime.errors import ModelRefused
from gym_runtime.messages.outcomes import Completed, Failed, RolloutRecord, Truncated
from gym_testing.small_system import Engine, answer, environment, rollout_spec, small_system

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

ACCEPT = answer(proposer_critic.ACCEPT)
ROW = {"responses_create_params": {"instructions": "Be brief.", "input": "What is 6 × 7?"}}


async def is_42(task: Task, reply: Reply) -> Verdict:
    right = float(reply.text == "42")
    return Verdict(right, rewards={"proposer": right, "critic": 1.0 - right})


async def play(agent: Any, policy: Engine, role: str, other: Engine, **more: Any) -> RolloutRecord:
    async with small_system() as system:
        await system.add_agent({"sample": agent.Agent()})
        await system.add_model(policy)
        await system.add_model(other, name=f"{role}-1", pool=role)
        await system.add_resource(environment(Environment(resource=is_42, description="d")))
        asked = rollout_spec(msgspec.json.encode(ROW), agent="sample", roles={role: role}, **more)
        (record,) = await system.make(asked)
    return record


def shown(engine: Engine) -> list[str]:
    """The last message of each question."""
    return [msgspec.json.decode(call.input[-1])["content"] for call, _ in engine.calls.items]


# -- proposer and critic --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answers", "critiques", "reward"),
    [
        (["42"], [ACCEPT], 1.0),
        (["41", "42"], [answer("One more."), ACCEPT], 1.0),
        (["40", "41", "42"], [answer("Two more."), answer("One more.")], 1.0),
        (["42", "41"], [answer("Hm."), ACCEPT], 0.0),
    ],
)
async def test_the_answer_that_the_critic_accepts_counts(
    answers: list[str], critiques: list[Any], reward: float
) -> None:
    policy, critic = Engine(*map(answer, answers)), Engine(*critiques)
    record = await play(proposer_critic, policy, "critic", critic)
    assert (record.outcome, record.reward) == (Completed(), reward)
    assert record.turns == len(answers) + len(critiques)
    assert (record.seat, record.rewards) == ("proposer", {"proposer": reward, "critic": 1.0 - reward})
    for question, proposed in zip(shown(critic), answers, strict=False):
        assert "What is 6 × 7?" in question
        assert f"\n{proposed}\n" in question
    for question, critique in zip(shown(policy)[1:], critiques, strict=False):
        assert critique.response
        assert "A critic says" in question


async def test_a_critic_cannot_make_it_longer_than_the_limit() -> None:
    record = await play(proposer_critic, Engine(answer("41")), "critic", Engine(answer("No.")), max_turns=2)
    assert (record.outcome, record.turns) == (Truncated(reason="max_turns"), 2)


async def test_proposer_and_critic_are_two_trained_seats_of_one_policy() -> None:
    engine = Exact(answer("41"), answer("One more."), answer("42"), ACCEPT)
    async with small_system() as system:
        await system.add_model(engine)
        await system.add_resource(environment(Environment(resource=is_42, description="d")))
        await hire(system, "proposer_critic")
        (record,) = await system.make(spec("proposer_critic", ROW))
    of_seats = {one.seat: [] for one in record.sequences()}
    for one in record.sequences():
        ids, first = one.completion_ids.tolist(), one.prompt_ids.tolist()
        of_seats[one.seat] += [([*first, *ids[:start]], ids[start:end]) for start, end in one.turns]
    assert of_seats["proposer"] == [engine.sampled[0], engine.sampled[2]]
    assert of_seats["critic"] == [engine.sampled[1], engine.sampled[3]]
    assert [record.reward_of(seat) for seat in of_seats] == [1.0, 0.0]


# -- parallel thinking ----------------------------------------------------------------------------------


async def test_thinkers_are_asked_at_once_and_the_model_sees_what_they_think() -> None:
    thoughts = [answer(f"<think>…</think>thought {number}") for number in range(len(parallel_thinking.WAYS))]
    policy, thinkers = Engine(answer("42")), Engine(*thoughts)
    record = await play(parallel_thinking, policy, "thinker", thinkers)
    assert (record.outcome, record.reward, record.turns) == (Completed(), 1.0, 1)
    systems = {msgspec.json.decode(call.input[0])["content"] for call, _ in thinkers.calls.items}
    assert len(systems) == len(parallel_thinking.WAYS)
    assert set(shown(thinkers)) == {"What is 6 × 7?"}
    (question,) = shown(policy)
    assert all(f"thought {number}" in question for number in range(len(thoughts)))
    assert "…" not in question


async def test_thoughts_that_are_empty_are_not_shown_and_a_thinker_that_fails_is_a_failure() -> None:
    policy = Engine(answer("42"))
    record = await play(parallel_thinking, policy, "thinker", Engine(answer("")))
    assert (record.reward, shown(policy)) == (1.0, ["What is 6 × 7?"])
    record = await play(parallel_thinking, Engine(answer("42")), "thinker", Engine(ModelRefused("no")))
    assert isinstance(record.outcome, Failed)
    assert (record.outcome.fault.stage, record.reward) == ("thinker", None)
