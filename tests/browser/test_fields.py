"""Parts of rewards and fields of rows on the page: filtered, sorted, listed, and on the run's page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from browser.chromium import Chromium
from browser.test_pages import opened, to

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(120)]


def row(number: int) -> str:
    return json.dumps(
        {
            "responses_create_params": {"input": "x"},
            "response": {"id": f"r{number}", "output": []},
            "reward": 0.5,
            "reward_components": {"judge": number / 4, "format": 1.0},
            "topic": "tides" if number % 2 else "two words",
            "meta": {"level": number},
            "correct": number == 2,
            "_ng_task_index": number,
            "_gym": {"weight_versions": [str(number // 3)]},
            "agent_ref": {"name": "sea"},
        }
    )


async def test_any_field_can_be_asked_for(chromium: Chromium, tmp_path: Path) -> None:
    path = tmp_path / "sea.jsonl"
    path.write_text("".join(row(number) + "\n" for number in range(5)))
    tasks = "[...document.querySelectorAll('.row .c-task')].map((e) => e.innerText).join()"
    async with opened(chromium, tmp_path) as page:
        await to(page, "#/run/sea/rollouts", "document.querySelectorAll('.line-at').length === 5")
        for query, found in {
            "components.judge<0.5": "0.0,1.0",
            "components.judge=1": "4.0",
            "field.topic=tides": "1.0,3.0",
            'field.topic="two words" reward<1': "0.0,2.0,4.0",
            "field.topic!=tides field.meta.level>=2": "2.0,4.0",
            "field.correct=true": "2.0",
        }.items():
            await page.fill("#query", query)
            await page.until(f"{tasks} === {found!r}")
        for query, why in {
            "field.tpic=x": "No row has a number or a short text in “field.tpic”.",
            "field.topic<3": "field.topic is a text: use = or !=.",
            "components.judge<high": "“high” is not a number, which components.judge is compared with.",
            "topic=tides": "field.NAME",
        }.items():
            await page.fill("#query", query)
            await page.until(f"document.querySelector('.under .bad')?.innerText.includes({why!r})")
        await page.fill("#query", "")
        await to(page, "#/run/sea/rollouts?sort=-components.judge", f"{tasks} === '4.0,3.0,2.0,1.0,0.0'")
        assert await page.text(".row .c-more") == "1"
        await page.click(".filter button.icon")
        await page.until("document.querySelector('.filter select')")
        await to(page, "#/run/sea/rollouts?col=field.topic", "document.querySelector('.row .c-more')")
        assert await page.text(".row .c-more") == "two words"
        chosen = "#/run/sea/rollouts?q=field.topic%3Dtides&col=components.judge"
        await to(page, chosen, "document.querySelector('.row .c-more')?.innerText === '0.25'")
        # The field of rows that come while the page is open is read, too.
        with path.open("a") as file:
            file.write(row(5) + "\n")
        await to(page, "#/run/sea/rollouts?q=field.topic%3Dtides", f"{tasks} === '1.0,3.0,5.0'")


async def test_the_page_of_a_run_has_the_parts_of_its_rewards(chromium: Chromium, tmp_path: Path) -> None:
    (tmp_path / "sea.jsonl").write_text("".join(row(number) + "\n" for number in range(5)))
    async with opened(chromium, tmp_path) as page:
        await to(page, "#/run/sea", "document.querySelector('.parts')")
        said = await page.text(".parts")
        assert "judge" in said
        assert "0.5 ± 0.18" in said
        assert "tides" in await page.text(".others")
        titles = "[...document.querySelectorAll('.steps .dot')].map((e) => e.title)"
        assert await page.eval(titles) == [
            "weights 0, 3 rollouts: mean 0.5 ± 0",
            "weights 1, 2 rollouts: mean 0.5 ± 0",
        ]
        # What came since is not in these figures, and is when they are asked for again.
        with (tmp_path / "sea.jsonl").open("a") as file:
            file.write(row(5) + "\n")
        await page.until("document.querySelector('.made')?.innerText.includes('1 rollout came since')")
        assert "0.5 ± 0.18" in await page.text(".parts")
        await page.click(".made button")
        await page.until("document.querySelector('.parts').innerText.includes('0.625 ± 0.19')")
        assert "came since" not in await page.text("main")
        await page.eval(
            "[...document.querySelectorAll('.others a')].find((e) => e.innerText === 'tides').click()"
        )
        await page.until("document.querySelectorAll('.line-at').length === 3")
