"""Makes the moving pictures of README.md from a real run of its first command, with Debian's Chromium:

    PYTHONPATH=tests python -m docs.pictures

`run.svg` is the output of the command, `view.webp` the page of `gym-runtime view` with its rollouts.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from browser.chromium import Chromium, Page
from docs.pages import ROOT, first_command
from docs.terminal import Line, drawing, typed
from gym_view.web_server import serve
from PIL import Image

IMAGES = ROOT / "docs" / "images"
BIN = Path(sys.executable).parent
PLAYED_S = 6.0
"""The run takes longer; its lines keep their order and their distances."""
FRAME_MS = 2600
PAGES = (
    ("#/run/{run}", ".chart"),
    ("#/run/{run}/rollouts/{rollout}", ".verdict .value"),
    ("#/run/{run}/tasks", ".dots .dot"),
)
"""Addresses of the viewer, and what is there once a page is ready."""


def recorded(command: str, folder: Path) -> list[Line]:
    """The lines that the command prints in a folder, with the times at which they come."""
    environment = {
        **os.environ,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "100",
        "GYM_LOG_LEVEL": "error",
    }
    began_s = time.monotonic()
    lines: list[Line] = []
    with subprocess.Popen(
        shlex.split(command), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=environment,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        lines += [Line(line.rstrip(), time.monotonic() - began_s) for line in process.stdout]
    assert process.returncode == 0, lines
    pace = PLAYED_S / lines[-1].at_s
    return [Line(line.text, line.at_s * pace) for line in lines]


async def frames(chromium: Chromium, results: Path, run: str, rollout: str) -> AsyncIterator[Image.Image]:
    """The pages of a run, one after the other."""
    async with serve([results]) as access, chromium.page(1280, 760) as page:
        await page.goto(access.url)
        for address, ready in PAGES:
            await page.eval(f"location.hash = {address.format(run=run, rollout=rollout)!r}")
            await page.until(f"document.querySelector({ready!r})")
            await page.eval(
                "document.querySelectorAll('.verdict details').forEach((one) => (one.open = true))"
            )
            yield await _picture(page)


async def _picture(page: Page) -> Image.Image:
    with tempfile.NamedTemporaryFile(suffix=".png") as file:
        await page.screenshot(Path(file.name))
        return Image.open(io.BytesIO(file.read())).convert("RGB")


def telling(rollouts: Path) -> str:
    """The numbers of a rollout whose reward is in part; of the first one if there is none."""
    rows = [json.loads(line) for line in rollouts.read_bytes().splitlines()]
    row = next((row for row in rows if 0 < row["reward"] < 1), rows[0])
    return f"{row['_ng_task_index']}.{row['_ng_rollout_index']}"


async def viewed(results: Path) -> list[Image.Image]:
    run = next(results.glob("*_run.json")).name.removesuffix("_run.json")  # noqa: ASYNC240 - a script
    chromium = Chromium()
    try:
        return [frame async for frame in frames(chromium, results, run, telling(results / f"{run}.jsonl"))]
    finally:
        chromium.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = first_command()
        lines = recorded(command, folder)
        (IMAGES / "run.svg").write_text(drawing(command, typed(command), lines))
        first, *more = asyncio.run(viewed(folder / "results"))
    first.save(
        IMAGES / "view.webp",
        save_all=True,
        append_images=more,
        duration=FRAME_MS,
        loop=2,
        quality=82,
        method=6,
    )


if __name__ == "__main__":
    main()
