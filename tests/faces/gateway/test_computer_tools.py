"""Harnesses that speak providers' own computer tools, by the providers' clients, before an engine that knows
functions only."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import msgspec
import pytest
from faces.gateway import openai_client
from faces.gateway.running_gateway import standing
from faces.gateway.test_anthropic_client import client as anthropic_client
from faces.gateway.test_anthropic_client import message, pytestmark
from gym_faces.dialects import computer, computer_items, gemini_computer, gemini_engine
from gym_faces.dialects.gemini_api import GEMINI
from gym_faces.dialects.messages_api import MESSAGES
from gym_faces.dialects.responses_api import RESPONSES
from gym_runtime.adapters import ModelCall
from gym_runtime.errors import TaskError
from gym_testing.small_system import answer, function_call
from runtime.environment.image_samples import png

__all__ = ["pytestmark"]
PNG = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAKAAAADSCAYAAAA="
SIZE = computer.Size(160, 210)


def called(**arguments: Any) -> Any:
    return function_call(computer.NAME, json.dumps(arguments), "call_1")


CLICK = called(action="left_click", coordinate=[3, 4], text="shift")


def parsed(raw: Any) -> dict[str, Any]:
    return json.loads(bytes(raw))


# -- OpenAI ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ["computer", "computer_use_preview"])
async def test_openais_client_gets_computer_calls(kind: str, stream: bool) -> None:
    screen = {"display_width": 9, "display_height": 9, "environment": "browser"}
    tool = {"type": kind, **(screen if kind == "computer_use_preview" else {})}
    said = await openai_client.response(answer(CLICK), stream=stream, tools=[tool])
    (call,) = said.output
    assert (call.type, call.call_id, call.pending_safety_checks) == ("computer_call", "call_1", [])
    (action,) = call.actions if kind == "computer" else [call.action]
    assert (action.type, action.x, action.y, action.keys) == ("click", 3, 4, ["SHIFT"])


@pytest.mark.slow
async def test_openais_items_reach_the_engine_as_calls_of_a_function() -> None:
    actions = [{"type": "move", "x": 1, "y": 2}, {"type": "keypress", "keys": ["CTRL", "A"]}]
    call = {
        "type": "computer_call",
        "id": "cu_1",
        "call_id": "c",
        "actions": actions,
        "pending_safety_checks": [],
        "status": "completed",
    }
    shown = {"type": "computer_screenshot", "image_url": PNG}
    output = {"type": "computer_call_output", "call_id": "c", "output": shown}
    async with standing(answer("Done.")) as stand, openai_client.client(stand) as made:
        await made.responses.create(
            model="policy",
            input=[{"role": "user", "content": "?"}, call, output],
            tools=[{"type": "computer"}],
            tool_choice={"type": "computer"},
        )
        ((asked, _),) = stand.engine.calls.items
    _, *items = map(parsed, asked.input)
    assert [(one["type"], one["call_id"]) for one in items] == [
        ("function_call", "c"),
        ("function_call", "c/2"),
        ("function_call_output", "c"),
        ("function_call_output", "c/2"),
    ]
    assert [json.loads(one["arguments"]) for one in items[:2]] == [
        {"action": "mouse_move", "coordinate": [1, 2]},
        {"action": "key", "text": "CTRL+a"},
    ]
    assert items[2]["output"] == "Done."
    assert items[3]["output"][0]["image_url"] == PNG
    params = parsed(asked.params)
    assert [(one["type"], one["name"]) for one in params["tools"]] == [("function", "computer")]
    assert params["tool_choice"] == {"type": "function", "name": "computer"}


@pytest.mark.slow
async def test_a_call_that_is_no_action_stays_a_functions() -> None:
    said = await openai_client.response(
        answer(called(action="left_mouse_down")), stream=False, tools=[{"type": "computer"}]
    )
    assert said.output[0].type == "function_call"


def test_a_screenshot_in_a_file_is_refused() -> None:
    shown = {"type": "computer_screenshot", "file_id": "file-1"}
    output = {"type": "computer_call_output", "call_id": "c", "output": shown}
    with pytest.raises(TaskError, match=r"image_url.*no files are stored"):
        RESPONSES.read(msgspec.json.encode({"model": "m", "input": [output]}))


# -- Anthropic ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
async def test_anthropics_client_gets_members_of_the_toolset(stream: bool) -> None:
    tools = [{"type": "computer_toolset_20260801", "configs": {"zoom": {"enabled": False}}}]
    (block,) = (await message(answer(CLICK), stream=stream, tools=tools)).content
    assert (block.type, block.id, block.name) == ("tool_use", "call_1", "left_click")
    assert block.toolset_name == "computer"
    assert dict(block.input) == {"coordinate": [3, 4], "text": "shift"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["computer_20250124", "computer_20251124"])
async def test_anthropics_client_gets_calls_of_the_tool(kind: str) -> None:
    tools = [{"type": kind, "name": "computer", "display_width_px": 9, "display_height_px": 9}]
    (block,) = (await message(answer(CLICK), stream=False, tools=tools)).content
    assert (block.name, block.input["action"]) == ("computer", "left_click")


@pytest.mark.slow
async def test_members_of_the_toolset_reach_the_engine_as_calls_of_a_function() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": PNG.partition(",")[2]}
    given = {"coordinate": [1, 2]}
    used = {"type": "tool_use", "id": "t", "name": "left_click", "input": given, "toolset_name": "computer"}
    image = [{"type": "image", "source": source}]
    result = {"type": "tool_result", "tool_use_id": "t", "toolset_name": "computer", "content": image}
    async with standing(answer("Done.")) as stand, anthropic_client(stand) as made:
        await made.messages.create(
            model="policy",
            max_tokens=9,
            messages=[
                {"role": "user", "content": "?"},
                {"role": "assistant", "content": [used]},
                {"role": "user", "content": [result]},
            ],
            tools=[{"type": "computer_toolset_20260801", "configs": {"zoom": {"enabled": False}}}],
        )
        ((asked, _),) = stand.engine.calls.items
    _, call, output = map(parsed, asked.input)
    assert (call["name"], call["call_id"]) == ("computer", "t")
    assert json.loads(call["arguments"]) == {"action": "left_click", "coordinate": [1, 2]}
    assert output["output"][0]["image_url"] == PNG
    (tool,) = parsed(asked.params)["tools"]
    assert tool["type"] == "function"
    offered = tool["parameters"]["properties"]["action"]["enum"]
    assert "left_click" in offered
    assert "zoom" not in offered


def test_anthropics_browser_toolset_is_refused_by_name() -> None:
    body = {"model": "m", "max_tokens": 1, "messages": [], "tools": [{"type": "browser_toolset_20260801"}]}
    with pytest.raises(TaskError, match="browser_toolset_20260801"):
        MESSAGES.read(msgspec.json.encode(body))


# -- Google ---------------------------------------------------------------------------------------------

WIDE = f"data:image/png;base64,{b64encode(png(1280, 800)).decode()}"


def gemini(**more: Any) -> dict[str, Any]:
    return {"contents": [{"parts": [{"text": "?"}]}], "tools": [{"computerUse": {}}], **more}


def answered_by_gemini(raw: Any, asked: Any) -> dict[str, Any]:
    (part,) = parsed(GEMINI.answer(raw.response, asked))["candidates"][0]["content"]["parts"]
    return part


def test_300_actions_go_through_both_ends_of_geminis_api_and_back() -> None:
    _, native = gemini_computer.offered([{"computerUse": msgspec.Raw(b"{}")}])
    image = {"inlineData": {"mimeType": "image/png", "data": WIDE.partition(",")[2]}}
    body = gemini(contents=[{"parts": [image]}])
    asked = GEMINI.read(msgspec.json.encode(body))
    for place, action in enumerate(actions(300)):
        wrote = json.dumps(action)
        part = answered_by_gemini(answer(function_call(computer.NAME, wrote, f"t{place}")), asked)
        assert part["functionCall"]["name"] in native
        for signed in (True, False):
            again = part if signed else {"functionCall": part["functionCall"]}
            more = [*body["contents"], {"role": "model", "parts": [again]}]
            back = parsed(GEMINI.read(msgspec.json.encode(gemini(contents=more))).call.input[-1])
            assert back["name"] == computer.NAME
            if signed:
                assert back["arguments"] == wrote
            else:  # a client that drops the signature
                assert json.loads(back["arguments"])["action"] == action["action"]


def test_a_screenshot_of_the_user_gives_the_grid_its_size() -> None:
    """Also before an engine of Google's."""
    part = {"type": "input_image", "image_url": WIDE, "detail": "auto"}
    click = {"action": "left_click", "coordinate": [640, 400]}
    items = [{"role": "user", "content": [part]}, function_call("computer", json.dumps(click), "c")]
    raws = [msgspec.Raw(msgspec.json.encode(one)) for one in items]
    call = ModelCall(params=msgspec.Raw(msgspec.json.encode({"tools": [computer.function()]})), input=raws)
    body = json.loads(gemini_engine.write_request(call, b"{}"))
    said = body["contents"][1]["parts"][0]
    assert said["functionCall"]["args"] == {"x": 500, "y": 500}
    theirs = msgspec.json.encode({"candidates": [{"content": {"parts": [said]}}]})
    response = json.loads(bytes(gemini_engine.read_answer(theirs, call, "m", {})))
    assert json.loads(response["output"][0]["arguments"]) == click


