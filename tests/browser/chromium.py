"""Debian's Chromium, driven over its DevTools protocol: no package but aiohttp, which the runtime has.

A `Page` collects what the page complains of (exceptions, console errors, refused or failed requests), so
that a test can demand that there is nothing.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
from time_limits import busy

LIMIT_S = 30.0
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync --remote-debugging-port=0 "
    "--enable-precise-memory-info"
)


def executable() -> str | None:
    """Where Chromium is, if it is installed."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Chromium:
    """A browser process with a new profile. `close` ends it."""

    def __init__(self) -> None:
        path = executable()
        assert path is not None
        self._profile = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        self._process = subprocess.Popen(
            [path, *FLAGS.split(), f"--user-data-dir={self._profile.name}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if line.startswith(b"DevTools listening on "):
                self.url = line.split()[-1].decode()
                break
        else:
            raise RuntimeError("Chromium ended before it listened")
        os.set_blocking(self._process.stderr.fileno(), False)

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, 9)
        self._process.wait()
        assert self._process.stderr is not None
        self._process.stderr.close()
        self._profile.cleanup()

    @asynccontextmanager
    async def page(self, width: int = 1280, height: int = 900, *, dark: bool = False) -> AsyncIterator[Page]:
        """A page in its own context, without cookies."""
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(self.url, max_msg_size=0) as socket,
        ):
            page = Page(socket)
            reader = asyncio.create_task(page.listen())
            try:
                await page.open(width, height, dark=dark)
                yield page
                await page.send("Target.disposeBrowserContext", browserContextId=page.context, own=False)
            finally:
                reader.cancel()
                with suppress(asyncio.CancelledError):
                    await reader


class Page:
    """One tab. ``problems`` is what it complained of."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.problems: list[str] = []
        self.context = ""
        self._socket = socket
        self._session = ""
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def open(self, width: int, height: int, *, dark: bool) -> None:
        self.context = (await self.send("Target.createBrowserContext", own=False))["browserContextId"]
        target = await self.send(
            "Target.createTarget", url="about:blank", browserContextId=self.context, own=False
        )
        attached = await self.send(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True, own=False
        )
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.send(f"{domain}.enable")
        await self.resize(width, height)
        await self.scheme(dark=dark)

    async def send(self, method: str, *, own: bool = True, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol; its result."""
        number = next(self._numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if own:
            message["sessionId"] = self._session
        try:
            async with asyncio.timeout(LIMIT_S * busy()):
                await self._socket.send_json(message)
                return await self._waiting[number]
        except TimeoutError:
            raise AssertionError(f"Chromium does not answer {method} {str(params)[:200]}") from None
        finally:
            del self._waiting[number]

    async def listen(self) -> None:
        async for message in self._socket:
            answer = message.json()
            if "id" in answer:
                future = self._waiting.get(answer["id"])
                if future is not None and not future.done():
                    if "error" in answer:
                        future.set_exception(RuntimeError(str(answer["error"])))
                    else:
                        future.set_result(answer["result"])
            else:
                self._event(answer["method"], answer.get("params", {}))

    def _event(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.problems.append(" ".join(str(one.get("value")) for one in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")

    async def resize(self, width: int, height: int) -> None:
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    async def scheme(self, *, dark: bool) -> None:
        await self.send(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )

    async def goto(self, url: str) -> None:
        """Go to an address; within the same document only its fragment changes."""
        await self.send("Page.navigate", url=url)

    async def eval(self, expression: str) -> Any:
        """The value of an expression; promises are awaited."""
        answer = await self.send(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise AssertionError(details.get("exception", {}).get("description") or details["text"])
        return answer["result"].get("value")

    async def until(self, expression: str, seconds: float = 10) -> Any:
        """Wait for an expression to be true, also over a navigation; its value. A busy machine has longer."""
        end_s = asyncio.get_running_loop().time() + seconds * busy()
        while True:
            value = await self.eval(
                f"(() => {{ try {{ const value = {expression}; return value instanceof Node || value }} "
                "catch { return null } })()"
            )
            if value:
                return value
            if asyncio.get_running_loop().time() > end_s:
                said = await self.eval("document.body.innerText.slice(0, 1500)")
                raise AssertionError(f"not true after {seconds} s: {expression}\n{said}\n{self.problems}")
            await asyncio.sleep(0.02)

    async def text(self, selector: str = "body") -> str:
        return str(await self.eval(f"document.querySelector({selector!r})?.innerText ?? ''"))

    async def click(self, selector: str) -> None:
        """Click with the mouse in the middle of an element."""
        place = await self.until(
            f"""(() => {{ const e = document.querySelector({selector!r}); if (!e) return null;
              e.scrollIntoView({{block: "nearest"}}); const r = e.getBoundingClientRect();
              return r.width ? [r.x + r.width / 2, r.y + r.height / 2] : null }})()"""
        )
        for kind in ("mousePressed", "mouseReleased"):
            await self.send(
                "Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1
            )

    async def press(self, key: str) -> None:
        """One key: a character, or a name such as Escape."""
        text = {"text": key} if len(key) == 1 else {}
        await self.send("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        await self.send("Input.dispatchKeyEvent", type="keyUp", key=key)

    async def fill(self, selector: str, text: str) -> None:
        """Put a text into a field, in place of what stands there."""
        await self.eval(f"(e => {{ e.focus(); e.select(); }})(document.querySelector({selector!r}))")
        if text:
            await self.send("Input.insertText", text=text)
        else:
            await self.press("Delete")

    async def screenshot(self, path: Path) -> None:
        answer = await self.send("Page.captureScreenshot", format="png")
        path.write_bytes(  # noqa: ASYNC240 - a test
            base64.b64decode(answer["data"])
        )
