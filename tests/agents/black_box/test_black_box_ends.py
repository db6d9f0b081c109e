"""A program as an agent: failures, limits, cancellation, and the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from agents.black_box.harnesses import PLAIN, hall, play, row
from gym_agents.black_box import Agent as BlackBox
from gym_faces.dialects import responses_api
from gym_runtime import Image
from gym_runtime.adapters import ModelAnswer
from gym_runtime.cli.main import run
from gym_runtime.errors import ModelRefused
from gym_runtime.messages.outcomes import Cancelled, Completed, Failed, Truncated
from gym_testing.background import settled
from gym_testing.small_system import (
    Engine,
    Hang,
    answer,
    rollout_spec,
)
from runtime.environment.image_samples import png

pytestmark = pytest.mark.anyio


def url(width: int) -> str:
    return str(Image(png(width, width)).part()["image_url"])


@pytest.mark.parametrize(
    ("program", "complaint"),
    [
        ("import sys; sys.exit('I broke')", "status 1: I broke"),
        ("print('hello')", "asked the model nothing"),
        (PLAIN + "ask('x'); print('out of memory'); sys.exit(9)", "status 9: out of memory"),
        ("import os; os.kill(os.getpid(), 9)", "status -9: without a word"),
    ],
)
async def test_a_program_that_fails_is_no_reward(harness: Any, program: str, complaint: str) -> None:
    record = await play(harness(program), Engine(answer("done")))
    assert isinstance(record.outcome, Failed)
    assert record.reward is None
    assert (record.outcome.fault.kind, record.outcome.fault.stage) == ("resource", "agent")
    assert complaint in record.outcome.fault.message


async def test_settings_of_another_form_are_the_programs_fault(harness: Any) -> None:
    program = (
        PLAIN
        + """
for metadata in ({"extra_body": "{"}, {"chat_template_kwargs": "3"}):
    try:
        ask("x", metadata=metadata)
    except urllib.error.HTTPError as error:
        assert error.code == 400 and b"metadata" in error.read(), error
ask("x")
"""
    )
    engine = Engine(answer("done"))
    record = await play(harness(program), engine)
    assert (record.reward, record.outcome, len(engine.calls.items)) == (1.0, Completed(), 1)


async def test_a_prompt_that_no_argument_can_hold_is_the_rows_fault() -> None:
    agent = type("Agent", (BlackBox,), {"command": ("echo", "{prompt}")})()
    record = await play(agent, Engine(answer("done")), row(input="a\0b"))
    assert isinstance(record.outcome, Failed)
    assert (record.outcome.fault.kind, record.outcome.fault.stage) == ("task", "agent")
    assert "cannot hold the prompt: embedded null byte" in record.outcome.fault.message


async def test_a_program_that_cannot_be_started(tmp_path: Path) -> None:
    path = tmp_path / "harness"
    path.write_text("#!/no/such/interpreter")
    path.chmod(0o755)
    agent = type("Agent", (BlackBox,), {"command": (str(path),)})()
    record = await play(agent, Engine(answer("done")))
    assert isinstance(record.outcome, Failed)
    assert f"{path} cannot be started" in record.outcome.fault.message


async def test_an_error_of_the_model_ends_it_whatever_the_harness_does(harness: Any) -> None:
    program = (
        PLAIN
        + """
import time
for _ in range(1000):
    try: ask("again")
    except Exception: time.sleep(0.01)
"""
    )
    record = await play(harness(program), Engine(answer("x"), ModelRefused("no")))
    assert isinstance(record.outcome, Failed)
    assert (record.outcome.fault.name, record.outcome.fault.message) == ("ModelRefused", "no")
    assert json.loads(bytes(record.row))["response"]["output"][0]["content"][0]["text"] == "x"


async def test_what_cannot_be_asked_is_told_to_the_harness_which_goes_on(harness: Any) -> None:
    program = (
        PLAIN
        + """
