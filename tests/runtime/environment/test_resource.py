"""The authoring API: the three shapes, tools and their schemas, answers, and whose fault an error is."""

from __future__ import annotations

import json
import math
from typing import Any, Literal

import anyio
import msgspec
import pytest
from gym_runtime import Environment, Episode, Reply, Session, Step, Task, Text, ToolError, Verdict, tool
from gym_runtime.environment.replay import rejudge
from gym_runtime.environment.resource import Resource
from gym_runtime.environment.tools import NOT_FOUND, SERVER_ERROR
from gym_runtime.environment.verdict import make_response
from gym_runtime.errors import ModelUnavailable, ResourceError, TaskError, UsageError
from gym_runtime.files.results import failure_class
from hypothesis import given
from hypothesis import strategies as st

ROW = b'{"responses_create_params": {"input": "hi"}, "goal": 2}'
SILENCE = make_response()


class GoalTask(Task):
    goal: int
    hint: str = ""


# -- the three shapes ---------------------------------------------------------------------------------


async def async_verify(task: GoalTask, reply: Reply) -> Verdict:
    return Verdict(float(reply.text == str(task.goal)), fields={"hint": task.hint})


def plain_verify(task: GoalTask, reply: Reply) -> Verdict:
    return Verdict(float(reply.text == str(task.goal)), fields={"hint": task.hint})


class AsyncSession(Session[GoalTask]):
    async def verify(self, reply: Reply) -> Verdict:
        return await async_verify(self.task, reply)


class PlainSession(Session[GoalTask]):
    def verify(self, reply: Reply) -> Verdict:
        return plain_verify(self.task, reply)


@pytest.mark.anyio
@pytest.mark.parametrize("shape", [async_verify, plain_verify, AsyncSession, PlainSession])
async def test_functions_and_sessions_plain_or_async_judge_alike(shape: Any) -> None:
    resource = Resource(shape)
    assert resource.task_type is GoalTask
    session = await resource.open(ROW)
    assert await resource.verify(session, make_response("2")) == Verdict(1.0, fields={"hint": ""})
    assert await resource.verify(session, SILENCE) == Verdict(0.0, fields={"hint": ""})


class Countdown(Episode[GoalTask]):
    async def reset(self) -> str:
        return f"count down from {self.task.goal}"

    async def step(self, reply: Reply) -> Step:
        self.task.goal -= 1
        calls = {call.call_id: "noted" for call in reply.function_calls}
        return Step(
            observation=None if self.task.goal == 0 else "go on",
            reward=0.5,
            terminated=self.task.goal == 0,
            tool_outputs=calls,
            info={"left": self.task.goal},
        )


@pytest.mark.anyio
async def test_an_episodes_reward_is_the_sum_of_its_steps() -> None:
    resource = Resource(Countdown)
    session, other = await resource.open(ROW), await resource.open(ROW)
    assert isinstance(session, Countdown)
    assert [msgspec.json.decode(item) for item in await resource.reset(session)] == [
        {"role": "user", "content": "count down from 2"}
    ]
    call = {"type": "function_call", "call_id": "c", "name": "note", "arguments": "{}"}
    first = await resource.step(session, make_response(call))
    assert [msgspec.json.decode(item) for item in first.items] == [
        {"type": "function_call_output", "call_id": "c", "output": "noted"},
        {"role": "user", "content": "go on"},
    ]
    assert (first.reward, first.terminated) == (0.5, False)
    assert (await resource.step(session, make_response("1"))).terminated
    assert await resource.verify(session, SILENCE) == Verdict(1.0, fields={"left": 0})
    with pytest.raises(ResourceError, match="took no step; use an agent that does: agent='step_loop'"):
        await resource.verify(other, SILENCE)
    assert isinstance(other, Countdown)
    await resource.reset(other)
    assert await resource.verify(other, SILENCE) == Verdict(0.0)


@pytest.mark.anyio
async def test_only_episodes_have_steps() -> None:
    resource = Resource(async_verify)
    with pytest.raises(ResourceError, match="is not an Episode: it has no steps"):
        await resource.step(await resource.open(ROW), SILENCE)


def test_an_environment_names_its_shape() -> None:
    shapes = [Environment(resource=r, description="d").shape for r in (plain_verify, AsyncSession, Countdown)]
    assert shapes == ["verify", "session", "episode"]


# -- what authors forget ------------------------------------------------------------------------------


class NotATask(msgspec.Struct):
    goal: int


def takes_a_dict(task: dict[str, Any], reply: Reply) -> Verdict:
    return Verdict(1.0)


def takes_a_struct(task: NotATask, reply: Reply) -> Verdict:
    return Verdict(1.0)


def takes_nothing() -> Verdict:
    return Verdict(1.0)


