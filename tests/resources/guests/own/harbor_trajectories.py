"""Trajectories by Harbor's own converters of agents' logs: run by Harbor's Python; a line of JSON for each.

Our sessions are written in the logs' formats of several agents, and Harbor makes ATIF documents of them.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from pathlib import Path

from harbor.agents.installed.gemini_cli import GeminiCli
from harbor.agents.installed.goose import Goose
from harbor.agents.installed.hermes import Hermes
from harbor.agents.installed.mini_swe_agent import convert_mini_swe_agent_to_atif
from harbor.agents.installed.opencode import OpenCode
from harbor.agents.installed.swe_agent import convert_swe_agent_to_atif
from harbor.agents.installed.trae_agent import TraeAgent

logging.disable(logging.CRITICAL)
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="
ASKED = "How many lines has data.txt?"
# Each turn: what the agent thinks and says, its calls (name, arguments) with what they answer.
SESSIONS = [
    [("", "Three.", [])],
    [("", "I count.", [("bash", {"command": "wc -l data.txt"}, "3 data.txt")]), ("", "Three.", [])],
    [
        (
            'Look first; \u00e4, \U0001f9ee and "quotes".',
            "",
            [
                ("bash", {"command": "ls\ncat nothing"}, "no such file"),
                ("read", {"path": "data.txt", "n": 2}, "a\nb\n"),
            ],
        ),
        ("So it has three.", "", [("bash", {"command": "true"}, "")]),
        ("", "It has three lines.", []),
    ],
]


def mini_chat(turns):
    messages = [{"role": "system", "content": "You work."}, {"role": "user", "content": ASKED}]
    for number, (thought, said, calls) in enumerate(turns):
        made = [
            {
                "id": f"c{number}.{n}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for n, (name, arguments, _) in enumerate(calls)
        ]
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}}
        message = {
            "role": "assistant",
            "content": said,
            "tool_calls": made,
            "extra": {"response": {"usage": usage}},
        }
        messages.append({**message, "reasoning_content": thought} if thought else message)
        messages += [
            {"role": "tool", "tool_call_id": one["id"], "content": answer}
            for one, (_, _, answer) in zip(made, calls, strict=True)
        ]
    return convert_mini_swe_agent_to_atif({"info": {"mini_version": "2"}, "messages": messages}, "mini-chat")


def mini_responses(turns):
    messages = [{"role": "system", "content": "You work."}, {"role": "user", "content": ASKED}]
    for number, (thought, said, calls) in enumerate(turns):
        output = (
            [{"type": "reasoning", "summary": [{"type": "summary_text", "text": thought}]}] if thought else []
        )
        output += [{"type": "message", "content": [{"type": "output_text", "text": said}]}] if said else []
        output += [
            {
                "type": "function_call",
                "call_id": f"c{number}.{n}",
                "name": name,
                "arguments": json.dumps(arguments),
            }
            for n, (name, arguments, _) in enumerate(calls)
        ]
        usage = {"input_tokens": 10, "output_tokens": 5}
        messages.append({"object": "response", "output": output, "usage": usage})
        messages += [
            {"type": "function_call_output", "call_id": f"c{number}.{n}", "output": answer}
            for n, (_, _, answer) in enumerate(calls)
        ]
    return convert_mini_swe_agent_to_atif({"info": {}, "messages": messages}, "mini-responses")


def swe(turns):
    steps = [
        {
            "query": [{"role": "system", "content": "You work."}],
            "response": said,
            "thought": thought,
            "action": calls[0][1].get("command", "") if calls else "",
            "observation": calls[0][2] if calls else "",
        }
        for thought, said, calls in turns
    ]
    return convert_swe_agent_to_atif({"trajectory": steps, "info": {"input_tokens": 9, "model": "m"}}, "swe")


def trae(turns):
    interactions, results = [], []
    for number, (_, said, calls) in enumerate(turns):
        made = [
            {"call_id": f"c{number}.{n}", "name": name, "arguments": arguments}
            for n, (name, arguments, _) in enumerate(calls)
        ]
        results += [
            {"call_id": one["call_id"], "result": answer}
            for one, (_, _, answer) in zip(made, calls, strict=True)
        ]
        answered = {"content": said, "tool_calls": made, "usage": {"input_tokens": 10, "output_tokens": 5}}
        interactions.append({"response": answered, "timestamp": "2026-01-01T00:00:00Z"})
    raw = {"llm_interactions": interactions, "agent_steps": [{"tool_results": results}], "session_id": "trae"}
    return agent(TraeAgent)._convert_trajectory_to_atif(raw)


def gemini(turns):
    messages = [{"type": "user", "content": ASKED}]
    for number, (thought, said, calls) in enumerate(turns):
        made = []
        for n, (name, arguments, answer) in enumerate(calls):
            parts = [{"inlineData": {"mimeType": "image/png", "data": PIXEL}}] if name == "read" else []
            told = {"functionResponse": {"response": {"output": answer}, "parts": parts}}
            made.append({"id": f"c{number}.{n}", "name": name, "args": arguments, "result": [told]})
        thoughts = [{"subject": "Plan", "description": thought}] if thought else []
        tokens = {"input": 10, "output": 5, "cached": 1, "thoughts": 2}
        messages.append(
            {
                "type": "gemini",
                "content": said,
                "thoughts": thoughts,
                "toolCalls": made,
                "tokens": tokens,
                "model": "g",
            }
        )
    return agent(GeminiCli)._convert_gemini_to_atif({"sessionId": "gemini", "messages": messages})


def goose(turns):
    lines = []
    for number, (thought, said, calls) in enumerate(turns):
        content = [{"type": "thinking", "thinking": thought}] if thought else []
        content += [{"type": "text", "text": said}] if said else []
        content += [
            {
                "type": "toolRequest",
                "id": f"c{number}.{n}",
                "toolCall": {"value": {"name": name, "arguments": arguments}},
            }
            for n, (name, arguments, _) in enumerate(calls)
        ]
        answers = [
            {
                "type": "toolResponse",
                "id": f"c{number}.{n}",
                "toolResult": {"value": {"content": [{"type": "text", "text": answer}]}},
            }
            for n, (_, _, answer) in enumerate(calls)
        ]
        lines.append(
            {"type": "message", "message": {"id": f"m{number}", "role": "assistant", "content": content}}
        )
        if answers:
            lines.append(
                {"type": "message", "message": {"id": f"u{number}", "role": "user", "content": answers}}
            )
    return agent(Goose)._convert_goose_stream_json_to_atif("\n".join(map(json.dumps, lines)), "goose")


def hermes(turns):
    messages = [{"role": "user", "content": ASKED}]
    for number, (_, said, calls) in enumerate(turns):
        made = [
            {"id": f"c{number}.{n}", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for n, (name, arguments, _) in enumerate(calls)
        ]
        usage = {"prompt_tokens": 10, "completion_tokens": 5}
        messages.append({"role": "assistant", "content": said, "tool_calls": made, "usage": usage})
        messages += [
            {"role": "tool", "tool_call_id": one["id"], "content": answer}
            for one, (_, _, answer) in zip(made, calls, strict=True)
        ]
    return agent(Hermes)._convert_hermes_session_to_atif(json.dumps({"messages": messages}), "hermes")


def opencode(turns):
    events = [{"type": "user", "sessionID": "opencode", "part": {"type": "text", "text": ASKED}}]
    for number, (thought, said, calls) in enumerate(turns):
        events.append({"type": "step_start", "timestamp": 1_790_000_000_000 + number})
        events += [{"type": "reasoning", "part": {"type": "reasoning", "text": thought}}] if thought else []
        events += [{"type": "text", "part": {"type": "text", "text": said}}] if said else []
        for n, (name, arguments, answer) in enumerate(calls):
            state = {"input": arguments, "error" if "no such" in answer else "output": answer}
            part = {"type": "tool", "tool": name, "callID": f"c{number}.{n}", "state": state}
            events.append({"type": "tool_use", "part": part})
        tokens = {"input": 10, "output": 5, "reasoning": 2, "cache": {"read": 3}}
        events.append({"type": "step_finish", "part": {"tokens": tokens, "cost": 0.01}})
    return agent(OpenCode)._convert_events_to_trajectory(events)


def agent(kind):
    return kind(logs_dir=Path(tempfile.mkdtemp(dir=sys.argv[1])), model_name="provider/model")


for convert in (mini_chat, mini_responses, swe, trae, gemini, goose, hermes, opencode):
    for number, turns in enumerate(SESSIONS):
        made = convert(turns)
        print(
            json.dumps({"name": f"{convert.__name__} {number}", "document": made.to_json_dict()}), flush=True
        )
