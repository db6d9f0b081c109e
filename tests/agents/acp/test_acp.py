"""Programs of the Agent Client Protocol as agents: turns of their user, tools, images, limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from agents.acp.speakers import (
    BY_HAND,
    LISTENING,
    PLAIN,
    PLAYER,
    hall,
    play,
    row,
)
from agents.exact_engine import Exact, assert_exact
from gym_runtime import (
    Environment,
    Episode,
    Image,
    Reply,
    RolloutSettings,
    Session,
    Step,
    Task,
    Verdict,
    tool,
)
from gym_runtime.cli.main import run
from gym_runtime.environment import catalogue
from gym_runtime.messages.outcomes import Cancelled, Completed, Failed, Truncated
from gym_testing.background import settled
from gym_testing.small_system import (
    Engine,
    Hang,
    answer,
    environment,
    function_call,
    rollout_spec,
)
from resources.guests.harbor_folders import STEPS, TOML, task
from runtime.environment.image_samples import png

pytestmark = pytest.mark.anyio

GUESSES = ("50", "25", "40", "35", "37")


def texts(record: Any) -> list[str]:
    """What was said, in the order of the transcript."""
    output = json.loads(bytes(record.row))["response"]["output"]
    found = [one["content"] for one in output if one.get("type", "message") == "message"]
    return [one if isinstance(one, str) else one[0]["text"] for one in found]


@pytest.mark.slow
async def test_a_game_of_five_turns(speaker: Any) -> None:
    """With the protocol's own library on the other side."""
    engine = Engine(*map(answer, GUESSES))
    record = await play(speaker(PLAYER), engine, environment="guessing", steps=True)
    assert (record.outcome, record.reward, record.turns) == (Completed(), 1.0, 5)
    made = json.loads(bytes(record.row))
    assert made["guesses"] == 5
    said = made["responses_create_params"]["input"]
    assert [part["text"] for part in said[0]["content"]] == ["weather?", "Guess."]
    assert texts(record) == ["50", "Lower.", "25", "Higher.", "40", "Lower.", "35", "Higher.", "37", "Right."]
    assert made["response"]["metadata"]["acp_stop_reason"] == "end_turn"


GAME = """
from gym_runtime import Environment, Episode, Reply, Step, Task

class Guessing(Episode[Task]):
    async def reset(self) -> str:
        return "Guess."

    async def step(self, reply: Reply) -> Step:
        right = reply.text == "37"
        return Step(observation="No.", terminated=right, reward=float(right))

environment = Environment(resource=Guessing, description="d")
"""