def says_nothing(task, reply):  # type: ignore[no-untyped-def]
    return Verdict(1.0)


class Bank(Session):  # type: ignore[type-arg]
    pass


class Board(Episode):  # type: ignore[type-arg]
    pass


class Vault(Session[NotATask]):  # type: ignore[type-var]
    pass


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (takes_a_dict, "verify's first parameter must be annotated with a subclass of Task"),
        (takes_a_struct, "verify's first parameter must be annotated with a subclass of Task"),
        (takes_nothing, "verify's first parameter must be annotated with a subclass of Task"),
        (says_nothing, "verify's first parameter must be annotated with a subclass of Task"),
        (
            Bank,
            "Bank does not name its task: class Bank(Session[BankTask]), where the task derives from Task",
        ),
        (Board, "Board does not name its task: class Board(Episode[BoardTask]), where the task derives"),
        (Vault, "Vault does not name its task: class Vault(Session[VaultTask]), where the task derives"),
    ],
)
def test_a_task_without_its_type_is_one_line_with_its_place(shape: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Resource(shape)
    assert f"{__file__}:" in str(caught.value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_plain_task_may_be_named() -> None:
    assert Resource(judge_as(None)).task_type is Task
    assert Resource(Desk).task_type is Task


@pytest.mark.anyio
async def test_a_session_says_what_it_lacks() -> None:
    desk = Resource(Desk)
    with pytest.raises(ResourceError, match=r"^Desk has no verify; define: async def verify") as caught:
        await desk.verify(await desk.open(ROW), SILENCE)
    assert caught.value.stage == "verify"

    class Still(Episode[Task]):
        pass

    still = Resource(Still)
    session = await still.open(ROW)
    with pytest.raises(ResourceError, match=r"^Still has no step; define: async def step") as caught:
        await still.step(session, SILENCE)
    assert caught.value.stage == "step"


@pytest.mark.anyio
@pytest.mark.parametrize("observation", [5, ["go on"], {"role": "user"}])
async def test_an_observation_that_is_none_says_what_one_is(observation: Any) -> None:
    class Odd(Episode[GoalTask]):
        async def reset(self) -> Any:
            return observation

        async def step(self, reply: Reply) -> Step:
            return Step(observation=observation)

    resource = Resource(Odd)
    session = await resource.open(ROW)
    assert isinstance(session, Odd)
    wanted = (
        f"returned the observation {observation!r}; it must be a text, a list of items (each a dict), or None"
    )
    for stage, work in (("reset", resource.reset(session)), ("step", resource.step(session, SILENCE))):
        with pytest.raises(ResourceError) as caught:
            await work
        assert (str(caught.value), caught.value.stage) == (f"{stage} {wanted}", stage)


# -- rows ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (b"[]", "Expected `object`, got `array`"),
        (b"{", "Input data was truncated"),
        (b"", "Input data was truncated"),
        (b'{"goal": 2}', "Object missing required field `responses_create_params`"),
        (b'{"responses_create_params": {}}', "Object missing required field `goal`"),
        (b'{"responses_create_params": {}, "goal": [1]}', r"Expected `int`, got `array` - at `\$.goal`"),
        (b'{"responses_create_params": {}, "goal": null}', r"Expected `int`, got `null` - at `\$.goal`"),
        (b'{"responses_create_params": {"inputs": []}, "goal": 1}', "contains unknown field `inputs`"),
        (b'{"responses_create_params": {}, "goal": 1, "hint": "\xff"}', "utf-8"),
        (b'{"responses_create_params": {}, "goal": 1, "x": ' + b"[" * 100_000, "recursion"),
    ],
)
def test_a_row_that_does_not_fit_is_the_tasks_fault_and_says_where(row: bytes, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        Resource(async_verify).task(row)


def test_a_row_may_have_fields_that_nobody_declared_and_numbers_as_text() -> None:
    task = Resource(async_verify).task(b'{"responses_create_params": {}, "goal": "7", "other": [1]}')
    assert isinstance(task, GoalTask)
    assert task.goal == 7


def test_a_tasks_own_check_is_a_task_error() -> None:
    class Even(Task):
        goal: int

        def __post_init__(self) -> None:
            if self.goal % 2:
                raise ValueError("'goal' must be even")

    def verify(task: Even, reply: Reply) -> Verdict:
        return Verdict(1.0)

    verify.__annotations__["task"] = Even
    with pytest.raises(TaskError, match="'goal' must be even"):
        Resource(verify).task(b'{"responses_create_params": {}, "goal": 3}')


# -- tools --------------------------------------------------------------------------------------------


class Place(msgspec.Struct):
    city: str
    country: str = "PT"


class Desk(Session[Task]):
    @tool
    def add(self, left: int, right: int = 1) -> dict[str, int]:
        """Add two numbers.

        More that the model does not see.
        """
        return {"sum": left + right}

    @tool
    async def travel(self, to: Place, how: Literal["train", "boat"]) -> Place:
        await anyio.lowlevel.checkpoint()
        return to

    @tool
    def text(self) -> Text:
        return Text('as "it" is')

    @tool
    def nothing(self) -> None: ...

    @tool
    def scold(self) -> str:
        raise ToolError("you may not do that")

    @tool
    def crash(self) -> str:
        raise RuntimeError("a bug")

    @tool
    def unspeakable(self) -> object:
        return object()

    def helper(self) -> str:
        return "no tool"


def test_a_tools_definition_comes_from_its_signature() -> None:
    tools = Resource(Desk).tools
    assert list(tools) == ["add", "travel", "text", "nothing", "scold", "crash", "unspeakable"]
    assert tools["add"].definition() == {
        "type": "function",
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"left": {"type": "integer"}, "right": {"type": "integer", "default": 1}},
            "required": ["left"],
            "additionalProperties": False,
        },
        "strict": False,
    }
    travel = tools["travel"].definition()["parameters"]
    assert travel["properties"] == {"to": {"$ref": "#/$defs/Place"}, "how": {"enum": ["boat", "train"]}}
    assert travel["$defs"]["Place"]["required"] == ["city"]
    assert tools["text"].definition()["parameters"] == {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    }


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "arguments", "answer"),
    [
        ("add", '{"left": 2}', '{"sum":3}'),
        ("add", '{"left": 2, "right": 5}', '{"sum":7}'),
        ("add", '{"left": "2", "unknown": 1}', '{"sum":3}'),
        ("travel", '{"to": {"city": "Faro"}, "how": "boat"}', '{"city":"Faro","country":"PT"}'),
        ("text", "{}", 'as "it" is'),
        ("nothing", "{}", "null"),
        ("scold", "{}", "you may not do that"),
        ("crash", "{}", SERVER_ERROR),
        ("unspeakable", "{}", SERVER_ERROR),
        ("helper", "{}", NOT_FOUND),
        ("verify", "{}", NOT_FOUND),
        ("", "{}", NOT_FOUND),
    ],
)
async def test_what_a_tool_returns_is_what_the_model_reads(name: str, arguments: str, answer: str) -> None:
    resource = Resource(Desk)
    assert await resource.call_tool(await resource.open(ROW), name, arguments) == answer


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("{}", "Object missing required field `left`"),
        ('{"left": []}', "Expected `int`, got `array` - at `$.left`"),
        ("[]", "Expected `object`, got `array`"),
        ("null", "Expected `object`, got `null`"),
        ("", "the arguments are not JSON: Input data was truncated"),
        ("{left: 1}", "the arguments are not JSON: JSON is malformed"),
        ('{"x":' + "[" * 100_000, "the arguments are not JSON: maximum recursion depth exceeded"),
        ('{"x": "\ud800"}', "the arguments are not JSON: 'utf-8' codec can't encode"),
    ],
)
async def test_arguments_that_do_not_fit_get_the_reason(arguments: str, reason: str) -> None:
    resource = Resource(Desk)
    answer = await resource.call_tool(await resource.open(ROW), "add", arguments)
    (problem,) = json.loads(answer)["detail"]
    assert problem["loc"] == ["body"]
    assert problem["msg"].startswith(reason)


