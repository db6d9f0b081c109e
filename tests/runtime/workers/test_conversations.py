"""Conversations by delta, exact prefixes, versions of the weights: what a model worker keeps and says."""

from __future__ import annotations

from array import array
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest
from gym_runtime import Environment, Reply, Session, Task, Verdict, clock, tool
from gym_runtime.bus.interface import Incoming
from gym_runtime.errors import ConversationUnknown, ModelRefused
from gym_runtime.messages import calls
from gym_runtime.messages.outcomes import Completed, Failed, RolloutRecord
from gym_runtime.rollout.record import segments
from gym_runtime.rollout.staleness import staleness
from gym_runtime.testing.background import Mailbox
from gym_runtime.testing.small_system import (
    Engine,
    SmallSystem,
    answer,
    environment,
    function_call,
    rollout_spec,
    row,
    small_system,
)
from gym_runtime.testing.virtual_clock import BACKEND
from gym_runtime.timing import CONVERSATION_IDLE_S
from gym_runtime.workers.conversations import Conversations
from msgspec import Raw
from runtime.workers.hosting import announced

pytestmark = pytest.mark.anyio

TURNS = 30
LONG = "x" * 2000


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return BACKEND


class DeskTask(Task):
    pass


class Desk(Session[DeskTask]):
    @tool
    def work(self) -> str:
        return LONG

    async def verify(self, reply: Reply) -> Verdict:
        return Verdict(1.0)


def int32(*ids: int) -> bytes:
    return array("i", ids).tobytes()


def with_tokens(turn: calls.ModelAnswer, prompt: bytes, made: bytes, **more: Any) -> calls.ModelAnswer:
    tokens = calls.Tokens(prompt_ids=prompt, generation_ids=made, log_probs=bytes(len(made)), **more)
    return msgspec.structs.replace(turn, tokens=tokens)


def working(turns: int) -> list[calls.ModelAnswer]:
    return [answer(function_call("work", call_id=f"c{turn}")) for turn in range(turns)] + [answer("done")]


@asynccontextmanager
async def desk() -> AsyncGenerator[SmallSystem]:
    async with small_system() as system:
        await system.add_resource(environment(Environment(resource=Desk, description=""), "sample"))
        await system.add_agent()
        yield system


@asynccontextmanager
async def overheard(system: SmallSystem) -> AsyncGenerator[Mailbox[Incoming]]:
    """What agents send to models."""
    heard: Mailbox[Incoming] = Mailbox()
    async with system.bus.serve("model.policy.*", heard.put):
        yield heard


def sent(incoming: Incoming) -> calls.ModelCall:
    return calls.decode_model_call(calls.decode_request(incoming.payload).body)


def about(record: RolloutRecord) -> dict[str, Any]:
    return msgspec.json.decode(record.row)["_gym"]


# -- by delta -------------------------------------------------------------------------------------------


async def test_a_turn_sends_what_is_new_and_the_engine_sees_all_of_it() -> None:
    engine = Engine(*working(TURNS))
    async with desk() as system, overheard(system) as heard:
        await system.add_model(engine)
        (record,) = await system.make(rollout_spec(row()))
    assert record.outcome == Completed()
    assert [len(call.input) for call, _ in engine.calls.items] == [1 + 2 * turn for turn in range(TURNS + 1)]
    assert {bytes(call.params) for call, _ in engine.calls.items} == {bytes(engine.calls.items[0][0].params)}
    later = heard.items[1:]
    assert [sent(one).known for one in later] == [2 * turn + 2 for turn in range(TURNS)]
    assert max(len(one.payload) for one in later) < len(LONG) + 500


async def test_a_rollout_keeps_to_the_worker_that_has_its_conversation() -> None:
    engines = [Engine(*working(8)), Engine(*working(8))]
    async with desk() as system:
        for number, engine in enumerate(engines):
            await system.add_model(engine, name=f"model-{number}")
        await system.make(*[rollout_spec(row(), task=task) for task in range(12)])
    seen = [{context.rollout for _, context in engine.calls.items} for engine in engines]
    assert not seen[0] & seen[1]
    assert len(seen[0] | seen[1]) == 12


