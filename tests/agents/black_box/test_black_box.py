"""A program as an agent: how it is named, what it is given, what its row shows."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from agents.black_box.harnesses import PLAIN, play, row
from gym_agents.acp import Agent as Acp
from gym_agents.black_box import Agent as BlackBox
from gym_runtime import UsageError, tracing
from gym_runtime.messages.calls import ModelAnswer, Tokens
from gym_runtime.messages.outcomes import Completed, Failed
from gym_testing.small_system import (
    Engine,
    answer,
    function_call,
    reasoning,
)

pytestmark = pytest.mark.anyio


OPENAI = """
import json, sys
import openai

client = openai.OpenAI()  # all that it knows is in its environment
messages = [{"role": "system", "content": "You are a harness."}]
messages.append({"role": "user", "content": sys.stdin.read()})
tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
while True:
    answer = client.chat.completions.create(model="m", messages=messages, tools=tools, temperature=0)
    said = answer.choices[0].message
    messages.append({"role": "assistant", "content": said.content, "tool_calls": [
        {"id": one.id, "type": "function", "function": {
            "name": one.function.name, "arguments": json.dumps(json.loads(one.function.arguments))}}
        for one in said.tool_calls or ()]})
    if not said.tool_calls:
        break
    for one in said.tool_calls:
        messages.append({"role": "tool", "tool_call_id": one.id, "content": "rain"})
"""


CALL = function_call("weather", '{"city":  "Ulm"}', "call_1")


def exists(path: str) -> bool:
    return Path(path).exists()


def make_files_of(folder: Path) -> None:
    """The harness can be run, and a file is called what the prompt says."""
    (folder / "harness.py").chmod(0o755)
    (folder / "weather?").touch()


def with_tokens(turn: ModelAnswer, *ids: int) -> ModelAnswer:
    ints = b"".join(one.to_bytes(4, "little") for one in ids)
    tokens = Tokens(prompt_ids=ints, generation_ids=ints, log_probs=ints)
    return ModelAnswer(response=turn.response, tokens=tokens)


@pytest.mark.slow
async def test_a_harness_with_the_openai_client_and_tools_of_its_own(harness: Any) -> None:
    engine = Engine(with_tokens(answer(reasoning("hm"), CALL), 1, 2), with_tokens(answer("done"), 1, 2, 3))
    line = row(temperature=1.0, instructions="Be brief.")
    record = await play(harness(OPENAI), engine, line, return_tokens=True)
    assert record.outcome == Completed()
    assert (record.reward, record.turns) == (1.0, 2)
    made = json.loads(bytes(record.row))
    assert made["responses_create_params"]["instructions"] is None  # they were part of the prompt
    said = made["responses_create_params"]["input"]
    assert [one["content"] for one in said] == ["You are a harness.", "Be brief.\n\nweather?"]
    output = made["response"]["output"]
    assert [one["type"] for one in output] == [
        "reasoning",
        "function_call",
        "function_call_output",
        "message",
    ]
    assert output[2]["output"] == "rain"
    assert [one.get("generation_token_ids") for one in output] == [None, [1, 2], None, [1, 2, 3]]
    assert made["response"]["usage"]["input_tokens"] == 20
    first, second = [call for call, _ in engine.calls.items]
    assert json.loads(bytes(first.params))["temperature"] == 1.0  # the run's, not the harness's
    assert CALL["arguments"] in [json.loads(bytes(raw)).get("arguments") for raw in second.input]


GEMINI = """
import sys
from google import genai

def weather(city: str) -> str:
    "Tells it."
    return "rain"

client = genai.Client()  # all that it knows is in its environment
chat = client.chats.create(model="m", config={"tools": [weather]})
for _ in chat.send_message_stream(sys.stdin.read()):
    pass
"""


@pytest.mark.slow
async def test_a_harness_with_googles_client(harness: Any) -> None:
    pytest.importorskip("google.genai", reason="needs Google's client: pip install google-genai")
    engine = Engine(with_tokens(answer(reasoning("hm"), CALL), 1, 2), with_tokens(answer("done"), 1, 2, 3))
    record = await play(harness(GEMINI), engine, row(temperature=1.0), return_tokens=True)
    assert record.outcome == Completed()
    assert (record.reward, record.turns) == (1.0, 2)
    output = json.loads(bytes(record.row))["response"]["output"]
    assert [one["type"] for one in output][-3:] == ["function_call", "function_call_output", "message"]
    assert output[-2]["output"] == "rain"
    assert [one.get("generation_token_ids") for one in output][-3:] == [[1, 2], None, [1, 2, 3]]


async def test_a_prompt_as_an_argument(harness: Any) -> None:
    program = PLAIN + "assert sys.stdin.read() == ''\nask(sys.argv[1])"
    engine = Engine(answer("done"))
    record = await play(harness(program, "Do this: {prompt}"), engine)
    assert record.outcome == Completed()
    ((call, context),) = engine.calls.items
    assert json.loads(bytes(call.input[0]))["content"] == "Do this: weather?"
    assert context.rollout == "run.0.0"


async def test_the_row_shows_what_the_model_saw(harness: Any) -> None:
    """Over the Responses API, with a side question before and after."""
    program = """