@pytest.mark.slow
@given(
    arguments=st.text(max_size=40)
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps)
)
def test_no_arguments_break_a_call(arguments: str) -> None:
    async def call() -> None:
        resource = Resource(Desk)
        session = await resource.open(ROW)
        for name in resource.tools:
            assert isinstance(await resource.call_tool(session, name, arguments), str)

    anyio.run(call)


class LoudDesk(Desk):
    @tool
    def text(self) -> Text:
        return Text("LOUD")

    nothing = None  # type: ignore[assignment]


@pytest.mark.anyio
async def test_tools_are_inherited_overridden_and_removed() -> None:
    resource = Resource(LoudDesk)
    assert next(iter(resource.tools)) == "add"
    assert "nothing" not in resource.tools
    assert await resource.call_tool(await resource.open(ROW), "text", "{}") == "LOUD"


class Dynamic(Session[Task]):
    async def call_unknown_tool(self, name: str, arguments: str) -> str | None:
        if name == "echo":
            return arguments
        if name == "scold":
            raise ToolError("not like this")
        if name == "crash":
            raise RuntimeError("a bug")
        return None


@pytest.mark.anyio
async def test_a_session_may_answer_tools_it_does_not_have() -> None:
    resource = Resource(Dynamic)
    session = await resource.open(ROW)
    assert await resource.call_tool(session, "echo", '{"a": 1}') == '{"a": 1}'
    assert await resource.call_tool(session, "scold", "{}") == "not like this"
    assert await resource.call_tool(session, "other", "{}") == NOT_FOUND
    with pytest.raises(ResourceError, match="RuntimeError: a bug"):
        await resource.call_tool(session, "crash", "{}")


