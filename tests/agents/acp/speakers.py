"""Agents of the Agent Client Protocol, by its library and by hand; and what they play."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from gym_agents.acp import Agent as Acp
from gym_runtime import Environment, Episode, Reply, Step, Task, Verdict
from gym_runtime.messages.outcomes import RolloutRecord
from gym_testing.small_system import (
    Engine,
    SmallSystem,
    environment,
    rollout_spec,
    small_system,
)

PLAYER = """
import asyncio, json, os, sys, urllib.request
import acp
from acp.schema import AgentCapabilities, McpCapabilities, PromptCapabilities

def post(url, body):
    headers = {"content-type": "application/json", "authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    return json.load(urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)))

class Player:
    def on_connect(self, client):
        self.client, self.said, self.tools = client, [], []

    async def initialize(self, protocol_version, client_capabilities=None, **_):
        assert not client_capabilities.terminal and not client_capabilities.fs.read_text_file
        able = AgentCapabilities(mcp_capabilities=McpCapabilities(http=True),
                                 prompt_capabilities=PromptCapabilities(image=True))
        return acp.InitializeResponse(protocol_version=protocol_version, agent_capabilities=able)

    async def new_session(self, cwd, mcp_servers=None, **_):
        assert cwd == os.getcwd(), cwd
        self.servers = mcp_servers
        if mcp_servers:
            (server,) = mcp_servers
            assert (server.name, server.url) == ("gym", os.environ["GYM_MCP_URL"])
            self.tools = [
                {"type": "function", "name": "mcp__gym__" + one["name"], "parameters": one["inputSchema"]}
                for one in self.mcp("tools/list")["tools"]]
        return acp.NewSessionResponse(session_id="one")

    def mcp(self, method, **params):
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return post(self.servers[0].url, body)["result"]

    def work(self):
        while True:
            output = post(os.environ["OPENAI_BASE_URL"] + "/responses",
                          {"model": "m", "input": self.said, "tools": self.tools})["output"]
            self.said += output
            calls = [one for one in output if one["type"] == "function_call"]
            for one in calls:
                name, given = one["name"].removeprefix("mcp__gym__"), json.loads(one["arguments"])
                text = self.mcp("tools/call", name=name, arguments=given)["content"][0]["text"]
                self.said.append({"type": "function_call_output", "call_id": one["call_id"], "output": text})
            if not calls:
                return output[-1]["content"][0]["text"]

    async def prompt(self, prompt, session_id, **_):
        parts = [
            {"type": "input_text", "text": one.text} if one.type == "text" else
            {"type": "input_image", "image_url": f"data:{one.mime_type};base64,{one.data}"} for one in prompt]
        self.said.append({"role": "user", "content": parts})
        text = await asyncio.to_thread(self.work)
        await self.client.session_update(session_id, acp.update_agent_message_text(text))
        return acp.PromptResponse(stop_reason="end_turn")

asyncio.run(acp.run_agent(Player()))
"""

LISTENING = PLAYER.replace(
    '        return post(self.servers[0].url, body)["result"]',
    """        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        request = urllib.request.Request(self.servers[0].url, json.dumps(body).encode(), headers)
        said = urllib.request.urlopen(request).read().decode()
        events = [json.loads(line[6:]) for line in said.splitlines() if line.startswith("data: ")]
        if [one.get("method") for one in events[:-1]] == ["notifications/tools/list_changed"]:
            self.tools = [
                {"type": "function", "name": "mcp__gym__" + one["name"], "parameters": one["inputSchema"]}
                for one in self.mcp("tools/list")["tools"]]
        return (events or [json.loads(said)])[-1]["result"]""",
)
"""As `PLAYER`, and hears over MCP that there are other tools."""

BY_HAND = """
import json, os, sys, time, urllib.request

def read():
    line = sys.stdin.readline()
    return json.loads(line) if line else sys.exit()

def write(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
    sys.stdout.flush()

def answer(asked, **result):
    write(id=asked["id"], result=result)

def begin(version=1):
    asked = read()
    assert asked["method"] == "initialize" and asked["params"]["protocolVersion"] == 1, asked
    answer(asked, protocolVersion=version, agentCapabilities=None)
    asked = read()
    assert asked["method"] == "session/new" and asked["params"]["mcpServers"] == [], asked
    answer(asked, sessionId="one")

def prompted():
    asked = read()
    assert asked["method"] == "session/prompt" and asked["params"]["sessionId"] == "one", asked
    return asked

said = []

def ask(asked, **more):
    said.append({"role": "user", "content": "".join(one["text"] for one in asked["params"]["prompt"])})
    body = {"model": "m", "messages": said, **more}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode(),
        {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "content-type": "application/json"})
    text = json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
    said.append({"role": "assistant", "content": text})
    return text

def update(text="..."):
    chunk = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    write(method="session/update", params={"sessionId": "one", "update": chunk})

"""
PLAIN = (
    BY_HAND
    + """
begin()
while True:
    asked = prompted()
    ask(asked)
    answer(asked, stopReason="end_turn")
"""
)


class Guessing(Episode[Task]):
    """Guess the number 37."""

    async def reset(self) -> str:
        self.guesses = 0
        return "Guess."

    async def step(self, reply: Reply) -> Step:
        self.guesses += 1
        guess = int(reply.text)
        if guess == 37:
            return Step(observation="Right.", terminated=True, reward=1.0, info={"guesses": self.guesses})
        hint = "Higher." if guess < 37 else "Lower."
        return Step(observation=hint, truncated=self.guesses == 9, info={"guesses": self.guesses})


def judge(task: Task, reply: Reply) -> Verdict:
    return Verdict(float(reply.text == "done"))


ENVIRONMENTS = [
    environment(Environment(resource=judge, description="d"), "sample"),
    environment(Environment(resource=Guessing, description="d"), "guessing"),
]


def row(**params: Any) -> bytes:
    return json.dumps({"responses_create_params": {"input": "weather?", **params}}).encode()


@asynccontextmanager
async def hall(agent: Acp, engine: Engine, *more: Any, slots: int = 16) -> AsyncGenerator[SmallSystem]:
    async with small_system() as system:
        await system.add_resource(*ENVIRONMENTS, *more)
        await system.add_model(engine)
        await system.add_agent({"acp": agent}, slots=slots)
        yield system


async def play(agent: Acp, engine: Engine, line: bytes | None = None, **more: Any) -> RolloutRecord:
    async with hall(agent, engine) as system:
        (record,) = await system.make(rollout_spec(line or row(), agent="acp", **more))
    return record