@pytest.mark.parametrize(
    ("name", "args", "ours"),
    [
        ("navigate", {"url": "a.html"}, ("navigate", {"page": "a.html"})),
        ("go_back", {}, ("go_back", {})),
        ("hotkey", {"keys": ["CTRL", "A"]}, ("computer", {"action": "key", "text": "CTRL+a"})),
        (
            "type",
            {"text": "x", "press_enter": True, "safety_decision": {"decision": "regular"}},
            ("computer", {"action": "type", "text": "x\n"}),
        ),
    ],
)
def test_functions_of_geminis_tool_reach_the_engine(name: str, args: Any, ours: Any) -> None:
    called = {"functionCall": {"name": name, "args": args}, "thoughtSignature": "AAAA"}
    more = [{"parts": [{"text": "?"}]}, {"role": "model", "parts": [called]}]
    back = parsed(GEMINI.read(msgspec.json.encode(gemini(contents=more))).call.input[-1])
    assert (back["name"], json.loads(back["arguments"])) == ours


def test_what_is_no_action_of_geminis_stays_a_function() -> None:
    asked = GEMINI.read(msgspec.json.encode(gemini()))
    for arguments in ('{"action": "dance"}', '{"action": "left_click"}', "[]"):
        part = answered_by_gemini(answer(function_call(computer.NAME, arguments, "t")), asked)
        assert part["functionCall"]["name"] == computer.NAME
    part = answered_by_gemini(answer(function_call("navigate", '{"page": "b"}', "t")), asked)
    assert part["functionCall"]["args"] == {"url": "b"}
    plain = GEMINI.read(msgspec.json.encode(gemini(tools=[])))
    assert answered_by_gemini(answer(CLICK), plain)["functionCall"]["name"] == computer.NAME


