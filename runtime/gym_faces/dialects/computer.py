"""The function ``computer`` and the computer tools that models know by themselves, action by action.

Inside, an action has the names of Anthropic's computer tool, and pixels of the screenshot that the model saw:
``{"action": "left_click", "coordinate": [3, 4]}``. Pure: an action becomes an action.

    ========  =======================================================================================
    OpenAI    ``{"type": "click", "x": 3, "y": 4, "button": "left"}``; several actions in one call
    Gemini    a function for each action; places on a grid of 0 to 999
    ========  =======================================================================================

What is lost: OpenAI's mouse buttons ``back`` and ``forward``, the points between the ends of its ``drag``,
keys held while it moves. OpenAI has no ``left_mouse_down`` and ``left_mouse_up``; a ``triple_click`` becomes
a double click and a click. Gemini's ``key_down``, ``key_up``, ``go_back``, ``go_forward`` are not offered.
Source: OpenAI's and Anthropic's clients 3.57 and 2.14, Google's page "Computer Use" of the Gemini API.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

import msgspec
from gym_runtime import Image
from msgspec import Raw

NAME = "computer"
"""The function whose calls are translated."""
TICK_PIXELS = 40
"""What a tick of the wheel scrolls; OpenAI and Gemini count pixels."""
BUTTONS = {"left": "left_click", "right": "right_click", "wheel": "middle_click", "middle": "middle_click"}
CLICKS = ("left_click", "right_click", "middle_click", "double_click", "triple_click")
ACTIONS = (
    *("screenshot", *CLICKS, "left_click_drag", "left_mouse_down", "left_mouse_up", "mouse_move"),
    *("scroll", "type", "key", "hold_key", "wait", "cursor_position", "zoom"),
)
"""Of Anthropic's newest tool, which is also the list of its toolset's members."""
_PLACE = {"type": "array", "items": {"type": "integer"}}
_KEYS = {"RETURN": "ENTER", "ESCAPE": "ESC"}
FROM_GEMINI = {
    "click": "left_click",
    "double_click": "double_click",
    "triple_click": "triple_click",
    "middle_click": "middle_click",
    "right_click": "right_click",
    "mouse_down": "left_mouse_down",
    "mouse_up": "left_mouse_up",
    "move": "mouse_move",
}
"""Gemini's functions that are actions at one place."""
_TO_GEMINI = {ours: theirs for theirs, ours in FROM_GEMINI.items()}
GEMINI_LACKS = ("key_down", "key_up", "go_back", "go_forward", "zoom_region")
"""Gemini's functions that are never offered, because nothing here does them."""


class Size(NamedTuple):
    """Of the screenshot that the model saw last, in pixels."""

    width: int
    height: int


GRID = Size(1000, 1000)
"""Before the first screenshot: places stay as they are."""


def function(actions: Iterable[str] = ACTIONS) -> dict[str, Any]:
    """The function for an engine that has no computer tool, where a harness offers one."""
    properties: dict[str, Any] = {
        "action": {"enum": [*actions]},
        "coordinate": {**_PLACE, "description": "[x, y] in pixels of the screenshot, from the top left"},
        "start_coordinate": {**_PLACE, "description": "Where left_click_drag begins"},
        "text": {"type": "string", "description": "What is typed, or the key: ctrl+a, Return"},
        "scroll_direction": {"enum": ["up", "down", "left", "right"]},
        "scroll_amount": {"type": "integer", "description": "Ticks of the wheel"},
        "duration": {"type": "number", "description": "Of wait and hold_key, in seconds"},
        "region": {**_PLACE, "description": "Of zoom: [x0, y0, x1, y1]"},
    }
    return {
        "type": "function",
        "name": NAME,
        "description": "Use the mouse and the keyboard, and see the screen.",
        "parameters": {"type": "object", "properties": properties, "required": ["action"]},
        "strict": False,
    }


def from_openai(theirs: Mapping[str, Any]) -> dict[str, Any] | None:
    """OpenAI's action in our names; None if it is not one of its actions.

    Raises:
        ValueError: the mouse has no such button, or a path is too short.
    """
    place = {"coordinate": [theirs.get("x"), theirs.get("y")]}
    match theirs.get("type"):
        case "click":
            button = theirs.get("button", "left")
            if not isinstance(button, str) or button not in BUTTONS:
                raise ValueError(
                    f"there is no mouse button {str(button)[:40]!r}; there are {', '.join(BUTTONS)}"
                )
            return {"action": BUTTONS[button], **place, **_held(theirs)}
        case "double_click":
            return {"action": "double_click", **place, **_held(theirs)}
        case "move":
            return {"action": "mouse_move", **place}
        case "drag":
            path = [[point.get("x"), point.get("y")] for point in _dicts(theirs.get("path"))]
            if len(path) < 2:
                raise ValueError("the path of a drag has two points at least: [{x, y}, {x, y}]")
            return {"action": "left_click_drag", "start_coordinate": path[0], "coordinate": path[-1]}
        case "scroll":
            return {"action": "scroll", **place, **_scrolled(theirs)}
        case "keypress":
            return {"action": "key", "text": "+".join(_keys(theirs))}
        case "type":
            return {"action": "type", "text": theirs.get("text", "")}
        case "wait" | "screenshot" as same:
            return {"action": same}
        case _:
            return None