import json, os, urllib.request

def respond(said, **more):
    body = json.dumps({"model": "m", "input": said, **more}).encode()
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/responses", body,
        {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "content-type": "application/json"})
    return json.load(urllib.request.urlopen(request))["output"]

respond("a title?", instructions="Title it.")
said = [{"role": "user", "content": "one"}]
said += respond(said, instructions="Be kind.")
said += [{"role": "user", "content": "two"}]
said += respond(said, instructions="Be kind.")
respond("a summary?")
"""
    turns = [answer(text) for text in ("title", "1", "done", "summary")]
    record = await play(harness(program), Engine(*turns), row(instructions="Be brief."))
    made = json.loads(bytes(record.row))
    params = made["responses_create_params"]
    assert (params["instructions"], params["input"]) == ("Be kind.", [{"role": "user", "content": "one"}])
    texts = [one["content"] for one in made["response"]["output"]]
    assert [one if isinstance(one, str) else one[0]["text"] for one in texts] == ["1", "two", "done"]
    assert (record.turns, record.reward) == (4, 1.0)
    assert made["response"]["usage"]["input_tokens"] == 40


async def test_the_command_may_come_from_the_operator(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    command = harness(PLAIN + "ask(sys.stdin.read())").command
    monkeypatch.setenv("GYM_HARNESS", json.dumps(command))
    assert (await play(BlackBox(), Engine(answer("done")))).outcome == Completed()


@pytest.mark.parametrize("program", [[sys.executable, "harness.py"], ["./harness.py"]])
async def test_a_file_is_named_as_the_worker_has_it(
    program: list[str], harness: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness(f"#!{sys.executable}\n{PLAIN}ask(sys.argv[1])")
    make_files_of(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GYM_HARNESS", json.dumps([*program, "{prompt}"]))
    engine = Engine(answer("done"))
    assert (await play(BlackBox(), engine)).outcome == Completed()
    ((call, _),) = engine.calls.items
    assert json.loads(bytes(call.input[0]))["content"] == "weather?"


@pytest.mark.parametrize("made", [BlackBox, Acp])
@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ("python x.py", "JSON list"),
        ("[1]", "JSON list"),
        ('["no-such-program", "x.py"]', "no executable program 'no-such-program' in PATH"),
        ('["no/such/program"]', f"no executable program 'no/such/program' in {re.escape(os.getcwd())}"),
    ],
)
def test_a_wrong_command_is_refused_before_any_rollout(
    made: type[BlackBox | Acp], said: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GYM_HARNESS", said)
    with pytest.raises(UsageError, match=f"{complaint}.*GYM_HARNESS|GYM_HARNESS.*{complaint}"):
        made()


async def test_no_command_is_refused_by_a_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GYM_HARNESS", raising=False)
    record = await play(BlackBox(), Engine(answer("done")))
    assert isinstance(record.outcome, Failed)
    assert record.outcome.fault.kind == "usage"
    assert_matches("no harness is set.*GYM_HARNESS", record.outcome.fault.message)


@pytest.mark.parametrize("given", ["python harness.py", ("python", 3)])
@pytest.mark.parametrize("kind", [BlackBox, Acp])
def test_a_command_in_a_module_is_a_list_of_strings(given: Any, kind: type[BlackBox | Acp]) -> None:
    with pytest.raises(UsageError, match=r"the agent's command must be a list of strings, not .*python"):
        type("Mistaken", (kind,), {"command": given})()


@pytest.mark.parametrize("kind", [BlackBox, Acp])
def test_a_variable_in_a_module_is_a_string(kind: type[BlackBox | Acp]) -> None:
    with pytest.raises(UsageError, match="variable DEBUG must be a string, and it is of type int"):
        type("Mistaken", (kind,), {"command": (sys.executable,), "variables": {"DEBUG": 1}})()


def assert_matches(pattern: str, text: str) -> None:
    assert re.search(pattern, text, re.DOTALL), text


async def test_it_is_given_what_it_needs_and_no_secret_of_the_worker(
    harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real")
    monkeypatch.setenv("GYM_NATS_URL", "nats://u:secret@x")
    place = "not os.listdir() and not os.listdir(os.environ['HOME']) and os.environ['HOME'] != os.getcwd()"
    program = PLAIN + f"ask(json.dumps([dict(os.environ), {place}]))"
    engine = Engine(answer("done"))
    await play(harness(program, MINE="yes"), engine)
    ((call, _),) = engine.calls.items
    said = json.loads(bytes(call.input[0]))["content"]
    variables, works_in_an_empty_folder = json.loads(said)
    assert works_in_an_empty_folder
    assert not exists(variables["HOME"])
    assert variables["OPENAI_API_KEY"] == variables["ANTHROPIC_API_KEY"]
    assert re.fullmatch(r"gym-run\.0\.0~[0-9a-f]{32}", variables["OPENAI_API_KEY"])
    assert variables["MINE"] == "yes"
    assert not [one for one in ("sk-real", "secret", "GYM_NATS_URL") if one in said]


async def test_a_traced_harness_gets_the_trace_of_its_rollout(
    harness: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    monkeypatch.setenv("TRACEPARENT", "of whoever has started the worker, long ago")
    engine = Engine(answer("done"))
    tracing.start("test")
    try:
        await play(harness(PLAIN + "ask(os.environ['TRACEPARENT'])"), engine)
    finally:
        tracing.stop()
    ((call, _),) = engine.calls.items
    _, trace, span, _ = json.loads(bytes(call.input[0]))["content"].split("-")
    root = (
        rf'"name": "invoke_agent sample",\s+"context": {{\s+"trace_id": "0x{trace}",\s+"span_id": "0x{span}"'
    )
    assert_matches(root, capfd.readouterr().out)


async def test_only_the_harness_itself_makes_turns(harness: Any) -> None:
    """Others on this machine find the gateway's port, and may guess the rollout's id."""
    program = (
        PLAIN
        + """
