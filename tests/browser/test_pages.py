"""Every page in real Chromium: what it shows, that it complains of nothing, and that all can use it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from browser.chromium import Chromium, Page
from gym_runtime.client import Client, connect
from gym_signal import Posterior, Seen, standings
from gym_signal.stored import StoredCurriculum
from gym_view.live import Reading
from gym_view.state_json import full_status
from gym_view.vocabulary import Vocabulary
from gym_view.web_server import serve

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(120)]

AXE = Path(__file__).parents[2] / "viewer-page" / "node_modules" / "axe-core" / "axe.min.js"
PAGES = {
    "runs": ("#/", "document.querySelectorAll('.runs tbody .reward').length >= 4"),
    "run": ("#/run/quiz-a", "document.querySelectorAll('.chart').length >= 8"),
    "run of failures": ("#/run/late", "document.querySelectorAll('.chart').length >= 8"),
    "rollouts": ("#/run/quiz-a/rollouts", "document.querySelectorAll('.line-at').length > 5"),
    "rollout": ("#/run/quiz-a/rollouts/0.0", "document.querySelector('.verdict .value')"),
    "rollout with tools": ("#/run/office/rollouts/0.0", "document.querySelector('.item.output')"),
    "rollout with a user": ("#/run/desk/rollouts/0.0", "document.querySelector('.asked .value')"),
    "rollout with a judge": ("#/run/judged/rollouts/0.0", "document.querySelector('.asked .value')"),
    "roles in time": ("#/run/desk/rollouts/0.0?tab=timeline", "document.querySelector('.timeline .role')"),
    "failed rollout": ("#/run/late/rollouts/0.0", "document.querySelector('.reason.bad')"),
    "tokens": ("#/run/quiz-a/rollouts/0.0?tab=tokens", "document.querySelector('.stream .token')"),
    "timeline": ("#/run/quiz-a/rollouts/0.0?tab=timeline", "document.querySelector('#panel p')"),
    "row": ("#/run/quiz-a/rollouts/0.0?tab=row", "document.querySelector('.raw pre')"),
    "tasks": ("#/run/quiz-a/tasks", "document.querySelectorAll('.dots .dot').length > 10"),
    "tasks as a heat map": ("#/run/quiz-a/tasks?as=map", "document.querySelectorAll('.cell.h5').length > 5"),
    "task": (
        "#/run/quiz-a/tasks?task=0&of=mcqa&pair=0.0~0.1",
        "document.querySelectorAll('.answer').length === 4 && document.querySelector('.different')",
    ),
    "failures": ("#/run/late/failures", "document.querySelector('.failures td')"),
    "no failures": ("#/run/quiz-a/failures", "document.querySelector('.failures h1')"),
    "compare": ("#/compare?a=quiz-a&b=quiz-b", "document.querySelectorAll('.pairs-grid.row').length === 10"),
    "pair": ("#/compare?a=quiz-a&b=quiz-b&task=1~mcqa", "document.querySelectorAll('.two .item').length > 3"),
    "board": (
        "#/board?runs=quiz-a,quiz-b,office",
        "document.querySelector('.board td a small') && document.querySelectorAll('.board .cell').length > 9",
    ),
    "no run": ("#/run/x", "document.querySelector('main.note')"),
}


@asynccontextmanager
async def opened(
    chromium: Chromium, *places: Path, vocabulary: Vocabulary | None = None, **options: Any
) -> AsyncIterator[Page]:
    """The page of some runs; it may complain of nothing."""
    async with serve(places, vocabulary=vocabulary) as access, chromium.page(**options) as page:
        await page.goto(access.url)
        await page.until("document.querySelector('.runs td .reward')")
        assert "token" not in await page.eval("location.href")
        yield page
        assert page.problems == []


async def to(page: Page, address: str, ready: str) -> None:
    await page.eval(f"location.hash = {address!r}")
    await page.until(ready)


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (400, True)])
async def test_every_page_is_shown_and_accessible(
    width: int, dark: bool, chromium: Chromium, runs: Path
) -> None:
    found: list[str] = []
    async with opened(chromium, runs, width=width, dark=dark) as page:
        for name, (address, ready) in PAGES.items():
            await to(page, address, ready)
            scrolled = await page.eval("document.documentElement.scrollWidth - innerWidth")
            assert scrolled <= 0, f"{name} is wider than {width} pixels"
            if AXE.is_file():
                await page.eval("window.axe ?? " + AXE.read_text() + "; 0")
                for rule in await page.eval("axe.run().then((all) => all.violations)"):
                    where = [node["html"][:160] for node in rule["nodes"][:2]]
                    found.append(f"{name}: {rule['id']} {where}")
    assert found == []
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: npm install in viewer-page")


async def test_each_page_has_a_title(chromium: Chromium, runs: Path) -> None:
    titles = {
        "runs": "Runs",
        "run": "quiz-a",
        "rollouts": "quiz-a rollouts",
        "rollout": "quiz-a rollouts 0.0",
        "failures": "late failures",
        "compare": "Compare",
        "board": "Runs compared",
    }
    async with opened(chromium, runs) as page:
        for name, title in titles.items():
            await to(page, *PAGES[name])
            await page.until(f"document.title === '{title} · gym-runtime'")


async def test_text_of_a_model_stays_text(chromium: Chromium, runs: Path) -> None:
    texts = [json.loads(line) for line in (runs / "quiz-a.jsonl").read_bytes().splitlines()]
    assert any("<script>" in json.dumps(row["response"]["output"]) for row in texts)
    async with opened(chromium, runs) as page:
        for tab in ("", "row", "tokens"):
            for row in texts:
                name = f"{row['_ng_task_index']}.{row['_ng_rollout_index']}"
                ready = "document.querySelector('#panel')?.innerText.length > 20"
                await to(page, f"#/run/quiz-a/rollouts/{name}?tab={tab}", ready)
        said = (
            "document.querySelector('.item.assistant')?.innerText.includes('<script>window.ran = 1</script>')"
        )
        await to(page, "#/run/quiz-a/rollouts/0.0", "document.querySelector('.verdict')")
        for _ in range(40):
            if await page.eval(said):
                break
            await page.press("j")
            await asyncio.sleep(0.05)
        assert await page.eval(said)
        assert await page.eval("window.ran === undefined")
        assert await page.eval("document.querySelectorAll('#app script, #app img, #app b').length") == 0


async def test_the_verdict_says_why(chromium: Chromium, runs: Path) -> None:
    async with opened(chromium, runs) as page:
        await to(page, "#/run/quiz-a/rollouts/0.0", "document.querySelector('.verdict .value')")
        said = await page.text(".verdict")
        assert "Found in the answer" in said
        assert "extracted_answer" in said
        assert "Expected" in said
        await to(page, "#/run/late/rollouts/0.0", "document.querySelector('.reason.bad')")
        said = await page.text(".verdict")
        assert "Failed: deadline" in said
        # The rollout's clock and the one of its request to the model end at the same moment.
        assert "longer than" in said or "the deadline passed" in said


async def test_a_fork_leads_to_the_rollout_that_it_forks(chromium: Chromium, tmp_path: Path) -> None:
    row = {"_ng_task_index": 0, "_ng_rollout_index": 1, "reward": 1.0, "response": {"output": []}}
    fork = {"rollout_id": "r-1.0.1", "rollout_index": 1, "turn": 2, "changed": ["<b>"], "differed": []}
    (tmp_path / "stored.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "stored_run.json").write_text(json.dumps({"run": "r-1"}))
    (tmp_path / "forks.jsonl").write_text(json.dumps({**row, "_gym": {"fork": fork}}) + "\n")
    async with opened(chromium, tmp_path) as page:
        await to(page, "#/run/forks/rollouts/0.1", "document.querySelector('.verdict .fork a')")
        assert await page.text(".fork") == "begins with 2 turns of stored 0.1, another <b>"
        await page.click(".fork a")
        await page.until("location.hash.startsWith('#/run/stored/rollouts/0.1')")


async def test_what_roles_were_asked_is_beside_the_reward(chromium: Chromium, runs: Path) -> None:
    async with opened(chromium, runs) as page:
        await to(page, *PAGES["rollout with a judge"])
        said = await page.text(".verdict")
        assert "judge" in await page.text(".asked h2")
        assert "A=B" in await page.text(".asked .tag")
        assert "Both say the same." in said
        assert "was asked" in said
        assert "[[A=B]]" in await page.text(".asked .pair")
        await to(page, *PAGES["rollout with a user"])
        # What it said is in the transcript, but for the sign with which it ended the conversation.
        said = await page.text(".verdict")
        assert "It is done" in said
        assert "###STOP###" in said
        assert "My lamp should go elsewhere" not in said
        turns = "[...document.querySelectorAll('.turn')].map((e) => e.innerText)"
        assert await page.eval(turns) == ["Turn 1", "Turn 2", "Turn 3"]
        await to(page, *PAGES["roles in time"])
        names = "[...document.querySelectorAll('.timeline .name')].map((e) => e.innerText)"
        lanes = await page.eval(names)
        assert [name for name in lanes if name != "Queue"] == ["user begins", *turns_of(3), "Verify"]
        await to(page, "#/run/judged/rollouts/0.0?tab=timeline", "document.querySelector('.timeline')")
        lane = await page.eval("[...document.querySelectorAll('.timeline li')].at(-1).innerText")
        assert "Verify" in lane
        assert "judge" in lane
        assert await page.eval("document.querySelectorAll('.timeline .track .role').length") == 1


def turns_of(count: int) -> list[str]:
    return [f"Turn {number}" for number in range(1, count + 1)]


async def test_the_card_is_never_wider_than_its_panel(chromium: Chromium, tmp_path: Path) -> None:
    long = "W" * 500
    row = {
        "responses_create_params": {"input": long},
        "response": {
            "output": [{"content": long, "generation_token_ids": [1, 2], "weight_versions": [long]}],
            "model": long,
            "incomplete_details": {"reason": long},
        },
        "reward": 0.5,
        "reward_components": {long: 0.123456789},
        "agent_ref": {"name": long},
        "extracted_answer": None,
        "predicted_" + long: long,
        "expected_answer": long,
        "judge_evaluations": [{"response": {"output": [{"content": long}]}, "verdict_label": long}],
        "critique": long,
        "other_" + long[:100]: long[:150],
        "_gym": {
            "outcome": {"type": "completed"},
            "attempt": 2,
            "started_anew": [long],
            "role_answers": [{"role": long, "digest": "d", "question": long, "response": {}}],
            "roles": {long: {"calls": 3, "seconds": 9}},
            "timing": {
                "turns": [{"model_s": 1, "tool_s": 2, "tool_roles_s": {long: 3}, "roles_s": {long: 1}}],
                "roles_s": {long: 1},
            },
        },
    }
    (tmp_path / "wide.jsonl").write_text(json.dumps(row) + "\n")
    for width in (1280, 1000, 400):
        async with opened(chromium, tmp_path, width=width) as page:
            await to(page, "#/run/wide/rollouts/0.0", "document.querySelector('.verdict .value')")
            await page.eval("document.querySelectorAll('details').forEach((e) => (e.open = true))")
            wide = await page.eval(
                "[...document.querySelectorAll('.right, .verdict, .why, .why > *, .heading')]"
                ".filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.className)"
            )
            assert wide == [], width
            assert "found: nothing" in await page.text(".verdict")
            for tab, ready in (("timeline", ".timeline li"), ("tokens", ".stream .token")):
                await to(page, f"#/run/wide/rollouts/0.0?tab={tab}", f"document.querySelector('{ready}')")
                beyond = (
                    "[...document.querySelectorAll('#panel *')].filter((e) => e.clientWidth "
                    "&& e.scrollWidth > e.clientWidth + 1).map((e) => e.className)"
                )
                assert await page.eval(beyond) == [], (tab, width)


async def test_the_filter_is_in_the_address_and_keys_go_from_row_to_row(
    chromium: Chromium, runs: Path
) -> None:
    async with opened(chromium, runs) as page:
        await to(page, "#/run/quiz-a/rollouts", "document.querySelectorAll('.line-at').length > 5")
        await page.press("/")
        await page.until("document.activeElement.id === 'query'")
        await page.fill("#query", "env=mcqa reward=1")
        await page.until("Number(document.querySelector('.under strong').innerText) < 20")
        assert "q=env%3Dmcqa+reward%3D1" in await page.eval("location.hash")
        kept = await page.text(".under strong")
        await page.press("Escape")
        await page.press("j")
        await page.until("document.querySelector('.row.chosen')")
        first = await page.eval("location.hash")
        await page.press("j")
        await page.until(f"location.hash !== {first!r}")
        await page.press("k")
        await page.until(f"location.hash === {first!r}")
        await page.press("n")
        await page.until(f"location.hash !== {first!r}")
        await page.press("?")
        await page.until("document.querySelector('.help')")
        await page.press("Escape")
        await page.until("!document.querySelector('.help')")
        await page.fill("#query", "rewrd=1")
        await page.until("document.querySelector('.under').innerText.includes('no field')")
        await page.fill("#query", '"Only B fits."')
        await page.until("document.querySelector('.under').innerText.match(/^(\\d+) of 40/)?.[1] > 0")
        assert kept


async def test_a_bar_leads_to_its_rollouts(chromium: Chromium, runs: Path) -> None:
    async with opened(chromium, runs) as page:
        await to(page, "#/run/quiz-a", "document.querySelectorAll('.chart').length >= 8")
        title = await page.eval("document.querySelectorAll('.chart')[1].querySelector('.bar').title")
        await page.eval("document.querySelectorAll('.chart')[1].querySelector('.bar').click()")
        await page.until("document.querySelector('.under strong')")
        assert title.endswith(f"{await page.text('.under strong')} rollouts")


async def test_compare_has_the_figures_of_the_command(chromium: Chromium, runs: Path) -> None:
    command = [sys.executable, "-m", "gym_runtime.cli.main", "compare", "--json"]
    files = [str(runs / f"quiz-{name}.jsonl") for name in "ab"]
    done = subprocess.run([*command, *files], capture_output=True, check=True)  # noqa: ASYNC221
    result = json.loads(done.stdout)["comparison"]
    async with opened(chromium, runs) as page:
        await to(page, *PAGES["compare"])
        said = await page.text(".verdict-two")
        assert f"{result['wins']} better · {result['ties']} equal · {result['losses']} worse" in said
        shown = [f"{result[name]:.4g}" for name in ("difference", "low", "high")]
        for number in shown:
            assert number in said
        await page.click(".pairs-grid.row a.name")
        await page.until("document.querySelectorAll('.marked').length === 2")


async def test_more_than_two_runs_are_compared(chromium: Chromium, runs: Path) -> None:
    async with opened(chromium, runs) as page:
        await page.until("document.querySelectorAll('.runs td .reward').length === 6")
        for name in ("quiz-a", "quiz-b", "office"):
            await page.eval(f"document.querySelector('[aria-label=\"Compare {name}\"]').click()")
        await page.until("document.querySelector('a.button')?.innerText === 'Compare 3 runs'")
        await page.click("a.button")
        await page.until("document.querySelectorAll('.board tbody tr').length === 3")
        # Each of the others is compared with the first by itself, so one answer comes before the other.
        await page.until("!document.querySelector('.board tbody').innerText.includes('…')")
        assert " to " in await page.text(".board td a small")
        said = await page.text(".board table")
        assert "no task in common" in said
        assert "±" in said
        # From the first to the last that was started.
        names = "[...document.querySelectorAll('.board td .name')].map((e) => e.innerText)"
        assert await page.eval(names) == ["quiz-a", "quiz-b", "office"]
        assert await page.eval("document.querySelectorAll('.board .error-bar').length > 1")


async def test_a_growing_run_is_followed(chromium: Chromium, tmp_path: Path) -> None:
    def row(number: int) -> bytes:
        fields = {"response": {"id": f"r{number}", "output": []}, "reward": 1.0, "_ng_task_index": number}
        return json.dumps({"responses_create_params": {"input": "x"}, **fields}).encode() + b"\n"

    path = tmp_path / "live.jsonl"
    path.write_bytes(row(0))
    async with opened(chromium, path) as page:
        await to(page, "#/run/live/rollouts", "document.querySelector('.under strong')?.innerText === '1'")
        with path.open("ab") as file:
            file.write(row(1) + row(2))
        await page.until("document.querySelector('.under strong').innerText === '3'")
        path.write_bytes(row(7))
        await page.until("document.querySelector('.under strong').innerText === '1'")
        assert "7" in await page.text(".grid.row .c-task")


async def test_hostile_rows_break_nothing(chromium: Chromium, tmp_path: Path) -> None:
    def row(number: int, **changes: Any) -> bytes:
        fields = {"responses_create_params": {"input": "x"}, "reward": 1.0, "_ng_task_index": number}
        return json.dumps({**fields, "response": {"id": f"r{number}", "output": []}, **changes}).encode()

    strange: list[dict[str, Any]] = [
        {"response": None, "_gym": 3, "agent_ref": "x"},
        {"response": {"id": "r", "output": [None, 3, "x", {"type": "message", "content": 7}, {"type": []}]}},
        {"responses_create_params": [], "reward": "high", "reward_components": [1]},
        {"response": {"output": [{"type": "function_call_output", "output": {"error": ["a"]}}]}},
        {"judge_evaluations": [None, {"response": {"output": 3}}], "expected_answer": {"a": [1]}},
        {"_gym": {"outcome": "completed", "started_anew": "x", "timing": {"turns": [None, 3]}}},
    ]
    lines = [row(0), b"no json <script>window.ran = 1</script>", b"[1]"]
    lines += [row(number, **changes) for number, changes in enumerate(strange, 10)]
    big = [{"type": "message", "role": "assistant", "content": "x" * 50_000_000}]
    lines += [row(99, response={"id": "big", "output": big})]
    path = tmp_path / "hostile.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n" + row(100)[:-9])
    async with opened(chromium, path) as page:
        await page.until("document.querySelector('.runs')?.innerText.includes('hostile')")
        await to(page, "#/run/hostile/rollouts", "document.querySelectorAll('.line-at').length === 10")
        # Rows are shown while the file's end is still looked at.
        await page.until("document.querySelector('.banner')?.innerText.includes('an incomplete row')")
        await to(page, "#/run/hostile/rollouts/@1", "document.querySelector('.broken')")
        assert "not JSON" in await page.text(".broken")
        assert "no json <script>" in await page.text(".raw")
        await to(page, "#/run/hostile/rollouts/@2", "document.querySelector('.broken')")
        for number in range(len(strange)):
            for tab in ("", "timeline", "tokens", "row"):
                name = f"{number + 10}.0"
                ready = f"document.querySelector('.heading h1').innerText.includes('{number + 10}')"
                await to(page, f"#/run/hostile/rollouts/{name}?tab={tab}", ready)
                await page.until("document.querySelector('#panel')")
        await to(page, "#/run/hostile/rollouts/99.0", "document.querySelector('.broken button')")
        assert "This row is large: 50 MB" in await page.text(".broken")
        await page.click(".broken button")
        await page.until("document.querySelector('.item.assistant .more')", 30)
        assert len(await page.text(".item.assistant")) < 10_000
        assert await page.eval("window.ran === undefined")


async def test_an_export_works_on_any_host_and_as_one_file(
    chromium: Chromium, runs: Path, tmp_path: Path
) -> None:
    for name in ("site", "page.html"):
        command = [sys.executable, "-m", "gym_runtime.cli.main", "view", str(runs), "--export"]
        subprocess.run([*command, str(tmp_path / name)], check=True, capture_output=True)  # noqa: ASYNC221
    host = await asyncio.create_subprocess_exec(
        sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory",
        str(tmp_path / "site"), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert host.stdout is not None
        line = (await host.stdout.readline()).decode()
        address = line[line.index("(") + 1 : line.index(")")]
        for url in (address, (tmp_path / "page.html").as_uri()):
            async with chromium.page() as page:
                await page.goto(url)
                await page.until("document.querySelectorAll('.runs td .reward').length === 6")
                for name in (
                    "run",
                    "rollout",
                    "rollout with tools",
                    "failures",
                    "compare",
                    "pair",
                    "board",
                    "tasks as a heat map",
                ):
                    await to(page, *PAGES[name])
                await to(page, "#/run/quiz-a/rollouts", "document.querySelectorAll('.line-at').length > 5")
                await page.fill("#query", '"Only B fits."')
                await page.until("document.querySelector('.under').innerText.match(/^(\\d+) of 40/)?.[1] > 0")
                assert page.problems == []
    finally:
        host.terminate()
        await host.wait()


async def test_the_running_system(chromium: Chromium, tmp_path: Path) -> None:
    async with (
        connect(model="scripted/echo", environments=["mcqa"]) as gym,
        serve([tmp_path], system=lambda: _state(gym)) as access,
        chromium.page() as page,
    ):
        stored = StoredCurriculum(Posterior(5), gym.driver.bus, "exp-12")
        for task, rewards in enumerate(([1.0] * 8, [0.0, 1.0] * 4, [0.0] * 8)):
            stored.observe(Seen(task=task, rewards=rewards))
            await stored.store(whole=task == 1)
        await page.goto(access.url)
        await page.until("document.querySelector('h1')?.innerText === 'No runs yet'")
        await page.click(".top a[href='#/system']")
        await page.until("document.querySelectorAll('.system tbody tr').length === 6")
        said = await page.text(".system")
        curriculum = "posterior, 5 tasks, 1 learned, 1 learning, 1 too hard, 2 not seen lately"
        for expected in ("agent", "model", "resource", "Nothing waits", "No run is active", curriculum):
            assert expected in said
        assert await page.eval("document.documentElement.scrollWidth <= innerWidth")
        assert page.problems == []


async def _state(gym: Client) -> dict[str, Any]:
    return full_status(Reading(0.0, await gym.status()), None, await standings(gym.driver.bus))


async def test_the_commands_that_repeat_a_rollout_work(
    chromium: Chromium, runs: Path, tmp_path: Path
) -> None:
    async with opened(chromium, runs) as page:
        shown = "[...document.querySelectorAll('.commands pre')].map((e) => e.textContent)"
        await to(page, "#/run/quiz-a/rollouts/0.1", "document.querySelector('.commands pre')")
        commands = await page.eval(shown)
        await to(page, "#/run/judged/rollouts/0.0", "document.querySelector('.asked')")
        again_judged = (await page.eval(shown))[1]
    assert "--judge" in again_judged or "--role=judge=scripted/" in again_judged
    assert "--role-sampling=judge.temperature=0" in again_judged
    commands.append(again_judged)
    for command in commands:
        ours = command.replace("gym-runtime", f"{sys.executable} -m gym_runtime.cli.main")
        done = await asyncio.create_subprocess_shell(
            ours, cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        said = (await done.communicate())[0].decode()
        assert done.returncode == 0, f"{command}\n{said}"
    again = [json.loads(line) for line in (tmp_path / "again-quiz-a-0-1.jsonl").read_bytes().splitlines()]
    assert [row["_ng_task_index"] for row in again] == [0]
    assert len((tmp_path / "judged-quiz-a-0-1.jsonl").read_bytes().splitlines()) == 1


async def test_a_fork_is_made_again(chromium: Chromium, runs: Path, tmp_path: Path) -> None:
    ours = f"{sys.executable} -m gym_runtime.cli.main"
    model, forks = "--model scripted/message", tmp_path / "forks.jsonl"
    fork = f"{ours} fork {runs / 'office.jsonl'}:0.0@1 {model} --output {forks}"
    subprocess.run(fork, shell=True, check=True, capture_output=True)  # noqa: ASYNC221
    async with opened(chromium, forks) as page:
        await to(page, "#/run/forks/rollouts/0.0", "document.querySelector('.verdict .fork')")
        again = await page.eval("document.querySelectorAll('.commands pre')[1].textContent")
    done = await asyncio.create_subprocess_shell(
        again.replace("gym-runtime", ours),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said = (await done.communicate())[0].decode()
    assert done.returncode == 0, said
    (row,) = (tmp_path / "again-forks-0-0.jsonl").read_bytes().splitlines()
    assert json.loads(row)["_gym"]["fork"]["turn"] == 1
