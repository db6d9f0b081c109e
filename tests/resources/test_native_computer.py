"""Models with their own computer tool do a task of MiniWoB++: a real server, adapter and Chromium.

The server replies in each provider's published format, and what it is asked is held against the provider's
own client where that is installed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anyio
import msgspec
import pytest
from aiohttp import web
from gym_data.web.listener import serving
from gym_models.openai import Adapter
from gym_runtime.environment import catalogue
from gym_runtime.messages.outcomes import Completed
from gym_runtime.workers.adapter import ModelSettings
from gym_testing.small_system import rollout_spec, small_system
from resources.test_screens import needs_miniwob, player, row

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(120)]
TASK = row("click-button", 3)
Script = Callable[[dict[str, Any], list[int]], Any]


class Server:
    """Replies to one request after another as a script says; keeps paths, headers and bodies."""

    def __init__(self, script: Script, place: list[int]) -> None:
        self.asked: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self._script, self._place = script, place

    def app(self) -> web.Application:
        app = web.Application(client_max_size=2**26)
        app.router.add_post("/{path:.*}", self._answer)
        return app

    async def _answer(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        self.asked.append((request.path, dict(request.headers), body))
        return web.json_response(self._script(body, self._place))


_place: list[int] = []


async def button() -> list[int]:
    """Where the right button is, in pixels of the screenshot."""
    if not _place:
        async with player(catalogue.environment("miniwob").resource, TASK) as (user, session):
            await user.read()
            x, y, *_ = session._elements[user.at("button")]
            _place.extend([round(2 * x), round(2 * y)])
    return _place


async def played(script: Script, computer: str, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A whole rollout, which ends with the page's full reward."""
    monkeypatch.setenv("SOME_KEY", "k-123")
    server = Server(script, await button())
    async with serving(server) as url, small_system() as system:
        settings = ModelSettings(
            provider="openai",
            name="eyes",
            urls=(f"{url}/v1",),
            api_key_variable="SOME_KEY",
            options={"computer": computer, "check_model": False},
        )
        async with Adapter(settings) as adapter:
            await system.add_resource(catalogue.environment("miniwob"))
            await system.add_model(adapter)
            await system.add_agent()
            tools = [one.definition() for one in catalogue.environment("miniwob").resource.tools.values()]
            line = msgspec.json.decode(TASK)
            line["responses_create_params"]["tools"] = tools
            spec = rollout_spec(
                environment="miniwob", agent="tool_loop", row=msgspec.Raw(msgspec.json.encode(line))
            )
            with anyio.fail_after(90):
                (record,) = await system.make(spec)
    assert isinstance(record.outcome, Completed), record.outcome
    assert record.reward == 1
    return server


# -- OpenAI ---------------------------------------------------------------------------------------------


def openai_item(place: list[int], turn: int, preview: bool) -> dict[str, Any]:
    x, y = place
    click = {"type": "click", "x": x, "y": y, "button": "left"}
    actions: list[dict[str, Any]] = [
        [{"type": "screenshot"}],
        [click] if preview else [{"type": "move", "x": x, "y": y}, click],
    ][turn]
    return {
        "type": "computer_call",
        "id": f"cu_{turn}",
        "call_id": f"call_{turn}",
        "status": "completed",
        "pending_safety_checks": [{"id": "sc_1", "code": "malicious_instructions", "message": "Look."}],
        **({"action": actions[0]} if preview else {"actions": actions}),
    }


def openai_script(body: dict[str, Any], place: list[int]) -> dict[str, Any]:
    turn = sum(one.get("type") == "computer_call" for one in body["input"])
    preview = body["tools"][0]["type"] == "computer_use_preview"
    text = [{"type": "output_text", "text": "Done.", "annotations": []}]
    thought = {"type": "reasoning", "id": f"rs_{turn}", "summary": [], "encrypted_content": "abc"}
    said = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": text}
    return {
        "id": f"resp_{turn}",
        "object": "response",
        "created_at": 1,
        "model": "eyes",
        "status": "completed",
        "output": [said] if turn == 2 else [thought, openai_item(place, turn, preview)],
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
    }