import urllib.error
mine = os.environ["OPENAI_API_KEY"]
guesses = ["gym-" + os.environ["GYM_ROLLOUT_ID"], mine[:-1] + "x", mine.replace("run.0.0", "run.0.1")]
for key in ["", "x", *guesses]:
    os.environ["OPENAI_API_KEY"] = key
    try:
        ask("forged")
    except urllib.error.HTTPError as error:
        assert error.code == 401, error.code
    else:
        raise SystemExit("answered " + key)
os.environ["OPENAI_API_KEY"] = mine
ask("my own")
"""
    )
    engine = Engine(answer("done"))
    record = await play(harness(program), engine)
    assert record.outcome == Completed(), record.outcome
    ((call, _),) = engine.calls.items
    assert json.loads(bytes(call.input[0]))["content"] == "my own"


async def test_what_a_row_says_of_sampling_wins_over_its_harness(harness: Any) -> None:
    program = PLAIN + "ask('x', temperature=1.5, seed=1, stop=['a'], max_tokens=9, metadata={'mine': '1'})"
    extra = {"temperature": 0.1, "seed": 7, "top_k": 5}
    params = {"max_output_tokens": 5, "reasoning": {"effort": "low"}}
    metadata = {"extra_body": json.dumps(extra), "rows": "2"}
    engine = Engine(answer("done"))
    await play(harness(program), engine, row(**params, metadata=metadata))
    ((call, _),) = engine.calls.items
    said = json.loads(bytes(call.params))
    assert {**said.pop("metadata"), "extra_body": None} == {"mine": "1", "rows": "2", "extra_body": None}
    assert (said["max_output_tokens"], said["reasoning"]) == (5, {"effort": "low"})
    found = json.loads(json.loads(bytes(call.params))["metadata"]["extra_body"])
    assert found == {"temperature": 0.1, "seed": 7, "top_k": 5, "stop": ["a"]}


async def test_no_token_of_a_harness_is_lost_to_training(harness: Any) -> None:
    """Asked at once, asked again, and a question beside: the row has all of it, and says what it is."""
    program = (
        PLAIN
        + """
from concurrent.futures import ThreadPoolExecutor
ask("a title?")
ask("one"), ask("one")
with ThreadPoolExecutor(2) as pool:
    list(pool.map(ask, ["two", "two"]))
ask("three")
"""
    )
    turns = [with_tokens(answer(f"done {number}"), number) for number in range(5)]
    engine = Engine(*turns, with_tokens(answer("done"), 9))
    record = await play(harness(program), engine, return_tokens=True)
    assert (record.outcome, record.reward, record.turns) == (Completed(), 1.0, 6)
    made = json.loads(bytes(record.row))
    assert [one.get("generation_token_ids") for one in made["response"]["output"]] == [[9]]
    found = record.sequences()
    assert sorted(one.completion_ids.tolist() for one in found) == [[0], [1], [2], [3], [4], [9]]
    kinds = {one.completion_ids.tolist()[0]: (one.kind, one.weight) for one in found}
    assert kinds[9] == ("main", 1.0)
    assert kinds[0] == kinds[2] == ("side", 0.0)
    assert kinds[1] == ("retry", 0.0)
    assert kinds[3][0] in ("parallel", "retry", "side")  # the two may have been answered one after the other


TITLED = (
    PLAIN
    + """
tool = {"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}
for question in sys.argv[1:]:
    ask(question, **({"tools": [tool]} if question == "work" else {}))
"""
)


@pytest.mark.parametrize("order", [("work", "a title?"), ("a title?", "work"), ("work", "a title?", "work")])
async def test_a_question_for_a_title_is_not_judged(order: tuple[str, ...], harness: Any) -> None:
    """It is as long as the work, offers no tools, and may come first or last."""
    answers = {"work": answer("done"), "a title?": answer("Weather")}
    engine = Engine(*(answers[question] for question in order))
    record = await play(harness(TITLED, *order), engine)
    assert (record.outcome, record.reward, record.turns) == (Completed(), 1.0, len(order))
    assert json.loads(bytes(record.row))["response"]["output"][-1]["content"][0]["text"] == "done"
