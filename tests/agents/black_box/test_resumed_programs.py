"""A program goes on after a loss: it runs again and gets the recorded answers until it has caught up."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from agents.black_box.harnesses import row
from agents.exact_engine import DESK, Exact, assert_exact, inputs, recorded
from gym_agents import _harness_calls
from gym_agents.black_box import Agent as BlackBox
from gym_runtime import Environment, Reply, Session, Task, Verdict, tool
from gym_runtime.messages.outcomes import Completed, Failed, RolloutRecord
from gym_testing.small_system import (
    Hang,
    Item,
    SmallSystem,
    Turn,
    answer,
    environment,
    function_call,
    rollout_spec,
    small_system,
)

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

CLIENT = """
import json, os, subprocess, sys, urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

times, lasts = Path(sys.argv[1]), json.loads(sys.argv[2])
number = len(times.read_text()) if times.exists() else 0  # how often it was started before
times.write_text("x" * (number + 1))
asked = 0

def respond(said, **more):
    global asked
    if asked == (lasts[number] if number < len(lasts) else None):
        os.kill(os.getpid(), 9)
    asked += 1
    body = json.dumps({"model": "m", "input": said, **more}).encode()
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/responses", body,
        {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "content-type": "application/json"})
    return json.load(urllib.request.urlopen(request))["output"]

def user(text):
    return {"role": "user", "content": text}

TOOLS = [{"type": "function", "name": "bash", "parameters": {"type": "object"}}]
"""
SHELL = (
    CLIENT
    + """
def work(said, instructions):
    while True:
        output = respond(said, tools=TOOLS, instructions=instructions)
        said += output
        calls = [one for one in output if one["type"] == "function_call"]
        for one in calls:
            command = json.loads(one["arguments"])["command"]
            done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
            said.append({"type": "function_call_output", "call_id": one["call_id"], "output": done.stdout})
        if not calls:
            return
"""
)
AGENT = (
    SHELL
    + """