async def test_whoever_lacks_the_conversation_gets_all_of_it_and_its_tokens() -> None:
    first = Engine(with_tokens(working(1)[0], int32(1, 2), int32(3)), answer("never"))
    second = Engine(answer("done"))
    async with desk() as system:
        await system.add_model(first, name="model-1")

        class Leaving(Desk):
            @tool
            def work(self) -> str:
                system.kill("model-1")
                return LONG

        leaving = environment(Environment(resource=Leaving, description=""), "leaving")
        await system.add_resource(leaving, name="resource-2")
        await system.enqueue(rollout_spec(row(), environment="leaving", return_tokens=True))
        await first.calls.until(1)
        await system.add_model(second, name="model-2")
        (record,) = await system.records(1)
    assert record.outcome == Completed()
    ((call, _),) = second.calls.items
    assert (call.known, len(call.input)) == (0, 3)
    assert call.prefix == calls.Prefix(ids=int32(1, 2, 3), items=2)


async def test_the_adapter_is_given_the_tokens_of_the_turns_before() -> None:
    turns = [with_tokens(one, int32(*range(3 * n)), int32(3 * n)) for n, one in enumerate(working(2))]
    engine = Engine(*turns)
    async with desk() as system:
        await system.add_model(engine)
        await system.make(rollout_spec(row(), return_tokens=True))
    prefixes = [call.prefix for call, _ in engine.calls.items]
    assert prefixes == [None, None, calls.Prefix(ids=int32(0, 1, 2, 3), items=4)]


def test_what_is_kept_is_bounded_and_what_is_dropped_is_asked_for() -> None:
    conversations = Conversations(limit_bytes=20_000)
    made = answer("a" * 500)
    call = calls.ModelCall(params=Raw(b"{}"), input=[Raw(b'"hi"')], conversation="0")
    for number in range(20):
        name = str(number)
        assert conversations.keep(msgspec.structs.replace(call, conversation=name), made).kept == 2
    assert conversations.size_bytes <= 20_000
    assert 0 < len(conversations) < 20
    with pytest.raises(ConversationUnknown):
        conversations.complete(msgspec.structs.replace(call, known=2))
    last = conversations.complete(
        msgspec.structs.replace(call, params=Raw(b"null"), conversation="19", known=2)
    )
    assert (bytes(last.params), last.known, len(last.input)) == (b"{}", 0, 3)
    with pytest.raises(ConversationUnknown):
        conversations.complete(msgspec.structs.replace(call, conversation="19", known=1))


async def test_what_nobody_continues_is_forgotten() -> None:
    conversations = Conversations()
    call = calls.ModelCall(params=Raw(b"{}"), input=[], conversation="old")
    conversations.keep(call, answer("a"))
    await anyio.sleep(CONVERSATION_IDLE_S + 1)
    conversations.keep(msgspec.structs.replace(call, conversation="new"), answer("a"))
    assert len(conversations) == 1
    assert conversations.complete(msgspec.structs.replace(call, conversation="new", known=1)).input


def test_a_conversation_that_is_too_large_to_be_kept_is_said_not_to_be() -> None:
    conversations = Conversations(limit_bytes=100)
    call = calls.ModelCall(params=Raw(b"{}"), input=[], conversation="c")
    assert conversations.keep(call, answer("a" * 500)).kept == 0
    assert conversations.size_bytes == 0


# -- segments -------------------------------------------------------------------------------------------


def test_a_segment_ends_where_a_prompt_does_not_start_with_what_was_before() -> None:
    def one(prompt: bytes, made: bytes) -> calls.Tokens:
        return calls.Tokens(prompt_ids=prompt, generation_ids=made)

    kept = [one(int32(1), int32(2)), one(int32(1, 2, 3), int32(4))]
    anew = [one(int32(1, 9), int32(5)), one(int32(1, 9, 5, 6), int32(7))]
    assert segments(dict(enumerate(kept + anew))) == [0, 0, 1, 1]


async def test_a_row_says_which_items_begin_a_new_segment() -> None:
    turns = working(2)
    prompts = [(int32(1), int32(2)), (int32(1, 2, 3), int32(4)), (int32(1, 9), int32(5))]
    engine = Engine(*[with_tokens(turn, *ids) for turn, ids in zip(turns, prompts, strict=True)])
    async with desk() as system:
        await system.add_model(engine)
        (record,) = await system.make(rollout_spec(row(), return_tokens=True))
    output = msgspec.json.decode(record.row)["response"]["output"]
    assert [item.get("token_segment") for item in output] == [None, None, None, None, 1]
    assert about(record)["token_segments"] == 2


