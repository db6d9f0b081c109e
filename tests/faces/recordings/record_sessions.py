"""Records sessions of real harnesses with a compaction and a sub-agent: ``tests/data/sessions/NAME.json``.

    npm install --prefix FOLDER @openai/codex @anthropic-ai/claude-code opencode-ai
    cd tests && python -m faces.recordings.record_sessions FOLDER codex

The harness is the agent of a rollout, and a script is its model: it has the harness start a sub-agent, says
that the context is nearly full, so that the harness shortens it, and goes on. What is stored are the calls:
the conversation and the answer of each, and how many answers had come when it was asked. Of the harness's own
long texts only digests are stored, so that equal texts are equal; the script's own texts stay what they are,
also within others.
"""

from __future__ import annotations

import json
import re
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import anyio
import msgspec
from agents.black_box.harnesses import play
from agents.exact_engine import Exact
from gym_agents.black_box import Agent as BlackBox
from gym_faces.recordings.transcript import Transcript
from gym_testing.small_system import answer, function_call

DATA = Path(__file__).parents[2] / "data" / "sessions"
TASK = "Find out whether the weather in Ulm is fit for a walk along the Danube today."
PART = "Read the almanac of Ulm and say what it tells about rain in November."
REPORT = "The almanac of Ulm says that in November it rains on every second day."
SUMMARY = "So far: the almanac says that it rains on every second day. The sky is to be looked at next."
LAST = "A walk along the Danube is fine, if an umbrella comes along."
OURS = (TASK, PART, REPORT, SUMMARY, LAST)
MOST_LOOKS = 10
SHELLS = ("exec_command", "shell", "Bash", "bash")
SPAWNS: dict[str, dict[str, Any]] = {
    "spawn_agent": {"message": PART},
    "Agent": {"description": "Read the almanac", "prompt": PART, "subagent_type": "general-purpose"},
    "Task": {"description": "Read the almanac", "prompt": PART, "subagent_type": "general-purpose"},
    "task": {"description": "Read the almanac", "prompt": PART, "subagent_type": "general"},
}
PROVIDER = "{name='gym', base_url='$OPENAI_BASE_URL', env_key='OPENAI_API_KEY', wire_api='responses'}"
OPENCODE = json.dumps(
    {
        "provider": {
            "gym": {
                "npm": "@ai-sdk/openai-compatible",
                "models": {"policy": {"limit": {"context": 60_000, "output": 2_000}}},
                "options": {"baseURL": "{env:OPENAI_BASE_URL}", "apiKey": "{env:OPENAI_API_KEY}"},
            }
        },
        "permission": "allow",
    }
)


class Codex(BlackBox):
    command = (
        *("sh", "-c"),
        'exec "$0" exec --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox -m "$OPENAI_MODEL" '
        f'-c model_provider=gym -c "model_providers.gym={PROVIDER}" -c model_context_window=60000 '
        "-c model_auto_compact_token_limit=50000 -c features.multi_agent=true -",
        "{folder}/node_modules/.bin/codex",
    )


class ClaudeCode(BlackBox):
    command = ("{folder}/node_modules/.bin/claude", "--print", "--allowedTools", "Bash,Agent,Task")
    variables: ClassVar[Mapping[str, str]] = {
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
        "CLAUDE_CODE_AUTO_COMPACT_WINDOW": "100000",
    }


class OpenCode(BlackBox):
    command = (
        *("sh", "-c", 'echo "$1" >opencode.json; exec "$0" run --model gym/policy "$2"'),
        *("{folder}/node_modules/.bin/opencode", OPENCODE, "{prompt}"),
    )


HARNESSES: dict[str, type[BlackBox]] = {"codex": Codex, "claude-code": ClaudeCode, "opencode": OpenCode}


