"""Plays pages of MiniWoB++ by the environment's own tools, from what `read` answers: no page's variables."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple

import msgspec
from gym_runtime.environment import Resource

LINE = re.compile(r"\[(\d+)\] (\S+)(?: \(([^)]*)\))? ?(.*)")


class Element(NamedTuple):
    number: int
    kind: str
    state: str
    text: str


class Player:
    """Calls tools of a session and keeps what it called, as turns of a gold."""

    def __init__(self, resource: Resource, session: Any) -> None:
        self._resource, self._session = resource, session
        self.calls: list[dict[str, Any]] = []
        self.seen: list[Element] = []

    async def call(self, name: str, **arguments: Any) -> str:
        self.calls.append({"call": name, **arguments})
        answer = await self._resource.tools[name].call(self._session, msgspec.json.encode(arguments).decode())
        return answer if isinstance(answer, str) else answer[0]["text"]

    async def read(self) -> str:
        """Look again; the page's instruction."""
        lines = (await self.call("read")).splitlines()
        found = filter(None, map(LINE.match, lines))
        self.seen = [Element(int(m[1]), m[2], m[3] or "", m[4]) for m in found]
        return self.seen[0].text

    def all(self, kind: str = "", text: str | None = None) -> Iterator[int]:
        """The numbers of the elements of a kind, with a text, below the instruction."""
        for one in self.seen[1:]:
            if kind in ("", one.kind) and text in (None, one.text):
                yield one.number

    def at(self, kind: str = "", text: str | None = None) -> int:
        return next(self.all(kind, text))

    async def click(self, kind: str = "", text: str | None = None) -> None:
        await self.call("click", element=self.at(kind, text))


Play = Callable[[Player, str], Awaitable[None]]


def quoted(said: str) -> list[str]:
    return re.findall(r'"([^"]+)"', said)


async def click_quoted(player: Player, said: str) -> None:
    wanted = quoted(said)[0]
    kind = "button" if list(player.all("button", wanted)) else "span"
    await player.click(kind, wanted)


async def click_link(player: Player, said: str) -> None:
    await player.click("span", quoted(said)[0])


async def click_first_button(player: Player, said: str) -> None:
    await player.click("button")


async def click_one(player: Player, said: str) -> None:
    await player.click("button", "ONE")


async def click_sequence(player: Player, said: str) -> None:
    await player.click("button", "ONE")
    await player.click("button", "TWO")


async def choose(player: Player, said: str) -> None:
    wanted = said.removeprefix("Select ").removesuffix(" and click Submit.").split(", ")
    for one in wanted if wanted != ["nothing"] else ():
        await player.click("label", one)
    await player.click("button", "Submit")


async def choose_list(player: Player, said: str) -> None:
    wanted = said.removeprefix("Select ").removesuffix(" from the list and click Submit.")
    await player.call("fill", element=player.at("select"), text=wanted)
    await player.click("button", "Submit")


async def fill_quoted(player: Player, said: str) -> None:
    for one in list(player.all("input")):
        await player.call("fill", element=one, text=quoted(said)[0])
    await player.click("button")


async def change_case(player: Player, said: str) -> None:
    text = quoted(said)[0].lower() if "lower" in said else quoted(said)[0].upper()
    await player.call("fill", element=player.at("input"), text=text)
    await player.click("button")


async def log_in(player: Player, said: str) -> None:
    for one, text in zip(list(player.all("input")), quoted(said), strict=True):
        await player.call("fill", element=one, text=text)
    await player.click("button", "Login")


async def focus(player: Player, said: str) -> None:
    number = int((re.findall(r"(\d)(?:st|nd|rd)", said) or ["1"])[0])
    await player.call("click", element=list(player.all("input"))[number - 1])


async def ascending(player: Player, said: str) -> None:
    for number in range(1, 6):
        await player.click("text", str(number))


async def sum_up(player: Player, said: str) -> None:
    task = next(one.text for one in player.seen[1:] if one.text.endswith("="))
    one, sign, other = task.removesuffix("=").split()
    result = {"+": int(one) + int(other), "-": int(one) - int(other), "x": int(one) * int(other)}
    await player.call("fill", element=player.at("input"), text=str(result[sign]))
    await player.click("button")


async def read_table(player: Player, said: str) -> None:
    label = said.removeprefix("Enter the value of ").split(" into the ")[0]
    await player.call("fill", element=player.at("input"), text=player.seen[player.at("td", label) + 1].text)
    await player.click("button")


async def enter_date(player: Player, said: str) -> None:
    month, day, year = re.findall(r"(\d+)/(\d+)/(\d+)", said)[0]
    await player.call("fill", element=player.at("input"), text=f"{year}-{month}-{day}")
    await player.click("button")


async def transform(player: Player, said: str) -> None:
    text = "".join(player.seen[number].text for number in player.all("span"))
    await player.call("fill", element=player.at("input"), text=text)
    await player.click("button")


async def copy(player: Player, said: str) -> None:
    places = list(player.all("textarea"))
    number = int((re.findall(r"(\d)(?:st|nd|rd)", said) or ["1"])[0])
    await player.call("click", element=places[number - 1])
    for key in ("ctrl+a", "ctrl+c"):
        await player.call("computer", action="key", text=key)
    await player.call("click", element=player.at("input"))
    await player.call("computer", action="key", text="ctrl+v")
    await player.click("button", "Submit")


async def mark(player: Player, said: str) -> None:
    numbers = [one.number for one in player.seen[1:] if one.kind == "div" and one.text.lstrip("-").isdigit()]
    for one in numbers:
        await player.call("click", element=one - 1 if int(player.seen[one].text) % 2 else one + 1)
    await player.click("button", "Submit")


async def collapsible(player: Player, said: str) -> None:
    await player.click("h3")
    await player.read()
    await player.click("button", "Submit")


async def spin(player: Player, said: str) -> None:
    wanted = int(re.findall(r"-?\d+", said)[0])
    field, up, down = player.at("input"), *list(player.all("a"))[:2]
    for _ in range(abs(wanted)):
        await player.call("click", element=up if wanted > 0 else down)
    assert field
    await player.click("button", "Submit")


async def tab(player: Player, said: str) -> None:
    await player.click("a", said.removeprefix("Click on ").removesuffix("."))


async def dialog(player: Player, said: str) -> None:
    await player.click("button")


async def agree(player: Player, said: str) -> None:
    await player.click("button", "Cancel")


PLAYS: dict[str, Play] = {
    "ascending-numbers": ascending,
    "choose-list": choose_list,
    "click-button": click_quoted,
    "click-button-sequence": click_sequence,
    "click-checkboxes": choose,
    "click-checkboxes-transfer": choose,
    "click-collapsible": collapsible,
    "click-collapsible-nodelay": collapsible,
    "click-dialog": dialog,
    "click-link": click_link,
    "click-option": choose,
    "click-tab": tab,
    "click-test": click_first_button,
    "click-test-2": click_one,
    "click-test-transfer": click_one,
    "copy-paste": copy,
    "copy-paste-2": copy,
    "enter-date": enter_date,
    "enter-password": fill_quoted,
    "enter-text": fill_quoted,
    "enter-text-2": change_case,
    "enter-text-dynamic": fill_quoted,
    "focus-text": focus,
    "focus-text-2": focus,
    "login-user": log_in,
    "odd-or-even": mark,
    "read-table": read_table,
    "simple-arithmetic": sum_up,
    "text-transform": transform,
    "unicode-test": click_quoted,
    "use-spinner": spin,
}


async def play(player: Player, page: str) -> None:
    """Do the page's task."""
    said = await player.read()
    await PLAYS[page](player, said)
