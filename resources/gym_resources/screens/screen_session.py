"""One tool set for pages: by pixels of a screenshot (``computer``), and by a list of elements.

``computer`` has the names of Anthropic's computer tool, and takes OpenAI's (see `dialects`).
``read``, ``click`` and ``fill`` are for models without eyes. No tool runs JavaScript: a page's variables may
hold the answer.
"""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from typing import Annotated, Any, ClassVar, TypeVar

from gym_runtime import Image, Session, Task, Text, ToolError, tool
from msgspec import Meta
from msgspec.json import encode

from gym_resources.screens import actions
from gym_resources.screens.actions import Action, Event, Screen, ScrollDirection
from gym_resources.screens.browser import Browser, leased
from gym_resources.screens.dialects import ours

AFTER_MS = 400
"""How much time passes in the page after each action."""
MAX_ELEMENTS = 200
# Elements that can be used, or that have a text of their own, in the order of the page.
ELEMENTS = """(() => {
  const found = [];
  for (const e of document.body.querySelectorAll("*")) {
    const box = e.getBoundingClientRect(), style = getComputedStyle(e), kind = e.type ?? "";
    const used = e.matches("a,button,input,select,textarea,[onclick],[role],[tabindex]");
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) && e.tagName !== "TEXTAREA";
    if (!(used || own) || !box.width || !box.height || style.visibility === "hidden") continue;
    const x = box.x + box.width / 2, y = box.y + box.height / 2;
    if (x < 0 || y < 0 || x >= WIDTH || y >= HEIGHT) continue;
    const input = e.tagName === "INPUT", choice = kind === "checkbox" || kind === "radio";
    const state = [input ? kind : "", e.checked ? "checked" : "",
      e.value && !choice && !own ? "value=" + e.value : "", document.activeElement === e ? "focused" : ""];
    const text = e.options ? [...e.options].map(o => o.text).join(" | ")
      : own ? e.innerText ?? e.textContent : "";
    found.push([x, y, e.tagName.toLowerCase(), text.replace(/\\s+/g, " ").trim().slice(0, 400),
      state.filter(Boolean).join(" ").slice(0, 400)]);
    if (found.length === MAX) break;
  }
  return found;
})()"""
# For elements whose value is not typed: a list, a date, a slider. The place and the text are JSON.
SET = """(([x, y, text]) => {
  const e = document.elementFromPoint(x, y);
  if (!e || !(e.options || e.tagName === "INPUT")) return false;
  const chosen = e.options && [...e.options].find(o => o.text.trim() === text || o.value === text);
  if (e.options && !chosen) return false;
  if (chosen) chosen.selected = true; else e.value = text;
  for (const kind of ["input", "change"]) e.dispatchEvent(new Event(kind, {bubbles: true}));
  return true;
})(GIVEN)"""
SET_KINDS = ("date", "time", "month", "week", "color", "range")

T = TypeVar("T", bound=Task)
Coordinate = Annotated[list[int], Meta(description="[x, y] in pixels of the screenshot, from the top left")]
Seconds = Annotated[float, Meta(description="Of wait, in seconds", ge=0, le=actions.MAX_WAIT_S)]
Number = Annotated[int, Meta(description="The element's number in the last answer of read")]


