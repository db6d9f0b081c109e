"""Numbers and texts on the page are those of the rows: not rounded away, turned around, or of a part only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from browser.chromium import Chromium, Page
from browser.test_pages import AXE, opened, to

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(120)]

BEYOND_A_DOUBLE = 12345678901234567890
BACKWARDS = "\u202e"  # right-to-left override
ROLLOUTS = (
    "[...document.querySelectorAll('.tile')].find((e) => e.innerText.startsWith('Rollouts'))"
    ".querySelector('strong').innerText"
)


def row(task: int, rollout: int = 0, reward: float = 1.0, **fields: Any) -> str:
    given: dict[str, Any] = {
        "responses_create_params": {"input": "x"},
        "response": {"output": []},
        "reward": reward,
    }
    indices = {"_ng_task_index": task, "_ng_rollout_index": rollout, "agent_ref": {"name": "sea"}}
    return json.dumps({**given, **indices, **fields}) + "\n"


def texts(selector: str) -> str:
    return f"[...document.querySelectorAll({selector!r})].map((e) => e.innerText)"


async def in_order(page: Page, column: str) -> list[str]:
    """The texts of a column of the list, from top to bottom."""
    places = (
        f"[...document.querySelectorAll('.line-at')].map((e) => [e.offsetTop, e.querySelector({column!r})])"
    )
    return await page.eval(f"{places}.sort(([a], [b]) => a - b).map(([, e]) => e.innerText)")


async def test_large_numbers_keep_their_digits(chromium: Chromium, tmp_path: Path) -> None:
    call = {"type": "function_call", "name": "find", "arguments": f'{{"id": {BEYOND_A_DOUBLE}}}'}
    ids = {"ids": [BEYOND_A_DOUBLE, *range(20)]}
    rows = [row(k, 0, 12345.0 + k, seed=1_700_000_000 + k, _gym={"duration_s": 119.7}) for k in range(9)]
    rows.append(row(9, 0, -98765.4321, response={"output": [call]}, hash=BEYOND_A_DOUBLE, **ids))
    (tmp_path / "large.jsonl").write_text("".join(rows))
    async with opened(chromium, tmp_path) as page:
        seeds = "document.querySelectorAll('.row .c-more').length === 10"
        await to(page, "#/run/large/rollouts?sort=-field.seed", seeds)
        shown = await in_order(page, ".c-more")
        assert shown == [*(str(1_700_000_008 - k) for k in range(9)), "–"]
        assert await in_order(page, ".c-reward") == [*(str(12353 - k) for k in range(9)), "-98765"]
        assert (await in_order(page, ".c-time"))[0] == "2m 00s"
        await to(page, "#/run/large/rollouts/9.0", "document.querySelector('.item.call')")
        assert f'"id": {BEYOND_A_DOUBLE}' in await page.text(".item.call")
        await to(page, "#/run/large/rollouts/9.0?tab=row", "document.querySelector('.raw pre')")
        raw = await page.text(".raw pre")
        assert f'"hash": {BEYOND_A_DOUBLE},' in raw
        assert f"[{BEYOND_A_DOUBLE}, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, … 21 numbers]" in raw
        await to(page, "#/run/large", "document.querySelector('.others dd')")
        assert "mean 1700000004 ± " in await page.text(".others")
        assert "Half are at most 2 min 00 s" in await page.text(".charts")
        await to(page, "#/run/large/tasks?as=map", "document.querySelectorAll('a.cell').length === 10")
        assert "12.3k" in await page.eval(texts("a.cell b"))


async def test_pass_at_1_of_the_tasks_is_that_of_the_run(chromium: Chromium, tmp_path: Path) -> None:
    rewards = ((0.5, 1.0), (1.0, 0.5), (0.0, 1.0), (0.0, 0.0))
    rows = [row(task, at, reward) for task, both in enumerate(rewards) for at, reward in enumerate(both)]
    (tmp_path / "partly.jsonl").write_text("".join(rows))
    async with opened(chromium, tmp_path) as page:
        await to(page, "#/run/partly", "document.querySelectorAll('.tile').length > 5")
        assert (await page.eval(texts(".tile strong")))[1] == "50.0 %"
        assert "the best of the first k" in await page.text(".charts")
        await to(
            page, "#/run/partly/tasks?sort=task", "document.querySelectorAll('.tasks-grid.row').length === 4"
        )
        assert await in_order(page, ".c-pass") == ["50.0 %", "100.0 %", "50.0 %", "0.0 %"]


async def test_figures_of_a_part_do_not_stay_when_all_rows_are_known(
    chromium: Chromium, tmp_path: Path
) -> None:
    path = tmp_path / "live.jsonl"
    path.write_text("".join(row(task) for task in range(5)))
    slow_once = """(() => { const ask = window.fetch; window.asked = 0;
        window.fetch = async (path, ...more) => {
          const answer = await ask(path, ...more), slow = path.endsWith("figures.json") && !window.asked++;
          if (slow) await new Promise((done) => setTimeout(done, 4000));
          return answer; } })()"""
    async with opened(chromium, tmp_path) as page:
        await to(page, "#/run/live", f"{ROLLOUTS} === '5'")
        await page.eval(slow_once)
        with path.open("a") as file:
            file.write(row(5))
            file.flush()
            await page.until("window.asked === 1")
            file.write("".join(row(task) for task in range(6, 100)))
        # Figures that took four seconds are asked for again after 36, but not those of a small part.
        await page.until(f"{ROLLOUTS} === '100'", 20)


async def test_a_bar_of_failures_leads_to_those_of_its_stage(chromium: Chromium, tmp_path: Path) -> None:
    stages = ["respond", "respond", "verify"]
    failed = [
        row(
            k,
            reward=0,
            _ng_failure_class="model",
            _ng_failure={"kind": "model", "stage": stage, "message": "no"},
        )
        for k, stage in enumerate(stages)
    ]
    (tmp_path / "half.jsonl").write_text(row(9))
    (tmp_path / "half_failures.jsonl").write_text("".join(failed))
    async with opened(chromium, tmp_path) as page:
        for where, links in {
            "#/run/half": '.bars a[title*=" in "]',
            "#/run/half/failures": "td a.bad",
        }.items():
            for at, count in enumerate(("2", "1")):
                await to(page, where, f"document.querySelectorAll({links!r}).length === 2")
                await page.eval(f"document.querySelectorAll({links!r})[{at}].click()")
                await page.until(f"document.querySelector('.under strong')?.innerText === {count!r}")


async def test_a_line_that_is_no_json_takes_no_rollouts_place(chromium: Chromium, tmp_path: Path) -> None:
    (tmp_path / "torn.jsonl").write_text("no json\n" + row(0) + row(1) + "no json\n")
    (tmp_path / "torn_failures.jsonl").write_text(row(3, reward=0, _ng_failure_class="model"))
    async with opened(chromium, tmp_path) as page:
        await to(page, "#/run/torn/failures", "document.querySelectorAll('.failures tbody tr').length === 2")
        assert await page.text("h1") == "3 failures"
        assert "Not counted" not in await page.text(".headline")
        await to(page, "#/run/torn/rollouts/0.0", "document.querySelector('form.label')")
        assert await page.text(".heading h1") == "sea task 0 rollout 0"
        assert await page.eval("document.querySelector('.row.chosen').hash") == "#/run/torn/rollouts/0.0"
        assert await page.text(".under strong") == "5"
        # By its own link: its number depends on which of the two files was read first.
        link = (
            "[...document.querySelectorAll('a.row')].find((row) => row.innerText.includes('unreadable')).hash"
        )
        await to(page, await page.eval(link), "document.querySelector('.broken')")


async def test_what_stands_twice_counts_once(chromium: Chromium, tmp_path: Path) -> None:
    path = tmp_path / "twice.jsonl"
    elsewhere = row(0, agent_ref={"name": "lake"})
    path.write_text(row(0) + row(0, reward=0.0) + row(1) + elsewhere + row(0) + row(1, reward=0.5) + row(2))
    (tmp_path / "twice_failures.jsonl").write_text(row(2, _ng_failure_class="model") * 2)
    async with opened(chromium, tmp_path) as page:
        for more in ("", row(2) + row(3)):
            with path.open("a") as file:
                file.write(more)
            rollouts, left_out = ("5", "6") if more else ("4", "5")
            await to(page, "#/run/twice", f"{ROLLOUTS} === {rollouts!r}")
            told = f"Not counted: {left_out} earlier or doubled rows."
            ready = f"document.querySelector('.headline')?.innerText.includes({told!r})"
            await to(page, "#/run/twice/failures", ready)
            # The third and fourth that count, in the order of completion.
            ready = "document.querySelector('.under strong')?.innerText === '2'"
            await to(page, "#/run/twice/rollouts?q=row>1 row<4", ready)
            assert await in_order(page, "span") == ["0.0", "2.0"]
            assert (await page.text(".under")).startswith(f"2 of {rollouts} rollouts")
        await to(page, "#/run/twice/rollouts/1.0", "document.querySelector('.verdict .value, .score')")
        assert (await page.text(".score")).startswith("1\n")


async def test_texts_that_turn_around_turn_nothing_else_around(chromium: Chromium, tmp_path: Path) -> None:
    (tmp_path / "turned.jsonl").write_text(
        "".join(row(k, color=BACKWARDS + "der", agent_ref={"name": BACKWARDS + "aes"}) for k in range(3))
    )
    left = (
        "((e) => { const range = new Range(); range.selectNodeContents(e); "
        "return range.getBoundingClientRect().x })"
    )
    async with opened(chromium, tmp_path) as page:
        await to(page, "#/run/turned", "document.querySelector('.others dd small')")
        places = f"['a', 'small'].map((name) => {left}(document.querySelector('.others dd ' + name)))"
        text, count = await page.eval(places)
        assert text < count
        await to(page, "#/run/turned/rollouts/0.0", "document.querySelector('.heading h1 .quiet')")
        name, task = await page.eval(
            f"['h1', 'h1 .quiet'].map((name) => {left}(document.querySelector(name)))"
        )
        assert name < task


async def test_an_empty_box_stays_as_it_was_written(chromium: Chromium, tmp_path: Path) -> None:
    asked = {"input": "Put the letter of your answer in \\boxed{}, such as \\boxed{B}."}
    (tmp_path / "box.jsonl").write_text(row(0, responses_create_params=asked))
    async with opened(chromium, tmp_path) as page:
        await to(page, "#/run/box/rollouts/0.0", "document.querySelector('.item.user math')")
        assert "answer in \\boxed{}, such as" in await page.text(".item.user")
        assert await page.eval("document.querySelectorAll('.item.user math').length") == 1


@pytest.mark.parametrize("width", [1280, 400])
async def test_long_figures_stay_in_their_places(width: int, chromium: Chromium, tmp_path: Path) -> None:
    rows = [
        row(
            task,
            at,
            at / 7 + task / 13,
            agent_ref={"name": f"environment_{task % 3}"},
            _gym={"duration_s": 3599},
        )
        for task in range(12)
        for at in range(4 if task < 9 else 1)
    ]
    (tmp_path / "wide.jsonl").write_text("".join(row for row in rows))
    beyond = (
        "[...document.querySelectorAll('.tile, .bars li')].filter((e) => [...e.querySelectorAll('*')]"
        ".some((one) => one.getBoundingClientRect().right > e.getBoundingClientRect().right + 1))"
        ".map((e) => e.innerText)"
    )
    async with opened(chromium, tmp_path, width=width) as page:
        await to(page, "#/run/wide", "document.querySelectorAll('.chart').length >= 8")
        assert await page.eval(beyond) == []
        assert await page.eval("document.documentElement.scrollWidth <= innerWidth")
        if width > 980:
            await to(page, "#/run/wide/rollouts", "document.querySelectorAll('.line-at').length > 5")
            cut = "[...document.querySelectorAll('.c-time')].filter((e) => e.scrollWidth > e.clientWidth)"
            assert await page.eval(f"{cut}.length") == 0


async def test_a_board_of_many_tasks_draws_only_what_is_seen(chromium: Chromium, tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.jsonl").write_text("".join(row(task) for task in range(500)))
    async with opened(chromium, tmp_path) as page:
        await to(page, "#/board?runs=a,b,c", "document.querySelectorAll('.board a.cell').length > 20")
        assert await page.eval("document.querySelectorAll('.board .line-at').length") < 60


async def test_a_heat_map_of_a_torn_file_is_accessible(chromium: Chromium, tmp_path: Path) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: npm install in viewer-page")
    (tmp_path / "torn.jsonl").write_text("".join(row(k, 0, k / 9) for k in range(4)) + row(4)[:-9])
    async with opened(chromium, tmp_path) as page:
        await to(page, "#/run/torn/tasks?as=map", "document.querySelectorAll('a.cell b').length === 4")
        await page.until("document.querySelector('.banner')")
        await page.eval(AXE.read_text() + "; 0")
        assert await page.eval("axe.run().then((all) => all.violations.map(({ id }) => id))") == []


async def test_the_list_of_keys_keeps_the_focus_and_gives_it_back(chromium: Chromium, tmp_path: Path) -> None:
    (tmp_path / "some.jsonl").write_text("".join(row(k) for k in range(3)))
    async with opened(chromium, tmp_path) as page:
        await to(page, "#/run/some/rollouts/0.0", "document.querySelectorAll('.row').length === 3")
        await page.eval("document.querySelector('.row').focus()")
        for close in ("Escape", "?", ""):
            await page.press("?")
            await page.until("document.activeElement.innerText === 'Close'")
            assert await page.eval("document.querySelector('#query').checkVisibility()")
            await page.eval("document.querySelector('#query').focus()")
            assert await page.eval("document.activeElement.innerText") == "Close", "the page behind has it"
            await page.press("j")
            assert (await page.eval("location.hash")).endswith("/0.0")
            if close:
                await page.press(close)
            else:
                await page.click(".help button")
            await page.until("!document.querySelector('.help')")
            assert await page.eval("document.activeElement.matches('.row')")
