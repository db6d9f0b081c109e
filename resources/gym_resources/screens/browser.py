"""A browser that a session leases: Chromium of the distribution in the sandbox, asked over its DevTools pipe.

It has no network and reads the folder of its pages. One session has it at a time, in a tab with no trace of
the one before; if it ends or hangs, that session is lost: never a reward.
Time in its pages stands still between two calls of `advance`, so a page does the same on a busy machine.

Source: the Chrome DevTools Protocol, chromedevtools.github.io/devtools-protocol.
"""

from __future__ import annotations

import os
import shutil
import weakref
from base64 import b64decode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import msgspec
from anyio import CapacityLimiter
from anyio.lowlevel import RunVar
from gym_runtime import ResourceError, SessionLost, UsageError
from gym_runtime.errors import UNREADABLE
from gym_sandbox import Limits
from gym_sandbox.process import Program, started
from gym_sandbox.processes import Child, EndOfProcess
from gym_sandbox.readable_files import View

from gym_resources.screens.actions import Screen

AT_MOST = 16
"""Browsers of one worker; further sessions wait until their deadline."""
MAX_BYTES = 32 * 2**20
"""Of one message of a browser."""
IDLE_AT_MOST = 4
LEASES = 100
"""Sessions of one browser, after which a new one is started."""
ANSWER_LIMIT_S = 60.0
"""A page that computes without end does not answer."""
LIMITS = Limits(memory_bytes=2 << 30, reserves=True, processes=400, open_files=4096, disk_bytes=256 << 20)
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --no-zygote "
    "--disable-background-networking --disable-component-update --disable-sync --disable-extensions "
    "--disable-crash-reporter --disable-breakpad --hide-scrollbars --remote-debugging-pipe "
    "--user-data-dir=$HOME/profile about:blank"
)
# The shell that starts it replaces $HOME: a folder of this sandbox's own, also without isolation.
# Chromium itself: the scripts in /usr/bin read /etc, which the sandbox does not show.
PLACES = (
    "/usr/lib/chromium/chromium",
    "/usr/lib64/chromium-browser/chromium-browser",
    "/usr/lib/chromium-browser/chromium-browser",
    "/opt/google/chrome/chrome",
)
BEGIN_S = 1_500_000_000
"""The date of each page when it has loaded, in seconds since 1970."""
_of_loop: RunVar[_Browsers] = RunVar("gym_browsers")
_encode = msgspec.json.Encoder().encode


class _Target(msgspec.Struct):
    id: str = msgspec.field(name="targetId", default="")
    opener: str = msgspec.field(name="openerId", default="")


class _Params(msgspec.Struct):
    target: _Target = msgspec.field(name="targetInfo", default_factory=_Target)


class _Message(msgspec.Struct):
    id: int = 0
    method: str = ""
    params: _Params = msgspec.field(default_factory=_Params)
    result: dict[str, Any] = {}
    error: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(_Message).decode


def executable() -> str:
    """The path of Chromium.

    Raises:
        UsageError: it is not installed.
    """
    found = next((path for path in PLACES if os.access(path, os.X_OK)), None) or shutil.which("chromium")
    if found is None:
        raise UsageError("no Chromium is installed; install your distribution's: apt-get install chromium")
    return found


