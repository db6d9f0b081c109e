"""A rollout in an agent's hands: what its effects send, keep and refuse."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any

import anyio
import msgspec
import pytest
from gym_runtime import clock
from gym_runtime.adapters import Rollout
from gym_runtime.errors import DeadlineExceeded, ModelUnavailable, ResourceError, TaskError, UsageError
from gym_runtime.messages import calls
from gym_runtime.messages.responses import NULL, FunctionCall, decode_params, decode_response, user_message
from gym_runtime.messages.rollout_spec import LONG_ROW_BYTES
from gym_runtime.rollout.journal import Journal
from gym_runtime.rollout.turn import Turn
from gym_runtime.rpc.ask import Router
from gym_runtime.rpc.retry_budget import RetryBudget
from gym_testing.background import Mailbox, background, settled
from gym_testing.memory import MemoryBroker
from gym_testing.small_system import answer, function_call, message, reasoning, rollout_spec, row
from msgspec import Raw
from runtime.workers.hosting import serving

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


class Services:
    """Both services as plain functions: they note requests and give the answers that a test sets."""

    def __init__(self, router: Router) -> None:
        self.router = router
        self.model_answer = calls.pack(answer("done"))
        self.observation = calls.StepAnswer()
        self.requests: Mailbox[calls.Request] = Mailbox()
        self.calls: list[calls.ResourceCall] = []

    def rollout(self, **more: Any) -> Rollout:
        return Rollout(rollout_spec(row(), **more), 1, self.router)

    async def model(self, pool: str, request: calls.Request, budget: RetryBudget) -> Raw:
        self.requests.put(request)
        return self.model_answer

    async def resource(self, pool: str, request: calls.Request, budget: RetryBudget) -> Raw:
        self.requests.put(request)
        call = calls.decode_resource_call(request.body)
        self.calls.append(call)
        if isinstance(call, calls.CallTool):
            if call.name == "break":
                raise ResourceError("the judge is not there", stage="tool")
            return calls.pack(calls.ToolAnswer(output=call.name))
        if isinstance(call, calls.Verify):
            return Raw(b'{"reward": 1}')
        return calls.pack(self.observation)


@pytest.fixture
async def services() -> AsyncGenerator[Services]:
    async with AsyncExitStack() as stack:
        bus = await stack.enter_async_context(MemoryBroker().connect())
        router = Router(bus)
        services = Services(router)
        await stack.enter_async_context(background(router.run))
        for kind, handle, pool in (
            ("model", services.model, "policy"),
            ("resource", services.resource, "sample"),
        ):
            service = serving(bus, handle, kind=kind, worker=f"{kind}-1", pools=[pool])
            await stack.enter_async_context(service)
        await settled(lambda: router.views["resource"].knows("resource-1"))
        yield services


def called(*names: str) -> list[FunctionCall]:
    return [FunctionCall(call_id=f"call_{name}", name=name, arguments="{}") for name in names]


# -- the task -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b"[]", "the row is not a task"),
        (b'{"goal": 1}', "responses_create_params"),
        (b'{"responses_create_params": {"inputs": []}}', "inputs"),
        (b'{"responses_create_params": {"temperature": "hot"}}', "temperature"),
    ],
)
async def test_a_row_that_is_no_task_is_refused_and_says_why(
    services: Services, bad: bytes, message: str
) -> None:
    with pytest.raises(TaskError, match=message):
        Rollout(rollout_spec(bad), 1, services.router)


async def test_of_several_reasons_to_stop_the_first_stands(services: Services) -> None:
    rollout = services.rollout()
    rollout.truncate("max_turns")
    rollout.truncate("bored")
    assert rollout.truncated == "max_turns"


# -- the model ----------------------------------------------------------------------------------------


async def test_an_answer_is_kept_and_counted(services: Services) -> None:
    rollout = services.rollout(return_tokens=True)
    turn = await rollout.respond()
    assert [turned.text for turned in turn.messages] == ["done"]
    assert rollout.output == turn.response.output
    assert (rollout.turns, rollout.usage.total_tokens) == (1, 11)
    (asked,) = services.requests.items
    assert calls.decode_model_call(asked.body).return_tokens
    assert (asked.rollout, asked.attempt, asked.deadline_s) == ("run.0.0", 1, rollout.deadline_s)


@pytest.mark.parametrize("item", [{"role": "user", "content": "hi"}, "hi"])
async def test_an_item_that_is_no_json_says_what_one_is(services: Services, item: Any) -> None:
    with pytest.raises(
        UsageError, match=r"an item of the conversation is .*hi.*; it must be JSON: user_message"
    ):
        await services.rollout().respond([item])


@pytest.mark.parametrize("body", [b'{"output": 5}', b'{"output": [{"type": "function_call"}]}', b'"text"'])
async def test_an_answer_that_is_no_response_may_be_asked_for_again_and_leaves_nothing(
    services: Services, body: bytes
) -> None:
    rollout = services.rollout()
    services.model_answer = calls.pack(calls.ModelAnswer(response=Raw(body)))
    with pytest.raises(ModelUnavailable, match="not a response"):
        await rollout.respond()
    assert (rollout.turns, rollout.output) == (0, [])


@pytest.mark.parametrize(
    ("given", "names", "texts", "incomplete"),
    [
        (answer("a", "b"), [], ["a", "b"], None),
        (answer(reasoning("hm"), function_call("x"), "c"), ["x"], ["c"], None),
        (answer(message("a") | {"role": "user"}), [], [], None),
        (answer(incomplete_details={"reason": "max_output_tokens"}), [], [], "max_output_tokens"),
        (answer(incomplete_details={}), [], [], "incomplete"),
    ],
)
def test_a_turn(given: calls.ModelAnswer, names: list[str], texts: list[str], incomplete: str | None) -> None:
    turn = Turn(decode_response(given.response), None)
    assert [call.name for call in turn.function_calls] == names
    assert [message.text for message in turn.messages] == texts
    assert turn.incomplete == incomplete


# -- the environment ----------------------------------------------------------------------------------


async def test_the_row_travels_with_the_first_call_of_a_session_only(services: Services) -> None:
    rollout = services.rollout()
    await rollout.call_tools(called("a", "b"))
    await rollout.verify()
    assert [calls.opens(call) for call in services.calls] == [True, False, False]
    assert bytes(services.calls[0].task) == row()
    (session,) = {call.session for call in services.calls}
    assert session.startswith("run.0.0.1.")


@pytest.mark.parametrize(("chars", "left_out"), [(2 * LONG_ROW_BYTES, True), (100, False)])
async def test_an_environment_that_reads_no_input_is_not_sent_a_long_one(
    services: Services, chars: int, left_out: bool
) -> None:
    asked = {"input": "x" * chars, "max_output_tokens": 7}
    whole = row(responses_create_params=asked, goal=3)
    for reads in (False, True):
        rollout = Rollout(rollout_spec(whole, reads_input=reads), 1, services.router)
        await rollout.verify()
        sent = msgspec.json.decode(services.calls[-1].task)
        assert sent["responses_create_params"]["input"] == ([] if left_out and not reads else asked["input"])
        assert (sent["goal"], sent["responses_create_params"]["max_output_tokens"]) == (3, 7)
        assert bytes(rollout.params.input)[1:-1].decode() == asked["input"]  # what its record says


async def test_tools_at_once_open_the_session_before(services: Services) -> None:
    rollout = services.rollout(parallel_tools=True)
    await rollout.call_tools(called("a", "b", "c"))
    await rollout.call_tools(called("d", "e"))
    assert [type(call).__name__ for call in services.calls] == ["OpenSession"] + ["CallTool"] * 5
    assert [calls.opens(call) for call in services.calls] == [True, *[False] * 5]


async def test_every_call_has_a_key_of_its_own(services: Services) -> None:
    rollout = services.rollout(parallel_tools=True)
    await rollout.respond()
    await rollout.call_tools(called("a", "b"))
    await rollout.verify()
    again = Rollout(rollout.task, 2, services.router)
    await again.respond()
    keys = [asked.key for asked in services.requests.items]
    assert all(keys)
    assert len(set(keys)) == len(keys) == 6


@pytest.mark.parametrize(
    ("worker", "replayable", "used"),
    [("one", True, True), ("", True, False), ("one", False, True), ("", False, True)],
)
async def test_a_session_that_no_worker_has_answered_from_is_left_to_its_attempt(
    services: Services, worker: str, replayable: bool, used: bool
) -> None:
    """Else an attempt that was overtaken opened it again after its end, and a later one was judged by it."""
    journal = Journal(None, "")
    journal.session, journal.worker = "earlier", worker
    Rollout(rollout_spec(row(), replayable=replayable), 2, services.router, journal=journal)
    assert (journal.session == "earlier") == used


@pytest.mark.parametrize("parallel_tools", [False, True])
async def test_what_fails_in_the_environment_is_raised_as_it_is(
    services: Services, parallel_tools: bool
) -> None:
    rollout = services.rollout(parallel_tools=parallel_tools)
    with pytest.raises(ResourceError, match="the judge is not there") as raised:
        await rollout.call_tools(called("a", "break", "b"))
    assert raised.value.stage == "tool"
    assert rollout.output == []


async def test_closing_reaches_the_session_and_needs_one(services: Services) -> None:
    rollout = services.rollout()
    await rollout.close()
    await rollout.call_tools(called("a"))
    await rollout.close()
    await services.requests.until(2)
    assert services.calls[1:] == [calls.CloseSession(session=services.calls[0].session)]


async def test_after_the_deadline_nothing_is_asked_but_the_session_is_closed(services: Services) -> None:
    rollout = services.rollout(timeout_s=10)
    await rollout.call_tools(called("a"))
    await anyio.sleep(11)
    for effect in (rollout.respond, rollout.verify, rollout.reset):
        with pytest.raises(DeadlineExceeded, match="longer than 10 s"):
            await effect()
    await rollout.close()
    await services.requests.until(2)
    assert services.calls[1:] == [calls.CloseSession(session=services.calls[0].session)]
    assert services.requests.items[1].deadline_s > clock.monotonic()


# -- the whole ----------------------------------------------------------------------------------------


async def test_a_rollout_without_any_answer_is_an_incomplete_response(services: Services) -> None:
    response = services.rollout().response()
    assert (response.status, response.output) == ("incomplete", [])


async def test_the_response_so_far_is_there_at_any_time(services: Services) -> None:
    rollout = services.rollout()
    for turn in range(1, 4):
        await rollout.respond()
        await rollout.call_tools(called("a"))
        response = rollout.response()
        assert len(response.output) == 2 * turn
        assert response.usage is not None
        assert response.usage.total_tokens == 11 * turn


async def test_the_model_is_offered_an_episodes_tools_besides_the_rows(services: Services) -> None:
    own, offered = Raw(b'{"name":"own"}'), Raw(b'{"name":"offered"}')
    services.observation = calls.StepAnswer(items=[user_message("Go.")], tools=[offered])
    task = row(responses_create_params={"input": [], "tools": [{"name": "own"}]})
    rollout = Rollout(rollout_spec(task), 1, services.router)
    await rollout.reset()
    await rollout.respond()
    asked = calls.decode_model_call(services.requests.items[-1].body)
    assert decode_params(asked.params).tools == [own, offered]
    assert asked.input == [user_message("Go.")]
    assert rollout.params.tools == [own, offered]


async def test_the_tool_calls_that_a_step_hands_over_count(services: Services) -> None:
    services.observation = calls.StepAnswer(items=[user_message("Go on.")])
    services.model_answer = calls.pack(
        answer("I look.", function_call("look", "{}", "a"), function_call("look", "no JSON", "b"))
    )
    rollout = services.rollout()
    await rollout.step(await rollout.respond())
    services.model_answer = calls.pack(answer("done"))
    await rollout.step(await rollout.respond())
    assert (rollout.tool_calls, rollout.facts().tool_calls) == (2, 2)


async def test_a_step_may_offer_further_tools(services: Services) -> None:
    first, later = Raw(b'{"name":"first"}'), Raw(b'{"name":"later"}')
    services.observation = calls.StepAnswer(tools=[first])
    kept = 2  # the worker keeps the question and the answer, so it would be sent the new items alone
    services.model_answer = calls.pack(msgspec.structs.replace(answer("done"), kept=kept))
    rollout = services.rollout()
    await rollout.reset()
    for tools in ([], [later], []):
        turn = await rollout.respond()
        services.observation = calls.StepAnswer(items=[user_message("Go on.")], tools=tools)
        services.model_answer = calls.pack(msgspec.structs.replace(answer("done"), kept=(kept := kept + 2)))
        await rollout.step(turn)
    asked = [
        calls.decode_model_call(request.body)
        for request in services.requests.items
        if bytes(request.body).startswith(b'{"params"')
    ]
    offered = [decode_params(one.params).tools if one.params != NULL else None for one in asked]
    assert offered == [[first], None, [first, later]]
    assert [len(one.input) for one in asked] == [1, 1, 5]
