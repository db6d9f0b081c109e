"""A trainer's engine as a model of a small system, and its rollouts as trainers take them."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import anyio
import anyio.to_thread
import pytest
from gym_runtime import Environment, Reply, RolloutRecord, Task, Verdict
from gym_runtime.adapters import Adapter, CallContext, ModelCall
from gym_runtime.client.serving import serve_on
from gym_runtime.environment import catalogue
from gym_runtime.errors import UsageError
from gym_runtime.messages.outcomes import Failed, Truncated
from gym_testing.small_system import SmallSystem, environment, row, small_system
from gym_trainers.hermes import Said, said
from gym_trainers.token_engine import Read, Sampled, TokenEngine, library_renderer
from gym_trainers.training_rollouts import ROW, Piece, dataset_rows, pieces, standing_in, why_failed
from msgspec import Raw
from tables import table
from trainers.trainers_engine import (
    CALL,
    COUNTER,
    END_ID,
    ByteTokenizer,
    TurnEngine,
    counter_row,
    rows_text,
)

pytestmark = pytest.mark.anyio


class Made:
    """A system whose model is a trainer's engine."""

    def __init__(self, system: SmallSystem, engine: TurnEngine, pool: str) -> None:
        self.engine = engine
        self._system = system
        self._pool = pool

    async def rollouts(self, *rows: str, **settings: Any) -> list[RolloutRecord]:
        settings = {"model_pool": self._pool, "return_token_ids": True, "ordered": True, **settings}
        return [record async for record in self._system.client.rollouts(rows, **settings)]


@asynccontextmanager
async def made(
    *texts: str,
    context: int = 1000,
    read: Read | None = None,
    renderer: Any = None,
    tokenizer: ByteTokenizer | None = None,
) -> AsyncIterator[Made]:
    tokenizer = tokenizer or ByteTokenizer()
    engine = TurnEngine(tokenizer)
    left = list(texts)

    async def generate(prompt: list[int], sampling: dict[str, Any], rollout: str) -> Sampled:
        ids = engine.sample(prompt, sampling, left[0])
        left.pop(0)
        return Sampled(ids, engine.log_probs(ids), cut=ids[-1] != END_ID, version="step-3")

    adapter = TokenEngine(tokenizer, generate, context=context, read=read, renderer=renderer)
    async with small_system() as system:
        await system.add_resource(catalogue.environment(COUNTER), environment(_SAYS, "says"))
        await system.add_agent()
        async with (
            system.broker.connect("trainer") as bus,
            serve_on(bus, cast("Adapter", adapter)) as pool,
        ):
            yield Made(system, engine, pool)


async def _verify(task: Task, reply: Reply) -> Verdict:
    return Verdict(float(reply.text == "yes"))


_SAYS = Environment(resource=_verify, description="Says yes.")


def says(**params: Any) -> str:
    fields = json.loads(row())
    fields["responses_create_params"].update(params)
    return json.dumps({**fields, "agent_ref": {"name": "says"}})


@pytest.mark.slow
async def test_turns_are_one_sequence_of_what_the_engine_sampled() -> None:
    async with made(CALL, "Done.") as here:
        (record,) = await here.rollouts(*rows_text(counter_row()))
    assert (record.reward, record.turns, record.tool_calls) == (1.0, 2, 1)
    (piece,) = pieces(record)
    (first_prompt, first), (second_prompt, second) = here.engine.seen
    # Exactly: the second prompt begins with all ids before it, and no token was made again.
    assert second_prompt[: len(first_prompt) + len(first)] == first_prompt + first
    assert piece.prompt_ids == first_prompt
    assert piece.prompt_ids + piece.response_ids == second_prompt + second
    between = len(second_prompt) - len(first_prompt) - len(first)
    assert piece.mask == [1] * len(first) + [0] * between + [1] * len(second)
    expected = here.engine.log_probs(first) + [0.0] * between + here.engine.log_probs(second)
    assert piece.log_probs == pytest.approx(expected)
    text = ByteTokenizer().decode(piece.response_ids[len(first) : len(first) + between])
    assert text == '\n<|im_start|>tool\n{"success":true}<|im_end|>\n<|im_start|>assistant\n'
    (sequence,) = record.sequences()
    assert sequence.versions == ["step-3"]


@pytest.mark.slow
async def test_sampling_is_that_of_the_rollout() -> None:
    async with made("yes") as here:
        await here.rollouts(says(), temperature=0.7, top_p=0.9, top_k=5, max_output_tokens=17)
    assert here.engine.params == [{"temperature": 0.7, "top_p": 0.9, "top_k": 5, "max_tokens": 17}]


@pytest.mark.slow
async def test_an_answer_that_was_cut_is_a_truncated_rollout() -> None:
    async with made("yes, of course") as here:
        (record,) = await here.rollouts(says(), max_output_tokens=3)
    assert isinstance(record.outcome, Truncated)
    assert pieces(record)[0].cut
    assert pieces(record)[0].response_ids == list(b"yes")


