"""The comparison of a group goes on where its worker or its client died, and no judge is paid twice.

Real systems; the engine is a real HTTP server in this process, policy and judge in one, which counts what it
is asked and answers the judge's questions from a certain one on only when it is told to.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import psutil
import pytest
from aiohttp import web
from gym_runtime import connect
from gym_runtime.client import make_pools
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import running
from gym_runtime.workers.adapter import ModelSettings
from running import runs
from time_limits import busy

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(120)]

REPEATS = 6
ANSWERED = 4
ROW = {"responses_create_params": {"input": [{"role": "user", "content": "Say something."}]}}
SCORES = '{"score_1": 4, "score_2": 2, "ranking": 2}'


class Engine:
    """Says something else each time; as a judge it prefers the first answer.

    Attributes:
        answered: how often each question to the judge was answered.
        replies: how many answers the policy has given.
        release: questions after the first `ANSWERED` wait for it.
        held: set when a question waits.
    """

    def __init__(self) -> None:
        self.answered: Counter[str] = Counter()
        self.replies = 0
        self.url = ""
        self.release = anyio.Event()
        self.held = anyio.Event()

    async def respond(self, request: web.Request) -> web.Response:
        asked = json.dumps((await request.json())["input"])
        if "Two assistants" in asked:
            if sum(self.answered.values()) >= ANSWERED and not self.release.is_set():
                self.held.set()
                await self.release.wait()
            self.answered[asked] += 1
            text = SCORES
        else:
            self.replies += 1
            text = f"answer {self.replies}"
        content = [{"type": "output_text", "text": text, "annotations": []}]
        item = {"type": "message", "id": "m", "role": "assistant", "content": content}
        body = {"id": "r", "object": "response", "model": "m", "status": "completed", "output": [item]}
        return web.json_response(body)


@asynccontextmanager
async def engine() -> AsyncGenerator[Engine]:
    found = Engine()
    app = web.Application()
    app.router.add_post("/v1/responses", found.respond)
    runner = web.AppRunner(app, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    found.url = f"http://{host}:{port}/v1"
    try:
        yield found
    finally:
        found.release.set()
        await runner.cleanup()


def broker_url(state: Path) -> str:
    """Where the broker of a run with this state directory listens."""
    password = re.findall(r'password: "(.*?)"', (state / "broker.conf").read_text())[0]
    (ports,) = (state / "ports").glob("*.ports")
    address = urlsplit(json.loads(ports.read_bytes())["nats"][0])
    return f"nats://gym:{password}@127.0.0.1:{address.port}"


@pytest.mark.parametrize("kind", ["resource", "agent"])
async def test_a_worker_that_is_killed_in_a_comparison_pays_the_judge_once(kind: str) -> None:
    """Two clients follow the run; both get every reward of the one comparison, each once."""
    async with engine() as both:
        model = ModelSettings(provider="openai", name="m", urls=(both.url,), api="responses")
        pools = make_pools(["genrm_compare"], model, concurrency=8)
        records: list[RolloutRecord] = []
        followed: list[RolloutRecord] = []
        async with running(SystemSpec(pools=pools)) as system, connect(system.url) as gym:

            async def run() -> None:
                made = gym.rollouts(
                    [ROW], environment="genrm_compare", repeats=REPEATS, roles={"genrm": "policy"}
                )
                records.extend([record async for record in made])

            async def follow(name: str, connected: anyio.Event) -> None:
                async with connect(system.url) as another:
                    connected.set()
                    followed.extend([record async for record in another.collect(name)])

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                await both.held.wait()
                (run_info,) = await gym.runs()
                connected = anyio.Event()
                tasks.start_soon(follow, run_info.run, connected)
                await connected.wait()
                while len(await gym.driver.bus.latest(f"journal.{run_info.run}.0.0.-1.role.*")) < ANSWERED:
                    await anyio.sleep(0.02)
                (pid,) = [worker.pid for worker in await gym.workers() if worker.kind == kind]
                os.kill(pid, signal.SIGKILL)
                both.release.set()
    for found in (records, followed):
        assert [(record.rollout_index, record.reward) for record in found] == [
            (index, 3.0) for index in range(REPEATS)
        ]
    assert both.replies == REPEATS
    assert len(both.answered) == REPEATS
    # What was journaled is not asked for again; what was on its way may be.
    assert sum(count == 1 for count in both.answered.values()) >= ANSWERED
    assert sum(record.roles["genrm"].calls for record in records if record.roles) == REPEATS


async def test_a_run_that_is_killed_in_a_comparison_is_resumed_with_it(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps(ROW) + "\n")

    def command(both: Engine, *more: str) -> subprocess.Popen[bytes]:
        arguments = [
            *(sys.executable, "-m", "gym_runtime.cli.main", "run", "genrm_compare", "-i", str(rows)),
            *("-o", str(tmp_path / "out.jsonl"), "--repeats", str(REPEATS)),
            *("--model", "openai/m", "--model-url", both.url, "--model-api", "responses"),
            *("--role", "genrm=openai/m", "--role-url", f"genrm={both.url}"),
            *("--state-dir", str(tmp_path / "state"), *more),
        ]
        environment = {name: value for name, value in os.environ.items() if name != "GYM_NATS_URL"}
        return subprocess.Popen(arguments, env=environment)

    def lines() -> list[dict[str, Any]]:
        return [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]

    async with engine() as both:
        first = command(both)
        with anyio.fail_after(60 * busy()):
            await both.held.wait()
        async with connect(broker_url(tmp_path / "state")) as gym:
            while len(await gym.driver.bus.latest("journal.*.0.0.-1.role.*")) < ANSWERED:
                await anyio.sleep(0.02)
        family = psutil.Process(first.pid).children(recursive=True)
        first.kill()
        await anyio.to_thread.run_sync(first.wait)
        assert lines() == []
        while any(map(runs, family)):  # the workers and the broker end by themselves
            await anyio.sleep(0.05)
        both.release.set()
        second = command(both, "--resume")
        assert await anyio.to_thread.run_sync(second.wait) == 0
    assert [(row["_ng_rollout_index"], row["reward"]) for row in lines()] == [
        (index, 3.0) for index in range(REPEATS)
    ]
    assert both.replies == REPEATS
    assert sum(count == 1 for count in both.answered.values()) >= ANSWERED
