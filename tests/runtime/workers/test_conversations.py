"""Conversations by delta, and their segments."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager

import anyio
import msgspec
import pytest
from gym_runtime import Environment, tool
from gym_runtime.bus.interface import Incoming
from gym_runtime.errors import ConversationUnknown
from gym_runtime.messages import calls, metric_names
from gym_runtime.messages.call_tokens import chained
from gym_runtime.messages.outcomes import Completed
from gym_runtime.rollout.journal import journal_subject
from gym_runtime.workers.conversations import CONVERSATION_IDLE_S, Conversations
from gym_testing.background import Mailbox
from gym_testing.small_system import (
    Engine,
    SmallSystem,
    Turn,
    answer,
    environment,
    rollout_spec,
    row,
    small_system,
)
from msgspec import Raw
from runtime.workers.desk import LONG, Desk, about, desk, int32, with_tokens, working

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


TURNS = 30


@asynccontextmanager
async def overheard(system: SmallSystem) -> AsyncGenerator[Mailbox[Incoming]]:
    """What agents send to models."""
    heard: Mailbox[Incoming] = Mailbox()
    async with system.bus.serve("model.policy.*", heard.put):
        yield heard


def sent(incoming: Incoming) -> calls.ModelCall:
    return calls.decode_model_call(calls.decode_request(incoming.payload).body)


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
    assert call.prefix == calls.Prefix(ids=int32(1, 2, 3), items=2, completion=1)


async def test_the_adapter_is_given_the_tokens_of_the_turns_before() -> None:
    turns = [with_tokens(one, int32(*range(3 * n)), int32(3 * n)) for n, one in enumerate(working(2))]
    engine = Engine(*turns)
    async with desk() as system:
        await system.add_model(engine)
        await system.make(rollout_spec(row(), return_tokens=True))
    prefixes = [call.prefix for call, _ in engine.calls.items]
    assert prefixes == [None, None, calls.Prefix(ids=int32(0, 1, 2, 3), items=4, completion=1)]


async def test_the_first_call_of_an_attempt_says_so() -> None:
    engine = Engine(*working(2))
    async with desk() as system:
        await system.add_model(engine)
        await system.make(rollout_spec(row()))
    assert [call.first for call, _ in engine.calls.items] == [True, False, False]


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


def test_a_segment_ends_where_a_prompt_does_not_start_with_what_was_before() -> None:
    def one(prompt: bytes, made: bytes) -> calls.Tokens:
        return calls.Tokens(prompt_ids=prompt, generation_ids=made)

    kept = [one(int32(1), int32(2)), one(int32(1, 2, 3), int32(4))]
    anew = [one(int32(1, 9), int32(5)), one(int32(1, 9, 5, 6), int32(7))]
    assert [one.segment for one in chained(dict(enumerate(kept + anew)))] == [0, 0, 1, 1]


async def test_a_row_says_which_items_begin_a_new_segment() -> None:
    turns = working(2)
    prompts = [(int32(1), int32(2)), (int32(1, 2, 3), int32(4)), (int32(1, 9), int32(5))]
    engine = Engine(*[with_tokens(turn, *ids) for turn, ids in zip(turns, prompts, strict=True)])
    async with small_system() as system:
        await system.add_resource(environment(Environment(resource=Desk, description=""), "sample"))
        await system.add_model(engine)
        agent = await system.add_agent()
        (record,) = await system.make(rollout_spec(row(), return_tokens=True))
    output = msgspec.json.decode(record.row)["response"]["output"]
    assert [item.get("token_segment") for item in output] == [None, None, None, None, 1]
    assert about(record)["token_segments"] == 2
    assert about(record)["tokens_resampled"] == 2  # the third prompt has neither of the answers
    counted = agent.meter.figures()
    of_both = {"gym.environment": record.environment, "gym.pool": "policy"}
    assert counted.total(metric_names.RESAMPLED, of_both) == counted.total(metric_names.RESAMPLED) == 2


async def test_token_ids_travel_and_are_stored_once() -> None:
    prompt = list(range(5000))
    turns: list[Turn] = []
    for number, turn in enumerate(working(20)):
        turns.append(with_tokens(turn, int32(*prompt), int32(number)))
        prompt += [number, number + 1]
    task = rollout_spec(row(), return_tokens=True, packed_tokens=True)
    async with desk() as system:
        await system.add_model(Engine(*turns))
        (record,) = await system.make(task)
        subject = journal_subject(task.run, task.task_index, task.rollout_index)
        async with aclosing(system.bus.records(subject)) as journal:
            sizes = [len((await anext(journal)).payload) for _ in turns]
    assert sizes[0] > 20_000
    assert max(sizes[1:]) < 3_000
    output = msgspec.json.decode(record.row)["response"]["output"]
    written = [one["prompt_token_ids"] for one in output if "prompt_token_ids" in one]
    assert written == [list(range(5000)) + prompt[5000 : 5000 + 2 * turn] for turn in range(21)]


def test_a_conversation_that_went_on_otherwise_is_not_continued() -> None:
    conversations = Conversations()
    call = calls.ModelCall(params=Raw(b"{}"), input=[], conversation="c")
    first = conversations.keep(call, answer("a"))
    again = conversations.keep(call, answer("b"))
    assert first.mark != again.mark
    known = msgspec.structs.replace(call, known=1)
    with pytest.raises(ConversationUnknown):
        conversations.complete(msgspec.structs.replace(known, mark=first.mark))
    assert conversations.complete(msgspec.structs.replace(known, mark=again.mark)).input
    # An agent of an earlier version names no mark.
    assert conversations.complete(known).input


def test_notes_go_with_one_call_and_come_back_with_its_answer() -> None:
    conversations = Conversations(limit_bytes=10_000)
    call = calls.ModelCall(params=Raw(b"{}"), input=[], conversation="c")
    notes = conversations.notes(call)
    notes["seen"] = 1
    conversations.keep(call, answer("a"), notes)
    known = msgspec.structs.replace(call, known=1)
    assert conversations.notes(known) == {"seen": 1}
    assert conversations.notes(known) == {}
    notes.size_bytes = 20_000
    assert conversations.keep(call, answer("a"), notes).kept == 0


async def test_an_agent_that_resumes_reads_short_prompts_of_its_predecessor() -> None:
    prompts = [[1, 2], [1, 2, 10, 3], [1, 2, 10, 3, 11, 4], [1, 2, 10, 3, 11, 4, 12, 5]]
    turns = [
        with_tokens(turn, int32(*prompt), int32(10 + number))
        for number, (turn, prompt) in enumerate(zip(working(3), prompts, strict=True))
    ]
    engine = Engine(*turns, by_attempt={2: turns[3:]})
    async with desk() as system:

        class Ending(Desk):
            @tool
            def work(self) -> str:
                if len(engine.calls.items) == 3:
                    system.kill("agent-1")
                return LONG

        ending = environment(Environment(resource=Ending, description=""), "ending")
        await system.add_resource(ending, name="resource-2")
        await system.add_model(engine)
        task = rollout_spec(row(), environment="ending", return_tokens=True, packed_tokens=True)
        await system.enqueue(task)
        await engine.calls.until(3)
        await system.add_agent(name="agent-2")
        (record,) = await system.records(1)
    assert about(record)["resumed_turns"] == 3
    output = msgspec.json.decode(record.row)["response"]["output"]
    assert [one["prompt_token_ids"] for one in output if "prompt_token_ids" in one] == prompts
    assert engine.calls.items[-1][0].prefix == calls.Prefix(ids=int32(*prompts[2], 12), items=6, completion=1)