class Script(Exact):
    """Answers by what it is shown: a sub-agent's task, a wish for a summary, or the task itself."""

    def __init__(self) -> None:
        super().__init__(answer("…"))
        self.step = self.looks = 0
        self.log: list[str] = []

    async def respond(self, call: Any, context: Any) -> Any:
        params = msgspec.json.decode(call.params)
        items = [msgspec.json.decode(item) for item in call.input]
        # Claude Code takes answers with one id for one answer.
        fields = {**msgspec.json.decode(self._said(items, params).response), "id": f"resp_{len(self.log)}"}
        self._turns = (answer(*fields.pop("output"), **fields),)
        self.log.append(f"{len(items)} items, the last {items[-1]} -> {bytes(self._turns[0].response)}")
        return await super().respond(call, context)

    def _said(self, items: list[dict[str, Any]], params: dict[str, Any]) -> Any:
        tools = [tool.get("name") for tool in params.get("tools") or ()]
        texts = [json.dumps(item, ensure_ascii=False) for item in items]
        users = [text for item, text in zip(items, texts, strict=True) if item.get("role") == "user"]
        outputs = sum(item.get("type") == "function_call_output" for item in items)
        shell = next((name for name in SHELLS if name in tools), "")
        last = users[-1].lower() if users else ""
        asked = re.search(r"checkpoint|summary", last) and items[-1].get("role") == "user"
        if asked and (outputs or "conversation so far" in last):
            return answer(SUMMARY)
        if self.step and any(PART in text for text in users) and not any(TASK in text for text in users):
            return answer(REPORT) if outputs else self._run(shell, "date", "almanac")
        if not shell or not any(TASK in text or SUMMARY in text for text in texts):
            return answer("The weather in Ulm")
        self.step += 1
        bare = {str(name).rpartition("__")[2]: name for name in tools}
        spawn = next(name for name in SPAWNS if name in bare)
        if self.step == 1:
            return answer(function_call(bare[spawn], json.dumps(SPAWNS[spawn]), "spawn"))
        if self.step == 2 and "wait_agent" in bare:
            found = re.search(r"[0-9a-f]{8}-[0-9a-f-]{27}", str(items[-1]["output"]))
            targets = json.dumps({"targets": [found[0]] if found else [], "timeout_ms": 60_000})
            return answer(function_call(bare["wait_agent"], targets, "wait"))
        if not any(SUMMARY in text for text in texts):
            if self.step > MOST_LOOKS:
                return answer("It was looked at often enough for now.")
            usage = {"input_tokens": 99_000, "output_tokens": 90, "total_tokens": 99_090}
            return self._run(shell, "echo cloudy", f"sky{self.step}", usage=usage)
        self.looks += 1
        return self._run(shell, "echo dry", "ground") if self.looks == 1 else answer(LAST)

    @staticmethod
    def _run(shell: str, command: str, name: str, **more: Any) -> Any:
        given: dict[str, Any] = {"cmd": command, "command": command, "description": "Look"}
        if shell == "exec_command":
            given = {"cmd": command}
        elif shell == "shell":
            given = {"command": ["sh", "-c", command]}
        else:
            given.pop("cmd")
        return answer(function_call(shell, json.dumps(given), name), **more)


def shape_of(value: Any) -> Any:
    """A value whose texts are digests, word by word, with our own texts as they are."""
    if isinstance(value, dict):
        return {key: one if key in _KEPT else shape_of(one) for key, one in value.items()}
    if isinstance(value, list):
        return [shape_of(one) for one in value]
    if not isinstance(value, str):
        return value
    parts = re.split("(" + "|".join(map(re.escape, OURS)) + ")", value)
    return "".join(part if part in OURS else _digest(part) for part in parts)


_KEPT = ("type", "role", "call_id", "name", "id", "status", "arguments")


def _digest(text: str) -> str:
    # Short texts tell nothing of the harness, and a long one is one word.
    return text if len(text) < 40 else f" {zlib.crc32(text.encode()):08x} "


async def recorded(folder: Path, name: str) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []
    add = Transcript.add

    def noted(self: Transcript, items: Any, said: Any, tokens: Any = None, asked: int | None = None) -> bool:
        one = {"items": [*map(msgspec.json.decode, items)], "answer": [*map(msgspec.json.decode, said)]}
        calls.append({**one, "asked": self.answered if asked is None else asked})
        return add(self, items, said, tokens, asked)

    Transcript.add = noted  # type: ignore[method-assign]
    harness = HARNESSES[name]
    own = {"command": tuple(part.replace("{folder}", str(folder)) for part in harness.command)}
    script = Script()
    line = json.dumps({"responses_create_params": {"input": TASK}}).encode()
    record = await play(type("Agent", (harness,), own)(), script, line)
    print("\n".join(script.log))
    print(record.outcome, record.turns)
    return calls


def stored(calls: list[dict[str, Any]]) -> dict[str, Any]:
    """Each item once; calls name the items by their numbers."""
    items: dict[str, int] = {}

    def numbers(found: list[Any]) -> list[int]:
        return [items.setdefault(json.dumps(shape_of(one), ensure_ascii=False), len(items)) for one in found]

    rows = [[numbers(one["items"]), numbers(one["answer"]), one["asked"]] for one in calls]
    return {"items": [json.loads(one) for one in items], "calls": rows}


def main() -> None:
    folder, name = Path(sys.argv[1]).resolve(), sys.argv[2]
    found = anyio.run(recorded, folder, name)
    DATA.mkdir(exist_ok=True)
    (DATA / f"{name}.json").write_text(json.dumps(stored(found), ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
