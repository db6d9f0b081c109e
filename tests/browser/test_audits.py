"""The page of a run shows its alarms, and that of an audit's replies what the audit found: all as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from browser.chromium import Chromium
from browser.test_figures import row
from browser.test_pages import opened, to

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(120)]

HOSTILE = "<img src=x onerror=\"document.title='broken'\">"
ALARM: dict[str, Any] = {
    "environment": HOSTILE,
    "since_version": "step-3",
    "since_rollout": "r.0.0",
    "looks": 20,
    "disagree": 18,
    "low": 0.7,
    "high": 0.97,
    "usual": 0.07,
    "rollouts": ["r.0.1", "r.0.0"],
}
AUDIT: dict[str, Any] = {
    "environment": HOSTILE,
    "audit": "2026.11",
    "made": "today",
    "environment_sha256": "",
    "runtime": "",
    "input": {"name": HOSTILE, "rows": 5, "sha256": "", "sampled": 5, "seed": 0},
    "stability": {"replies": 0, "repeats": 0, "ways": []},
    "findings": [],
    "cost": {"seconds": 1.0, "verifications": 1},
    "rates": {
        "false_positive": {"rows": 5, "found": 2, "low": 0.117, "high": 0.769, "tried": 1291, "suspect": 3},
        HOSTILE: {"rows": 0, "found": None},
    },
    "unobserved": [HOSTILE],
}


async def test_alarms_and_audits_are_shown_as_text(chromium: Chromium, tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_text(row(0, 0, 1.0) + row(0, 1, 1.0))
    (tmp_path / "one_alarms.jsonl").write_text(f"{json.dumps(ALARM)}\nno alarm\n")
    (tmp_path / "mine.audit.replies.jsonl").write_text(row(0, 0, 1.0))
    (tmp_path / "mine.audit.json").write_text(json.dumps(AUDIT))
    async with opened(chromium, tmp_path) as page:
        await to(page, "#/run/one", "document.querySelectorAll('.tile').length > 5")
        [said] = await page.eval("[...document.querySelectorAll('[role=alert]')].map((e) => e.innerText)")
        assert said.startswith(f"alarm: {HOSTILE}: 18 of 20 second looks")
        assert "since weights step-3" in said
        links = "[...document.querySelectorAll('[role=alert] a')].map((e) => e.getAttribute('href'))"
        assert await page.eval(links) == ["#/run/one/rollouts/0.1", "#/run/one/rollouts/0.0"]
        await to(page, "#/run/mine.audit.replies", "document.querySelector('.audit')")
        cells = await page.eval("[...document.querySelectorAll('.audit td')].map((e) => e.innerText)")
        assert cells[:6] == ["false positive", "2 of 5", "40.0%", "11.7% to 76.9%", "1,291", "3"]
        assert cells[6:8] == [HOSTILE, "unobserved"]
        assert await page.eval("document.querySelector('.audit h2').innerText") == f"Audit of {HOSTILE}"
        assert await page.eval("document.querySelectorAll('img').length") == 0
        assert await page.eval("document.title") != "broken"
