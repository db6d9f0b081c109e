"""axe-core finds nothing in any page of the documentation, in light and in dark.

Runs with --soak. Needs the built site (``zensical build``), Chromium and axe-core.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from browser.chromium import Chromium

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
AXE = ROOT / "viewer-page" / "node_modules" / "axe-core" / "axe.min.js"
SITE = ROOT / "build" / "docs"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: npm install in viewer-page")
    if not (SITE / "index.html").is_file():
        pytest.skip("the site is not built: zensical build --strict --clean")
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE))) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_every_page_can_be_used_by_all(chromium: Chromium, site: str, dark: bool) -> None:
    found: list[str] = []
    async with chromium.page(dark=dark) as page:
        for path in sorted(SITE.rglob("*.html")):
            name = path.relative_to(SITE).as_posix()
            await page.goto(f"{site}/{name}")
            there = f"document.readyState === 'complete' && location.pathname === '/{name}'"
            await page.until(there, seconds=30)
            await page.eval("window.axe ?? " + AXE.read_text() + "; 0")
            for rule in await page.eval("axe.run().then((all) => all.violations)"):
                found.append(f"{name}: {rule['id']} {[node['html'][:160] for node in rule['nodes'][:2]]}")
    assert not found, "\n".join(found)