class Browser:
    """A browser in a sandbox, leased to one session at a time, with one tab: see `leased`.

    Attributes:
        broken: it ended, did not answer, or a call was cancelled: no session gets it again.
        leases: how many sessions had it.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.broken = False
        self.leases = 0
        self._child: Child | None = None
        self._rest = bytearray()
        self._number = 0
        self._context = ""
        self._tab: dict[str, str] = {}
        self._events: set[str] = set()
        self._screen = Screen(0, 0)

    async def start(self) -> None:
        """Start the process.

        Raises:
            UsageError: Chromium is not installed.
        """
        path = executable()
        view = View({place: place for place in ("/etc/fonts", os.path.dirname(path), self.folder)})
        # DevTools' pipe is descriptors 3 and 4.
        line = f'exec "$0" {FLAGS} 3<&0 4>&1 </dev/null >/dev/null'
        # Not in a block, as `Sandbox` has it: the process outlives the session that starts it.
        self._child = await started(Program(["/bin/sh", "-c", line, path], LIMITS, view))

    async def close(self) -> None:
        if self._child is not None:
            await self._child.close()

    def abandon(self) -> None:
        """`close` it without an event loop."""
        if self._child is not None:
            self._child.abandon()

    async def begin(self, screen: Screen, window: tuple[int, int]) -> None:
        """A tab for a new session, without cookies and storage of the ones before.

        Raises:
            SessionLost: the browser has ended, or does not answer.
        """
        self.leases += 1
        self._screen, self._tab = screen, {}
        self._context = (await self.send("Target.createBrowserContext"))["browserContextId"]
        context = {"browserContextId": self._context}
        await self.send("Browser.setDownloadBehavior", behavior="deny", **context)
        target = (await self.send("Target.createTarget", url="about:blank", **context))["targetId"]
        attached = await self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._tab = {"sessionId": attached["sessionId"]}
        await self.send("Page.enable")
        # Windows that the page opens are closed, and take no focus.
        await self.send("Target.setDiscoverTargets", discover=True)
        await self.send("Emulation.setFocusEmulationEnabled", enabled=True)
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=window[0],
            height=window[1],
            deviceScaleFactor=screen.scale,
            mobile=False,
        )

    async def finish(self) -> None:
        """Close the session's tab, and forget what it kept."""
        self._tab = {}
        await self.send("Target.disposeBrowserContext", browserContextId=self._context)

    async def open(self, path: str) -> None:
        """Load a page of the folder; its time stands still then.

        Args:
            path: below the folder, such as ``shop/index.html``.

        Raises:
            SessionLost: the browser has ended, or does not answer.
            ResourceError: there is no such page.
        """
        await self.send("Emulation.setVirtualTimePolicy", policy="advance")  # a page loads in real time
        self._events.discard("Page.loadEventFired")
        said = await self.send("Page.navigate", url=f"file://{self.folder}/{path}")
        if said.get("errorText"):
            raise ResourceError(f"the page {path} cannot be opened: {said['errorText']}")
        await self._until("Page.loadEventFired")
        await self.send("Emulation.setVirtualTimePolicy", policy="pause", initialVirtualTime=BEGIN_S)

    async def advance(self, milliseconds: int) -> None:
        """Let the page's time pass."""
        self._events.discard("Emulation.virtualTimeBudgetExpired")
        await self.send("Emulation.setVirtualTimePolicy", policy="advance", budget=milliseconds)
        await self._until("Emulation.virtualTimeBudgetExpired")

    async def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript that the environment wrote; None if it raises."""
        said = await self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        return None if "exceptionDetails" in said else said["result"].get("value")

    async def screenshot(self) -> bytes:
        """What the page shows, as a PNG file."""
        shown = {"x": 0, "y": 0, "width": self._screen.width, "height": self._screen.height, "scale": 1}
        return b64decode((await self.send("Page.captureScreenshot", format="png", clip=shown))["data"])

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol.

        Returns:
            its result.

        Raises:
            SessionLost: the browser has ended, does not answer, or has lost the page.
        """
        self.broken = True  # until the answer is there: a call that is cancelled leaves half a message
        number = await self._tell(method, params)
        with anyio.move_on_after(ANSWER_LIMIT_S):
            while (said := await self._receive()).id != number:
                await self._hear(said)
            if said.error is not None:
                raise SessionLost(f"the browser refuses {method}: {str(said.error.get('message'))[:200]}")
            self.broken = False
            return said.result
        raise SessionLost(f"the browser has not answered {method} for {ANSWER_LIMIT_S:.0f} s")

    async def _until(self, event: str) -> None:
        self.broken = True
        with anyio.move_on_after(ANSWER_LIMIT_S):
            while event not in self._events:
                await self._hear(await self._receive())
            self.broken = False
            return
        raise SessionLost(f"the browser has not come to {event} for {ANSWER_LIMIT_S:.0f} s")

    async def _hear(self, event: _Message) -> None:
        if event.method == "Page.javascriptDialogOpening":  # an alert stops the page until it is answered
            await self._tell("Page.handleJavaScriptDialog", {"accept": True})
        elif event.method == "Target.targetCreated" and event.params.target.opener:  # a window of the page
            await self._tell("Target.closeTarget", {"targetId": event.params.target.id})
        elif event.method in ("Inspector.targetCrashed", "Target.targetCrashed"):
            raise SessionLost("the browser's page has crashed")
        elif event.method:
            self._events.add(event.method)

    async def _tell(self, method: str, params: dict[str, Any]) -> int:
        assert self._child is not None
        self._number += 1
        message = {"id": self._number, "method": method, "params": params, **self._tab}
        try:
            await self._child.write(_encode(message) + b"\0")
        except EndOfProcess as error:
            raise SessionLost("the browser has ended") from error
        return self._number

    async def _receive(self) -> _Message:
        assert self._child is not None
        searched = 0
        while (end := self._rest.find(b"\0", searched)) < 0:
            searched = len(self._rest)
            if searched > MAX_BYTES:
                raise SessionLost(f"the browser sent a message of more than {MAX_BYTES >> 20} MiB")
            piece = await self._child.read()
            if not piece:
                raise SessionLost("the browser has ended")
            self._rest += piece
        line = bytes(self._rest[:end])
        del self._rest[: end + 1]
        try:
            return _decode(line)
        except UNREADABLE as error:
            raise SessionLost(f"the browser sent what is no message: {error}") from error


