"""The rollouts of a task side by side, what differs between two, and answers with their formatting."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from browser.chromium import Chromium
from browser.test_pages import opened, to

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(120)]

ANSWERS = [
    "# Sum\nIt is **seven**, since $\\frac{14}{2} = 7$:\n\n- half of 14\n\n| a | b |\n|---|---|\n| 1 | 2 |",
    "It is eight, since 14 is large. <img src=x onerror='window.ran = 1'> ![x](http://127.0.0.1:9/x.png)",
    "It is seven, since 14 is large. [here](javascript:alert(1))",
]


def row(number: int, reward: float) -> str:
    message = {"type": "message", "role": "assistant", "content": ANSWERS[number]}
    return json.dumps(
        {
            "responses_create_params": {"input": "What is half of 14?"},
            "response": {"id": f"r{number}", "output": [message]},
            "reward": reward,
            "extracted_answer": None if number == 1 else "7",
            "_ng_task_index": 3,
            "_ng_rollout_index": number,
            "agent_ref": {"name": "sums"},
        }
    )


@pytest.fixture
def sums(tmp_path: Path) -> Path:
    rewards = (1.0, 0.0, 0.5)
    (tmp_path / "sums.jsonl").write_text("".join(row(*one) + "\n" for one in enumerate(rewards)))
    return tmp_path


async def test_answers_of_a_task_with_their_advantages(chromium: Chromium, sums: Path) -> None:
    async with opened(chromium, sums) as page:
        await to(page, "#/run/sums/tasks", "document.querySelector('.tasks-grid a.name')")
        await page.click(".tasks-grid a.name")
        await page.until("document.querySelectorAll('.answer .what .text').length === 3")
        shown = "[...document.querySelectorAll('.advantage')].map((e) => e.innerText)"
        assert await page.eval(shown) == ["+1.00", "−1.00", "±0.00"]
        assert "extracted_answer: nothing" in await page.text(".answer:nth-child(2)")
        for place in (2, 3):
            await page.click(f".answer:nth-child({place}) input")
        await page.until("document.querySelector('.different del')")
        only = "[...document.querySelectorAll('.different .text {}')].map((e) => e.innerText)"
        assert "eight" in await page.eval(only.format("del"))
        assert "seven" in await page.eval(only.format("ins"))


async def test_formatting_is_drawn_and_nothing_runs_or_loads(chromium: Chromium, sums: Path) -> None:
    async with opened(chromium, sums) as page:
        await to(page, "#/run/sums/rollouts/3.0", "document.querySelector('.item.assistant math mfrac')")
        parts = "[...document.querySelector('.item.assistant mfrac').children]"
        over, under = await page.eval(f"{parts}.map((e) => e.getBoundingClientRect().y)")
        assert over < under, "the fraction is not drawn as one"
        assert await page.text(".item.assistant .formatted strong") == "seven"
        assert await page.eval("document.querySelectorAll('.item.assistant td').length") == 2
        await page.eval("[...document.querySelectorAll('.choice button')].at(-1).click()")
        await page.until("document.querySelector('.item.assistant').innerText.includes('**seven**')")
        await to(
            page, "#/run/sums/tasks?task=3&of=sums", "document.querySelectorAll('.answer .text').length === 3"
        )
        assert "<img src=x onerror" in await page.text(".answer:nth-child(2)")
        assert await page.eval("document.querySelectorAll('.answer img, .answer .what a').length") == 0
        assert await page.eval("window.ran === undefined")
