"""The text that Prometheus scrapes, the data that a collector gets, and the server of both."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp
import anyio
import pytest
from aiohttp import web
from gym_runtime.errors import UsageError
from gym_runtime.messages.metric_names import METRICS, Count, Distribution, Figures, prometheus_name
from gym_view.metrics import push
from gym_view.metrics.exposition import exposition
from gym_view.metrics.metrics_server import serving
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from prometheus_client.parser import text_string_to_metric_families
from runtime.client.running_client import NAME, running_client
from time_limits import busy

SOME = Figures(
    counts=[
        Count("gym.rollouts", ("mcqa", "completed", "", ""), 3),
        Count("gym.rollouts", ("mcqa", "failed", "ResourceError", "verify"), 1),
        Count("gym.worker.memory", ("agent",), 4096),
        Count("of.a.newer.version", ("x",), 1),
        Count("gym.requests.refused", ("model", "a label of a newer version"), 2),
    ],
    distributions=[Distribution("gym.rollout.reward", ("mcqa",), (1, 0, 2), 0.5)],
)


def samples(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_figures_become_samples() -> None:
    found = samples(exposition(SOME))
    labels = {"gym_environment": "mcqa", "gym_outcome": "failed", "error_type": "ResourceError"}
    assert found["gym_rollouts_total", tuple(sorted({**labels, "gym_stage": "verify"}.items()))] == 1
    assert found["gym_worker_memory_bytes", (("gym_worker_kind", "agent"),)] == 4096
    assert found["gym_requests_refused_total", (("gym_worker_kind", "model"),)] == 2
    buckets = {
        dict(labels)["le"]: value
        for (name, labels), value in found.items()
        if name == "gym_rollout_reward_bucket"
    }
    assert (buckets["0"], buckets["0.1"], buckets["0.25"], buckets["1"], buckets["+Inf"]) == (1, 1, 3, 3, 3)
    assert found["gym_rollout_reward_sum", (("gym_environment", "mcqa"),)] == 0.5
    assert found["gym_rollout_reward_count", (("gym_environment", "mcqa"),)] == 3


def test_every_metric_is_described() -> None:
    names = {prometheus_name(metric).removesuffix("_total") for metric in METRICS}
    families = list(text_string_to_metric_families(exposition(Figures()).decode()))
    assert {family.name for family in families} == names
    assert all(family.documentation for family in families)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
def test_prometheus_own_tool_accepts_the_text() -> None:
    done = subprocess.run(["promtool", "check", "metrics"], input=exposition(SOME), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


@pytest.fixture
async def pushed(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[list[dict[str, Any]]]:
    """What a collector gets, each time: the metrics by name."""
    arrived: list[dict[str, Any]] = []

    async def export(request: web.Request) -> web.Response:
        message = ExportMetricsServiceRequest()
        message.ParseFromString(await request.read())
        for resource in message.resource_metrics:
            for scope in resource.scope_metrics:
                arrived.append({metric.name: metric for metric in scope.metrics})
        return web.Response(content_type="application/x-protobuf")

    app = web.Application()
    app.router.add_post("/v1/metrics", export)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{runner.addresses[0][1]}")
    yield arrived
    await runner.cleanup()


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_system_is_served_and_pushed(
    pushed: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
    async with (
        running_client() as here,
        serving(here.gym.driver.bus) as url,
        aiohttp.ClientSession() as session,
    ):
        _ = [record async for record in here.rollouts(7)]
        labels = {"error_type": "", "gym_environment": NAME, "gym_outcome": "completed", "gym_stage": ""}
        series = ("gym_rollouts_total", tuple(labels.items()))
        served: dict[Any, float] = {}
        with anyio.fail_after(15 * busy()):
            while served.get(series) != 7 or not any("gym.rollouts" in metrics for metrics in pushed):
                async with session.get(url) as answer:
                    served = samples(await answer.read())
                await anyio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.anyio
async def test_what_is_pushed_last_has_everything(pushed: list[dict[str, Any]]) -> None:
    async with running_client() as here, push.pushing(here.gym.driver.bus):
        _ = [record async for record in here.rollouts(7)]
    [metrics] = pushed
    counted = metrics["gym.rollouts"].sum
    [point] = counted.data_points
    assert (point.as_double, counted.is_monotonic, counted.aggregation_temporality) == (7.0, True, 2)
    assert {one.key for one in point.attributes} == {"gym.environment", "gym.outcome"}
    [rewards] = metrics["gym.rollout.reward"].histogram.data_points
    assert rewards.count == 7
    assert not any(map(rewards.HasField, ("min", "max"))), "the workers do not keep them"
    assert metrics["gym.workers"].WhichOneof("data") == "gauge"


@pytest.mark.slow
@pytest.mark.anyio
async def test_with_old_figures_the_target_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_client() as here, serving(here.gym.driver.bus) as url:
        async with aiohttp.request("GET", url) as answer:
            assert answer.status == 200
        monkeypatch.setattr("gym_view.metrics.metrics_server.STALE_S", -1.0)
        async with aiohttp.request("GET", url) as answer:
            assert answer.status == 503
        async with aiohttp.request("GET", url.replace("/metrics", "/health")) as answer:
            assert answer.status == 200


@pytest.mark.slow
@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 403),
        ("127.0.0.1.nip.io:9000", 403),
        ("", 403),
        ("127.0.0.1:1", 200),
        ("node17:9000", 200),
        ("monitored.example.org", 200),
    ],
)
@pytest.mark.anyio
async def test_a_foreign_host_is_refused(host: str, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "monitored.example.org")
    async with (
        running_client() as here,
        serving(here.gym.driver.bus) as url,
        aiohttp.request("GET", url, headers={"host": host}) as answer,
    ):
        assert answer.status == status


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_port_that_is_taken_is_said() -> None:
    async with running_client() as here, serving(here.gym.driver.bus) as url:
        port = int(url.split(":")[2].partition("/")[0])
        with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1:{port}: .*; choose another port"):
            async with serving(here.gym.driver.bus, port=port):
                pass
        # An address of documentation (RFC 5737): no machine has it, whatever the port.
        with pytest.raises(UsageError, match=r"cannot listen on 192.0.2.1:.*; choose another host"):
            async with serving(here.gym.driver.bus, host="192.0.2.1", port=port):
                pass


@pytest.mark.parametrize("said", ["often", "0", "-1"])
@pytest.mark.anyio
async def test_an_interval_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", said)
    with pytest.raises(UsageError, match="number of milliseconds"):
        await push.push(lambda: SOME)
