"""The task's tools reach a harness over MCP and as a command; the transcript has their own names."""

from __future__ import annotations

import json
from typing import Any

import pytest
from agents.black_box.harnesses import PLAIN
from gym_agents.black_box import Agent as BlackBox
from gym_runtime import Environment, Image, Reply, Session, Task, Verdict, tool
from gym_runtime.messages.outcomes import Completed, RolloutRecord
from gym_testing.small_system import (
    Engine,
    answer,
    environment,
    function_call,
    rollout_spec,
    row,
    small_system,
)
from runtime.environment.image_samples import png

pytestmark = pytest.mark.anyio

OVER_MCP = """
import json, os, sys, urllib.request

def post(url, body, **headers):
    headers["content-type"] = "application/json"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    return json.load(urllib.request.urlopen(request))

config = json.load(open(sys.argv[1]))["mcpServers"]["gym"]
assert config["url"] == os.environ["GYM_MCP_URL"] == sys.argv[2] and config["type"] == "http"

def ask_tools(method, **params):
    return post(config["url"], {"jsonrpc": "2.0", "id": 1, "method": method, "params": params})["result"]

tool, look = ask_tools("tools/list")["tools"]
seen = ask_tools("tools/call", name="look", arguments={})["content"]
assert [one["type"] for one in seen] == ["text", "image"] and seen[1]["mimeType"] == "image/png", seen
offered = [{"type": "function", "name": "mcp__gym__" + tool["name"], "parameters": tool["inputSchema"]}]
said = [{"role": "user", "content": sys.stdin.read()}]
while True:
    output = post(os.environ["OPENAI_BASE_URL"] + "/responses",
        {"model": "m", "input": said, "tools": offered},
        authorization="Bearer " + os.environ["OPENAI_API_KEY"])["output"]
    said += output
    calls = [one for one in output if one["type"] == "function_call"]
    for one in calls:
        assert one["name"] == "mcp__gym__add"
        done = ask_tools("tools/call", name="add", arguments=json.loads(one["arguments"]))
        text = done["content"][0]["text"]
        said.append({"type": "function_call_output", "call_id": one["call_id"], "output": text})
    if not calls:
        break
"""

AS_A_COMMAND = (
    PLAIN
    + """
import shutil, subprocess
ask(sys.argv[1])
run = lambda *words: subprocess.run(["gym-tool", *words], capture_output=True, text=True)
done = run("add", '{"amount": 5}')
assert (done.returncode, done.stdout) == (0, '{"count":5}\\n'), done
assert run("look").stdout == "now\\n[image]\\n"
done = run("add", '{"amount": "x"}')
assert done.returncode == 1 and "validation_error" in done.stdout, done
assert "not JSON" in run("add", "{").stderr and "no tool" in run("sub").stderr and "usage" in run().stderr
moved = open(shutil.which("gym-tool")).read().replace("/mcp'", "/gone'")
done = subprocess.run([sys.executable, "-c", moved, "look"], capture_output=True, text=True)
assert done.returncode == 1 and done.stderr.startswith("gym-tool: ") and "/gone" in done.stderr, done
assert done.stderr.count("\\n") == 1, done
done = run("add", '{"amount": NaN}')
assert done.returncode == 1 and done.stderr.startswith("gym-tool: the body is not JSON"), done
"""
)


class Counting(Session[Task]):
    """Counts to 5."""

    async def open(self) -> None:
        self.count = 0

    @tool
    def add(self, amount: int) -> dict[str, int]:
        """Add to the count."""
        self.count += amount
        return {"count": self.count}

    @tool
    def look(self) -> list[Any]:
        """Look at the count."""
        return ["now", Image(png(2, 2))]

    async def verify(self, reply: Reply) -> Verdict:
        return Verdict(float(self.count == 5), fields={"called": [one.name for one in reply.function_calls]})


async def play(agent: BlackBox, engine: Engine, prompt: str = "count") -> RolloutRecord:
    counting = environment(Environment(resource=Counting, description=""), "counting")
    async with small_system() as system:
        await system.add_resource(counting)
        await system.add_model(engine)
        await system.add_agent({"black_box": agent})
        tools = [one.definition() for one in counting.resource.tools.values()]
        line = row(responses_create_params={"input": prompt, "tools": tools})
        (record,) = await system.make(rollout_spec(line, environment="counting", agent="black_box"))
    return record


async def test_over_mcp(harness: Any) -> None:
    add = [function_call("mcp__gym__add", f'{{"amount": {n}}}', f"c{n}") for n in (2, 3)]
    agent = harness(OVER_MCP, "{mcp_config}", "{mcp_url}")
    record = await play(agent, Engine(answer(*add), answer("done")))
    assert (record.outcome, record.reward) == (Completed(), 1.0)
    made = json.loads(bytes(record.row))
    assert made["called"] == ["add", "add"]
    output = made["response"]["output"]
    assert [(one["type"], one.get("name")) for one in output] == [
        *[("function_call", "add")] * 2,
        *[("function_call_output", None)] * 2,
        ("message", None),
    ]
    assert [one["output"] for one in output[2:4]] == ['{"count":2}', '{"count":5}']
    assert record.tool_calls == 3


@pytest.mark.slow
async def test_as_a_command(harness: Any) -> None:
    engine = Engine(answer("done"))
    record = await play(harness(AS_A_COMMAND, "{prompt}\n\n{tools}"), engine)
    assert (record.outcome, record.reward) == (Completed(), 1.0), record.outcome
    ((call, _),) = engine.calls.items
    said = json.loads(bytes(call.input[0]))["content"]
    assert said.startswith("count\n\nThese tools are called in the shell")
    assert "- add: Add to the count. {" in said


async def test_a_prompt_is_no_template(harness: Any) -> None:
    program = PLAIN + "assert sys.argv[1] == 'count {tools}', sys.argv\nask('x')"
    record = await play(harness(program, "{prompt}"), Engine(answer("done")), "count {tools}")
    assert record.outcome == Completed()


MANY_CALLS = (
    PLAIN
    + """
import http.client
from urllib.parse import urlsplit
address = urlsplit(os.environ["GYM_MCP_URL"])
connection = http.client.HTTPConnection(address.netloc)
wrong = 0
for number in range(60):
    params = {"name": "add", "arguments": {"amount": 1}}
    body = json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
    connection.request("POST", address.path, body, {"content-type": "application/json"})
    said = json.load(connection.getresponse())
    text = said["result"]["content"][0]["text"]
    wrong += (said["id"], json.loads(text)) != (number, {"count": number + 1})
ask(json.dumps(wrong))
"""
)


@pytest.mark.slow
async def test_many_calls_of_many_rollouts_at_once(harness: Any) -> None:
    """Each answer is its own rollout's, in the order of its calls."""
    counting = environment(Environment(resource=Counting, description=""), "counting")
    engine = Engine(answer("done"))
    async with small_system() as system:
        await system.add_resource(counting)
        await system.add_model(engine)
        await system.add_agent({"black_box": harness(MANY_CALLS)}, slots=16)
        tools = [one.definition() for one in counting.resource.tools.values()]
        line = row(responses_create_params={"input": "count", "tools": tools})
        specs = [rollout_spec(line, environment="counting", agent="black_box", task=n) for n in range(16)]
        records = await system.make(*specs)
    assert {(one.outcome, one.tool_calls) for one in records} == {(Completed(), 60)}
    found = [json.loads(json.loads(bytes(call.input[0]))["content"]) for call, _ in engine.calls.items]
    assert found == [0] * 16
