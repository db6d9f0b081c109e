"""The figures of a run on its page: errors, and no contradiction while the run goes on."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from browser.chromium import Chromium
from browser.test_pages import opened, to
from gym_view import web_server
from gym_view.indexing import complete_index
from gym_view.web_server import serve

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(120)]

TILES = (
    "Object.fromEntries([...document.querySelectorAll('.tile')]"
    ".map((e) => [e.querySelector('h2').innerText, e.innerText.split('\\n').slice(1).join(' ')]))"
)
TRIES = (
    "[...document.querySelectorAll('.chart')].find((e) => e.innerText.includes('Do more tries help'))"
    ".querySelectorAll('{}')"
)

FIRST = "Figures of the first rows: the others are being added up."


def row(task: int, rollout: int, reward: float) -> str:
    fields = {"responses_create_params": {"input": f"{task}"}, "response": {"output": []}, "reward": reward}
    return json.dumps({**fields, "_ng_task_index": task, "_ng_rollout_index": rollout}) + "\n"


async def test_more_tries_are_never_worse_while_a_run_goes_on(chromium: Chromium, tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    # Two hard tasks are finished; of four easy ones the first rollouts are there.
    rows = [row(0, k, reward) for k, reward in enumerate((0.0, 0.0, 1.0))]
    rows += [row(1, k, 0.0) for k in range(3)]
    rows += [row(task, 0, 1.0) for task in range(2, 6)]
    path.write_text("".join(rows))
    async with opened(chromium, tmp_path) as page:
        await to(page, "#/run/live", "document.querySelectorAll('.tile').length > 5")
        tiles = await page.eval(TILES)
        assert tiles["pass@1"].startswith("72.2 %")
        assert "pass@3" not in tiles, "it is of other tasks than pass@1"
        assert tiles["pass@1 → pass@3"] == "16.7 % → 50.0 % ± 50.0 % · of 2 of 6 tasks"
        titles = f"[...{TRIES.format('.dot')}].map((e) => e.title)"
        shares = [float(title.split()[1]) for title in await page.eval(titles)]
        assert shares == sorted(shares)
        assert len(shares) >= 2
        assert await page.eval(f"{TRIES.format('.error-bar')}.length") == len(shares)
        assert "±" in tiles["Mean reward"]
        with path.open("a") as file:
            file.write("".join(row(task, k, 1.0) for task in range(2, 6) for k in (1, 2)))
        await page.until(f"({TILES})['pass@3']")
        tiles = await page.eval(TILES)
        assert tiles["pass@1"].startswith("72.2 %")
        assert tiles["pass@3"].startswith("83.3 %")


async def test_figures_of_the_first_rows_are_there_at_once_and_say_so(
    chromium: Chromium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "large.jsonl"
    path.write_text("".join(row(k, 0, float(k < 5000)) for k in range(6000)))
    for _ in complete_index(path):
        pass
    go_on, add_up = threading.Event(), web_server.page_figures_and_means

    def slowly(*given: Any) -> Any:
        assert go_on.wait(60)
        return add_up(*given)

    monkeypatch.setattr(web_server, "page_figures_and_means", slowly)
    async with serve([tmp_path]) as access, chromium.page() as page:
        await page.goto(f"{access.url}#/run/large")
        try:
            await page.until(f"({TILES})['Mean reward'].startsWith('1 ')")
            said = await page.text(".banner")
        finally:
            go_on.set()
        assert said == FIRST
        await page.until(f"({TILES})['Mean reward'].startsWith('0.8333 ')")
        assert not await page.text(".banner")


async def test_a_comparison_of_first_rows_says_so(
    chromium: Chromium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, add_up = threading.Event(), web_server.page_figures_and_means
    for name in ("one", "two"):
        (tmp_path / f"{name}.jsonl").write_text("".join(row(k, 0, 1.0) for k in range(3)))

    def slowly(*given: Any) -> Any:
        assert go_on.wait(60)
        return add_up(*given)

    async with opened(chromium, tmp_path) as page:
        await to(page, "#/compare?a=one&b=two", "document.querySelector('.lead')")
        assert "over 3 tasks" in await page.text(".lead")
        assert not await page.text(".banner")
        monkeypatch.setattr(web_server, "page_figures_and_means", slowly)
        with (tmp_path / "two.jsonl").open("a") as file:
            file.write("".join(row(k, 0, 1.0) for k in range(3, 9)))
        try:
            await page.until(f"document.querySelector('.banner')?.innerText === {FIRST!r}")
        finally:
            go_on.set()
        await page.until("!document.querySelector('.banner')")


async def test_rollouts_without_a_reward_have_no_verdict(
    chromium: Chromium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, go_on, add_up = tmp_path / "some.jsonl", threading.Event(), web_server.page_figures_and_means
    without = {name: value for name, value in json.loads(row(1, 0, 0.0)).items() if name != "reward"}
    path.write_text(row(0, 0, 1.0) + json.dumps(without) + "\n")

    def slowly(*given: Any) -> Any:
        assert go_on.wait(60)
        return add_up(*given)

    async with opened(chromium, tmp_path) as page:
        await to(page, "#/run/some/failures", "document.querySelector('.failures h1')")
        assert await page.text(".failures") == "No failures\n1 of 2 rollouts have a verdict."
        monkeypatch.setattr(web_server, "page_figures_and_means", slowly)
        with path.open("a") as file:
            file.write(row(2, 0, 1.0))
        try:
            await page.until("document.querySelector('.failures h1').innerText === 'No failures so far'")
        finally:
            go_on.set()
        await page.until("document.querySelector('.failures h1').innerText === 'No failures'")
        assert "2 of 3 rollouts have a verdict." in await page.text(".failures")


async def test_rows_without_an_environment_add_no_name(chromium: Chromium, tmp_path: Path) -> None:
    named = json.dumps({**json.loads(row(1, 0, 0.0)), "agent_ref": {"name": "mcqa"}}) + "\n"
    (tmp_path / "mixed.jsonl").write_text(named + row(0, 0, 1.0))
    async with opened(chromium, tmp_path) as page:
        cell = "document.querySelector('.runs tbody td:nth-child(4)').innerText"
        await page.until(cell)
        assert await page.eval(cell) == "mcqa"