def to_openai(ours: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Our action as OpenAI's.

    Raises:
        ValueError: OpenAI has no such action, or it needs a place.
    """
    action, text = ours.get("action"), str(ours.get("text") or "")
    match action:
        case "screenshot" | "cursor_position" | "zoom":
            return [{"type": "screenshot"}]
        case "wait":
            return [{"type": "wait"}]
        case "type":
            return [{"type": "type", "text": text}]
        case "key" | "hold_key":
            keys = [{"type": "keypress", "keys": _openai_keys(one)} for one in text.split() or [text]]
            return keys * _repeats(ours)
        case "left_click_drag":
            path = [_point(ours, "start_coordinate"), _point(ours)]
            return [{"type": "drag", "path": path}]
        case _:
            pass
    place = _point(ours)
    held: dict[str, Any] = {"keys": _openai_keys(text)} if text else {}
    match action:
        case "mouse_move":
            return [{"type": "move", **place}]
        case "scroll":
            x, y = _pixels(ours)
            return [{"type": "scroll", **place, "scroll_x": x, "scroll_y": y, **held}]
        case "double_click":
            return [{"type": "double_click", **place, **held}]
        case "triple_click":
            single = {"type": "click", "button": "left", **place, **held}
            return [{"type": "double_click", **place, **held}, single]
        case "left_click" | "right_click" | "middle_click" as click:
            button = {"left_click": "left", "right_click": "right", "middle_click": "wheel"}[click]
            return [{"type": "click", "button": button, **place, **held}]
        case other:
            raise ValueError(f"OpenAI's computer tool has no action {str(other)[:40]!r}")


def from_gemini(name: str, theirs: Mapping[str, Any], size: Size) -> tuple[str, dict[str, Any]] | None:
    """The function and the arguments for a call of Gemini's; None if it is not one of its computer tool."""
    place = {"coordinate": _from_grid(theirs, "x", "y", size)}
    match name:
        case _ if name in FROM_GEMINI:
            return NAME, {"action": FROM_GEMINI[name], **place}
        case "type":
            enter = "\n" if theirs.get("press_enter") else ""
            return NAME, {"action": "type", "text": f"{theirs.get('text', '')}{enter}"}
        case "drag_and_drop":
            start = _from_grid(theirs, "start_x", "start_y", size)
            end = _from_grid(theirs, "end_x", "end_y", size)
            return NAME, {"action": "left_click_drag", "start_coordinate": start, "coordinate": end}
        case "scroll":
            ticks = round(_number(theirs.get("magnitude_in_pixels"), 300) / TICK_PIXELS)
            direction = str(theirs.get("direction", "down")).lower()
            return NAME, {"action": "scroll", **place, "scroll_direction": direction, "scroll_amount": ticks}
        case "press_key":
            return NAME, {"action": "key", "text": str(theirs.get("key", ""))}
        case "hotkey":
            return NAME, {"action": "key", "text": "+".join(_keys(theirs))}
        case "wait":
            return NAME, {"action": "wait", "duration": _number(theirs.get("seconds"), 1)}
        case "take_screenshot":
            return NAME, {"action": "screenshot"}
        case "navigate":
            return "navigate", {"page": str(theirs.get("url", ""))}
        case _:
            return None


def to_gemini(ours: Mapping[str, Any], size: Size) -> tuple[str, dict[str, Any]]:
    """Our action as a call of Gemini's.

    Raises:
        ValueError: Gemini has no such action, or it needs a place.
    """
    action, text = str(ours.get("action")), str(ours.get("text") or "")
    match action:
        case "screenshot" | "cursor_position" | "zoom":
            return "take_screenshot", {}
        case "wait":
            return "wait", {"seconds": round(_number(ours.get("duration"), 1))}
        case "type":
            return "type", {"text": text.removesuffix("\n"), "press_enter": text.endswith("\n")}
        case "key" | "hold_key":
            keys = _split(text)
            return ("hotkey", {"keys": keys}) if len(keys) > 1 else ("press_key", {"key": text})
        case "left_click_drag":
            start, end = _to_grid(ours, "start_coordinate", size), _to_grid(ours, "coordinate", size)
            return "drag_and_drop", {
                **{f"start_{name}": value for name, value in start.items()},
                **{f"end_{name}": value for name, value in end.items()},
            }
        case "scroll":
            pixels = sum(map(abs, _pixels(ours)))
            direction = ours.get("scroll_direction", "down")
            place = _to_grid(ours, "coordinate", size)
            return "scroll", {**place, "direction": direction, "magnitude_in_pixels": pixels}
        case _ if action in _TO_GEMINI:
            return _TO_GEMINI[action], dict(_to_grid(ours, "coordinate", size))
        case _:
            raise ValueError(f"Gemini's computer tool has no action {action[:40]!r}")


def decoded(arguments: str | bytes) -> dict[str, Any] | None:
    """The arguments of a call of `NAME`; None if they are no object."""
    try:
        return msgspec.json.decode(arguments, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def image_of(output: object) -> str | None:
    """The last image in a tool's output, as its URL."""
    parts = _dicts(output)
    return next((str(one["image_url"]) for one in reversed(parts) if one.get("image_url")), None)


def text_of(output: object) -> str:
    """The text in a tool's output."""
    if isinstance(output, str):
        return output
    return "\n".join(str(one["text"]) for one in _dicts(output) if one.get("text"))


def size_of(url: str) -> Size | None:
    """The size of an image within a conversation, by its first bytes; None for one that is elsewhere."""
    head, comma, data = url.partition(",")
    if not comma or not head.endswith(";base64"):
        return None
    try:
        image = Image(b64decode(data))
    except (ValueError, Base64Error):
        return None
    return Size(image.width, image.height)


_decode_output = msgspec.json.Decoder(str | list[dict[str, Any]]).decode


def output_of(raw: bytes | Raw) -> str | list[dict[str, Any]]:
    """A tool's output, decoded."""
    return _decode_output(raw)


def _dicts(value: object) -> list[dict[str, Any]]:
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", one) for one in items if isinstance(one, dict)]


def _keys(theirs: Mapping[str, Any]) -> list[str]:
    """Letters are written small, as they are without a shift."""
    keys = theirs.get("keys")
    found = [str(one) for one in cast("list[object]", keys)] if isinstance(keys, list) else []
    return [one.lower() if len(one) == 1 else one for one in found]


def _held(theirs: Mapping[str, Any]) -> dict[str, str]:
    return {"text": "+".join(keys)} if (keys := _keys(theirs)) else {}


def _number(value: object, default: float) -> float:
    return value if isinstance(value, int | float) and abs(value) < 1e9 else default


def _scrolled(theirs: Mapping[str, Any]) -> dict[str, Any]:
    x, y = (_number(theirs.get(name), 0) for name in ("scroll_x", "scroll_y"))
    direction = ("right" if x > 0 else "left") if abs(x) > abs(y) else "down" if y >= 0 else "up"
    ticks = round(min(max(abs(x), abs(y)), 1e6) / TICK_PIXELS)
    return {"scroll_direction": direction, "scroll_amount": ticks}


def _pixels(ours: Mapping[str, Any]) -> tuple[int, int]:
    """What our scrolling is in pixels, to the right and down."""
    direction = ours.get("scroll_direction", "down")
    pixels = round(_number(ours.get("scroll_amount"), 3) * TICK_PIXELS)
    pixels = -pixels if direction in ("up", "left") else pixels
    return (pixels, 0) if direction in ("left", "right") else (0, pixels)


def _split(text: str) -> list[str]:
    """A combination's keys; the key + itself is the last one."""
    return [*text[:-2].split("+"), "+"] if text.endswith("++") else text.split("+") if text != "+" else ["+"]


def _openai_keys(text: str) -> list[str]:
    upper = [one.upper() if len(one) > 1 else one for one in _split(text)]
    return [_KEYS.get(one, one) for one in upper]


def _repeats(ours: Mapping[str, Any]) -> int:
    return max(1, min(50, round(_number(ours.get("repeat"), 1))))


def _point(ours: Mapping[str, Any], name: str = "coordinate") -> dict[str, Any]:
    x, y = _pair(ours, name)
    return {"x": x, "y": y}


def _pair(ours: Mapping[str, Any], name: str) -> tuple[float, float]:
    pair = ours.get(name)
    numbers = cast("list[object]", pair) if isinstance(pair, list) else []
    match numbers:
        case [int() | float() as x, int() | float() as y]:
            return x, y
        case _:
            raise ValueError(f"{name} is [x, y]")


def _from_grid(theirs: Mapping[str, Any], x: str, y: str, size: Size) -> list[int]:
    pairs = ((theirs.get(x), size.width), (theirs.get(y), size.height))
    return [int(_number(value, 0) * pixels / 1000) for value, pixels in pairs]


def _to_grid(ours: Mapping[str, Any], name: str, size: Size) -> dict[str, int]:
    x, y = _pair(ours, name)
    # Up, so that the way back, which rounds down, finds the same pixel on screens of up to 1,000 of them.
    return {"x": _up(x, size.width), "y": _up(y, size.height)}


def _up(pixel: float, pixels: int) -> int:
    return max(0, min(999, -int(-pixel * 1000 // pixels)))