@pytest.mark.slow
def test_the_whole_of_it_by_the_command_line(
    speaker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a broker, workers of their own and no word of steps."""
    command = speaker(PLAYER).command
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GYM_HARNESS", json.dumps(command))
    Path("guessing.py").write_text(GAME)
    Path("rows.jsonl").write_bytes(row() + b"\n")
    Path("script.jsonl").write_text("".join(json.dumps([one]) + "\n" for one in GUESSES))
    arguments = ["run", "guessing.py", "--agent", "acp", "--model", "scripted/script.jsonl"]
    assert run([*arguments, "--input", "rows.jsonl", "--return-token-ids"]) == 0
    (made,) = map(json.loads, Path("results/guessing.jsonl").read_text().splitlines())
    assert (made["reward"], made["_gym"]["turns"]) == (1.0, 5)
    output = made["response"]["output"]
    assert sum("generation_token_ids" in one for one in output) == 5


class Counting(Session[Task]):
    """Counts to 5."""

    async def open(self) -> None:
        self.count = 0

    @tool
    def add(self, amount: int) -> dict[str, int]:
        """Add to the count."""
        self.count += amount
        return {"count": self.count}

    async def verify(self, reply: Reply) -> Verdict:
        return Verdict(float(self.count == 5), fields={"called": [one.name for one in reply.function_calls]})


class Lift(Episode[Task]):
    """Calls are steps: the fifth floor by calls of ``up``, and then a word."""

    async def reset(self) -> None:
        self.floor = 0
        self.offered_tools = [TOOL]

    async def step(self, reply: Reply) -> Step:
        outputs: dict[str, str] = {}
        for call in reply.function_calls:
            self.floor += json.loads(call.arguments)["by"]
            outputs[call.call_id] = f"floor {self.floor}"
        crashed = self.floor > 5
        reward = float(self.floor == 5 and reply.text == "done")
        return Step(tool_outputs=outputs, terminated=crashed or not outputs, reward=reward)


TOOL = {
    "type": "function",
    "name": "up",
    "parameters": {"type": "object", "properties": {"by": {"type": "integer"}}},
}


@pytest.mark.slow
async def test_tools_are_offered_by_the_protocol(speaker: Any) -> None:
    counting = environment(Environment(resource=Counting, description=""), "counting")
    tools = [one.definition() for one in counting.resource.tools.values()]
    add = [function_call("mcp__gym__add", f'{{"amount": {n}}}', f"c{n}") for n in (2, 3)]
    engine = Engine(answer(*add), answer("done"))
    async with hall(speaker(PLAYER), engine, counting) as system:
        spec = rollout_spec(row(tools=tools), environment="counting", agent="acp")
        (record,) = await system.make(spec)
    assert (record.outcome, record.reward) == (Completed(), 1.0)
    assert json.loads(bytes(record.row))["called"] == ["add", "add"]
    assert record.tool_calls == 2


@pytest.mark.slow
@pytest.mark.parametrize(("last", "reward", "turns"), [(3, 1.0, 3), (9, 0.0, 2)])
async def test_tools_of_a_step_by_step_environment_are_steps(
    speaker: Any, last: int, reward: float, turns: int
) -> None:
    """The episode may end in the middle of the program's turn."""
    lift = environment(Environment(resource=Lift, description=""), "lift")
    calls = [answer(function_call("mcp__gym__up", f'{{"by": {n}}}', f"c{n}")) for n in (2, last)]
    engine = Engine(*calls, answer("done"))
    async with hall(speaker(PLAYER), engine, lift) as system:
        (record,) = await system.make(rollout_spec(row(), environment="lift", agent="acp", steps=True))
    assert (record.outcome, record.reward, record.turns) == (Completed(), reward, turns)
    output = json.loads(bytes(record.row))["response"]["output"]
    assert [one["name"] for one in output if one["type"] == "function_call"] == ["up", "up"]
    assert [one["output"] for one in output if one["type"] == "function_call_output"][0] == "floor 2"


class Door(Lift):
    """On the second floor there is a door: a tool that was not there before."""

    async def step(self, reply: Reply) -> Step:
        (call,) = reply.function_calls or [None]
        if call is None or call.name == "open":
            return Step(
                tool_outputs={call.call_id: "open"} if call else {}, terminated=True, reward=float(bool(call))
            )
        return Step(tool_outputs={call.call_id: "floor 2"}, tools=[{**TOOL, "name": "open"}])


@pytest.mark.slow
async def test_a_tool_that_a_later_step_offers(speaker: Any) -> None:
    door = environment(Environment(resource=Door, description=""), "door")
    calls = [answer(function_call(f"mcp__gym__{name}", '{"by": 2}', name)) for name in ("up", "open")]
    engine = Engine(*calls, answer("done"))
    async with hall(speaker(LISTENING), engine, door) as system:
        (record,) = await system.make(rollout_spec(row(), environment="door", agent="acp", steps=True))
    assert (record.outcome, record.reward) == (Completed(), 1.0)
    offered = [
        [one["name"] for one in json.loads(bytes(call.params))["tools"]] for call, _ in engine.calls.items
    ]
    assert offered == [["mcp__gym__up"], ["mcp__gym__up", "mcp__gym__open"]]


@pytest.mark.slow
async def test_a_harbor_task_of_two_steps(speaker: Any, tmp_path: Path) -> None:
    """The box by its tool; each instruction is a prompt."""
    tests = """#!/bin/sh
[ "$(cat out.txt)" = "$WANTED" ] && echo 1 >/logs/verifier/reward.txt || echo 0 >/logs/verifier/reward.txt
"""
    steps = {f"steps/{name}/instruction.md": f"Append {name}." for name in ("first", "second")}
    task(tmp_path / "tasks" / "two", toml=TOML + STEPS, tests=tests, solution=None, **steps)
    name = f"harbor:{tmp_path / 'tasks'}?image=none&control=none"
    commands = [json.dumps({"command": f"printf {word} >>out.txt"}) for word in ("one", "' two'")]
    calls = [answer(function_call("mcp__gym__bash", text, f"c{n}")) for n, text in enumerate(commands)]
    engine = Engine(calls[0], answer("First."), calls[1], answer("Second."))
    async with hall(speaker(PLAYER), engine, catalogue.environment(name)) as system:
        (rows,) = [[*catalogue.environment(name).definition.generate(None, 0)]]
        records = system.client.rollouts(rows, environment=name, settings=RolloutSettings(agent="acp"))
        (record,) = [one async for one in records]
    assert (record.outcome, record.reward, record.turns) == (Completed(), 1.0, 4)
    asked = [json.loads(bytes(call.input[-1])) for call, _ in engine.calls.items]
    prompts = [one["content"] for one in asked if one.get("role") == "user"]
    assert [text if isinstance(text, str) else text[0]["text"] for text in prompts] == [
        "Append first.",
        "Append second.",
    ]


async def test_a_program_that_takes_no_tools(speaker: Any) -> None:
    tools = [{"type": "function", "name": "up", "parameters": {"type": "object"}}]
    record = await play(speaker(PLAIN), Engine(answer("done")), row(tools=tools))
    assert isinstance(record.outcome, Failed)
    assert "takes no MCP server over HTTP" in record.outcome.fault.message
    record = await play(
        speaker(PLAIN), Engine(answer("done")), row(tools=tools), agent_options={"mcp": "own"}
    )
    assert (record.outcome, record.reward) == (Completed(), 1.0)


@pytest.mark.slow
async def test_images_are_in_the_prompt(speaker: Any) -> None:
    url = str(Image(png(2, 2)).part()["image_url"])
    content = [{"type": "input_text", "text": "What is it?"}, {"type": "input_image", "image_url": url}]
    line = row(instructions="Be brief.", input=[{"role": "user", "content": content}])
    record = await play(speaker(PLAYER), Engine(answer("done")), line)
    assert (record.outcome, record.reward) == (Completed(), 1.0)
    (asked,) = json.loads(bytes(record.row))["responses_create_params"]["input"]
    assert [one.get("text") for one in asked["content"]] == ["Be brief.", "What is it?", None]
    assert asked["content"][2]["image_url"] == url
    record = await play(speaker(PLAIN), Engine(answer("done")), line)
    assert isinstance(record.outcome, Failed)
    assert (record.outcome.fault.kind, record.reward) == ("task", None)
    assert "program takes none" in record.outcome.fault.message


async def test_a_simulated_user(speaker: Any) -> None:
    policy, user = (
        Engine(*map(answer, ("hello", "done"))),
        Engine(*map(answer, ("Hi!", "More.", "###STOP###"))),
    )
    line = json.loads(row(input=[]))
    line["simulated_user"] = {"goal": "Hear it."}
    async with hall(speaker(PLAIN), policy) as system:
        await system.add_model(user, pool="user", name="model-2")
        spec = rollout_spec(json.dumps(line).encode(), agent="acp", roles={"user": "user"})
        (record,) = await system.make(spec)
    assert (record.outcome, record.reward, record.turns) == (Completed(), 1.0, 2)
    made = json.loads(bytes(record.row))
    assert [one["content"] for one in made["responses_create_params"]["input"]] == ["Hi!"]
    assert texts(record) == ["hello", "More.", "done"]
    assert made["response"]["metadata"]["stop_reason"] == "###STOP###"


async def test_a_limit_of_turns_between_two_prompts_and_within_one(speaker: Any) -> None:
    record = await play(speaker(PLAIN), Engine(answer("50")), environment="guessing", steps=True, max_turns=3)
    assert (record.outcome, record.turns, record.reward) == (Truncated(reason="max_turns"), 3, 0.0)
    program = BY_HAND + UNTIL_CANCELLED
    record = await play(speaker(program), Engine(answer("done")), max_turns=2)
    assert (record.outcome, record.turns, record.reward) == (Truncated(reason="max_turns"), 2, 1.0)


UNTIL_CANCELLED = """
from pathlib import Path
from threading import Thread

def ask_on():
    while True:
        ask(asked)

begin()
asked = prompted()
Thread(target=ask_on, daemon=True).start()
told = read()
assert told["method"] == "session/cancel", told
if sys.argv[1:]:
    Path(sys.argv[1]).write_text(told["params"]["sessionId"])
answer(asked, stopReason="cancelled")
"""


async def test_a_cancelled_rollout_tells_the_program(speaker: Any, tmp_path: Path) -> None:
    told = tmp_path / "told"
    engine = Engine(answer("x"), Hang())
    async with hall(speaker(BY_HAND + UNTIL_CANCELLED, str(told)), engine) as system:
        await system.enqueue(rollout_spec(row(), agent="acp"))
        await engine.calls.until(2)
        await system.bus.publish("cancel.run", b"")
        (record,) = await system.records(1)
        await settled(told.exists)
    assert record.outcome == Cancelled()
    assert told.read_text() == "one"


async def test_permissions(speaker: Any) -> None:
    """They are answered by their kind, at once."""
    program = (
        BY_HAND
        + """
begin()
asked = prompted()
kinds = [("reject_once", "n"), ("allow_always", "a"), ("allow_once", "o")]
for options in (kinds, kinds[:2], []):
    offered = [{"optionId": name, "kind": kind, "name": kind} for kind, name in options]
    write(id="p", method="session/request_permission", params={"sessionId": "one", "options": offered})
    got = read()
    assert got["id"] == "p", got
    said.append({"role": "user", "content": json.dumps(got["result"]["outcome"])})
ask(asked)
answer(asked, stopReason="end_turn")
"""
    )
    told = {}
    for choice in ("allow", "refuse"):
        engine = Engine(answer("done"))
        record = await play(speaker(program), engine, agent_options={"permissions": choice})
        assert record.outcome == Completed()
        ((call, _),) = engine.calls.items
        outcomes = [json.loads(json.loads(bytes(raw))["content"]) for raw in call.input[:3]]
        told[choice] = [one.get("optionId") for one in outcomes]
    assert told == {"allow": ["o", "a", None], "refuse": ["n", "n", None]}


BESIDE = (
    BY_HAND
    + """
begin()
asked = prompted()
while True:
    answered = ask(asked)
    update(answered)
    if sys.argv[1] == "a title":
        kept, said[:] = said[:], []
        ask({"params": {"prompt": [{"text": "A title?"}]}})
        said[:] = kept
    answer(asked, stopReason="end_turn")
    asked = prompted()
    if sys.argv[1] == "what comes next":
        kept = said[:]
        ask({"params": {"prompt": [{"text": "What may the user say?"}]}})
        said[:] = kept
"""
)


@pytest.mark.parametrize("question", ["a title", "what comes next"])
@pytest.mark.parametrize("name", ["guessing", "sample"])
async def test_a_question_beside_the_conversation_is_not_the_answer(
    question: str, name: str, speaker: Any
) -> None:
    steps = name == "guessing"
    turns = ["50", "99", "37", "7"] if steps else ["done", "99"]
    engine = Engine(*map(answer, turns))
    record = await play(speaker(BESIDE, question), engine, environment=name, steps=steps)
    assert (record.outcome, record.reward) == (Completed(), 1.0)
    assert texts(record) == (["50", "Lower.", "37", "Right."] if steps else ["done"])
    assert len(engine.calls.items) == {"a title": 4, "what comes next": 3}[question] - 2 * (not steps)


AFTERWARDS = (
    BY_HAND
    + """
from pathlib import Path
begin()
asked = prompted()
update(ask(asked))
answer(asked, stopReason="end_turn")
ask({"params": {"prompt": [{"text": "What may the user say?"}]}})
Path(sys.argv[1]).touch()
time.sleep(60)
"""
)


async def test_a_question_while_the_environment_takes_its_last_step(speaker: Any, tmp_path: Path) -> None:
    asked = tmp_path / "asked"

    class Waiting(Episode[Task]):
        async def step(self, reply: Reply) -> Step:
            await settled(asked.exists)
            return Step(observation="Over.", terminated=True, reward=float(reply.text == "50"))

    waiting = environment(Environment(resource=Waiting, description=""), "waiting")
    engine = Exact(answer("50"), answer("Perhaps this."))
    async with hall(speaker(AFTERWARDS, str(asked)), engine, waiting) as system:
        spec = rollout_spec(row(), environment="waiting", agent="acp", steps=True, return_tokens=True)
        (record,) = await system.make(spec)
    assert (record.outcome, record.reward, record.turns) == (Completed(), 1.0, 2)
    assert texts(record) == ["50", "Over."]
    assert_exact(record, engine)


async def test_an_incomplete_answer_is_a_truncation(speaker: Any) -> None:
    cut = answer("4", status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    record = await play(speaker(PLAIN), Engine(cut), environment="guessing", steps=True)
    assert (record.outcome, record.turns) == (Truncated(reason="max_output_tokens"), 1)


async def test_after_a_loss_it_goes_on(speaker: Any, tmp_path: Path) -> None:
    """The new process gets the same prompts, and the recorded answers; no step is taken twice."""
    kill = """
begin()
import signal
from pathlib import Path
times = Path(sys.argv[1])
first = not times.exists()
times.write_text("x")
for number in range(9):
    asked = prompted()
    ask(asked)
    if first and number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    answer(asked, stopReason="end_turn")
"""
    turns = [answer(guess) for guess in GUESSES]
    engine = Engine(by_attempt={1: turns[:4], 2: turns[4:]})
    agent = speaker(BY_HAND + kill, str(tmp_path / "times"))
    record = await play(agent, engine, environment="guessing", steps=True)
    assert (record.outcome, record.reward, record.attempt) == (Completed(), 1.0, 2)
    made = json.loads(bytes(record.row))
    assert (record.turns, made["_gym"]["resumed_turns"], made["guesses"]) == (5, 4, 5)
    assert len(engine.calls.items) == 5


async def test_after_a_loss_the_simulated_user_says_what_it_said(speaker: Any, tmp_path: Path) -> None:
    kill = """
begin()
import signal
from pathlib import Path
times = Path(sys.argv[1])
first = not times.exists()
times.write_text("x")
for number in range(9):
    asked = prompted()
    ask(asked)
    if first and number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    answer(asked, stopReason="end_turn")
"""
    policy = Engine(by_attempt={1: [answer("hello"), answer("and")], 2: [answer("done")]})
    said = [answer(text) for text in ("Hi!", "More.", "Again.", "###STOP###")]
    user = Engine(by_attempt={1: said[:2], 2: said[2:]})
    line = json.loads(row(input=[]))
    line["simulated_user"] = {"goal": "Hear it."}
    async with hall(speaker(BY_HAND + kill, str(tmp_path / "times")), policy) as system:
        await system.add_model(user, pool="user", name="model-2")
        spec = rollout_spec(json.dumps(line).encode(), agent="acp", roles={"user": "user"})
        (record,) = await system.make(spec)
    assert (record.outcome, record.reward, record.turns, record.attempt) == (Completed(), 1.0, 3, 2)
    assert texts(record) == ["hello", "More.", "and", "Again.", "done"]
    assert (len(policy.calls.items), len(user.calls.items)) == (3, 4)


FAMILY = (
    BY_HAND
    + """
import subprocess
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True)
begin()
asked = prompted()
said.append({"role": "user", "content": f"{os.getpid()} {child.pid}"})
ask(asked)
answer(asked, stopReason="end_turn")
time.sleep(3600)
"""
)


@pytest.mark.slow
async def test_twenty_at_once_leave_no_process(speaker: Any) -> None:
    engine = Engine(answer("done"))
    async with hall(speaker(FAMILY), engine, slots=20) as system:
        records = await system.make(*[rollout_spec(row(), task=n, agent="acp") for n in range(20)])
    assert {(type(one.outcome), one.reward) for one in records} == {(Completed, 1.0)}
    pids = [
        int(pid)
        for call, _ in engine.calls.items
        for pid in json.loads(bytes(call.input[0]))["content"].split()
    ]
    assert len(set(pids)) == 40
    await settled(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
