"""The refinement agent: each answer in its own conversation, until the environment is content."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from agents.exact_engine import Exact
from gym_agents import refinement
from gym_runtime import Environment, Episode, Reply, Step, Task, Verdict
from gym_runtime.environment.replaying import rejudge
from gym_runtime.environment.resource import Resource
from gym_runtime.messages.outcomes import Completed, RolloutRecord, Truncated
from gym_testing.small_system import Engine, answer, environment, rollout_spec, small_system

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]
ROW = {"responses_create_params": {"input": [{"role": "user", "content": "Say yes."}]}}


class Yes(Episode[Task]):
    """Content with a yes, after two corrections at most."""

    tries = 0

    async def step(self, reply: Reply) -> Step:
        self.tries += 1
        if reply.text == "yes":
            return Step(reward=1.0, terminated=True, info={"tries": self.tries})
        over = self.tries > 2
        return Step(
            observation=None if over else f"Not {reply.text}.", terminated=over, info={"tries": self.tries}
        )


class Judged(Yes):
    async def verify(self, reply: Reply) -> Verdict:
        return Verdict(
            float(reply.text == "yes"), fields={"tries": self.tries, "messages": len(reply.messages)}
        )


async def play(answers: list[str] | Engine, **more: Any) -> tuple[RolloutRecord, Engine]:
    engine = answers if isinstance(answers, Engine) else Engine(*map(answer, answers))
    async with small_system() as system:
        await system.add_agent({"sample": refinement.Agent()})
        await system.add_model(engine)
        await system.add_resource(environment(Environment(resource=Judged, description="d")))
        (record,) = await system.make(rollout_spec(msgspec.json.encode(ROW), agent="sample", **more))
    return record, engine


def inputs(engine: Engine) -> list[list[str]]:
    return [[msgspec.json.decode(item)["content"] for item in call.input] for call, _ in engine.calls.items]


@pytest.mark.parametrize(
    ("answers", "reward"),
    [(["yes"], 1.0), (["no", "yes"], 1.0), (["no", "hm", "yes"], 1.0), (["a", "b", "c"], 0.0)],
)
async def test_each_answer_has_a_conversation_of_its_own(answers: list[str], reward: float) -> None:
    record, engine = await play(answers)
    assert isinstance(record.outcome, Completed)
    row = msgspec.json.decode(record.row)
    assert (row["reward"], row["tries"], row["messages"]) == (reward, len(answers), len(answers))
    wanted = ["Say yes.", *(f"Not {text}." for text in answers[:-1])]
    assert inputs(engine) == [[content] for content in wanted]
    assert [item["content"] for item in row["responses_create_params"]["input"]] == wanted[:1]
    said = row["response"]["output"]
    assert [item["content"] for item in said if item["role"] == "user"] == wanted[1:]


async def test_every_answer_can_be_trained_on_with_the_prompt_that_it_had() -> None:
    engine = Exact(*map(answer, ["no", "hm", "yes"]))
    record, _ = await play(engine, return_tokens=True)
    made = [(one.prompt_ids.tolist(), one.completion_ids.tolist()) for one in record.sequences()]
    assert made == engine.sampled
    assert len(made) == 3


async def test_a_recorded_rollout_is_judged_again_with_all_its_answers() -> None:
    record, _ = await play(["no", "yes"])
    row = msgspec.json.decode(record.row)
    resource = Resource(Judged)
    again = await rejudge(resource, msgspec.json.encode(ROW), msgspec.json.encode(row["response"]))
    assert isinstance(again, Verdict)
    assert (again.reward, again.fields["tries"]) == (1.0, 2)


async def test_the_limit_on_turns_holds() -> None:
    record, _ = await play(["no", "no", "yes"], max_turns=2)
    assert isinstance(record.outcome, Truncated)
    assert msgspec.json.decode(record.row)["reward"] == 0.0