# -- whose fault it is --------------------------------------------------------------------------------


def judge_as(value: Any) -> Any:
    def verify(task: Task, reply: Reply) -> Any:
        if isinstance(value, Exception):
            raise value
        return value

    return verify


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (ValueError("a bug"), "ValueError: a bug"),
        (None, "verify returned None; it must return a Verdict"),
        (1.0, "verify returned 1.0; it must return a Verdict"),
        (Verdict(math.nan), "the verifier returned reward = nan; it must be a finite number"),
        (Verdict(math.inf), "reward = inf"),
        (Verdict(True), "reward = True"),
        (Verdict(None), "reward = None"),  # type: ignore[arg-type]
        pytest.param(Verdict(10**400), "reward = 1000", id="huge"),
        (Verdict(1.0, components={"style": math.nan}), "style = nan"),
    ],
)
async def test_a_broken_verifier_is_a_fault_and_never_a_reward(value: Any, message: str) -> None:
    resource = Resource(judge_as(value))
    with pytest.raises(ResourceError, match=message) as caught:
        await resource.verify(await resource.open(ROW), SILENCE)
    assert caught.value.stage == "verify"


@pytest.mark.anyio
@pytest.mark.parametrize("reward", [math.nan, math.inf, None, "1", True, pytest.param(10**400, id="huge")])
async def test_a_steps_reward_that_is_no_finite_number_is_a_fault_too(reward: Any) -> None:
    class Odd(Episode[GoalTask]):
        async def step(self, reply: Reply) -> Step:
            return Step(reward=reward)

    resource = Resource(Odd)
    session = await resource.open(ROW)
    assert isinstance(session, Odd)
    await resource.reset(session)
    with pytest.raises(ResourceError, match="it must be a finite number") as caught:
        await resource.step(session, SILENCE)
    assert caught.value.stage == "step"
    assert (await resource.verify(session, SILENCE)).reward == 0.0


@pytest.mark.anyio
async def test_errors_of_the_runtime_pass_through_a_verifier() -> None:
    resource = Resource(judge_as(ModelUnavailable("the judge is down")))
    with pytest.raises(ModelUnavailable) as caught:
        await resource.verify(await resource.open(ROW), SILENCE)
    assert failure_class(caught.value.fault()) == "judge_failed"


class Fragile(Session[GoalTask]):
    """Breaks in the method that the row's hint names."""

    closed = 0

    def __init__(self, task: GoalTask) -> None:
        super().__init__(task)
        self._break_in("init")

    def open(self) -> None:  # type: ignore[override]
        self._break_in("open")

    def verify(self, reply: Reply) -> Verdict:
        self._break_in("verify")
        return Verdict(1.0)

    async def close(self) -> None:
        Fragile.closed += 1
        self._break_in("close")

    def _break_in(self, method: str) -> None:
        if self.task.hint == method:
            raise RuntimeError(f"broke in {method}")


@pytest.mark.anyio
@pytest.mark.parametrize(("method", "closed"), [("init", 0), ("open", 1), ("verify", 1), ("close", 1)])
async def test_a_session_that_breaks_is_the_resources_fault_and_is_closed(method: str, closed: int) -> None:
    resource, Fragile.closed = Resource(Fragile), 0
    row = msgspec.json.encode({"responses_create_params": {}, "goal": 1, "hint": method})
    with pytest.raises(ResourceError, match=f"RuntimeError: broke in {method}"):
        await rejudge(resource, row, SILENCE)
    assert Fragile.closed == closed


@pytest.mark.anyio
async def test_a_session_whose_opening_is_cancelled_is_closed() -> None:
    closed = anyio.Event()

    class Slow(Session[Task]):
        async def open(self) -> None:
            await anyio.sleep_forever()

        async def close(self) -> None:
            await anyio.lowlevel.checkpoint()
            closed.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Resource(Slow).open, ROW)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert closed.is_set()


# -- replies ------------------------------------------------------------------------------------------


def test_a_reply_reads_the_transcript() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "3"}
    user = {"role": "user", "content": "and now?"}
    reply = Reply.of("one", call, output, user, "two")
    assert (reply.text, reply.all_text) == ("two", "onetwo")
    assert [item.name for item in reply.function_calls] == ["add"]
    assert [item.output for item in reply.tool_outputs] == ["3"]
    assert Reply.of().text == ""
