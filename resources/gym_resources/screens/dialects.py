"""Other dialects' and other versions' arguments of the ``computer`` tool become those of the tool.

OpenAI's actions (``{"type": "click", "x": 3, "y": 4}``, also as ``{"action": {…}}``) are translated by
`gym_faces.dialects.computer`. Anthropic's older and newer tools differ in actions only; those that change
nothing on the screen are ``screenshot``, and a ``key`` may have ``repeat``.
"""

from __future__ import annotations

from typing import Any, cast

from gym_faces.dialects import computer
from gym_runtime import ToolError

SAME = {"cursor_position": "screenshot", "zoom": "screenshot", "hold_key": "key"}
MAX_REPEATS = 50


def ours(name: str, given: dict[str, Any], parameters: tuple[str, ...]) -> dict[str, Any]:
    """The arguments in our names; those that are ours already, unchanged.

    >>> ours("computer", {"type": "click", "x": 3, "y": 4, "button": "right"}, ())
    {'action': 'right_click', 'coordinate': [3, 4]}
    >>> ours("computer", {"type": "keypress", "keys": ["CTRL", "A"]}, ())
    {'action': 'key', 'text': 'CTRL+a'}
    >>> ours("computer", {"action": "key", "text": "Down", "repeat": 2}, ())
    {'action': 'key', 'text': 'Down Down'}

    Raises:
        ToolError: a mouse button that a page has not.
    """
    action = given.get("action")
    if isinstance(action, str):
        same = {**given, "action": SAME.get(action, action)}
        repeat = same.pop("repeat", 1)
        if action == "key" and isinstance(repeat, int) and 1 < repeat <= MAX_REPEATS:
            same["text"] = " ".join([str(same.get("text", ""))] * repeat)
        return same
    theirs = cast("dict[str, Any]", action) if isinstance(action, dict) else given
    try:
        return computer.from_openai(theirs) or given
    except ValueError as error:
        raise ToolError(str(error)) from None
