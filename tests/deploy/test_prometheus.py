"""The dashboard and the rules: every query of them answers in Prometheus on the metrics of a real system."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
from anyio.streams.text import TextReceiveStream
from gym_runtime import connect
from gym_runtime.client import make_pools
from gym_runtime.messages.metric_names import METRICS, prometheus_name
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import running
from gym_runtime.workers.adapter import ModelSettings
from gym_view.metrics.metrics_server import serving
from msgspec.structs import replace
from ports import free_port
from stubs import stub_engine

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
DASHBOARD = DEPLOY / "grafana" / "gym-runtime.json"
RULES = DEPLOY / "prometheus" / "rules.yml"
SCHEMA = ("@grafana/schema@13", "typescript@5")
ENVIRONMENT = str(Path(__file__).with_name("judged_counter.py"))
needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="Prometheus is not installed: apt-get install prometheus",
)


NOT_HERE = ("Tokens B", "Alarms of rewards A")
"""No token is sampled twice in this system, and no reward is doubted."""


def dashboard() -> dict[str, Any]:
    return json.loads(DASHBOARD.read_text())


def panel_queries() -> dict[str, str]:
    """The queries of all panels, as Prometheus gets them from Grafana."""
    return {
        f"{panel['title']} {target['refId']}": target["expr"]
        .replace("$environment", ".*")
        .replace("$__rate_interval", "10s")
        .replace("$__range", "1m")
        for panel in dashboard()["panels"]
        for target in panel.get("targets", ())
    }


def rule_queries() -> dict[str, str]:
    """Recorded expressions; and of alerts what is compared with a limit, since no alert should fire."""
    found: dict[str, str] = {}
    for name, expression in re.findall(
        r"- (?:record|alert): (\S+)\n\s+expr: (?:>-\n)?((?:.+\n)(?:\s{10,}.+\n)*)", RULES.read_text()
    ):
        text = " ".join(expression.split()).replace("[5m]", "[10s]").replace("[15m]", "[10s]")
        text = text.replace(" offset 15m", "")
        if not name.startswith("gym:"):
            for place, part in enumerate(re.split(r" (?:and|unless) on \(\) ", text)):
                found[f"{name} {place}"] = re.sub(r" [<>] [\d.]+$", "", part)
        else:
            found[name] = text
    return found


def test_queries_name_metrics_that_exist() -> None:
    known = {prometheus_name(metric) for metric in METRICS}
    histograms = {prometheus_name(metric) for metric in METRICS if metric.kind == "histogram"}
    known |= {f"{name}_{end}" for name in histograms for end in ("bucket", "count", "sum")} - histograms
    labels = {label.replace(".", "_") for metric in METRICS for label in metric.labels}
    recorded = set(re.findall(r"record: (\S+)", RULES.read_text()))
    queries = {**panel_queries(), **rule_queries()}
    assert len(queries) > 40
    for name, query in queries.items():
        used = set(re.findall(r"\b(?:gym|gen_ai)[a-z_:\d]*", re.sub(r'"[^"]*"', "", query)))
        assert used <= known | labels | recorded, name


def test_every_metric_is_on_the_dashboard() -> None:
    text = " ".join(panel_queries().values())
    assert not [name for metric in METRICS if (name := prometheus_name(metric)) not in text]


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    panels = dashboard()["panels"]
    for panel in panels:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in panels}) == len(panels)


@needs_prometheus
def test_prometheus_accepts_its_files_and_the_alerts_fire() -> None:
    for arguments in (["check", "config", "prometheus.yml"], ["test", "rules", "rules_test.yml"]):
        done = subprocess.run(
            ["promtool", *arguments], cwd=DEPLOY / "prometheus", capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="Grafana's schema is checked with npm and TypeScript")
def test_grafanas_schema_takes_the_dashboard_and_no_other(tmp_path: Path) -> None:
    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    (tmp_path / "package.json").write_text("{}")
    installed = run("npm", "install", "--no-audit", "--no-fund", *SCHEMA)
    if installed.returncode:
        pytest.skip(f"npm cannot install {', '.join(SCHEMA)}: {installed.stderr[-200:]}")
    right = dashboard()
    for name, checked in {"right": right, "wrong": {**right, "panelz": []}}.items():
        text = f"export const made = {json.dumps(checked, indent=1)} satisfies Dashboard;"
        (tmp_path / f"{name}.ts").write_text(f'import type {{ Dashboard }} from "@grafana/schema";\n{text}\n')
    options = (
        "--strict",
        "--noEmit",
        "--skipLibCheck",
        "--moduleResolution",
        "bundler",
        "--module",
        "esnext",
    )
    passed = run("npx", "tsc", *options, "right.ts")
    assert passed.returncode == 0, passed.stdout
    assert "panelz" in run("npx", "tsc", *options, "wrong.ts").stdout


@asynccontextmanager
async def prometheus(folder: Path, target: str) -> AsyncGenerator[str]:
    """Debian's Prometheus with our files, made quicker; yields its address."""
    text = (DEPLOY / "prometheus" / "prometheus.yml").read_text()
    text = text.replace("10s", "1s").replace("127.0.0.1:9464", target)
    (folder / "prometheus.yml").write_text(text)
    (folder / "rules.yml").write_text(RULES.read_text().replace("[5m]", "[10s]").replace("[15m]", "[10s]"))
    files = ("--config.file", str(folder / "prometheus.yml"), "--storage.tsdb.path", str(folder / "data"))
    address = f"127.0.0.1:{free_port()}"
    command = ["prometheus", *files, "--web.listen-address", address]
    async with await anyio.open_process(command, stdout=None) as process:
        assert process.stderr is not None
        lines = TextReceiveStream(process.stderr)
        said = ""
        while "Server is ready" not in said:
            said += await lines.receive()
        try:
            async with anyio.create_task_group() as tasks:

                async def read() -> None:
                    async for _ in lines:
                        pass

                tasks.start_soon(read)
                yield f"http://{address}"
                tasks.cancel_scope.cancel()
        finally:
            process.terminate()
            with anyio.CancelScope(shield=True):
                await process.wait()