@pytest.mark.slow
async def test_a_conversation_without_room_for_an_answer_ends_there() -> None:
    async with made(CALL, "Done.") as here:
        await here.rollouts(*rows_text(counter_row()))
        prompt = len(here.engine.seen[1][0])
    async with made(CALL, "Done.", context=prompt) as here:
        (record,) = await here.rollouts(*rows_text(counter_row()))
    assert isinstance(record.outcome, Truncated)
    assert len(pieces(record)[0].turns) == 1


@pytest.mark.slow
async def test_a_row_that_does_not_fit_fails_and_says_so() -> None:
    async with made("yes", context=10) as here:
        (record,) = await here.rollouts(says())
    assert isinstance(record.outcome, Failed)
    assert "with its answer it may have 10" in why_failed(record)
    assert pieces(record) == []


@pytest.mark.slow
async def test_log_probabilities_of_other_tokens_fail_their_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TurnEngine, "log_probs", staticmethod(lambda ids: [-1.0]))
    async with made("Done.") as system:
        (record,) = await system.rollouts(*rows_text(counter_row()))
    assert isinstance(record.outcome, Failed)
    assert record.outcome.fault.message == "the trainer's engine gave 1 log-probabilities of 6 tokens"
    assert pieces(record) == []


@pytest.mark.slow
async def test_an_engine_that_raises_is_asked_again() -> None:
    async with made("yes") as here:
        here.engine.failing = 1
        (record,) = await here.rollouts(says())
    assert record.reward == 1.0


async def test_two_pauses_at_once_both_end_and_hold_no_call_for_ever() -> None:
    """Of a training's batch and of an evaluation."""
    asked, answering = anyio.Event(), anyio.Event()

    async def generate(prompt: list[int], sampling: dict[str, Any], rollout: str) -> Sampled:
        asked.set()
        await answering.wait()
        return Sampled([END_ID], [-0.1])

    engine = TokenEngine(ByteTokenizer(), generate, context=1000)
    params = Raw(b'{"input":[]}')
    call = ModelCall(params=params, input=[Raw(b'{"role":"user","content":"Hi."}')])
    context = CallContext(rollout="r", attempt=1, deadline_s=1e9)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.respond, call, context)
            await asked.wait()
            tasks.start_soon(engine.pause)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(engine.respond, call, context)  # it waits for the pause to end
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(engine.pause)
            await anyio.wait_all_tasks_blocked()
            answering.set()
            await anyio.wait_all_tasks_blocked()
            engine.go_on()


@pytest.mark.slow
async def test_a_pause_waits_for_calls_whose_prompts_are_rendered() -> None:
    rendering, go_on = threading.Event(), threading.Event()

    class Slow(ByteTokenizer):
        def apply_chat_template(self, *arguments: Any, **keywords: Any) -> Any:
            rendering.set()
            go_on.wait(20)
            return super().apply_chat_template(*arguments, **keywords)

    order: list[str] = []

    async def generate(prompt: list[int], sampling: dict[str, Any], rollout: str) -> Sampled:
        order.append("sampled")
        return Sampled([END_ID], [-0.1])

    engine = TokenEngine(Slow(), generate, context=1000)
    params = Raw(b'{"input":[]}')
    call = ModelCall(params=params, input=[Raw(b'{"role":"user","content":"Hi."}')])

    async def pause() -> None:
        await engine.pause()
        order.append("paused")

    context = CallContext(rollout="r", attempt=1, deadline_s=1e9)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.respond, call, context)
            await anyio.to_thread.run_sync(rendering.wait, 20)
            tasks.start_soon(pause)
            await anyio.wait_all_tasks_blocked()
            go_on.set()
    assert order == ["sampled", "paused"]


@pytest.mark.slow
async def test_what_such_an_engine_cannot_do_is_refused() -> None:
    tool = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
    async with made("yes") as here:
        (record,) = await here.rollouts(says(tools=[tool], tool_choice="required"))
    assert "cannot enforce a tool_choice" in why_failed(record)


@pytest.mark.slow
async def test_thinking_is_not_part_of_the_answer() -> None:
    async with made("<think>Is it?</think>yes") as here:
        (record,) = await here.rollouts(says())
    assert record.reward == 1.0
    assert record.messages[-1]["reasoning_content"] == "Is it?"


@pytest.mark.slow
async def test_answers_are_parsed_as_the_trainer_says() -> None:
    async def read(ids: list[int], tools: Any) -> Said:
        return Said(ByteTokenizer().decode(ids[:-1]).lower())

    async with made("YES", read=read) as here:
        (record,) = await here.rollouts(says())
    assert record.reward == 1.0