respond([user("a title?")])
work([user(sys.stdin.read())], f"You are process {os.getpid()} in {os.getcwd()}.")
"""
)
NOISE = "pwd; echo $$ $(date +%N) $(mktemp -u); echo x >>log; wc -l <log"


def bash(number: int, command: str = NOISE) -> Item:
    return function_call("bash", json.dumps({"command": command}), f"call_{number}")


TURNS: list[Turn] = [answer("Title"), *[answer(bash(number)) for number in range(4)], answer("42")]


class Stage:
    """A program that is killed after so many calls when it runs for the first time, the second …"""

    def __init__(self, folder: Path, program: str, *killed_after: int) -> None:
        path = folder / "program.py"
        path.write_text(program)
        self.times = folder / "times"
        command = (sys.executable, str(path), str(self.times), json.dumps(killed_after))
        self.agent: BlackBox = type("Agent", (BlackBox,), {"command": command})()

    async def hire(self, system: SmallSystem, name: str) -> None:
        await system.add_agent({"black_box": self.agent}, name=name)

    async def play(self, engine: Exact, *, kill_after: int | None = None, **more: Any) -> RolloutRecord:
        """The record; its worker is killed when so many turns are stored and the next one is being asked."""
        async with small_system() as system:
            await system.add_model(engine)
            await system.add_resource(DESK)
            await self.hire(system, "agent-1")
            spec = rollout_spec(row(), agent="black_box", return_tokens=True, **more)
            if kill_after is None:
                (record,) = await system.make(spec)
                return record
            await system.enqueue(spec)
            await engine.calls.until(kill_after + 1)
            await recorded(system, kill_after)
            system.kill("agent-1")
            await self.hire(system, "agent-2")
            (record,) = await system.records(1)
            return record


def by_two(turns: int) -> Exact:
    """Answers so many turns of the first attempt, and the others of the second."""
    return Exact(by_attempt={1: [*TURNS[:turns], Hang()], 2: TURNS[turns:]})


def about(record: RolloutRecord) -> dict[str, Any]:
    return json.loads(bytes(record.row))["_gym"]


def outputs(record: RolloutRecord) -> list[str]:
    items = json.loads(bytes(record.row))["response"]["output"]
    return [item["output"] for item in items if item["type"] == "function_call_output"]


@pytest.mark.parametrize("turns", range(1, len(TURNS)))
async def test_it_asks_nothing_again_that_was_answered(turns: int, tmp_path: Path) -> None:
    engine = by_two(turns)
    record = await Stage(tmp_path, AGENT, turns).play(engine)
    assert (record.outcome, record.reward, record.attempt) == (Completed(), 1.0, 2)
    assert len(engine.calls.items) == len(TURNS)
    assert record.turns == len(TURNS)
    assert about(record)["resumed_turns"] == turns
    assert about(record).get("drifted_calls", 0) == max(0, turns - 1)  # all but the title
    assert [text.splitlines()[-1] for text in outputs(record)] == ["1", "2", "3", "4"], "in the same files"
    assert_exact(record, engine)


async def test_what_the_model_reads_of_the_past_is_what_it_read_before(tmp_path: Path) -> None:
    """When its worker is killed. Only the turn that was on its way is asked again, with new outputs."""
    engine = by_two(4)
    record = await Stage(tmp_path, AGENT).play(engine, kill_after=4)
    assert (record.outcome, record.attempt, len(engine.calls.items)) == (Completed(), 2, len(TURNS) + 1)
    before, after = inputs(engine)[4:6]
    assert before[:-1] == after[:-1]
    assert before[-1] != after[-1]
    last = [json.loads(bytes(call.params)) for call, _ in engine.calls.items[4:]]
    assert len({one["instructions"] for one in last}) == 1, "with the first one's process number"
    paths = {text.splitlines()[0] for text in outputs(record)}
    assert len(paths) == 1, "the same folder in both attempts"


async def test_one_that_is_killed_while_it_is_fed_begins_again(tmp_path: Path) -> None:
    engine = Exact(by_attempt={1: TURNS[:4], 3: TURNS[4:]})
    record = await Stage(tmp_path, AGENT, 4, 2).play(engine)
    assert (record.outcome, record.reward, record.attempt) == (Completed(), 1.0, 3)
    assert (len(engine.calls.items), about(record)["resumed_turns"]) == (len(TURNS), 4)
    assert_exact(record, engine)


async def test_one_that_is_killed_again_and_again_fails(tmp_path: Path) -> None:
    engine = Exact(by_attempt={1: TURNS[:4]})
    record = await Stage(tmp_path, AGENT, 4, 2, 3).play(engine, max_attempts=3)
    assert isinstance(record.outcome, Failed)
    assert (record.reward, len(engine.calls.items)) == (None, 4)
    assert "ended with status -9" in record.outcome.fault.message


OTHERWISE = SHELL + "work([user('again' if number else 'first')], 'x')"
SHORTER = SHELL + "respond([user('a title?')])\nif not number: work([user('first')], 'x')"


@pytest.fixture
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program calls one after the other, so that no other call is worth waiting for."""
    monkeypatch.setattr(_harness_calls, "SETTLE_S", 0.2)


@pytest.mark.usefixtures("one_at_a_time")
@pytest.mark.parametrize(
    ("program", "words"), [(OTHERWISE, 'asks \'["user","again"]\', and in an'), (SHORTER, "asked on")]
)
@pytest.mark.parametrize("choice", ["restart", "fail"])
async def test_one_that_does_not_repeat_itself(program: str, words: str, choice: str, tmp_path: Path) -> None:
    told = TURNS[:3] if program is SHORTER else TURNS[1:4]
    engine = Exact(by_attempt={1: told, 3: [answer("42")]})
    options = {"on_divergence": choice}
    record = await Stage(tmp_path, program, 3).play(engine, agent_options=options)
    if choice == "fail":
        assert isinstance(record.outcome, Failed)
        assert (record.outcome.fault.name, record.reward) == ("JournalMismatch", None)
        said = record.outcome.fault.message
        assert len(engine.calls.items) == 3, "nothing was asked"
    else:
        assert (record.outcome, record.reward, record.attempt) == (Completed(), 1.0, 3)
        (said,) = about(record)["started_anew"]
        assert about(record)["resumed_turns"] == 0
    assert words in said


async def test_one_that_must_not_repeat_its_work_starts_again(tmp_path: Path) -> None:
    engine = Exact(by_attempt={1: TURNS[:3], 2: TURNS})
    record = await Stage(tmp_path, AGENT, 3).play(engine, agent_options={"resume": False})
    assert (record.outcome, record.turns, about(record)["resumed_turns"]) == (Completed(), len(TURNS), 0)
    assert len(engine.calls.items) == 3 + len(TURNS)


