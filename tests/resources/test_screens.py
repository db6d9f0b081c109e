"""The tools of a browser, on own pages and on those of MiniWoB++, in a real Chromium."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import psutil
import pytest
from gym_resources import miniwob
from gym_resources.screens import SiteSession, actions
from gym_resources.screens.actions import Screen
from gym_resources.screens.browser import Browser, executable
from gym_resources.screens.dialects import ours
from gym_runtime import SessionLost, Task, ToolError, UsageError, Verdict, make_response
from gym_runtime.environment import Resource, catalogue, session_of
from resources.miniwob_oracle import PLAYS, Player, play
from tables import table

SCREEN = Screen(200, 100, scale=2)
PAGE = """<body style="margin:0"><button onclick="alert('stop'); this.textContent = 'Pressed'">Press</button>
<input oninput="document.title = this.value"><select><option>one</option><option>two</option></select>
<a href="file:///etc/passwd" style="display:block">elsewhere</a>
<button onclick="for (let n = 0; n < 50; n++) window.open('about:blank')">many</button></body>"""


def missing() -> str:
    try:
        executable()
    except UsageError as error:
        return error.message
    return ""


def missing_pages() -> str:
    try:
        miniwob.require()
    except UsageError as error:
        return error.message
    return ""


needs_chromium = pytest.mark.skipif(bool(missing()), reason=missing())
needs_miniwob = pytest.mark.skipif(bool(missing_pages()), reason=missing_pages())


# -- actions ------------------------------------------------------------------------------------------


@table(
    ("combination", "key", "modifiers"),
    [
        ("Return", "Enter", 0),
        ("ctrl+control+a", "a", 2),
        ("ctrl+a", "a", 2),
        ("CTRL+SHIFT+End", "End", 10),
        ("+", "+", 0),
        ("x", "x", 0),
        ("ß", "ß", 0),
        ("ctrl+ﬁ", "ﬁ", 2),
    ],
)
def test_keys_of_all_dialects_are_pressed(combination: str, key: str, modifiers: int) -> None:
    down, up = actions.press(combination)
    assert (down.params["key"], down.params["modifiers"]) == (key, modifiers)
    assert (up.params["type"], up.params["key"]) == ("keyUp", key)


def test_a_pixel_of_the_screenshot_is_a_place_of_the_page() -> None:
    assert SCREEN.place([30, 40]) == {"x": 15, "y": 20}


@pytest.mark.parametrize("coordinate", [None, [1], [400, 0], [0, -1]])
def test_a_place_elsewhere_is_refused(coordinate: list[int] | None) -> None:
    with pytest.raises(ToolError, match="coordinate"):
        SCREEN.place(coordinate)


def test_keys_are_pressed_after_each_other_and_are_bounded() -> None:
    assert [one.params["key"] for one in actions.press_all("a ctrl+b")] == ["a", "a", "b", "b"]
    assert [one.params["key"] for one in actions.press_all(" ")] == [" ", " "]
    assert len(actions.press_all("a " * actions.MAX_KEYS)) == 2 * actions.MAX_KEYS
    for many in ("a " * (actions.MAX_KEYS + 1), "ctrl+" * 1000 + "a"):
        with pytest.raises(ToolError, match="at most 100 keys"):
            actions.press_all(many)


@pytest.mark.parametrize("combination", ["hyper+a", "nokey", "ctrl+"])
def test_an_unknown_key_is_refused(combination: str) -> None:
    with pytest.raises(ToolError, match="there is no"):
        actions.press(combination)


@table(
    ("theirs", "expected"),
    [
        ({"type": "click", "x": 1, "y": 2}, {"action": "left_click", "coordinate": [1, 2]}),
        (
            {"type": "click", "x": 1, "y": 2, "button": "wheel", "keys": ["SHIFT"]},
            {"action": "middle_click", "coordinate": [1, 2], "text": "SHIFT"},
        ),
        (
            {"action": {"type": "double_click", "x": 1, "y": 2}},
            {"action": "double_click", "coordinate": [1, 2]},
        ),
        ({"type": "move", "x": 1, "y": 2}, {"action": "mouse_move", "coordinate": [1, 2]}),
        (
            {"type": "drag", "path": [{"x": 1, "y": 2}, {"x": 5, "y": 5}, {"x": 3, "y": 4}]},
            {"action": "left_click_drag", "start_coordinate": [1, 2], "coordinate": [3, 4]},
        ),
        (
            {"type": "scroll", "x": 1, "y": 2, "scroll_x": 0, "scroll_y": -80},
            {"action": "scroll", "coordinate": [1, 2], "scroll_direction": "up", "scroll_amount": 2},
        ),
        ({"type": "keypress", "keys": ["CTRL", "A"]}, {"action": "key", "text": "CTRL+a"}),
        ({"type": "type", "text": "x"}, {"action": "type", "text": "x"}),
        ({"type": "wait"}, {"action": "wait"}),
        ({"action": "hold_key", "text": "a"}, {"action": "key", "text": "a"}),
        ({"action": "left_click", "coordinate": [1, 2]}, {"action": "left_click", "coordinate": [1, 2]}),
        ({"type": "keypress", "keys": 3}, {"action": "key", "text": ""}),
        ({"type": ["click"]}, {"type": ["click"]}),
    ],
)
def test_openais_actions_are_ours(theirs: dict[str, Any], expected: dict[str, Any]) -> None:
    assert ours("computer", theirs, ()) == expected


# -- own pages ----------------------------------------------------------------------------------------


def site(folder: Path) -> Resource:
    (folder / "index.html").write_text(PAGE)
    (folder / "loop.html").write_text("<button onclick='document.body.textContent = 1'>second</button>")

    class Shop(SiteSession[Task]):
        screen = SCREEN

        def pages(self) -> str:
            return str(folder)

        async def begin(self, browser: Browser) -> None:
            await browser.open("index.html")

        async def verify(self, reply: Any) -> Verdict:
            return Verdict(0.0)

    folder.chmod(0o755)
    return Resource(Shop)


ROW = b'{"responses_create_params": {"input": "x"}}'


@asynccontextmanager
async def player(resource: Resource, row: bytes = ROW) -> AsyncGenerator[tuple[Player, Any]]:
    async with session_of(resource, row) as session:
        yield Player(resource, session), session


@needs_chromium
@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.anyio
async def test_pages_are_read_and_used_and_stay_in_their_folder(tmp_path: Path) -> None:
    """An alert, a link to a file and many windows stop nothing; a killed browser is a lost session."""
    async with player(site(tmp_path)) as (user, session):
        await user.read()
        assert [(one.kind, one.text) for one in user.seen][:2] == [("button", "Press"), ("input", "")]
        shot = await session.computer("screenshot")
        assert shot[1].data.startswith(b"\x89PNG")
        await user.call("click", element=0)
        await user.call("fill", element=1, text="Grüße")
        await user.call("fill", element=2, text="two")
        assert "takes no such text" in await user.call("fill", element=2, text="three")
        await user.click("button", "many")
        await user.read()
        assert user.seen[0].text == "Pressed"
        assert "Grüße" in user.seen[1].state
        assert user.seen[2].state == "value=two"
        await user.click("a")
        assert "root:" not in await user.call("read")
        assert "no page" in await user.call("navigate", page="../../etc/passwd")
        assert "no element 7" in await user.call("click", element=7)
        await user.call("navigate", page="loop.html")
        await user.read()
        assert user.seen[0].text == "second"
        for child in browsers():
            child.send_signal(signal.SIGKILL)
        with pytest.raises(SessionLost):
            await user.call("read")
    # The next session gets another browser.
    async with player(site(tmp_path)) as (user, _):
        await user.read()
        assert user.seen[0].text == "Press"


def browsers() -> list[psutil.Process]:
    """The browsers of this process: their first processes."""
    found = list[psutil.Process]()
    for child in psutil.Process().children(recursive=True):
        try:
            line = child.cmdline()
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
        if line and line[0] == executable() and not any(one.startswith("--type=") for one in line):
            found.append(child)
    return found


# -- MiniWoB++ ----------------------------------------------------------------------------------------


def row(page: str, seed: int) -> bytes:
    return msgspec.json.encode({"responses_create_params": {"input": "x"}, "page": page, "seed": seed})


@pytest.fixture
def pages() -> Resource:
    return catalogue.environment("miniwob").resource


async def reward(resource: Resource, session: Any) -> float:
    return (await resource.verify(session, make_response())).reward  # pyright: ignore


@needs_miniwob
@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.anyio
async def test_a_task_is_done_by_pixels_and_ends_once(pages: Resource) -> None:
    shots = set[bytes]()
    for goal in ("Cancel", "Next"):
        async with player(pages, row("click-button", 3)) as (user, session):
            shots.add((await session.computer("screenshot"))[1].data)
            await user.read()
            x, y, *_ = session._elements[user.at("button") if goal == "Next" else user.at("input")]
            where = [round(2 * x), round(2 * y)]
            assert await user.call("computer", action="left_click", coordinate=where) in (
                "Done.",
                "The task has ended.",
            )
            assert await reward(pages, session) == (goal == "Next")
            assert session.ended == (goal == "Next")
    assert len(shots) == 1
    async with player(pages, row("click-test-2", 0)) as (user, session):
        await user.read()
        await user.click("button", "TWO")
        for _ in range(3):
            await user.call("computer", action="left_click", coordinate=[160, 210])
        assert (session.raw, await reward(pages, session)) == (-1, 0)


@needs_miniwob
@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.anyio
async def test_the_pages_that_are_played_score_full_on_three_seeds(pages: Resource) -> None:
    failed = list[tuple[str, int, float | None]]()
    for page in PLAYS:
        for seed in range(3):
            async with player(pages, row(page, seed)) as (user, session):
                await play(user, page)
                if session.raw != 1:
                    failed.append((page, seed, session.raw))
    assert not failed


@needs_miniwob
@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.anyio
async def test_a_page_looks_the_same_each_time(pages: Resource) -> None:
    """All pages of MiniWoB++ begin their task; the seed decides what they show."""
    different = list[str]()
    for page in sorted(one.removesuffix(".html") for one in os.listdir(f"{miniwob.pages()}/miniwob")):
        shots = set[bytes]()
        for _ in range(2):
            async with player(pages, row(page, 5)) as (_, session):
                shots.add((await session.computer("screenshot"))[1].data)
                assert await reward(pages, session) == 0
        if len(shots) > 1:
            different.append(page)
    assert len(different) <= 5, different


@needs_miniwob
@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.anyio
async def test_browsers_that_are_killed_are_lost_sessions(pages: Resource) -> None:
    """16 sessions at a time, 30 browsers killed: what ends is right, what is lost says so."""
    rng, kills = random.Random(1), 30
    rewards, lost, killed = list[float](), 0, 0
    done = anyio.Event()

    async def work(number: int) -> None:
        nonlocal lost
        turn = 0
        while not done.is_set():
            page = ("click-test-2", "enter-text", "click-button", "login-user")[(number + turn) % 4]
            turn += 1
            try:
                async with player(pages, row(page, number % 3)) as (user, session):
                    await play(user, page)
                    rewards.append(await reward(pages, session))
            except SessionLost:
                lost += 1

    async def kill() -> None:
        nonlocal killed
        while killed < kills:
            if victims := browsers():
                victim = rng.choice(victims)
                before = lost
                victim.send_signal(signal.SIGKILL)
                killed += 1
                while lost == before and psutil.pid_exists(victim.pid):
                    await anyio.lowlevel.checkpoint()
            await anyio.sleep(0.2)
        done.set()

    async with anyio.create_task_group() as tasks:
        for number in range(16):
            tasks.start_soon(work, number)
        tasks.start_soon(kill)
    assert set(rewards) == {1.0}
    assert 0 < lost <= kills
    assert len(browsers()) <= 4
