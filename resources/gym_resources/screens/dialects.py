"""Other dialects' arguments of the ``computer`` tool become ours, which are Anthropic's.

OpenAI's actions say ``type`` and ``x``, ``y``: ``{"type": "click", "x": 3, "y": 4, "button": "left"}``,
``{"type": "keypress", "keys": ["CTRL", "A"]}``; also as ``{"action": {…}}``. Of a ``drag`` the first and the
last point are kept, of a ``scroll`` the larger direction, in ticks of the wheel. Anthropic's older and newer
tools differ in actions only, and those that change nothing on the screen are ``screenshot``.
"""

from __future__ import annotations

from typing import Any, cast

from gym_runtime import ToolError

from gym_resources.screens.actions import TICK_PIXELS

CLICKS = {"left": "left_click", "right": "right_click", "wheel": "middle_click", "middle": "middle_click"}
SAME = {"cursor_position": "screenshot", "zoom": "screenshot", "hold_key": "key"}


def ours(name: str, given: dict[str, Any], parameters: tuple[str, ...]) -> dict[str, Any]:
    """The arguments in our names; those that are ours already, unchanged.

    >>> ours("computer", {"type": "click", "x": 3, "y": 4, "button": "right"}, ())
    {'action': 'right_click', 'coordinate': [3, 4]}
    >>> ours("computer", {"type": "keypress", "keys": ["CTRL", "A"]}, ())
    {'action': 'key', 'text': 'CTRL+a'}

    Raises:
        ToolError: a mouse button that a page has not.
    """
    action = given.get("action")
    if isinstance(action, str):
        return {**given, "action": SAME.get(action, action)}
    theirs = cast("dict[str, Any]", action) if isinstance(action, dict) else given
    place = {"coordinate": [theirs.get("x"), theirs.get("y")]}
    match theirs.get("type"):
        case "click":
            button = theirs.get("button", "left")
            if not isinstance(button, str) or button not in CLICKS:
                raise ToolError(
                    f"there is no mouse button {str(button)[:40]!r}; there are {', '.join(CLICKS)}"
                )
            return {"action": CLICKS[button], **place, **_held(theirs)}
        case "double_click":
            return {"action": "double_click", **place, **_held(theirs)}
        case "move":
            return {"action": "mouse_move", **place}
        case "drag":
            path = [[point.get("x"), point.get("y")] for point in _dicts(theirs.get("path"))]
            if len(path) < 2:
                raise ToolError("the path of a drag has two points at least: [{x, y}, {x, y}]")
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
            return given


def _dicts(value: object) -> list[dict[str, Any]]:
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", one) for one in items if isinstance(one, dict)]


def _keys(theirs: dict[str, Any]) -> list[str]:
    """Letters are written small, as they are without a shift."""
    keys = theirs.get("keys")
    found = [str(one) for one in cast("list[object]", keys)] if isinstance(keys, list) else []
    return [one.lower() if len(one) == 1 else one for one in found]


def _held(theirs: dict[str, Any]) -> dict[str, str]:
    return {"text": "+".join(keys)} if (keys := _keys(theirs)) else {}


def _scrolled(theirs: dict[str, Any]) -> dict[str, Any]:
    x, y = (
        value if isinstance(value := theirs.get(name, 0), int | float) else 0
        for name in ("scroll_x", "scroll_y")
    )
    direction = ("right" if x > 0 else "left") if abs(x) > abs(y) else "down" if y >= 0 else "up"
    ticks = round(min(max(abs(x), abs(y)), 1e6) / TICK_PIXELS)
    return {"scroll_direction": direction, "scroll_amount": ticks}