import urllib.error
try: ask("x", n=2)
except urllib.error.HTTPError as error: ask(json.load(error)["error"]["message"])
"""
    )
    engine = Engine(answer("done"))
    record = await play(harness(program), engine)
    assert record.outcome == Completed()
    ((call, _),) = engine.calls.items
    assert "one answer per call" in json.loads(bytes(call.input[0]))["content"]


async def test_a_limit_of_turns_ends_it(harness: Any) -> None:
    engine = Engine(answer("done"))
    record = await play(harness(PLAIN + "while True: ask('again')"), engine, max_turns=3)
    assert record.outcome == Truncated(reason="max_turns")
    assert (record.turns, record.reward) == (3, 1.0)
    assert len(engine.calls.items) == 3


async def test_an_incomplete_last_answer_is_a_truncation(harness: Any) -> None:
    cut = answer("do", status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    record = await play(harness(PLAIN + "ask('x')"), Engine(cut))
    assert record.outcome == Truncated(reason="max_output_tokens")


OVERFLOW = ModelAnswer(response=responses_api.overflow("m"))
COMPACTS = (
    PLAIN
    + """
import urllib.error
said = ask("long" * 100)
try: ask("long" * 200)
except urllib.error.HTTPError as error:
    assert json.load(error)["error"]["code"] == "context_length_exceeded"
else: sys.exit('it was answered')
"""
)


@pytest.mark.parametrize(
    ("then", "turns", "outcome"),
    [
        ("ask('short')", 3, Completed()),
        ("", 2, Truncated(reason="max_output_tokens")),
        ("sys.exit('the prompt is too long')", 2, Truncated(reason="max_output_tokens")),
    ],
)
async def test_a_conversation_that_is_too_long(
    harness: Any, then: str, turns: int, outcome: Completed | Truncated
) -> None:
    record = await play(harness(COMPACTS + then), Engine(answer("done"), OVERFLOW, answer("done")))
    assert (record.outcome, record.turns, record.reward) == (outcome, turns, 1.0)
    row = json.loads(bytes(record.row))
    assert [item["content"][0]["text"] for item in row["response"]["output"]] == ["done"]


async def test_the_conversation_that_was_shortened_is_judged(harness: Any) -> None:
    program = (
        PLAIN
        + """
import urllib.error
tools = [{"type": "function", "function": {"name": "f"}}]
said = []
try:
    for number in range(4):
        said.append({"role": "user", "content": str(number)})
        said.append({"role": "assistant", "content": ask("", messages=said, tools=tools)})
except urllib.error.HTTPError:
    ask("Go on.", tools=tools)
    ask("A title?")
"""
    )
    record = await play(harness(program), Engine(answer("1"), answer("2"), OVERFLOW, answer("done")))
    assert (record.outcome, record.turns, record.reward) == (Completed(), 5, 1.0)
    row = json.loads(bytes(record.row))
    assert row["responses_create_params"]["input"] == [{"role": "user", "content": "Go on."}]


async def test_a_first_prompt_that_is_too_long(harness: Any) -> None:
    record = await play(harness(PLAIN + "ask('x')"), Engine(OVERFLOW))
    assert isinstance(record.outcome, Failed)
    assert record.reward is None
    assert "the first prompt does not fit the model's context" in record.outcome.fault.message


FAMILY = (
    PLAIN
    + """
import subprocess
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
ask(f"{os.getpid()} {child.pid}")
"""
)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def family(engine: Engine) -> list[int]:
    ((call, _),) = await engine.calls.until(1)
    pids = [int(pid) for pid in json.loads(bytes(call.input[0]))["content"].split()]
    assert len(pids) == 2
    return pids


async def gone(pids: list[int]) -> None:
    """Return when they have ended. A child's children are not waited for with it."""
    await settled(lambda: not any(alive(pid) for pid in pids))


async def test_a_cancellation_ends_it_and_its_children_and_the_call(harness: Any) -> None:
    engine = Engine(Hang())
    async with hall(harness(FAMILY), engine) as system:
        await system.enqueue(rollout_spec(row(), agent="black_box"))
        pids = await family(engine)
        assert all(alive(pid) for pid in pids)
        await system.bus.publish("cancel.run", b"")
        (record,) = await system.records(1)
        await settled(lambda: engine.cancelled.items)
    assert record.outcome == Cancelled()
    await gone(pids)


@pytest.mark.slow
async def test_the_deadline_ends_it_and_its_children(harness: Any) -> None:
    engine = Engine(answer("done"))
    record = await play(harness(FAMILY + "child.wait()"), engine, timeout_s=2.0, max_attempts=1)
    assert isinstance(record.outcome, Failed)
    assert record.outcome.fault.name == "DeadlineExceeded"
    await gone(await family(engine))


