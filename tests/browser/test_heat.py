"""Heat maps of rewards: tasks by rollouts, and by runs; their cells are links, also for the keyboard."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from browser.chromium import Chromium
from browser.test_pages import opened, to

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(120)]

CELLS = (
    "[...document.querySelectorAll('.heat .row')].map("
    "(e) => [...e.querySelectorAll('.cell, span:empty')].map({}))"
)
TEXTS, STEPS = CELLS.format("(e) => e.innerText"), CELLS.format("(e) => e.className.split(' ')[1] ?? ''")
FOCUSED = "document.activeElement.title || document.activeElement.innerText"


def write(path: Path, rewards: list[list[float | None]]) -> None:
    """A run with these rewards by task; a None is a failure."""
    rows: dict[bool, list[str]] = {True: [], False: []}
    for task, several in enumerate(rewards):
        for rollout, reward in enumerate(several):
            row = {
                "responses_create_params": {"input": f"task {task}"},
                "response": {"id": f"r{task}.{rollout}", "output": []},
                "_ng_task_index": task,
                "_ng_rollout_index": rollout,
                "agent_ref": {"name": "sums"},
            }
            row |= {"_ng_failure_class": "x"} if reward is None else {"reward": reward}
            rows[reward is not None].append(json.dumps(row) + "\n")
    path.write_text("".join(rows[True]))
    if rows[False]:
        path.with_name(f"{path.stem}_failures.jsonl").write_text("".join(rows[False]))


async def test_tasks_by_rollouts(chromium: Chromium, tmp_path: Path) -> None:
    write(tmp_path / "sums.jsonl", [[0.0, 1.0, 0.5], [1.0, 1.0, 1.0], [0.0, None, 0.2]])
    async with opened(chromium, tmp_path) as page:
        await to(page, "#/run/sums/tasks?sort=task", "document.querySelector('.tasks-grid')")
        await page.eval(
            "[...document.querySelectorAll('.choice button')].find((e) => e.innerText === 'heat map').click()"
        )
        await page.until("document.querySelectorAll('.heat .cell').length === 9")
        assert await page.eval(TEXTS) == [["0", "1", "0.5"], ["1", "1", "1"], ["0", "–", "0.2"]]
        assert await page.eval(STEPS) == [["h0", "h5", "h3"], ["h5", "h5", "h5"], ["h0", "none", "h1"]]
        await page.eval("document.querySelector('.heat a.name').focus()")
        for key, focused in {
            "ArrowRight": "task 0, rollout 0: reward 0",
            "ArrowDown": "task 1, rollout 0: reward 1",
            "ArrowLeft": "1",
            "ArrowUp": "0",
        }.items():
            await page.press(key)
            assert await page.eval(FOCUSED) == focused
        await page.press("ArrowUp")  # there is nothing
        assert await page.eval(FOCUSED) == "0"
        await page.click(".heat [data-cell='2 1']")
        await page.until("location.hash.startsWith('#/run/sums/rollouts/2.1')")
        await page.until("document.querySelector('.verdict .outcome')?.innerText === 'failed'")


async def test_tasks_by_runs(chromium: Chromium, tmp_path: Path) -> None:
    write(tmp_path / "step-1.jsonl", [[0.0], [0.0, 1.0], [1.0]])
    write(tmp_path / "step-2.jsonl", [[0.0], [1.0, 1.0]])
    write(tmp_path / "step-3.jsonl", [[1.0], [1.0, 1.0]])
    async with opened(chromium, tmp_path) as page:
        await to(
            page,
            "#/board?runs=step-1,step-2,step-3&first=step-1",
            "document.querySelectorAll('.heat .cell').length === 7",
        )
        heads = "[...document.querySelectorAll('.heat .c-cell')].map((e) => e.innerText)"
        at = {name: k for k, name in enumerate(await page.eval(heads))}
        shown = await page.eval(TEXTS)
        by_run = {name: [line[k] for line in shown] for name, k in at.items()}
        # The task that changed most is the first one; a run without the task has an empty place.
        assert by_run == {"step-1": ["0", "0.5", "1"], "step-2": ["0", "1", ""], "step-3": ["1", "1", ""]}
        await page.click(f".heat [data-cell='1 {at['step-2']}']")
        await page.until("document.querySelectorAll('.answer').length === 2")
        await to(
            page, "#/board?runs=step-1,step-2,step-3", "document.querySelectorAll('.heat .cell').length > 5"
        )
        await page.eval("document.querySelector('.heat .cell[title^=\"step-3, task 0\"]').click()")
        await page.until("location.hash.startsWith('#/run/step-3/rollouts/0.0')")
