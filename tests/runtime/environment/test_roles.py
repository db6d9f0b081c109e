"""Roles as an environment declares them, prompts, and answers that are there already."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from gym_runtime import Environment, Model, Prompt, Reply, ResourceError, Role, Session, Task, Verdict, quoted
from gym_runtime.environment.resource import Resource
from gym_runtime.environment.roles import Answer, Models, RecordedAnswers, ScriptedAnswers, question_digest
from gym_runtime.environment.verdict import make_response
from gym_runtime.errors import ModelUnavailable, TaskError, UnusableAnswer, UsageError
from gym_runtime.messages.calls import RoleAnswer
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from tables import table


class Question(Task):
    pass


async def verify(task: Question, reply: Reply, judge: Model) -> Verdict:
    return Verdict(1.0)


async def plain(task: Question, reply: Reply) -> Verdict:
    return Verdict(1.0)


async def review(task: Question, reply: Reply, verdict: Verdict, judge: Model) -> Verdict:
    return verdict


@table(
    ("roles", "message"),
    [
        (("policy",), "no role can be named 'policy'"),
        (("verify",), "no role can be named 'verify'"),
        (("The Judge",), "a Python identifier in lower case, not 'The Judge'"),
        (("judge", Role(name="judge")), "there are two roles 'judge'"),
        ((Role(name="judge", sampling={"temprature": 1}),), "unknown field `temprature`"),
        ((Role(name="judge", sampling={"temperature": "hot"}),), "sampling of role 'judge'"),
        ((Role(name="judge", concurrency=0),), "Expected `int` >= 1"),
        ((7,), "Expected"),
    ],
)
def test_a_role_that_cannot_be_one_is_refused_where_it_stands(roles: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Environment(resource=plain, description="d", roles=roles)
    assert message in caught.value.message
    assert f"{__file__}:" in caught.value.message


def test_a_parameter_that_is_no_role_is_refused_with_its_place() -> None:
    environment = Environment(resource=verify, description="d", roles=("jugde",))
    with pytest.raises(UsageError) as caught:
        environment.build()
    line = verify.__code__.co_firstlineno
    assert caught.value.message.startswith(f"{__file__}:{line}: verify asks a model 'judge'")
    assert "there are: jugde" in caught.value.message


def test_an_isolated_verification_asks_no_models_and_only_that_is_reviewed() -> None:
    with pytest.raises(UsageError, match="An isolated verification asks none; its review does"):
        Environment(resource=verify, description="d", roles=("judge",), isolated=True).build()
    with pytest.raises(UsageError, match="isolated=True"):
        Environment(resource=plain, description="d", roles=("judge",), review=review)
    Environment(resource=plain, description="d", roles=("judge",), isolated=True, review=review).build()


def test_a_session_says_which_model_it_lacks() -> None:
    with pytest.raises(AttributeError, match="no model in the role 'judge': declare it"):
        _ = Models().judge
    assert Models().get("judge") is None


@pytest.mark.anyio
async def test_what_is_said_of_the_sampling_and_what_is_wrong_with_it() -> None:
    judge = ScriptedAnswers({"judge": ["yes", "no"]}).models([Role(name="judge")]).judge
    answer = await judge.ask([{"role": "user", "content": "why?"}], temperature=0.5)
    assert isinstance(answer, Answer)
    assert (answer.text, answer.asked["temperature"], answer.incomplete) == ("yes", 0.5, None)
    with pytest.raises(ResourceError, match=r"the sampling of role 'judge': .*temprature"):
        await judge.ask("why?", temprature=1)


@pytest.mark.anyio
async def test_a_script_has_texts_responses_and_errors_and_an_end() -> None:
    cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    scripted = ScriptedAnswers({"judge": ["yes", cut, ModelUnavailable("503")]})
    judge = scripted.models([Role(name="judge"), Role(name="critic", optional=True)]).judge
    assert (await judge.ask("1")).text == "yes"
    second = await judge.ask("2", whole=False)
    assert (second.text, second.incomplete) == ("", "max_output_tokens")
    for number, message in (("3", "503"), ("4", "has 3 answers, no more")):
        with pytest.raises(ModelUnavailable, match=message) as caught:
            await judge.ask(number)
        assert caught.value.stage == "judge"
    assert [items[0]["content"] for _, items in scripted.asked] == ["1", "2", "3", "4"]


@pytest.mark.anyio
@pytest.mark.parametrize("details", [None, {"reason": "max_output_tokens"}, {"reason": None}])
async def test_an_answer_that_was_cut_short_is_a_failure_unless_a_part_is_useful(details: Any) -> None:
    cut = {**msgspec.json.decode(make_response("It says [[yes]]")), "status": "incomplete"}
    script = {"judge": [{**cut, "incomplete_details": details}] * 2}
    judge = ScriptedAnswers(script).models([Role(name="judge")]).judge
    with pytest.raises(UnusableAnswer, match=r"--role-sampling judge\.max_output_tokens") as caught:
        await judge.ask("?")
    assert (caught.value.stage, caught.value.retryable) == ("judge", False)
    assert (await judge.ask("?", whole=False)).text == "It says [[yes]]"


@pytest.mark.anyio
async def test_recorded_answers_come_in_the_order_of_the_same_question() -> None:
    scripted = ScriptedAnswers({"judge": ["first", "second", "other"]})
    asked: list[RoleAnswer] = []

    async def recording(role: Role, params: Raw, items: Any) -> Raw:
        response = await scripted(role, params, items)
        asked.append(
            RoleAnswer(role=role.name, digest=question_digest(role.name, params, items), response=response)
        )
        return response

    judge = Model(Role(name="judge"), recording)
    for prompt in ("vote", "vote", "another"):
        await judge.ask(prompt)
    again = RecordedAnswers(asked).models([Role(name="judge", optional=True)]).judge
    assert [(await again.ask(prompt)).text for prompt in ("another", "vote", "vote")] == [
        "other",
        "first",
        "second",
    ]
    with pytest.raises(TaskError, match="--role judge=PROVIDER/NAME"):
        await again.ask("vote", temperature=1.0)


@pytest.mark.anyio
async def test_an_answer_that_is_no_response_is_the_roles_failure() -> None:
    async def broken(role: Role, params: Raw, items: Any) -> Raw:
        return Raw(b'{"output": 7}')

    with pytest.raises(ModelUnavailable, match="role 'judge'") as caught:
        await Model(Role(name="judge"), broken).ask("?")
    assert caught.value.stage == "judge"


@pytest.mark.anyio
async def test_models_are_there_when_a_session_opens() -> None:
    class Desk(Session[Question]):
        async def open(self) -> None:
            self.said = (await self.models.judge.ask("hello")).text

    roles = [Role(name="judge")]
    scripted = ScriptedAnswers({"judge": ["hi"]})
    row = b'{"responses_create_params": {"input": "q"}}'
    session = await Resource(Desk, roles).open(row, scripted.models(roles))
    assert session.said == "hi"


# -- prompts --------------------------------------------------------------------------------------------


@given(st.text(), st.text())
def test_values_stand_as_they_are_whatever_they_hold(first: str, second: str) -> None:
    filled = Prompt("{a}|{b}|{c d} {} {0} %s").fill(a=first, b=second)
    assert filled == f"{first}|{second}|{{c d}} {{}} {{0}} %s"


@pytest.mark.parametrize("values", [{}, {"a": "x", "b": "y"}, {"b": "y"}])
def test_a_place_without_a_value_is_the_authors_mistake(values: dict[str, str]) -> None:
    with pytest.raises(TypeError, match="this prompt has places for"):
        Prompt("{a}").fill(**values)


@given(st.text())
def test_a_quotation_is_closed_once(text: str) -> None:
    assert quoted(text).lower().count("</quoted>") == 1


def test_a_role_answers_with_a_reply_like_any_other() -> None:
    answer = Answer(make_response("a", "b"), {})
    assert (answer.text, [message.text for message in answer.messages]) == ("b", ["a", "b"])
