"""What models in roles answered is journaled; sessions, episodes and agents ask them."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec
import pytest
from gym_agents.step_loop import Agent as StepLoop
from gym_runtime import Episode, Model, Reply, Role, Session, Step, Task, Verdict, tool
from gym_runtime.adapters import CallContext, ModelAnswer, ModelCall, Rollout
from gym_runtime.errors import ModelUnavailable
from gym_runtime.messages import user_message
from gym_runtime.messages.outcomes import Failed
from gym_runtime.rollout.journal import journal_subject
from gym_testing.small_system import (
    Engine,
    Hang,
    SmallSystem,
    answer,
    function_call,
    small_system,
)
from runtime.workers.roles.judged_system import NO, YES, about, judged, made

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


def stubborn(release: anyio.Event) -> Any:
    """Asks its judge, then waits until the test lets it go on."""

    async def verify(task: Task, reply: Reply, judge: Model) -> Verdict:
        said = await judge.ask("right?")
        await release.wait()
        return Verdict(float("[[A=B]]" in said.text))

    return verify


@pytest.mark.parametrize(("durability", "asked"), [("turn", 1), ("result", 2)])
async def test_a_judge_that_has_answered_is_not_asked_again_when_the_verifiers_worker_dies(
    system: SmallSystem, durability: str, asked: int
) -> None:
    release = anyio.Event()
    loaded = judged(stubborn(release))
    await system.add_resource(loaded, name="first")
    judge = Engine(YES)
    await system.add_model(judge, name="judge-1", pool="judge")
    await system.enqueue(made(durability=durability))
    await judge.calls.until(1)
    subject = f"{journal_subject('run', 0, 0)}.role.*"
    if durability == "turn":
        while not await system.bus.latest(subject):
            await anyio.sleep(0.01)
    await system.add_resource(loaded, name="second")
    release.set()
    system.kill("first")
    (record,) = await system.records(1)
    assert (record.reward, len(judge.calls.items)) == (1.0, asked)
    assert about(record)["roles"]["judge"]["calls"] == 1
    assert len(await system.bus.latest(subject)) == (durability == "turn")


async def test_a_judges_answer_that_is_no_response_is_not_kept_for_the_next_attempt(
    system: SmallSystem,
) -> None:
    await system.add_resource(judged())
    await system.add_model(Engine(YES, by_attempt={1: [answer({"type": 1})]}), name="judge-1", pool="judge")
    (record,) = await system.make(made())
    assert (record.reward, record.attempt) == (1.0, 2)


async def test_what_a_judge_answered_is_forgotten_with_the_journal(system: SmallSystem) -> None:
    await system.add_resource(judged())
    await system.add_model(Engine(YES), name="judge-1", pool="judge")
    await system.make(made())
    assert len(await system.bus.latest("journal.run.>")) == 2
    await system.bus.forget("journal.run.0.>")
    assert await system.bus.latest("journal.run.>") == []


async def test_the_same_question_several_times_has_several_answers_also_after_a_loss(
    system: SmallSystem,
) -> None:
    release = anyio.Event()

    async def verify(task: Task, reply: Reply, judge: Model) -> Verdict:
        votes = [(await judge.ask("right?")).text for _ in range(3)]
        await release.wait()
        return Verdict(sum("[[A=B]]" in vote for vote in votes) / 3)

    await system.add_resource(judged(verify), name="first")
    judge = Engine(YES, NO, YES)
    await system.add_model(judge, name="judge-1", pool="judge")
    await system.enqueue(made())
    while len(await system.bus.latest("journal.run.0.0.0.role.*")) < 3:
        await anyio.sleep(0.01)
    await system.add_resource(judged(verify), name="second")
    release.set()
    system.kill("first")
    (record,) = await system.records(1)
    assert (record.reward, len(judge.calls.items)) == (pytest.approx(2 / 3), 3)


class Desk(Session[Task]):
    @tool
    async def advise(self) -> str:
        "Ask the expert."
        return (await self.models.expert.ask("advice?")).text

    async def verify(self, reply: Reply) -> Verdict:
        said = await self.models.judge.ask("right?")
        return Verdict(float("[[A=B]]" in said.text))


async def test_a_session_asks_in_its_tools_and_in_its_verdict() -> None:
    async with small_system() as system:
        await system.add_agent()
        await system.add_model(Engine(answer(function_call("advise")), answer("done")))
        expert = Engine(answer("wait"))
        await system.add_model(expert, name="expert-1", pool="wise")
        await system.add_model(Engine(YES), name="judge-1", pool="judge")
        loaded = judged(Desk, "judge", "expert")
        await system.add_resource(loaded, name="first")
        (record,) = await system.make(made(roles={"judge": "judge", "expert": "wise"}))
        assert record.reward == 1.0
        outputs = [item for item in msgspec.json.decode(record.row)["response"]["output"] if "output" in item]
        assert [item["output"] for item in outputs] == ['"wait"']
        assert {role: use["calls"] for role, use in about(record)["roles"].items()} == {
            "expert": 1,
            "judge": 1,
        }
        assert [one["role"] for one in about(record)["role_answers"]] == ["expert", "judge"]


async def test_a_session_that_is_rebuilt_is_told_what_it_was_told_before() -> None:
    async with small_system() as system:
        await system.add_agent()
        policy = Engine(answer(function_call("advise")), Hang())
        await system.add_model(policy)
        expert = Engine(answer("wait"), answer("another advice"))
        await system.add_model(expert, name="expert-1", pool="expert")
        await system.add_model(Engine(YES), name="judge-1", pool="judge")
        await system.add_resource(judged(Desk, "judge", "expert"), name="first")
        await system.enqueue(made(roles={"judge": "judge", "expert": "expert"}))
        await policy.calls.until(2)
        await system.add_resource(judged(Desk, "judge", "expert"), name="second")
        system.kill("first")
        await system.add_model(Engine(answer("done")), name="model-2")
        system.kill("model-1")
        (record,) = await system.records(1)
        assert (record.reward, about(record)["rebuilt_sessions"], len(expert.calls.items)) == (1.0, 1, 1)
        assert about(record)["roles"]["expert"]["calls"] == 1


class Chat(Episode[Task]):
    async def reset(self) -> str:
        return (await self.models.user.ask("begin")).text

    async def step(self, reply: Reply) -> Step:
        said = (await self.models.user.ask(f"they said {reply.text}")).text
        return Step(observation=said, reward=1.0, terminated=said == "bye")


async def test_a_simulated_user_speaks_in_an_episode() -> None:
    async with small_system() as system:
        await system.add_agent({"step_loop": StepLoop(), "tool_loop": StepLoop()})
        await system.add_model(Engine(answer("how can I help?"), answer("done")))
        await system.add_model(Engine(answer("hi"), answer("help"), answer("bye")), name="u", pool="user")
        await system.add_resource(judged(Chat, "user"))
        (record,) = await system.make(made(roles={"user": "user"}))
        assert (record.reward, about(record)["roles"]["user"]["calls"]) == (2.0, 3)


class Slow(Engine):
    """Takes two seconds for each answer."""

    async def respond(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        await anyio.sleep(2)
        return await super().respond(call, context)


async def test_the_row_has_the_time_of_an_environments_roles_by_turn() -> None:
    async with small_system() as system:
        await system.add_agent()
        await system.add_model(Engine(answer(function_call("advise")), answer("done")))
        await system.add_model(Slow(answer("wait")), name="expert-1", pool="expert")
        await system.add_model(Slow(YES), name="judge-1", pool="judge")
        await system.add_resource(judged(Desk, "judge", "expert"))
        (record,) = await system.make(made(roles={"judge": "judge", "expert": "expert"}))
    timing = about(record)["timing"]
    assert [turn.get("tool_roles_s") for turn in timing["turns"]] == [
        {"expert": pytest.approx(2, abs=0.1)},
        None,
    ]
    assert timing["turns"][0]["tool_s"] >= timing["turns"][0]["tool_roles_s"]["expert"]
    assert timing["verify_roles_s"] == {"judge": pytest.approx(2, abs=0.1)}


async def test_a_user_who_speaks_first_has_a_time_before_the_first_turn() -> None:
    async with small_system() as system:
        await system.add_agent({"step_loop": StepLoop(), "tool_loop": StepLoop()})
        await system.add_model(Engine(answer("how can I help?"), answer("done")))
        await system.add_model(Slow(answer("hi"), answer("help"), answer("bye")), name="u", pool="user")
        await system.add_resource(judged(Chat, "user"))
        (record,) = await system.make(made(roles={"user": "user"}))
    timing, two = about(record)["timing"], {"user": pytest.approx(2, abs=0.1)}
    assert timing["roles_s"] == two
    assert [turn["tool_roles_s"] for turn in timing["turns"]] == [two, two]
    assert "verify_roles_s" not in timing


class Debate:
    """Has a critic look at the first answer, and answers again."""

    async def run(self, rollout: Rollout) -> None:
        turn = await rollout.respond()
        critique = await rollout.model("critic").ask(f"what of {turn.messages[0].text}?")
        rollout.output.append(user_message(critique.text))
        await rollout.respond()


async def test_an_agent_asks_a_model_in_a_role_and_the_next_attempt_does_not_again() -> None:
    async with small_system() as system:
        await system.add_agent({"tool_loop": Debate()})
        await system.add_model(
            Engine(
                by_attempt={
                    1: [answer("41"), ModelUnavailable("down", retry_after_s=99.0)],
                    2: [answer("42")],
                }
            )
        )
        critic = Engine(answer("one more"))
        await system.add_model(critic, name="critic-1", pool="critic")
        await system.add_resource(judged(is_42, "critic"))
        (record,) = await system.make(made(roles={"critic": "critic"}, timeout_s=60.0))
        assert (record.reward, record.attempt, len(critic.calls.items)) == (1.0, 2, 1)
        assert about(record)["roles"]["critic"]["calls"] == 1


async def is_42(task: Task, reply: Reply) -> Verdict:
    return Verdict(float(reply.text == "42"))


class Crowd:
    """Asks a referee, who is asked by few at once and samples in its own way."""

    async def run(self, rollout: Rollout) -> None:
        await rollout.respond()
        await rollout.model(Role(name="referee", concurrency=2, sampling={"temperature": 0.3})).ask("fair?")


async def test_an_agent_says_how_a_role_samples_and_how_many_questions_it_takes_at_once() -> None:
    async with small_system() as system:
        await system.add_agent({"tool_loop": Crowd()})
        await system.add_model(Engine(answer("42")))
        referee = Engine(Hang())
        await system.add_model(referee, name="referee-1", pool="referee")
        await system.add_resource(judged(is_42, "referee"))
        more = {"roles": {"referee": "referee"}, "role_sampling": {"referee": {"top_p": 0.5}}}
        await system.enqueue(*(made(**more, task=number) for number in range(5)))
        await referee.calls.until(2)
        await anyio.sleep(5)
        params = [msgspec.json.decode(call.params) for call, _ in referee.calls.items]
        assert [(one["temperature"], one["top_p"]) for one in params] == [(0.3, 0.5)] * 2


async def test_an_agent_that_asks_a_role_which_is_not_given_says_so() -> None:
    async with small_system() as system:
        await system.add_agent({"tool_loop": Debate()})
        await system.add_model(Engine(answer("42")))
        await system.add_resource(judged(is_42, Role(name="critic", optional=True)))
        (record,) = await system.make(made(roles={}))
        assert isinstance(record.outcome, Failed)
        assert "--role critic=PROVIDER/NAME" in record.outcome.fault.message


async def test_a_judge_whose_worker_dies_is_replaced_by_another(system: SmallSystem) -> None:
    await system.add_resource(judged())
    frozen = Engine(Hang())
    await system.add_model(frozen, name="judge-1", pool="judge")
    await system.enqueue(made())
    await frozen.calls.until(1)
    await system.add_model(Engine(YES), name="judge-2", pool="judge")
    system.kill("judge-1")
    (record,) = await system.records(1)
    assert (record.reward, record.attempt) == (1.0, 1)


async def test_a_judge_that_has_answered_is_not_asked_again_when_a_run_is_taken_up(
    system: SmallSystem,
) -> None:
    """Everything was killed meanwhile, and the rollout is published a second time."""

    async def twice(task: Task, reply: Reply, judge: Model) -> Verdict:
        first, second = await judge.ask("first?"), await judge.ask("second?")
        return Verdict(1.0, fields={"said": [first.text, second.text]})

    loaded = judged(twice)
    await system.add_resource(loaded, name="first")
    judge = Engine(answer("one"), Hang())
    await system.add_model(judge, name="judge-1", pool="judge")
    spec = made(durability="turn")
    await system.enqueue(spec)
    await judge.calls.until(2)
    for name in ("agent-1", "first", "judge-1"):
        system.kill(name)
    await system.bus.forget("task.*.*.run")
    again = Engine(answer("two"))
    await system.add_model(again, name="judge-2", pool="judge")
    await system.add_resource(loaded, name="second")
    await system.add_agent(name="agent-2")
    await system.enqueue(msgspec.structs.replace(spec, taken_up=True))
    (record,) = await system.records(1)
    assert msgspec.json.decode(record.row)["said"] == ["one", "two"]
    assert len(again.calls.items) == 1


async def test_what_an_agent_asked_a_role_is_not_asked_again_when_a_run_is_taken_up() -> None:
    """The turn after it was not answered, so no turn's record has the role's answer."""

    class Asking:
        async def run(self, rollout: Rollout) -> None:
            said = await rollout.model("critic").ask("what do you think?")
            await rollout.respond([*rollout.input, user_message(said.text)])

    async with small_system() as system:
        await system.add_resource(judged())
        policy, critic = Engine(Hang()), Engine(YES)
        await system.add_model(policy, name="model-1")
        await system.add_model(critic, name="critic-1", pool="critic")
        await system.add_agent({"tool_loop": Asking()}, name="one")
        spec = made({"critic": "critic", "judge": "critic"}, durability="turn")
        await system.enqueue(spec)
        await policy.calls.until(1)
        for name in ("one", "model-1"):
            system.kill(name)
        await system.bus.forget("task.*.*.run")
        await system.add_model(Engine(answer("42")), name="model-2")
        await system.add_agent({"tool_loop": Asking()}, name="two")
        await system.enqueue(msgspec.structs.replace(spec, taken_up=True))
        (record,) = await system.records(1)
    assert (record.reward, record.attempt) == (1.0, 1)
    assert len(critic.calls.items) == 2, "the agent's question and the verifier's"
