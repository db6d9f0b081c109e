"""A person's label and note on the page: stored, shown again, and filtered by."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import anyio
import pytest
from browser.chromium import Chromium
from browser.test_pages import opened, to
from gym_view.web_server import serve
from time_limits import busy

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(120)]
EARLIER = {"label": "wrong", "note": "right", "rollout_id": "earlier.0.2"}


async def test_a_label_is_kept_beside_the_results(chromium: Chromium, runs: Path, tmp_path: Path) -> None:
    shutil.copy(runs / "quiz-a.jsonl", tmp_path / "quiz.jsonl")
    async with opened(chromium, tmp_path) as page:
        await to(page, "#/run/quiz/rollouts/0.1", "document.querySelector('form.label')")
        await page.fill(".label [name=label]", "wrong verdict")
        await page.fill(".label [name=note]", "B is <b>right</b>")
        await page.press("Tab")
        await page.eval("document.activeElement.blur()")
        await page.until("document.querySelector('.label small').innerText === 'stored'")
        with anyio.fail_after(20 * busy()):
            # The label is stored when the note is begun, and the note after it.
            while "note" not in (stored := _stored(tmp_path / "quiz_labels.json")):
                await anyio.sleep(0.02)
        assert (stored["label"], stored["note"]) == ("wrong verdict", "B is <b>right</b>")
        # What was said of a rollout that was made again since is not said of the new one.
        labels = tmp_path / "quiz_labels.json"
        # At once, because the page may be reading the labels.
        (tmp_path / "new").write_text(json.dumps({**json.loads(labels.read_text()), "0.2": EARLIER}))
        (tmp_path / "new").replace(labels)
        await to(page, "#/run/quiz/rollouts", "!document.querySelector('form.label')")
        await page.fill("#query", 'label=*wrong* note="*right*"')
        await page.until("document.querySelectorAll('.row .c-task').length === 1")
        assert await page.text(".row .c-more") == "wrong verdict"
        await page.click(".row")
        await page.until("document.querySelector('.label [name=note]')?.value === 'B is <b>right</b>'")


async def test_a_note_that_is_typed_is_kept_however_one_leaves(
    chromium: Chromium, runs: Path, tmp_path: Path
) -> None:
    shutil.copy(runs / "quiz-a.jsonl", tmp_path / "quiz.jsonl")
    labels = tmp_path / "quiz_labels.json"
    async with opened(chromium, tmp_path) as page:
        for at, leave in enumerate(("history.back()", "location.hash = '#/'", "location.reload()")):
            await to(page, "#/run/quiz/rollouts", "!document.querySelector('form.label')")
            await to(page, f"#/run/quiz/rollouts/0.{at}", "document.querySelector('form.label')")
            await page.fill(".label [name=note]", leave)
            await page.eval(leave)
            with anyio.fail_after(20 * busy()):
                while not (labels.exists() and leave in labels.read_text()):
                    await anyio.sleep(0.02)
            await page.until("document.querySelector('.top')")


async def test_a_list_follows_the_label_that_it_is_filtered_by(
    chromium: Chromium, runs: Path, tmp_path: Path
) -> None:
    shutil.copy(runs / "quiz-a.jsonl", tmp_path / "quiz.jsonl")
    said = {rollout: {"label": "wrong"} for rollout in ("0.1", "0.2")}
    (tmp_path / "quiz_labels.json").write_text(json.dumps(said))
    found = "[...document.querySelectorAll('.row .c-task')].map((e) => e.innerText).join()"
    async with opened(chromium, tmp_path) as page:
        await to(page, "#/run/quiz/rollouts/0.1?q=label%3Dwrong&sort=task", f"{found} === '0.1,0.2'")
        await page.until("document.querySelector('form.label [name=label]').value === 'wrong'")
        await page.fill(".label [name=label]", "right")
        await page.eval("document.activeElement.blur()")
        await page.until(f"{found} === '0.2'")
        assert await page.text(".label small") == "stored"
        await page.fill("#query", "label=right")
        await page.until(f"{found} === '0.1'")
        # What is typed now is not stored yet.
        await page.fill(".label [name=label]", "right after all")
        assert await page.text(".label small") == ""


async def test_what_another_tab_has_stored_is_shown_and_not_overwritten(
    chromium: Chromium, runs: Path, tmp_path: Path
) -> None:
    shutil.copy(runs / "quiz-a.jsonl", tmp_path / "quiz.jsonl")
    at = "#/run/quiz/rollouts/0.1"
    state = "document.querySelector('.label small').innerText"
    async with serve([tmp_path]) as access, chromium.page() as one, chromium.page() as other:
        for page in (one, other):
            await page.goto(access.url)
            await page.until("document.querySelector('.runs td .reward')")
            await to(page, at, "document.querySelector('form.label')")
        await one.fill(".label [name=label]", "good")
        await one.press("Tab")
        await one.until(f"{state} === 'stored'")
        # Only what is changed is stored: the label of the other tab stays, and comes.
        await other.fill(".label [name=note]", "clear")
        await other.press("Tab")
        await other.until(f"{state} === 'stored'")
        assert await other.eval("document.querySelector('.label [name=label]').value") == "good"
        await one.fill(".label [name=note]", "not so")
        await one.press("Tab")
        await one.until(f"{state}.startsWith('Another tab has changed this note to “clear”. Yours is not')")
        assert _stored(tmp_path / "quiz_labels.json")["note"] == "clear"
        # What was typed stands there yet.
        assert await one.eval("document.querySelector('.label [name=note]').value") == "not so"
        await one.eval("document.querySelector('form.label').requestSubmit()")
        await one.until(f"{state} === 'stored'")
        assert _stored(tmp_path / "quiz_labels.json")["note"] == "not so"
        # Who has left the rollout is told, too.
        await other.eval("window.alert = (text) => { window.told = text }")
        await other.fill(".label [name=note]", "a long thought")
        await to(other, "#/run/quiz/rollouts", "window.told")
        assert "changed this note to “not so”" in (told := await other.eval("window.told"))
        assert "a long thought" in told
        assert _stored(tmp_path / "quiz_labels.json")["note"] == "not so"
        # The browser itself reports the refused requests.
        assert all("409" in problem for page in (one, other) for problem in page.problems)


def _stored(path: Path) -> dict[str, str]:
    (stored,) = json.loads(path.read_text()).values()
    return stored
