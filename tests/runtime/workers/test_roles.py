"""Models in roles on whole small systems: asked, limited, journaled, counted, and never a silent zero."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import anyio
import msgspec
import pytest
from gym_agents.step_loop import Agent as StepLoop
from gym_runtime import (
    Environment,
    Episode,
    Model,
    Reply,
    Role,
    Rollout,
    Session,
    Step,
    Task,
    Verdict,
    tool,
    user_message,
)
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.errors import ModelRefused, ModelUnavailable
from gym_runtime.files.results import failure_class
from gym_runtime.messages.outcomes import Completed, Failed, RolloutRecord
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.rollout.journal import journal_subject
from gym_runtime.testing.small_system import (
    Engine,
    Hang,
    SmallSystem,
    answer,
    environment,
    function_call,
    rollout_spec,
    row,
    small_system,
)
from gym_runtime.testing.virtual_clock import BACKEND

pytestmark = pytest.mark.anyio

YES, NO = answer("[[A=B]]"), answer("[[A!=B]]")


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return BACKEND


@pytest.fixture
async def system() -> AsyncGenerator[SmallSystem]:
    async with small_system() as system:
        await system.add_agent()
        await system.add_model(Engine(answer("42")))
        yield system


async def compare(task: Task, reply: Reply, judge: Model) -> Verdict:
    said = await judge.ask(f"Is {reply.text} right?", system="You judge.", temperature=0.0)
    return Verdict(float("[[A=B]]" in said.text), fields={"cut": said.incomplete})


def judged(verify: Any = compare, *roles: Role | str, **more: Any) -> LoadedEnvironment:
    roles = roles or ("judge",)
    return environment(Environment(resource=verify, description="d", roles=roles, **more))


JUDGE = {"judge": "judge"}


def made(roles: dict[str, str] = JUDGE, **more: Any) -> RolloutSpec:
    return rollout_spec(row(), roles=roles, **more)


def about(record: RolloutRecord) -> dict[str, Any]:
    return msgspec.json.decode(record.row)["_gym"]


async def test_a_judge_is_asked_with_the_rollouts_deadline_and_what_it_cost_stands_in_the_row(
    system: SmallSystem,
) -> None:
    await system.add_resource(judged())
    judge = Engine(YES)
    await system.add_model(judge, name="judge-1", pool="judge")
    (record,) = await system.make(made(timeout_s=50.0))
    assert (record.outcome, record.reward) == (Completed(), 1.0)
    ((call, context),) = judge.calls.items
    assert [msgspec.json.decode(item) for item in call.input] == [
        {"role": "system", "content": "You judge."},
        {"role": "user", "content": "Is 42 right?"},
    ]
    assert msgspec.json.decode(call.params)["temperature"] == 0.0
    assert (context.rollout, context.attempt) == ("run.0.0", 1)
    assert context.deadline_s <= judge.asked_s[0] + 50.0
    use = about(record)["roles"]["judge"]
    assert (use["calls"], use["input_tokens"], use["output_tokens"]) == (1, 10, 1)
    assert record.roles["judge"].calls == 1
    assert record.numbers["judge_calls"] == 1
    (kept,) = about(record)["role_answers"]
    assert (kept["role"], kept["response"]["output"][0]["content"][0]["text"]) == ("judge", "[[A=B]]")


async def test_the_roles_sampling_gives_way_to_the_questions(system: SmallSystem) -> None:
    role = Role(name="judge", sampling={"temperature": 0.7, "max_output_tokens": 50})
    await system.add_resource(judged(compare, role))
    judge = Engine(YES)
    await system.add_model(judge, name="judge-1", pool="judge")
    await system.make(made())
    params = msgspec.json.decode(judge.calls.items[0][0].params)
    assert (params["temperature"], params["max_output_tokens"]) == (0.0, 50)


async def test_what_the_run_says_of_a_roles_sampling_wins(system: SmallSystem) -> None:
    role = Role(name="judge", sampling={"temperature": 0.7, "max_output_tokens": 50})
    await system.add_resource(judged(compare, role))
    judge = Engine(YES)
    await system.add_model(judge, name="judge-1", pool="judge")
    said = {"judge": {"temperature": 0.9, "top_p": 0.5}}
    (record,) = await system.make(made(role_sampling=said))
    params = msgspec.json.decode(judge.calls.items[0][0].params)
    assert (params["temperature"], params["top_p"], params["max_output_tokens"]) == (0.9, 0.5, 50)
    assert about(record)["role_sampling"] == said


async def test_the_policy_may_judge_itself_where_that_is_asked_for(system: SmallSystem) -> None:
    await system.add_resource(judged())
    (record,) = await system.make(made(roles={"judge": "policy"}))
    assert (record.reward, about(record)["roles"]["judge"]["calls"]) == (0.0, 1)


async def test_an_optional_role_is_none_where_it_is_not_given(system: SmallSystem) -> None:
    async def verify(task: Task, reply: Reply, judge: Model | None) -> Verdict:
        return Verdict(float(judge is None))

    await system.add_resource(judged(verify, Role(name="judge", optional=True)))
    (record,) = await system.make(made(roles={}))
    assert record.reward == 1.0


@pytest.mark.parametrize("turn", [answer(""), answer(), answer("Both", status="incomplete")])
async def test_an_answer_that_is_empty_or_cut_short_is_the_rules_business(
    system: SmallSystem, turn: Any
) -> None:
    await system.add_resource(judged())
    await system.add_model(Engine(turn), name="judge-1", pool="judge")
    (record,) = await system.make(made())
    assert (record.outcome, record.reward) == (Completed(), 0.0)


@pytest.mark.parametrize(
    ("trouble", "kind"),
    [(ModelRefused("bad key"), "model"), (ModelUnavailable("503"), "model"), (Hang(), "model")],
)
async def test_a_judge_that_fails_is_a_failure_and_no_reward(
    system: SmallSystem, trouble: Any, kind: str
) -> None:
    await system.add_resource(judged(compare, Role(name="judge", timeout_s=5.0)))
    judge = Engine(trouble)
    await system.add_model(judge, name="judge-1", pool="judge")
    (record,) = await system.make(made(max_attempts=2))
    assert isinstance(record.outcome, Failed)
    fault = record.outcome.fault
    assert (record.reward, fault.kind, fault.stage) == (None, kind, "judge")
    assert failure_class(fault) == "judge_failed"
    assert "reward" not in msgspec.json.decode(record.row)
    assert record.attempt == (1 if isinstance(trouble, ModelRefused) else 2)


async def test_a_judge_that_fails_for_a_moment_is_asked_again_and_the_policy_is_not() -> None:
    async with small_system() as system:
        policy = Engine(answer("42"))
        await system.add_agent()
        await system.add_model(policy)
        await system.add_resource(judged())
        judge = Engine(by_attempt={1: [ModelUnavailable("429", retry_after_s=100.0)], 2: [YES]})
        await system.add_model(judge, name="judge-1", pool="judge")
        (record,) = await system.make(made(timeout_s=60.0))
        assert (record.reward, record.attempt, len(policy.calls.items)) == (1.0, 2, 1)


async def test_overload_is_waited_out_within_the_attempt(system: SmallSystem) -> None:
    await system.add_resource(judged())
    judge = Engine(ModelUnavailable("429", retry_after_s=0.5), ModelUnavailable("503"), YES)
    await system.add_model(judge, name="judge-1", pool="judge")
    (record,) = await system.make(made())
    assert (record.reward, record.attempt, len(judge.calls.items)) == (1.0, 1, 3)


async def test_a_role_that_no_worker_serves_fails_with_its_name(system: SmallSystem) -> None:
    await system.add_resource(judged())
    (record,) = await system.make(made(max_attempts=1))
    assert isinstance(record.outcome, Failed)
    fault = record.outcome.fault
    assert (fault.name, fault.stage) == ("ModelUnavailable", "judge")
    assert "no worker serves model 'judge'" in fault.message
    assert failure_class(fault) == "judge_failed"


async def test_no_more_questions_are_in_flight_than_the_role_allows(system: SmallSystem) -> None:
    await system.add_resource(judged(compare, Role(name="judge", concurrency=2)))
    judge = Engine(Hang())
    await system.add_model(judge, name="judge-1", pool="judge")
    await system.enqueue(*(made(task=number) for number in range(5)))
    await judge.calls.until(2)
    await anyio.sleep(5)
    assert len(judge.calls.items) == 2


async def test_cancelling_a_rollout_reaches_the_judge(system: SmallSystem) -> None:
    await system.add_resource(judged())
    judge = Engine(Hang())
    await system.add_model(judge, name="judge-1", pool="judge")
    await system.enqueue(made())
    await judge.calls.until(1)
    await system.bus.publish("cancel.run.0.0", b"")
    await judge.cancelled.until(1)


# -- the journal ----------------------------------------------------------------------------------------


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


# -- sessions, episodes and agents ----------------------------------------------------------------------


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