@needs_miniwob
@pytest.mark.parametrize("tool", ["computer", "computer_use_preview"])
async def test_openais_computer_calls(tool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server = await played(openai_script, tool, monkeypatch)
    path, _, last = server.asked[-1]
    assert path == "/v1/responses"
    offered = [one for one in last["tools"] if one["type"] != "function"]
    assert [one["type"] for one in offered] == [tool]
    assert "computer" not in [one.get("name") for one in last["tools"]]
    if tool == "computer_use_preview":
        assert (offered[0]["display_width"], offered[0]["display_height"]) == (320, 420)
    kinds = [one.get("type") for one in last["input"] if one.get("role") is None]
    assert kinds == ["reasoning", "computer_call", "computer_call_output"] * 2
    calls = [one for one in last["input"] if one.get("type") == "computer_call"]
    sent = [openai_script(body, server._place)["output"][1] for _, _, body in server.asked[:2]]
    assert calls == sent  # back as they were
    outputs = [one for one in last["input"] if one.get("type") == "computer_call_output"]
    for call, output in zip(calls, outputs, strict=True):
        assert output["call_id"] == call["call_id"]
        assert output["acknowledged_safety_checks"] == call["pending_safety_checks"]
        assert output["output"]["type"] == "computer_screenshot"
        assert output["output"]["image_url"].startswith("data:image/png;base64,")
    responses = pytest.importorskip("openai.types.responses")
    pydantic = pytest.importorskip("pydantic")
    checked = pydantic.TypeAdapter(responses.ResponseInputItemParam)
    for one in (*calls, *outputs):
        checked.validate_python(one)
    for _, _, body in server.asked:
        responses.Response.model_validate(openai_script(body, server._place))


# -- Anthropic ------------------------------------------------------------------------------------------


def anthropic_script(body: dict[str, Any], place: list[int]) -> dict[str, Any]:
    blocks = [block for one in body["messages"] for block in one["content"] if isinstance(block, dict)]
    turn = sum(one["type"] == "tool_use" for one in blocks)
    toolset = any(one.get("type") == "computer_toolset_20260801" for one in body["tools"])
    action, given = [("screenshot", {}), ("left_click", {"coordinate": place}), ("", {})][min(turn, 2)]
    used: dict[str, Any] = {"type": "tool_use", "id": f"toolu_{turn}"}
    if toolset:
        used |= {"name": action, "toolset_name": "computer", "input": given}
    else:
        used |= {"name": "computer", "input": {"action": action, **given}}
    thought = {"type": "thinking", "thinking": "Look.", "signature": f"signed {turn}"}
    return {
        "id": f"msg_{turn}",
        "type": "message",
        "role": "assistant",
        "model": "eyes",
        "content": [{"type": "text", "text": "Done."}] if turn == 2 else [thought, used],
        "stop_reason": "end_turn" if turn == 2 else "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 5, "cache_read_input_tokens": 7, "output_tokens": 3},
    }


@needs_miniwob
@pytest.mark.parametrize(
    ("tool", "beta"),
    [
        ("computer_20250124", "computer-use-2025-01-24"),
        ("computer_20251124", "computer-use-2025-11-24"),
        ("computer_toolset_20260801", None),
    ],
)
async def test_anthropics_computer_tools(
    tool: str, beta: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await played(anthropic_script, tool, monkeypatch)
    path, headers, last = server.asked[-1]
    assert path == "/v1/messages"
    assert headers["x-api-key"] == "k-123"
    assert headers["anthropic-version"] == "2023-06-01"
    assert headers.get("anthropic-beta") == beta
    toolset = beta is None
    (native,) = [one for one in last["tools"] if "type" in one]
    assert native["type"] == tool
    if not toolset:
        assert (native["display_width_px"], native["display_height_px"]) == (320, 420)
    roles = [one["role"] for one in last["messages"]]
    assert roles == ["user", "assistant", "user", "assistant", "user"]
    for turn in (0, 1):
        sent = anthropic_script(server.asked[turn][2], server._place)["content"]
        assert last["messages"][1 + 2 * turn]["content"] == sent
        (result,) = last["messages"][2 + 2 * turn]["content"]
        assert result["tool_use_id"] == sent[1]["id"]
        assert result.get("toolset_name") == ("computer" if toolset else None)
        assert [one["type"] for one in result["content"]] == ["text", "image"]
        assert result["content"][1]["source"]["media_type"] == "image/png"
    beta_types = pytest.importorskip("anthropic.types.beta")
    checked = pytest.importorskip("pydantic").TypeAdapter(beta_types.BetaMessageParam)
    for one in last["messages"]:
        checked.validate_python(one)
    for _, _, body in server.asked:
        beta_types.BetaMessage.model_validate(anthropic_script(body, server._place))


# -- Gemini ---------------------------------------------------------------------------------------------


def gemini_script(body: dict[str, Any], place: list[int]) -> dict[str, Any]:
    turn = sum("functionCall" in part for one in body["contents"] for part in one["parts"])
    x, y = place[0] * 1000 // 320 + 1, place[1] * 1000 // 420 + 1
    decision = {"decision": "require_confirmation", "explanation": "Sure?"}
    calls: list[dict[str, Any]] = [
        {"id": "f0", "name": "take_screenshot", "args": {"intent": "Look."}},
        {"id": "f1", "name": "click", "args": {"x": x, "y": y, "safety_decision": decision}},
    ]
    part = {"functionCall": calls[turn], "thoughtSignature": f"c{turn}"} if turn < 2 else {"text": "Done."}
    return {
        "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 3, "totalTokenCount": 8},
        "modelVersion": "eyes",
        "responseId": f"r{turn}",
    }


@needs_miniwob
async def test_geminis_computer_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    server = await played(gemini_script, "gemini", monkeypatch)
    path, headers, last = server.asked[-1]
    assert path == "/v1/models/eyes:generateContent"
    assert headers["x-goog-api-key"] == "k-123"
    browser = last["tools"][0]["computerUse"]
    assert browser["environment"] == "ENVIRONMENT_BROWSER"
    assert "navigate" in browser["excludedPredefinedFunctions"]
    assert [one["name"] for one in last["tools"][1]["functionDeclarations"]] == ["read", "click", "fill"]
    assert [one["role"] for one in last["contents"]] == ["user", "model", "user", "model", "user"]
    for turn in (0, 1):
        sent = gemini_script(server.asked[turn][2], server._place)["candidates"][0]["content"]["parts"]
        assert last["contents"][1 + 2 * turn]["parts"] == sent
        (answered,) = last["contents"][2 + 2 * turn]["parts"]
        response = answered["functionResponse"]
        assert (response["id"], response["name"]) == (f"f{turn}", ["take_screenshot", "click"][turn])
        assert response["parts"][0]["inlineData"]["mimeType"] == "image/png"
        assert ("safety_acknowledgement" in response["response"]) == (turn == 1)