class _Browsers:
    """The browsers of one event loop."""

    def __init__(self) -> None:
        self.turns = CapacityLimiter(AT_MOST)
        self.idle: list[Browser] = []
        self._alive: set[Browser] = set()
        # Not a method: that would keep this object alive.
        weakref.finalize(self, _abandon, self._alive)

    async def take(self, folder: str, screen: Screen, window: tuple[int, int]) -> Browser:
        """An idle browser of the folder, else a new one, with a new tab."""
        for browser in [one for one in self.idle if one.folder == folder]:
            self.idle.remove(browser)
            with suppress(SessionLost):  # it may have ended meanwhile
                await self._begun(browser, screen, window)
                return browser
        browser = Browser(folder)
        self._alive.add(browser)
        await self._begun(browser, screen, window)
        return browser

    async def _begun(self, browser: Browser, screen: Screen, window: tuple[int, int]) -> None:
        try:
            if not browser.leases:
                await browser.start()
            await browser.begin(screen, window)
        except BaseException:
            await self._close(browser)
            raise

    async def give_back(self, browser: Browser) -> None:
        with anyio.CancelScope(shield=True):
            if not browser.broken and browser.leases < LEASES and len(self.idle) < IDLE_AT_MOST:
                with suppress(SessionLost):
                    await browser.finish()
            if browser.broken or browser.leases >= LEASES or len(self.idle) >= IDLE_AT_MOST:
                await self._close(browser)
            else:
                self.idle.append(browser)

    async def _close(self, browser: Browser) -> None:
        with anyio.CancelScope(shield=True):
            await browser.close()
        self._alive.discard(browser)


def _abandon(alive: set[Browser]) -> None:
    for browser in alive:
        browser.abandon()


@asynccontextmanager
async def leased(
    folder: str, screen: Screen, window: tuple[int, int] | None = None
) -> AsyncGenerator[Browser]:
    """A browser for a session, which has it alone until the end of the block.

    Args:
        folder: of the pages, which are read from ``file://``.
        screen: what screenshots show.
        window: the width and the height of the page, in CSS pixels; by default those of the screen.

    Raises:
        UsageError: Chromium is not installed.
        SessionLost: the browser does not start.
    """
    browsers, holder = _browsers(), object()
    await browsers.turns.acquire_on_behalf_of(holder)
    try:
        browser = await browsers.take(folder, screen, window or (screen.width, screen.height))
        try:
            yield browser
        finally:
            await browsers.give_back(browser)
    finally:
        browsers.turns.release_on_behalf_of(holder)


def _browsers() -> _Browsers:
    try:
        return _of_loop.get()
    except LookupError:
        _of_loop.set(browsers := _Browsers())
        return browsers