def test_a_clients_own_function_is_not_geminis() -> None:
    """``click`` is the client's where the computer tool does not offer it."""
    tools = [
        {"computerUse": {"excludedPredefinedFunctions": ["click"]}},
        {"functionDeclarations": [{"name": "click"}]},
    ]
    called = {"functionCall": {"name": "click", "args": {"x": 1}}}
    more = [{"parts": [{"text": "?"}]}, {"role": "model", "parts": [called]}]
    config = {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["scroll"]}}
    asked = GEMINI.read(msgspec.json.encode(gemini(contents=more, tools=tools, toolConfig=config)))
    assert parsed(asked.call.input[-1])["name"] == "click"
    assert parsed(asked.call.params)["tool_choice"]["name"] == computer.NAME
    with pytest.raises(TaskError, match=r"tools\.computerUse"):
        GEMINI.read(msgspec.json.encode(gemini(tools=[{"computerUse": 3}])))


# -- 300 actions of each dialect ------------------------------------------------------------------------


def actions(count: int) -> list[dict[str, Any]]:
    """Ours, in turn with other places, texts, keys and amounts."""
    made = list[dict[str, Any]]()
    for n in range(count):
        place = {"coordinate": [n * 7 % SIZE.width, n * 11 % SIZE.height]}
        made.append(
            [
                {"action": "left_click", **place},
                {"action": "right_click", **place},
                {"action": "middle_click", **place},
                {"action": "double_click", **place},
                {"action": "mouse_move", **place},
                {"action": "left_click_drag", "start_coordinate": [n % 160, n % 210], **place},
                {
                    "action": "scroll",
                    **place,
                    "scroll_direction": ["up", "down", "left", "right"][n % 4],
                    "scroll_amount": 1 + n % 9,
                },
                {"action": "type", "text": f"Grüße {n}"},
                {"action": "key", "text": ["a", "CTRL+a", "F5", "+", "CTRL++"][n % 5]},
                {"action": "screenshot"},
            ][n % 10]
        )
    return made