@pytest.mark.parametrize("detached", [False, True])
async def test_what_it_leaves_running_ends_with_it(harness: Any, detached: bool) -> None:
    engine = Engine(answer("done"))
    program = FAMILY.replace('3600)"]', '3600)"], start_new_session=True') if detached else FAMILY
    record = await play(harness(program), engine)
    assert record.outcome == Completed()
    await gone(await family(engine))


@pytest.mark.slow
async def test_many_at_once_keep_apart(harness: Any) -> None:
    engine = Engine(answer("done"))
    agent = harness(PLAIN + "ask(sys.stdin.read()); ask(os.environ['GYM_ROLLOUT_ID'])")
    async with hall(agent, engine) as system:
        records = await system.make(
            *[rollout_spec(row(input=f"task {n}"), task=n, agent="black_box") for n in range(24)]
        )
    assert {(type(one.outcome), one.turns) for one in records} == {(Completed, 2)}
    asked = [
        (json.loads(bytes(call.input[0]))["content"], context.rollout) for call, context in engine.calls.items
    ]
    assert sorted(asked) == sorted(
        pair for n in range(24) for pair in ((f"task {n}", f"run.{n}.0"), (f"run.{n}.0", f"run.{n}.0"))
    )


def with_images(*urls: str) -> list[dict[str, Any]]:
    parts = [{"type": "input_image", "image_url": url} for url in urls]
    return [{"role": "user", "content": [{"type": "input_text", "text": "What is it?"}, *parts]}]


@pytest.mark.parametrize(
    ("items", "complaint"),
    [
        ([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "has begun"),
        (with_images(url(2)), "the harness's command has no {images}"),
        (with_images("http://127.0.0.1/x.png"), "images that are in the row"),
        (with_images("data:image/svg+xml;base64,AAAA"), "images that are in the row"),
        ([{"role": "user", "content": [{"type": "input_file", "file_id": "x"}]}], "texts and images only"),
    ],
)
async def test_a_row_that_is_more_than_a_prompt(harness: Any, items: Any, complaint: str) -> None:
    record = await play(harness("pass"), Engine(answer("done")), row(input=items))
    assert isinstance(record.outcome, Failed)
    assert record.outcome.fault.kind == "task"
    assert complaint in record.outcome.fault.message


async def test_the_images_of_a_prompt_are_files_for_the_harness(harness: Any) -> None:
    program = (
        PLAIN
        + """
import base64
files = [part.removeprefix("--image=") for part in sys.argv[1:-1]]
kinds = [os.path.splitext(file)[1] for file in files]
shown = [base64.b64encode(open(file, "rb").read()).decode() for file in files]
assert ask(json.dumps([sys.stdin.read(), sys.argv[-1], kinds, shown])) == "done"
"""
    )
    agent = harness(program)
    agent.command = (*agent.command, "--image={images}", "last")
    for images in ([url(2), url(3)], []):
        record = await play(agent, Engine(answer("done")), row(input=with_images(*images)))
        assert isinstance(record.outcome, Completed), record.outcome
        (asked,) = json.loads(bytes(record.row))["responses_create_params"]["input"]
        shown = [one.removeprefix("data:image/png;base64,") for one in images]
        text = asked["content"] if isinstance(asked["content"], str) else asked["content"][0]["text"]
        assert json.loads(text) == ["What is it?", "last", [".png"] * len(images), shown]


@pytest.mark.slow
def test_the_whole_of_it_by_the_command_line(
    harness: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = harness(PLAIN + "ask(sys.stdin.read())").command
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GYM_NATS_URL", raising=False)
    monkeypatch.setenv("GYM_HARNESS", json.dumps(command))
    arguments = ["run", "mcqa", "--agent", "black_box", "--model", "scripted/echo", "--limit", "2"]
    assert run([*arguments, "--return-token-ids"]) == 0
    rows = [json.loads(line) for line in (tmp_path / "results" / "mcqa.jsonl").read_text().splitlines()]
    assert len(rows) == 2
    assert all(row["response"]["output"][0]["generation_token_ids"] for row in rows)