# -- weights --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("used", "current", "lag"),
    [
        (["7"], ["7"], 0),
        (["7", "8"], ["10"], 3),
        (["step-9"], ["step-10", "step-11"], 2),
        (["12"], ["9"], 0),
        (["base"], ["base"], 0),
        (["base"], ["7"], 1),
        (["7"], [], 0),
        (["7"], [""], 0),
        ([], ["7"], 0),
    ],
)
def test_how_far_weights_lie_behind(used: list[str], current: list[str], lag: int) -> None:
    assert staleness(used, current) == lag


async def test_a_row_names_the_weights_that_answered() -> None:
    spans = [calls.WeightSpan(version="v1", start=0, end=1), calls.WeightSpan(version="v2", start=1, end=2)]
    first = msgspec.structs.replace(working(1)[0], weight_version="v1")
    second = with_tokens(answer("done"), int32(1), int32(2, 3), weights=spans)
    async with desk() as system:
        await system.add_model(Engine(first, second))
        (record,) = await system.make(rollout_spec(row()))
    assert about(record)["weight_versions"] == ["v1", "v2"]


@pytest.mark.parametrize(("allowed", "asked"), [(2, 1), (None, 1), (1, 3)])
async def test_a_rollout_from_weights_older_than_its_run_allows_is_made_anew(
    allowed: int | None, asked: int
) -> None:
    engine = Engine(msgspec.structs.replace(answer("done"), weight_version="5"))
    async with desk() as system:
        await system.add_model(engine)
        async with announced(
            system.bus, "model", "newer", ["policy"], draining=True, detail={"weight_version": "7"}
        ):
            (record,) = await system.make(rollout_spec(row(), max_staleness=allowed))
    assert len(engine.calls.items) == asked
    if asked == 1:
        assert record.outcome == Completed()
    else:
        assert isinstance(record.outcome, Failed)
        assert record.outcome.fault.name == "StaleWeights"
        assert "2 versions old" in record.outcome.fault.message


class Weighted(Engine):
    """An engine whose weights can be changed."""

    def __init__(self) -> None:
        super().__init__(answer("done"))
        self.state = calls.ControlAnswer(version="1")

    async def control(self, command: calls.Control) -> calls.ControlAnswer:
        if command.op == "update" and not command.path:
            raise ModelRefused("no path")
        if command.op in ("pause", "resume"):
            self.state = msgspec.structs.replace(self.state, paused=command.op == "pause")
        if command.version:
            self.state = msgspec.structs.replace(self.state, version=command.version)
        return self.state


async def control(system: SmallSystem, command: object) -> calls.RpcReply:
    body = calls.encode(command)
    answered = await system.bus.request("control.model-1", body, deadline_s=clock.now() + 60)
    return calls.decode_reply(answered)


async def test_weights_are_changed_through_the_worker() -> None:
    async with desk() as system:
        worker = await system.add_model(Weighted())
        assert worker.weight_version == "1"
        paused = await control(system, calls.Control(op="pause"))
        assert worker.paused
        assert calls.decode_control_answer(paused.body) == calls.ControlAnswer(paused=True, version="1")
        await control(system, calls.Control(op="update", version="2", path="/weights"))
        await control(system, calls.Control(op="resume"))
        assert (worker.paused, worker.weight_version) == (False, "2")
        refused = await control(system, calls.Control(op="update"))
        assert refused.fault is not None
        assert refused.fault.message == "no path"


async def test_an_adapter_without_weights_says_so_and_serves_on() -> None:
    async with desk() as system:
        await system.add_model(Engine(answer("done")))
        refused = await control(system, calls.Control(op="pause"))
        assert refused.fault is not None
        assert "cannot change weights" in refused.fault.message
        unreadable = await control(system, {"op": "dance"})
        assert unreadable.fault is not None
        (record,) = await system.make(rollout_spec(row()))
    assert record.outcome == Completed()
