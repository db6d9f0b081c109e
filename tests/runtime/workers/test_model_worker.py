"""The model worker: one engine behind a service, asked again where that may help."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

import anyio
import msgspec
import pytest
from gym_models.scripted import Adapter as Scripted
from gym_runtime import clock, logs
from gym_runtime.bus.interface import Bus
from gym_runtime.errors import GymError, ModelRefused, ModelUnavailable
from gym_runtime.messages import calls, metric_names
from gym_runtime.messages.responses import Response, Usage, decode_response
from gym_runtime.workers.adapter import Adapter, CallContext, ModelSettings
from gym_runtime.workers.model_worker import MAX_TRIES, ModelWorker
from gym_testing.background import Mailbox, background
from gym_testing.memory import MemoryBroker
from msgspec import Raw
from runtime.workers.hosting import at_work, call, request

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

CALL = calls.ModelCall(params=Raw(b"{}"), input=[Raw(b'{"role":"user","content":"hi"}')])
ANSWER = calls.ModelAnswer(response=Raw(b'{"id":"r"}'))


class Engine:
    """An adapter whose answers a test decides, by how often it was asked."""

    def __init__(self, answer: Callable[[int], calls.ModelAnswer | BaseException]) -> None:
        self.asked_s: list[float] = []
        self.contexts: list[CallContext] = []
        self._answer = answer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    async def respond(self, call: calls.ModelCall, context: CallContext) -> calls.ModelAnswer:
        self.asked_s.append(clock.monotonic())
        self.contexts.append(context)
        answer = self._answer(len(self.asked_s))
        if isinstance(answer, BaseException):
            raise answer
        return answer


@asynccontextmanager
async def working(adapter: Any, capacity: int = 100) -> AsyncGenerator[Bus]:
    engine: Adapter = adapter
    async with MemoryBroker().connect() as bus, engine:
        worker = ModelWorker(bus, worker="one", pools=["policy"], adapter=engine, capacity=capacity)
        async with at_work(worker):
            yield bus


async def test_a_call_is_answered_by_the_adapter() -> None:
    async with working(Scripted(ModelSettings.parse("scripted/echo"))) as bus:
        reply = await call(bus, "model.policy", request(CALL, rollout="run.0.0"))
    response = decode_response(calls.decode_model_answer(reply.body).response)
    assert b'"text":"hi"' in bytes(response.output[0])


async def test_the_adapter_learns_whose_call_it_is_and_until_when() -> None:
    engine = Engine(lambda asked: ANSWER)
    async with working(engine) as bus:
        asked = request(CALL, rollout="run.3.1", attempt=2, within_s=77)
        await call(bus, "model.policy", asked)
    assert engine.contexts == [
        CallContext(rollout="run.3.1", attempt=2, deadline_s=asked.deadline_s, headers={})
    ]


async def test_an_engine_that_refuses_is_asked_once() -> None:
    engine = Engine(lambda asked: ModelRefused("the key is wrong"))
    async with working(engine) as bus:
        fault = (await call(bus, "model.policy", request(CALL))).fault
    assert fault is not None
    assert (fault.name, fault.stage, fault.retryable) == ("ModelRefused", "model", False)
    assert len(engine.asked_s) == 1


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        (
            ConnectionRefusedError(111, "no"),
            r"ConnectionRefusedError: \[Errno 111\] no \(.*test_model_worker.py:",
        ),
        (SystemExit(2), r"SystemExit: 2 \(.*test_model_worker.py:"),
    ],
)
async def test_another_exception_of_an_adapter_is_a_bug_of_it_and_costs_its_call_alone(
    raised: BaseException, message: str
) -> None:
    """An adapter says what is transient; what it lets through may be its own open file."""
    engine = Engine(lambda asked: ANSWER if asked > 1 else raised)
    async with working(engine) as bus:
        fault = (await call(bus, "model.policy", request(CALL))).fault
        assert fault is not None
        assert (fault.kind, fault.retryable) == ("runtime", False)
        assert re.match(message, fault.message)
        assert len(engine.asked_s) == 1
        assert (await call(bus, "model.policy", request(CALL))).fault is None


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (None, "respond returned NoneType; it must return ModelAnswer(response=Raw(...))"),
        (calls.ModelAnswer(response=b"{}"), "respond returned ModelAnswer(response=bytes); it must"),  # type: ignore
        (
            calls.ModelAnswer(response=Raw(b"hello")),
            "the model's answer is not a response: JSON is malformed",
        ),
    ],
)
async def test_an_adapter_that_returns_no_answer_is_named(returned: Any, words: str) -> None:
    engine = Engine(lambda asked: ANSWER if asked > 1 else returned)
    in_conversation = msgspec.structs.replace(CALL, conversation="one")
    async with working(engine) as bus:
        fault = (await call(bus, "model.policy", request(in_conversation))).fault
        assert fault is not None
        assert (fault.kind, fault.stage) == ("model", "model")
        assert words in fault.message
        assert (await call(bus, "model.policy", request(in_conversation))).fault is None


async def test_an_engine_that_is_overloaded_is_asked_again_until_it_answers() -> None:
    engine = Engine(lambda asked: ANSWER if asked == 4 else ModelUnavailable("overloaded"))
    async with working(engine) as bus:
        reply = await call(bus, "model.policy", request(CALL, within_s=600))
    assert reply.fault is None
    pauses_s = [after - before for before, after in zip(engine.asked_s, engine.asked_s[1:], strict=False)]
    assert pauses_s[0] >= 0.1
    assert pauses_s == sorted(pauses_s) or pauses_s[-1] > pauses_s[0]


async def test_each_try_is_counted_with_its_error_and_its_tokens() -> None:
    usage = Usage(input_tokens=7, output_tokens=3, total_tokens=10)
    full = calls.ModelAnswer(response=Raw(msgspec.json.encode(Response(usage=usage))))
    engine = Engine(lambda asked: full if asked == 3 else ModelUnavailable("overloaded"))
    async with MemoryBroker().connect() as bus:
        worker = ModelWorker(
            bus, worker="one", pools=["policy"], adapter=engine, capacity=1, model=("openai", "q")
        )
        async with at_work(worker):
            await call(bus, "model.policy", request(CALL, within_s=600))
    found = worker.meter.figures()
    of_model = {"gen_ai.provider.name": "openai", "gen_ai.request.model": "q"}
    duration, tokens = metric_names.ENGINE_DURATION, metric_names.ENGINE_TOKENS
    assert found.distribution(duration, {**of_model, "error.type": "ModelUnavailable"}).count == 2
    assert found.distribution(duration, {**of_model, "error.type": ""}).count == 1
    assert found.distribution(tokens, {**of_model, "gen_ai.token.type": "input"}).total == 7
    assert found.distribution(tokens, {**of_model, "gen_ai.token.type": "output"}).total == 3
    assert found.total(metric_names.RETRIES, {"error.type": "ModelUnavailable"}) == 2


async def test_each_reason_to_ask_again_is_a_warning_once(capsys: pytest.CaptureFixture[str]) -> None:
    """The others of a burst are not, nor is a reason that differs in its numbers."""
    reasons = ["busy, request 1", "gone", "busy, request 2", "gone", "busy, request 3"]
    waits_s = [1, 60, 60, 60, 60]

    def outcome(asked: int) -> calls.ModelAnswer | GymError:
        if asked > len(reasons):
            return ANSWER
        return ModelUnavailable(reasons[asked - 1], retry_after_s=waits_s[asked - 1])

    logs.start()
    async with working(Engine(outcome)) as bus:
        assert (await call(bus, "model.policy", request(CALL, within_s=36000))).fault is None
    said = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["level"], line["error"]) for line in said] == [
        ("warning", "busy, request 1"),
        ("warning", "gone"),
    ]
    assert said[1]["wait_s"] == 60


async def test_an_engine_that_stays_overloaded_is_asked_a_bounded_number_of_times() -> None:
    engine = Engine(lambda asked: ModelUnavailable("overloaded"))
    async with working(engine) as bus:
        fault = (await call(bus, "model.policy", request(CALL, within_s=36000))).fault
    assert fault is not None
    assert (fault.name, fault.retryable) == ("ModelUnavailable", True)
    assert len(engine.asked_s) == MAX_TRIES


async def test_the_pause_that_an_engine_asks_for_is_kept() -> None:
    engine = Engine(lambda asked: ANSWER if asked == 2 else ModelUnavailable("later", retry_after_s=17))
    async with working(engine) as bus:
        assert (await call(bus, "model.policy", request(CALL, within_s=600))).fault is None
    assert 17 <= engine.asked_s[1] - engine.asked_s[0] < 18


async def test_nothing_is_waited_for_that_comes_after_the_deadline() -> None:
    engine = Engine(lambda asked: ModelUnavailable("later", retry_after_s=100))
    async with working(engine) as bus:
        started_s = clock.monotonic()
        fault = (await call(bus, "model.policy", request(CALL, within_s=60))).fault
    assert fault is not None
    assert (fault.name, fault.message) == ("ModelUnavailable", "later")
    assert clock.monotonic() == started_s


async def test_cancelling_a_call_cancels_it_in_the_adapter() -> None:
    ended: Mailbox[str] = Mailbox()

    class Slow(Engine):
        async def respond(self, call: calls.ModelCall, context: CallContext) -> calls.ModelAnswer:
            ended.put("begun")
            try:
                await anyio.sleep(3600)
            finally:
                ended.put("ended")
            return ANSWER

    async with (
        working(Slow(lambda asked: ANSWER)) as bus,
        background(lambda: call(bus, "model.policy", request(CALL, key="run.1"))),
    ):
        await ended.until(1)
        await bus.publish("abort.one", b"run.1")
        assert await ended.until(2) == ["begun", "ended"]


async def test_a_call_that_cannot_be_read_is_a_fault(capsys: pytest.CaptureFixture[str]) -> None:
    async with working(Engine(lambda asked: ANSWER)) as bus:
        fault = (await call(bus, "model.policy", request({"input": 3}))).fault
    assert fault is not None
    assert fault.kind == "runtime"
