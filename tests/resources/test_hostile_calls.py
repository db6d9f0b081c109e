"""Calls and texts of a megabyte, on the environments that judge on the event loop."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from gym_runtime import Episode
from gym_runtime.environment import catalogue
from gym_runtime.environment.replaying import session_of
from gym_runtime.environment.verdict import Reply
from resources.judging import call, row, usable

pytestmark = pytest.mark.anyio
CEILING_S = 0.5  # of processor time; the bound is 0.05 on a machine that does nothing else
DIGITS = "9" * 1_000_000
LISTS = "[" + "[]," * 330_000 + "1]"
STEPS = {"expected_synonym_values": [1, 2], "minefield_label_value": 3}
PATCHES = {"options": [{"A": "x"}, {"B": "y"}], "expected_answer": "A", "grading_mode": "lenient"}
CIRCLE = {"circles": [{"x": 1, "y": 1, "radius": 2, "color": "red"}], "target_color": "red"}
CALL = {"expected_call": {"name": "f", "arguments": {"a": 1}}}
VISIT = {"type": "function", "name": "cancel", "parameters": {"properties": {"id": {}}}}
PLANTED = {
    "responses_create_params": {"input": "go", "tools": [VISIT]},
    "environment": {"visits": {"V": {"id": "V"}}},
    "injection": {"target_tool": "cancel", "target_args": {"id": "V"}},
}
ACTION = {"type": "function_call", "name": "f", "arguments": '{"path": "/a", "text": "b c"}'}
SHORT = {"expected_answer": "1", "answer_type": "float"}
SAFE = {"verifier_metadata": {"label": "safe"}}

REPLIES: list[tuple[str, dict[str, Any], list[Any]]] = [
    ("example_multi_step", STEPS, [call("extract_synonym_values", f'{{"synonym_values":{one}}}')])
    for one in ("[" + "1," * 499_000 + "1]", f"[{DIGITS}]", "[" * 1_000_000, LISTS)
]
REPLIES += [
    ("example_tool_call_multireward", CALL, [call("f", f'{{"a":{one}}}')])
    for one in (LISTS, DIGITS, "[" * 1_000_000, json.dumps("x" * 1_000_000))
]
REPLIES += [
    ("swerl_llm_judge", PATCHES, [text])
    for text in (
        "<solution>" + "C " * 500_000 + "</solution>",
        "<solution>" * 100_000,
        "</solution>" * 90_000,
    )
]
REPLIES += [
    ("xstest", SAFE, [text])
    for text in ("<think>" * 140_000, "</think>" * 120_000, "<think></think>" * 66_000, "'" * 1_000_000)
]
REPLIES += [
    ("indirect_prompt_injection", PLANTED, [call("cancel", f'{{"id":{one}}}')])
    for one in (LISTS, DIGITS, "[" * 1_000_000, json.dumps("v " * 500_000))
]
REPLIES += [
    ("swe_pivot", {"expected_action": ACTION}, [call("f", f'{{"path":"/a","text":{one}}}')])
    for one in (LISTS, DIGITS, json.dumps("b\n" * 300_000), json.dumps("../" * 300_000))
]
REPLIES += [
    ("litmus_agent", SHORT, [text])
    for text in ("((" * 500_000, f"(({DIGITS}))", "((" + "1 " * 500_000 + "))")
]
REPLIES += [
    ("circle_click", CIRCLE, [call("click", f'{{"x":"{DIGITS}","y":1}}'), *[call("click", "{}")] * 1000]),
    ("blackjack", {}, ["<action>" * 125_000]),
    ("example_multi_turn_gymnasium", {"expected_answer": "x" * 99 + "z"}, ["x" * 1_000_000]),
]


@pytest.fixture
def frozen() -> Iterator[None]:
    """What earlier tests left is not looked through while a reply is judged, as in a worker."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.slow
@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize("number", range(len(REPLIES)))
async def test_no_reply_holds_the_loop(number: int) -> None:
    name, fields, items = REPLIES[number]
    resource = catalogue.environment(name).resource
    response = bytes(Reply.of(*items).raw)
    async with session_of(resource, row(**fields)) as session:
        start_s = time.process_time()
        if isinstance(session, Episode):
            await resource.reset(session)
            assert (await resource.step(session, response)).reward <= 1
        else:
            assert (await resource.verify(session, response)).reward <= 2
        assert time.process_time() - start_s < CEILING_S


EXPRESSIONS = (
    "(" * 1_000_000,
    "1+" * 500_000 + "1",
    "-" * 1_000_000 + "1",
    DIGITS,
    "-" * 1900 + "1",
    "9**9**9",
)


@pytest.mark.parametrize("number", range(len(EXPRESSIONS)))
async def test_no_expression_holds_the_loop(number: int) -> None:
    environment = usable("gsm8k_aviary")
    resource = environment.resource
    took_s: list[float] = []
    for _ in range(3):  # in between, the interpreter may tidy up after the tests before
        async with session_of(resource, row(task_idx=0, question="?", answer=4.0)) as session:
            assert isinstance(session, Episode)
            await resource.reset(session)
            response = Reply.of(call("calculator", {"expr": EXPRESSIONS[number]})).raw
            start_s = time.process_time()
            step = await resource.step(session, response)
            took_s.append(time.process_time() - start_s)
            assert (step.reward, step.terminated) == (-1.0, True)
            assert len(bytes(step.items[0])) < 1000
    assert min(took_s) < CEILING_S