class ScreenSession(Session[T]):
    """A session with a browser. A subclass names the folder of its pages, and opens one in `begin`.

    The browser starts at the first call of a tool, and a verdict without one starts none.

    Attributes:
        screen: the part of the page that the model sees, from its top left.
        window: the width and the height of the page, in CSS pixels, if it is larger.
        ended: no further action is done.
    """

    screen: ClassVar[Screen] = Screen(1280, 800)
    window: ClassVar[tuple[int, int] | None] = None
    ended: bool = False

    def pages(self) -> str:
        """The folder of the pages, which the browser may read."""
        raise NotImplementedError

    async def begin(self, browser: Browser) -> None:
        """Open the first page."""
        raise NotImplementedError

    async def after(self, browser: Browser) -> None:
        """Called after each action: the place to look whether the task is done."""

    async def open(self) -> None:
        self._stack = AsyncExitStack()
        self._browser: Browser | None = None
        self._elements: list[list[Any]] = []
        self._mouse = {"x": 0.0, "y": 0.0}

    async def close(self) -> None:
        await self._stack.aclose()

    async def browser(self) -> Browser:
        """The session's browser, with the first page."""
        if self._browser is None:
            lease = leased(self.pages(), self.screen, self.window)
            browser = await self._stack.enter_async_context(lease)
            await self.begin(browser)
            self._browser = browser
        return self._browser

    @tool(adapt=ours)
    async def computer(
        self,
        action: Action,
        coordinate: Coordinate | None = None,
        text: Annotated[str, Meta(description="What is typed, or the key: ctrl+a, Return")] = "",
        start_coordinate: Annotated[
            list[int] | None, Meta(description="Where left_click_drag begins; by default where the mouse is")
        ] = None,
        scroll_direction: ScrollDirection = "down",
        scroll_amount: int = 3,
        duration: Seconds = 1.0,
    ) -> list[str | Image]:
        """Use the mouse and the keyboard, and see the screen."""
        await self._do(
            self._events(action, coordinate, text, start_coordinate, scroll_direction, scroll_amount),
            round(duration * 1000) if action == "wait" else AFTER_MS if action != "screenshot" else 0,
        )
        return [self._said(), Image(await (await self.browser()).screenshot())]

    @tool
    async def read(self) -> Text:
        """List the elements that the page shows, each with a number."""
        browser = await self.browser()
        size = {"WIDTH": self.screen.width, "HEIGHT": self.screen.height, "MAX": MAX_ELEMENTS}
        look = ELEMENTS
        for name, number in size.items():
            look = look.replace(name, str(number))
        self._elements = await browser.evaluate(look) or []
        lines = [
            f"[{number}] {kind}{f' ({state})' if state else ''} {text}".rstrip()
            for number, (_, _, kind, text, state) in enumerate(self._elements)
        ]
        return Text("\n".join(lines) or "The page shows nothing.")

    @tool
    async def click(self, element: Number) -> Text:
        """Click on an element."""
        await self._do(actions.click(self._place(element)), AFTER_MS)
        return Text(self._said())

    @tool
    async def fill(self, element: Number, text: str) -> Text:
        """Write a text into an element, in place of its own; of a list, choose the entry with this text."""
        place = self._place(element)
        kind, state = self._elements[element][2], self._elements[element][4].split(" ")[0]
        if kind == "select" or state in SET_KINDS:
            given = encode([place["x"], place["y"], text]).decode()
            browser = await self.browser()
            if not self.ended and not await browser.evaluate(SET.replace("GIVEN", given)):
                raise ToolError(f"the element {element} takes no such text")
            await self._do([], AFTER_MS)
            return Text(self._said())
        events = [*actions.click(place), *actions.press("ctrl+a")]
        await self._do([*events, *(actions.write(text) if text else actions.press("Delete"))], AFTER_MS)
        return Text(self._said())

    def _said(self) -> str:
        return "The task has ended." if self.ended else "Done."

    def _place(self, element: int) -> dict[str, float]:
        if not 0 <= element < len(self._elements):
            raise ToolError(f"there is no element {element}; call read for the present ones")
        x, y, *_ = self._elements[element]
        return {"x": x, "y": y}

    def _events(
        self,
        action: Action,
        coordinate: list[int] | None,
        text: str,
        start: list[int] | None,
        direction: ScrollDirection,
        ticks: int,
    ) -> list[Event]:
        """Raises:
        ToolError: an argument is missing, or is out of range.
        """
        if action in ("screenshot", "wait"):
            return []
        if action == "type":
            return actions.write(text)
        if action == "key":
            return actions.press_all(text)
        here = self.screen.place(coordinate) if coordinate is not None else self._mouse
        before, self._mouse = self._mouse, here
        if action == "scroll":
            return actions.scroll(here, direction, ticks)
        if action in ("left_mouse_down", "left_mouse_up"):
            return actions.mouse("mousePressed" if action == "left_mouse_down" else "mouseReleased", here)
        here = self._mouse = self.screen.place(coordinate)
        if action == "mouse_move":
            return actions.mouse("mouseMoved", here)
        if action == "left_click_drag":
            return actions.drag(self.screen.place(start, "start_coordinate") if start else before, here)
        modifiers = sum({actions.MODIFIERS.get(one.strip().lower(), 0) for one in text.split("+")})
        return actions.click(here, *actions.CLICKS[action], modifiers=modifiers)

    async def _do(self, events: list[Event], milliseconds: int) -> None:
        browser = await self.browser()
        if self.ended:
            return
        for event in events:
            await browser.send(event.method, **event.params)
        if milliseconds:
            await browser.advance(milliseconds)
        await self.after(browser)


class SiteSession(ScreenSession[T]):
    """A session whose pages the model may open by their names."""

    @tool
    async def navigate(self, page: str) -> Text:
        """Open a page of this task by its file name, such as index.html."""
        path = _page(self.pages(), page)
        browser = await self.browser()
        if not self.ended:
            await browser.open(path)
            await self._do([], AFTER_MS)
        return Text(self._said())


def _page(folder: str, page: str) -> str:
    """The path of a page below its folder.

    Raises:
        ToolError: it is not there, or elsewhere.
    """
    folder = os.path.realpath(folder)
    path = os.path.realpath(os.path.join(folder, page)) if "\0" not in page else folder
    if os.path.commonpath([folder, path]) != folder or not os.path.isfile(path):
        raise ToolError(f"there is no page '{page[:100]}'")
    return os.path.relpath(path, folder)