@needs_prometheus
@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.timeout(180)
async def test_every_query_answers_on_a_real_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with stub_engine.running("--latency-s", "0.01", "--fault", "503=0.05") as engine:
        monkeypatch.setenv("GYM_COUNTING_URL", engine.url.removesuffix("/v1"))
        model = ModelSettings(provider="openai", name="stub", urls=(engine.url,), api="responses")
        # So few calls fit that some are refused.
        pools = [
            replace(pool, capacity=4) if pool.kind == "model" else pool
            for pool in make_pools([ENVIRONMENT], model, concurrency=32, roles={"judge": model})
        ]
        async with (
            running(SystemSpec(pools=tuple(pools))) as system,
            connect(nats=system.url) as gym,
            serving(gym.driver.bus) as url,
            prometheus(tmp_path, url.split("/")[2]) as address,
            aiohttp.ClientSession() as session,
        ):
            rows = [
                {"responses_create_params": {"input": "go"}, "number": number} for number in range(20_000)
            ]
            settings: dict[str, Any] = {"roles": {"judge": "judge"}, "max_attempts": 2, "repeats": 2}
            silent = {**panel_queries(), **rule_queries()}
            for name in NOT_HERE:
                del silent[name]

            async def answers(query: str) -> bool:
                async with session.get(f"{address}/api/v1/query", params={"query": query}) as answer:
                    said = await answer.json()
                assert said["status"] == "success", said
                return any(series["value"][1] != "NaN" for series in said["data"]["result"])

            with anyio.move_on_after(90):
                async with anyio.create_task_group() as tasks:

                    async def make() -> None:
                        async for _ in gym.rollouts(rows, environment=ENVIRONMENT, in_flight=64, **settings):
                            pass

                    tasks.start_soon(make)
                    while silent:
                        await anyio.sleep(2)
                        for name, query in list(silent.items()):
                            if await answers(query):
                                del silent[name]
                    tasks.cancel_scope.cancel()
    assert not silent
