"""An action of the ``computer`` tool becomes events of a mouse and a keyboard, as data.

The names of the actions and of their arguments are those of Anthropic's computer tool; keys have the names of
xdotool (``ctrl+a``, ``Return``), and other common ones are understood (``Enter``, ``CTRL``).
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from gym_runtime import ToolError

Action = Literal[
    "screenshot",
    "left_click",
    "right_click",
    "middle_click",
    "double_click",
    "triple_click",
    "left_click_drag",
    "left_mouse_down",
    "left_mouse_up",
    "mouse_move",
    "scroll",
    "type",
    "key",
    "wait",
]
ScrollDirection = Literal["up", "down", "left", "right"]
CLICKS = {
    "left_click": ("left", 1),
    "right_click": ("right", 1),
    "middle_click": ("middle", 1),
    "double_click": ("left", 2),
    "triple_click": ("left", 3),
}
MODIFIERS = {"alt": 1, "ctrl": 2, "control": 2, "meta": 4, "super": 4, "cmd": 4, "shift": 8}
# Of DOM keys; the number is the Windows code that Chromium wants for keys that edit.
KEYS = {
    "backspace": ("Backspace", 8),
    "tab": ("Tab", 9),
    "enter": ("Enter", 13),
    "escape": ("Escape", 27),
    "space": (" ", 32),
    "pageup": ("PageUp", 33),
    "pagedown": ("PageDown", 34),
    "end": ("End", 35),
    "home": ("Home", 36),
    "left": ("ArrowLeft", 37),
    "up": ("ArrowUp", 38),
    "right": ("ArrowRight", 39),
    "down": ("ArrowDown", 40),
    "delete": ("Delete", 46),
}
SAME_KEY = {
    "return": "enter",
    "kp_enter": "enter",
    "esc": "escape",
    "del": "delete",
    "page_up": "pageup",
    "prior": "pageup",
    "page_down": "pagedown",
    "next": "pagedown",
    **{f"arrow{side}": side for side in ("left", "up", "right", "down")},
}
# What a key combination does is the shell's of a desktop browser, not the page's: it is named here.
COMMANDS = {"a": "selectAll", "c": "copy", "x": "cut", "v": "paste", "z": "undo"}
TICK_PIXELS = 40
MAX_TEXT_CHARS = 4000
MAX_KEYS = 100
MAX_TICKS = 50
MAX_WAIT_S = 10.0
_KEY, _MOUSE, _TEXT = "Input.dispatchKeyEvent", "Input.dispatchMouseEvent", "Input.insertText"


class Event(NamedTuple):
    """A method of the DevTools protocol, with its parameters, in CSS pixels."""

    method: str
    params: dict[str, Any]


class Screen(NamedTuple):
    """The size of a page in CSS pixels, and the pixels of a screenshot for each of them."""

    width: int
    height: int
    scale: int = 1

    def place(self, coordinate: list[int] | None, name: str = "coordinate") -> dict[str, float]:
        """A pixel of the screenshot as a place in the page.

        Raises:
            ToolError: it is not two numbers, or not in the screenshot.
        """
        width, height = self.width * self.scale, self.height * self.scale
        if coordinate is None or len(coordinate) != 2:
            raise ToolError(f"{name} must be [x, y], in pixels of the screenshot")
        x, y = coordinate
        if not (0 <= x < width and 0 <= y < height):
            raise ToolError(f"{name} {coordinate} is outside of the screenshot: {width}×{height} pixels")
        return {"x": x / self.scale, "y": y / self.scale}


def click(place: dict[str, float], button: str = "left", count: int = 1, modifiers: int = 0) -> list[Event]:
    """The mouse moves there and clicks."""
    told = {**place, "button": button, "modifiers": modifiers}
    events = [Event(_MOUSE, {**place, "type": "mouseMoved"})]
    for number in range(1, count + 1):
        events += [
            Event(_MOUSE, {**told, "type": kind, "clickCount": number})
            for kind in ("mousePressed", "mouseReleased")
        ]
    return events


def drag(start: dict[str, float], end: dict[str, float]) -> list[Event]:
    """The mouse is pressed, moved in steps, and released."""
    steps = 8
    between = [
        {axis: start[axis] + (end[axis] - start[axis]) * step / steps for axis in start}
        for step in range(1, steps + 1)
    ]
    held = {"button": "left", "buttons": 1}
    return [
        Event(_MOUSE, {**start, "type": "mouseMoved"}),
        Event(_MOUSE, {**start, "type": "mousePressed", "button": "left", "clickCount": 1}),
        *(Event(_MOUSE, {**place, **held, "type": "mouseMoved"}) for place in between),
        Event(_MOUSE, {**end, "type": "mouseReleased", "button": "left", "clickCount": 1}),
    ]


def write(text: str) -> list[Event]:
    """The text is typed key by key, as pages that listen to keys need it."""
    if len(text) > MAX_TEXT_CHARS:
        raise ToolError(f"the text has {len(text)} characters; at most {MAX_TEXT_CHARS} are typed")
    events: list[Event] = []
    for character in text.replace("\r\n", "\n"):
        if character in "\n\t":
            events += press("Enter" if character == "\n" else "Tab")
        elif character.isascii() and character.isprintable():
            events += press(character)
        else:
            events.append(Event(_TEXT, {"text": character}))
    return events


def press(combination: str) -> list[Event]:
    """A key, with modifiers before it: ``ctrl+shift+a``.

    Raises:
        ToolError: there is no such key.
    """
    *held, name = combination.split("+") if combination.strip("+") else [combination[:1]]
    try:
        modifiers = sum({MODIFIERS[one.strip().lower()] for one in held})
    except KeyError as error:
        raise ToolError(f"there is no modifier {error}; there are {', '.join(MODIFIERS)}") from None
    name = name if name == " " else name.strip()
    lower = SAME_KEY.get(name.lower(), name.lower())
    if lower in KEYS:
        key, code = KEYS[lower]
        text = {"Enter": "\r", " ": " "}.get(key)
    elif len(name) == 1:
        large = name.upper()
        # There is no one capital for all characters: that of ß is SS.
        key, code, text = name, ord(large if len(large) == 1 else name), name
    else:
        raise ToolError(f"there is no key '{name[:40]}'; there are characters and {', '.join(KEYS)}")
    down: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": code, "modifiers": modifiers}
    if modifiers & 7:
        command = COMMANDS.get(key.lower()) if modifiers & 6 else None
        told = {**down, "type": "rawKeyDown", **({"commands": [command]} if command else {})}
    else:
        told = {**down, "type": "keyDown" if text else "rawKeyDown", **({"text": text} if text else {})}
    return [Event(_KEY, told), Event(_KEY, {**down, "type": "keyUp"})]


def press_all(combinations: str) -> list[Event]:
    """Keys after each other, with blanks between them.

    Raises:
        ToolError: there are too many, or there is no such key.
    """
    keys = combinations.split(maxsplit=MAX_KEYS) or [combinations]
    if len(keys) > MAX_KEYS or len(combinations) > MAX_TEXT_CHARS:
        raise ToolError(f"at most {MAX_KEYS} keys are pressed at once; a text is written with type")
    return [event for one in keys for event in press(one)]


def scroll(place: dict[str, float], direction: ScrollDirection, ticks: int) -> list[Event]:
    """The wheel turns."""
    if not 0 <= ticks <= MAX_TICKS:
        raise ToolError(f"scroll_amount must be 0 to {MAX_TICKS}")
    pixels = TICK_PIXELS * ticks * (-1 if direction in ("up", "left") else 1)
    x, y = (pixels, 0) if direction in ("left", "right") else (0, pixels)
    return [Event(_MOUSE, {**place, "type": "mouseWheel", "deltaX": x, "deltaY": y})]


def mouse(kind: str, place: dict[str, float]) -> list[Event]:
    """The mouse moves, or its left button goes down or up."""
    button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
    return [Event(_MOUSE, {**place, "type": kind, **button})]
