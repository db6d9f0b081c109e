"""Traces in MLflow, whose server receives OTLP: what it understands of them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
from gym_runtime import connect
from gym_runtime.messages.outcomes import Completed
from gym_runtime.workers.adapter import ModelSettings
from stubs import stub_engine

MLFLOW = os.environ.get("MLFLOW_COMMAND", "")
NAME = "example_single_tool_call"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.anyio,
    pytest.mark.timeout(240),
    pytest.mark.skipif(
        not MLFLOW, reason="set MLFLOW_COMMAND to the path of 'mlflow', in its own environment"
    ),
]


@asynccontextmanager
async def server(folder: Path) -> AsyncGenerator[str]:
    """MLflow's server; yields its address."""
    url = "http://127.0.0.1:15999"
    command = [MLFLOW, "server", "--port", "15999", "--workers", "1"]
    store = ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder)]
    variables = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"}
    async with await anyio.open_process(
        [*command, *store], cwd=folder, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            async with aiohttp.ClientSession() as session:
                while True:
                    assert process.returncode is None, "MLflow's server has ended"
                    try:
                        async with session.get(f"{url}/health") as answer:
                            if answer.status == 200:
                                break
                    except aiohttp.ClientError:
                        await anyio.sleep(0.5)
            yield url
        finally:
            process.terminate()
            with anyio.CancelScope(shield=True):
                await process.wait()


async def test_mlflow_reads_our_traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with server(tmp_path) as url:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{url}/v1/traces")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "x-mlflow-experiment-id=0")
        with stub_engine.running() as engine:
            model = ModelSettings(provider="openai", name="stub", urls=(engine.url,), api="responses")
            async with connect(model=model, environments=[NAME]) as gym:
                row = {"responses_create_params": {"input": "go"}}
                [record] = [record async for record in gym.rollouts([row], environment=NAME)]
        assert isinstance(record.outcome, Completed)
        found: list[dict[str, Any]] = []
        async with aiohttp.ClientSession() as session:
            wanted = {
                "locations": [{"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": "0"}}],
                "max_results": 10,
            }
            with anyio.fail_after(60):
                while not found:
                    async with session.post(f"{url}/api/3.0/mlflow/traces/search", json=wanted) as answer:
                        assert answer.status == 200, await answer.text()
                        found = (await answer.json()).get("traces", [])
                    await anyio.sleep(0.5)
        [trace] = found
        about = trace["trace_metadata"]
        assert trace["state"] == "OK"
        assert about["mlflow.trace.session"] == record.rollout_id
        used = json.loads(about["mlflow.trace.tokenUsage"])
        assert used["total_tokens"] == record.numbers["total_tokens"] > 0