@table(
    ("text", "tools", "expected"),
    [
        ("plain", True, ("plain", 0, "")),
        (f"a {CALL} {CALL}", True, ("a", 2, "")),
        (CALL.removesuffix("</tool_call>"), True, ("", 1, "")),  # the end token came first
        (CALL, False, (CALL, 0, "")),
        (f"{CALL}<tool_call>no</tool_call>", True, (f"{CALL}<tool_call>no</tool_call>", 0, "")),
        (f"hm</think>{CALL}", True, ("", 1, "hm")),
        ("<think>never ends", True, ("", 0, "never ends")),
    ],
)
def test_answers_in_the_hermes_format(text: str, tools: bool, expected: tuple[str, int, str]) -> None:
    parts = said(text, tools=tools)
    assert (parts.text, len(parts.calls), parts.thought) == expected


def test_a_piece_is_cut_with_all_its_parts() -> None:
    piece = Piece([1], [2, 3, 4, 5], [1, 0, 1, 1], [-0.1, 0.0, -0.2, -0.3], ((0, 1), (2, 4)))
    assert piece.shortened(4) == piece
    assert piece.shortened(3) == Piece([1], [2, 3, 4], [1, 0, 1], [-0.1, 0.0, -0.2], ((0, 1), (2, 3)), True)
    assert piece.shortened(2).turns == ((0, 1),)


def test_a_failed_rollout_does_not_move_its_groups_mean() -> None:
    assert standing_in([1.0, None, 0.0, 0.5]) == 0.5
    assert standing_in([None, None]) == 0.0


def test_rows_of_a_trainers_dataset_name_their_environment() -> None:
    bare = counter_row()
    del bare["agent_ref"]
    first, second = dataset_rows([bare, counter_row(5)], COUNTER, agent_name="gym_runtime")
    assert first["prompt"] == [{"role": "user", "content": "Count."}]
    assert first["agent_name"] == "gym_runtime"
    assert json.loads(first[ROW])["agent_ref"] == {"name": COUNTER}
    assert json.loads(second[ROW])["expected_count"] == 5


# -- renderers ----------------------------------------------------------------------------------------------


class Forgetful(ByteTokenizer):
    """Its template writes an assistant's message in other ids as soon as another message follows."""

    def apply_chat_template(self, messages: Any, **more: Any) -> list[int]:
        *past, last = messages
        changed = [{**one, "tool_calls": None} if one["role"] == "assistant" else one for one in past]
        return super().apply_chat_template([*changed, last], **more)


class Renderer:
    """As the package ``renderers`` has them, for the tokenizers of these tests."""

    def __init__(self, *, other: bool = False, failing: bool = False) -> None:
        self.other, self.failing = other, failing

    def render_ids(
        self, messages: Any, *, tools: Any = None, add_generation_prompt: bool = False
    ) -> list[int]:
        ids = ByteTokenizer().apply_chat_template(
            messages, tools=tools, add_generation_prompt=add_generation_prompt
        )
        return ids[1:] if self.other else ids

    def bridge_to_next_turn(
        self, prompt: list[int], completion: list[int], new_messages: Any, *, tools: Any = None
    ) -> Any:
        if self.failing:
            raise RuntimeError("no such turn")
        said = ByteTokenizer().apply_chat_template(new_messages, add_generation_prompt=True)
        return SimpleNamespace(token_ids=[*prompt, *completion, *b"\n", *said])


async def _sequences(renderer: Any) -> list[Piece]:
    async with made(CALL, "Done.", renderer=renderer, tokenizer=Forgetful()) as here:
        (record,) = await here.rollouts(*rows_text(counter_row()))
    assert record.reward == 1.0
    found = pieces(record)
    sampled = [one.response_ids[start:end] for one in found for start, end in one.turns]
    assert sampled == [ids for _, ids in here.engine.seen]
    return found


@pytest.mark.slow
async def test_a_renderer_goes_on_where_the_template_rewrites_the_past() -> None:
    assert len(await _sequences(None)) == 2
    (piece,) = await _sequences(Renderer())
    (start, end), (again, _) = piece.turns
    said = ByteTokenizer().decode(piece.response_ids[end:again])
    assert start == 0
    assert said == '\n<|im_start|>tool\n{"success":true}<|im_end|>\n<|im_start|>assistant\n'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("renderer", "why"),
    [
        (Renderer(other=True), "its first prompt has other ids than the chat template's"),
        (Renderer(failing=True), "RuntimeError: no such turn"),
    ],
)
async def test_a_renderer_that_is_wrong_is_not_used_and_the_log_says_why(
    renderer: Renderer, why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert len(await _sequences(renderer)) == 2
    assert why in "".join(capfd.readouterr())


def test_without_the_package_of_renderers_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "renderers", None)
    with pytest.raises(UsageError, match=r"pip install 'renderers\[transformers\]'"):
        library_renderer(ByteTokenizer())
