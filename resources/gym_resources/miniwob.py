"""Small tasks on web pages: click on a button, fill a form, find a line in a table.

A row names a page of MiniWoB++ and the seed from which its task is made: ``{"page": "click-button", "seed":
3}``. The page says what to do, in its yellow field. The model sees a screenshot of 320×420 pixels and acts by
pixels (``computer``), or reads a list of elements and acts by their numbers (``read``, ``click``, ``fill``).
The reward is what the page gives, without its deduction for time, and 0 where that is negative or the task
is not done; the component ``raw`` is -1 to 1. The first end counts.

Each session has a browser of its own in the sandbox, without a network. A browser that is lost is a lost
session, never a reward. The page's time passes with the actions only, so a task does not depend on how busy
the machine is.
Source: MiniWoB++ 1.1 (MIT), Liu et al. 2018, arXiv:1802.08802; `miniwob` on PyPI.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Annotated

from gym_runtime import Environment, Reply, ResourceError, Task, UsageError, Verdict
from msgspec import Meta

from gym_resources.screens import ScreenSession
from gym_resources.screens.actions import Screen
from gym_resources.screens.browser import Browser, executable

# After the end a page would show a button that begins a new task.
BEGIN = """Math.seedrandom(SEED); core.EPISODE_MAX_TIME = 1e9; core.startEpisodeReal();
core.startEpisode = () => {}; core.getUtterance()"""
OUTCOME = "[WOB_DONE_GLOBAL, WOB_RAW_REWARD_GLOBAL]"
SETTLE_MS = 1000


class PageTask(Task):
    page: Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,60}$")]
    seed: Annotated[int, Meta(ge=0, le=2**31)]

    def __post_init__(self) -> None:
        folder = f"{pages()}/miniwob"
        # Where the package is missing, a row is read all the same, and `require` refuses to run it.
        if os.path.isdir(folder) and not os.path.isfile(f"{folder}/{self.page}.html"):
            raise ValueError(f"MiniWoB++ has no page '{self.page}'")


class MiniWob(ScreenSession[PageTask]):
    screen = Screen(160, 210, scale=2)
    window = (500, 320)  # beside the task the page shows its rewards
    raw: float | None = None

    def pages(self) -> str:
        return pages()

    async def begin(self, browser: Browser) -> None:
        await browser.open(f"miniwob/{self.task.page}.html")
        said = await browser.evaluate(BEGIN.replace("SEED", f'"{self.task.seed}"'))
        if not isinstance(said, str | dict):
            raise ResourceError(f"the page '{self.task.page}' of MiniWoB++ begins no task")
        await browser.advance(SETTLE_MS)

    async def after(self, browser: Browser) -> None:
        outcome = await browser.evaluate(OUTCOME)
        if outcome and outcome[0]:
            self.ended, self.raw = True, float(outcome[1])

    async def verify(self, reply: Reply) -> Verdict:
        raw = 0.0 if self.raw is None else self.raw
        return Verdict(max(0.0, raw), {"raw": raw}, {"done": self.raw is not None})


def pages() -> str:
    """The folder of MiniWoB++'s pages; nothing of the package is imported."""
    found = find_spec("miniwob")
    folders = (found.submodule_search_locations if found else None) or ["/nonexistent"]
    return f"{folders[0]}/html"


def require() -> None:
    if not os.path.isdir(pages()):
        raise UsageError('MiniWoB++ is not installed: pip install "gym-runtime[miniwob]"')
    executable()


environment = Environment(
    resource=MiniWob,
    description="Tasks on small web pages, done with a mouse and a keyboard, or by a list of elements.",
    domain="agent",
    data_license="MIT (MiniWoB++); Apache-2.0 (own rows)",
    extra="miniwob",
    require=require,
)