def test_300_actions_go_to_openai_and_back() -> None:
    for ours in actions(300):
        (theirs,) = computer.to_openai(ours)
        assert computer.from_openai(theirs) == ours


def test_300_actions_go_to_gemini_and_back() -> None:
    for ours in actions(300):
        name, theirs = computer.to_gemini(ours, SIZE)
        assert computer.from_gemini(name, theirs, SIZE) == (computer.NAME, ours)


def test_300_actions_go_to_anthropics_toolset_and_back() -> None:
    """Through both ends of the Messages API."""
    for place, ours in enumerate(actions(300)):
        asked = MESSAGES.read(
            msgspec.json.encode(
                {
                    "model": "m",
                    "max_tokens": 9,
                    "messages": [{"role": "user", "content": "?"}],
                    "tools": [{"type": "computer_toolset_20260801"}],
                }
            )
        )
        said = answer(function_call(computer.NAME, json.dumps(ours), f"t{place}"))
        (block,) = parsed(MESSAGES.answer(said.response, asked))["content"]
        assert block["name"] == ours["action"]
        assert "action" not in block["input"]
        (back,) = MESSAGES.read(
            msgspec.json.encode(
                {"model": "m", "max_tokens": 9, "messages": [{"role": "assistant", "content": [block]}]}
            )
        ).call.input
        assert json.loads(parsed(back)["arguments"]) == ours


def test_what_an_action_lacks_is_said() -> None:
    for lost in ({"action": "left_mouse_down"}, {"action": "left_click"}, {"action": 3}, {}):
        with pytest.raises(ValueError, match=r"computer tool has no action|coordinate is"):
            computer.to_openai(lost)
    assert len(computer.to_openai({"action": "triple_click", "coordinate": [1, 2]})) == 2
    assert computer.from_gemini("go_back", {}, SIZE) is None
    with pytest.raises(ValueError, match="mouse button 'back'"):
        computer.from_openai({"type": "click", "button": "back"})


@pytest.mark.parametrize("hostile", [{"type": 3}, {"type": "drag"}, {"x": "a" * 99, "type": "scroll"}, {}])
def test_an_engines_malformed_action_reaches_the_tool(hostile: dict[str, Any]) -> None:
    """The tool says what is wrong, and the model reads it."""
    item = {"type": "computer_call", "id": "i", "call_id": "c", "actions": [hostile], "status": "completed"}
    response = {"id": "r", "created_at": 0, "model": "m", "output": [item]}
    found = parsed(computer_items.functions(msgspec.Raw(msgspec.json.encode(response))))
    assert found["output"][0]["name"] == computer.NAME