SEVERAL = (
    SHELL
    + """
def explore(part):
    said = [user(part)]
    work(said, "explore")
    return said[-1]["content"][0]["text"]

parts = ["a", "b", "c"]
with ThreadPoolExecutor(3) as pool:
    found = list(pool.map(explore, reversed(parts) if number else parts))
respond([user(json.dumps(sorted(found)))])
"""
)


async def test_calls_that_are_made_at_once_are_found_in_any_order(tmp_path: Path) -> None:
    first = [answer(bash(number)) for number in range(3)]
    engine = Exact(
        by_attempt={1: [*first, answer("x"), Hang(), Hang()], 2: [*map(answer, "yz"), answer("42")]}
    )
    record = await Stage(tmp_path, SEVERAL).play(engine, kill_after=4)
    assert (record.outcome, record.turns, about(record)["resumed_turns"]) == (Completed(), 7, 4)
    said = json.loads(bytes(record.row))["responses_create_params"]["input"]
    assert said[0]["content"] in ("a", "b", "c"), "the longest conversation is one of the parts"
    asked = [text for call in inputs(engine)[-3:] for text in call]
    assert json.dumps(["x", "y", "z"]) in asked
    assert_exact(record, engine)


async def test_a_new_question_beside_a_conversation_is_asked(tmp_path: Path) -> None:
    beside = SHELL + "if number: respond([user('a title?')])\nwork([user('first')], 'x')"
    engine = Exact(by_attempt={1: TURNS[1:4], 2: [answer("Title"), answer("42")]})
    record = await Stage(tmp_path, beside, 3).play(engine)
    assert (record.outcome, record.turns, record.reward) == (Completed(), 5, 1.0)
    assert about(record)["resumed_turns"] == 3


TOOLS_AT_ONCE = (
    SHELL
    + """
def call(name, **arguments):
    params = {"name": name, "arguments": arguments}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    request = urllib.request.Request(os.environ["GYM_MCP_URL"], body, {"content-type": "application/json"})
    return json.load(urllib.request.urlopen(request))["result"]["content"][0]["text"]

respond([user("first")])
pages = [3, 1, 2] if number else [1, 2, 3]
found = dict(zip(pages, [call("count", page=page) for page in pages]))
respond([user(json.dumps([found[page] for page in (1, 2, 3)]))])
"""
)


class Counter(Session[Task]):
    """A tool whose answer depends on how often it was called."""

    async def open(self) -> None:
        self.calls = 0

    @tool
    def count(self, page: int) -> int:
        self.calls += 1
        return 10 * page + self.calls

    async def verify(self, reply: Reply) -> Verdict:
        return Verdict(float(self.calls == 3))


async def test_tools_of_the_environment_are_called_once_whatever_the_order(tmp_path: Path) -> None:
    engine = Exact(by_attempt={1: [answer("go")], 2: [answer("done")]})
    stage = Stage(tmp_path, TOOLS_AT_ONCE, 1)
    async with small_system() as system:
        await system.add_model(engine)
        await system.add_resource(environment(Environment(resource=Counter, description="c")))
        await stage.hire(system, "agent-1")
        tools = [{"type": "function", "name": "count", "parameters": {"type": "object"}}]
        (record,) = await system.make(rollout_spec(row(tools=tools), agent="black_box"))
    assert (record.outcome, record.reward) == (Completed(), 1.0)
    assert inputs(engine)[-1] == ['["11", "22", "33"]'], "the answers of the first attempt"


REMINDED = SHELL.replace(
    "respond(said, tools",
    'respond(said + [{"role": "system", "content": f"{asked} s"}] * ((number + asked) % 2), tools',
)


async def test_reminders_of_the_system_come_and_go(tmp_path: Path) -> None:
    """Each is in one call and not in the next, and in the other attempt the other way round."""
    assert REMINDED != SHELL
    engine = Exact(by_attempt={1: TURNS[1:4], 2: TURNS[4:]})
    record = await Stage(tmp_path, REMINDED + "work([user('first')], 'x')", 3).play(engine)
    assert (record.outcome, record.turns, record.attempt) == (Completed(), 5, 2)
    assert (len(engine.calls.items), about(record)["resumed_turns"]) == (5, 3)
