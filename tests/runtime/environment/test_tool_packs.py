from __future__ import annotations

from typing import Any

import msgspec
import pytest
from gym_runtime import Environment, Reply, Session, Task, ToolPack, Verdict, tool
from gym_runtime.environment import catalogue, examples
from gym_runtime.environment.declared import declaration
from gym_runtime.environment.isolated import Delegate
from gym_runtime.environment.replaying import rejudge, session_of
from gym_runtime.environment.requirements import offered_packs, require
from gym_runtime.environment.roles import Models
from gym_runtime.environment.tools import ToolPacks, collect_tools
from gym_runtime.environment.verdict import make_response
from gym_runtime.errors import TaskError, UsageError
from gym_testing.small_system import environment as small
from gym_testing.small_system import row

pytestmark = pytest.mark.anyio


class Counter(ToolPack):
    closed: list[int] = []  # noqa: RUF012 - what all instances of the test have told

    def __init__(self) -> None:
        self.count = 0

    @tool(name="count-up")
    def count_up(self, by: int = 1) -> int:
        """Count."""
        self.count += by
        return self.count

    async def close(self) -> None:
        self.closed.append(self.count)


class Rival(ToolPack):
    @tool(name="count-up")
    def other(self) -> int:
        """Count otherwise."""
        return 0


class Question(Task):
    answer: str


class Asked(Session[Question]):
    @tool
    def hint(self) -> str:
        """A hint."""
        return self.row.decode()

    async def verify(self, reply: Reply) -> Verdict:
        return Verdict(float(reply.text == self.task.answer), fields={"calls": self.packs.calls})


def verify(task: Question, reply: Reply) -> Verdict:
    return Verdict(float(reply.text == task.answer))


def call(name: str, arguments: str = "{}") -> dict[str, Any]:
    return {"type": "function_call", "call_id": "c", "name": name, "arguments": arguments}


OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "1"}


@pytest.mark.parametrize("shape", [Asked, verify])
async def test_an_environment_of_any_shape_has_the_tools_of_its_packs(shape: Any) -> None:
    definition = Environment(resource=shape, description="d")
    resource = definition.build({"counter": Counter})
    assert "count-up" in resource.tools
    Counter.closed.clear()
    async with session_of(resource, row(answer="a", more=1)) as session:
        assert await resource.call_tool(session, "count-up", "{}") == "1"
        assert await resource.call_tool(session, "count-up", '{"by": 2}') == "3"
        assert "validation_error" in await resource.call_tool(session, "count-up", '{"by": "x"}')
        async with session_of(resource, row(answer="a")) as other:
            assert await resource.call_tool(other, "count-up", "{}") == "1"
        assert session.packs.calls == 3
    assert Counter.closed == [1, 3]


async def test_a_session_that_used_no_pack_makes_and_closes_none() -> None:
    Counter.closed.clear()
    resource = Environment(resource=Asked, description="d").build({"counter": Counter})
    async with session_of(resource, row(answer="a", more=1)) as session:
        assert "more" in await resource.call_tool(session, "hint", "{}")
    assert Counter.closed == []


async def test_calls_of_packs_are_not_repeated_when_a_rollout_is_verified_again() -> None:
    resource = Environment(resource=Asked, description="d").build({"counter": Counter})
    response = make_response(call("count-up"), OUTPUT, "a")
    assert (await rejudge(resource, row(answer="a"), response)).fields == {"calls": 0}


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(UsageError, match="'counter' and 'rival' both have a tool 'count-up'"):
        ToolPacks({"counter": Counter, "rival": Rival})

    class Named(Asked):
        @tool(name="count-up")
        def own(self) -> int:
            """Count, too."""
            return 0

    with pytest.raises(UsageError, match="Named and one of its tool packs have a tool 'count-up'"):
        Environment(resource=Named, description="d").build({"counter": Counter})


def test_a_tool_may_have_a_name_that_no_method_can_have() -> None:
    found = collect_tools(Counter)
    assert list(found) == ["count-up"]
    assert found["count-up"].definition()["name"] == "count-up"


def test_a_pack_is_taken_by_name_and_an_unknown_one_is_refused() -> None:
    named = small(Environment(resource=verify, description="d", tool_packs=("periodictable",)))
    assert {"element-info", "isotope-info"} <= named.resource.tools.keys()
    assert len(declaration(named).tools) == 2
    with pytest.raises(UsageError, match="there is no tool 'periodctable'; did you mean 'periodictable'"):
        small(Environment(resource=verify, description="d", tool_packs=("periodctable",)))


def test_a_row_asks_for_a_pack_by_offering_one_of_its_tools() -> None:
    pytest.importorskip("periodictable")
    tools = [msgspec.Raw(msgspec.json.encode({"type": "function", "name": n})) for n in ("isotope-info", "x")]
    assert list(offered_packs(tools)) == ["periodictable"]
    assert offered_packs([]) == {}


def test_the_packages_of_a_pack_are_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gym_runtime.environment.requirements._installed", lambda name: False)
    named = small(Environment(resource=verify, description="d", tool_packs=("periodictable",)))
    with pytest.raises(
        UsageError, match=r"'periodictable' needs periodictable.*gym-runtime\[periodictable\]"
    ):
        require(named)


async def test_gold_turns_of_an_environment_without_a_state_are_answered_by_its_packs() -> None:
    loaded = small(Environment(resource=verify, description="d", tool_packs=("periodictable",)))
    pytest.importorskip("periodictable")
    example = examples.Example(
        number=1, row=row(answer="a"), fields={}, turns=[[call("element-info", '{"element": "Fe"}')], ["a"]]
    )
    assert b"iron" in await examples.play(loaded.resource, example)


# -- another environment's verdict ------------------------------------------------------------------------


def boxed(letter: str) -> Reply:
    return Reply.of(rf"\boxed{{{letter}}}")


CHOICE = row(options=[{"A": "x"}, {"B": "y"}], expected_answer="B", grading_mode="strict_single_letter_boxed")


async def test_another_environment_verifies_by_its_own_rule() -> None:
    delegate = Delegate("mcqa", CHOICE, Models())
    assert (await delegate.verify(boxed("B"))).reward == 1.0
    assert (await delegate.verify(boxed("A"))).reward == 0.0


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("no_such", "there is no environment 'no_such'"),
        ("/etc/passwd.py", "there is no environment"),
        ("math_with_code", "keeps a state"),
        ("blackjack", "keeps a state"),
        ("structured_outputs", "schema_str"),
    ],
)
def test_a_row_that_no_environment_can_verify_is_refused(name: str, problem: str) -> None:
    with pytest.raises(TaskError, match=problem):
        Delegate(name, row(), Models())


def test_a_role_that_the_other_environment_needs_is_asked_for() -> None:
    with pytest.raises(UsageError, match="--role judge=PROVIDER/NAME"):
        Delegate("equivalence_llm_judge", row(expected_answer="x"), Models())


async def test_the_models_that_are_given_judge_with_the_other_environments_sampling() -> None:
    from gym_runtime.environment.roles import Role, ScriptedAnswers

    scripted = ScriptedAnswers({"judge": ["Same. [[A=B]]"]})
    models = scripted.models([Role(name="judge", optional=True)])
    delegate = Delegate("equivalence_llm_judge", row(expected_answer="x"), models)
    assert (await delegate.verify(Reply.of("It is x."))).reward == 1.0
    assert [role for role, _ in scripted.asked] == ["judge"]
    assert catalogue.names("tools")
