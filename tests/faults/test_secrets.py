"""Planted keys are nowhere after a run: arguments, logs, rows, errors, traces, what the broker stores.

The run has everything that might tell: an engine that repeats the key in its errors, logs at their most
verbose, a collector of traces, a failed rollout, and a broker with its own password.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
import pytest
from aiohttp import web
from gym_runtime.bus import identity
from gym_runtime.system.private_broker import find_binary

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(120)]

MESSAGE = {
    "type": "message",
    "id": "m",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "done", "annotations": []}],
}


class Tattler:
    """An engine that says in its errors who asked; and a collector of traces."""

    def __init__(self) -> None:
        self.url = ""
        self.keys: set[str] = set()
        self.traces: list[bytes] = []
        self._asked = 0

    async def respond(self, request: web.Request) -> web.Response:
        key = request.headers.get("Authorization", "")
        self.keys.add(key)
        self._asked += 1
        items = (await request.json()).get("input") or [{"content": "break"}]
        task = items[0]["content"]
        error = {
            "error": {"message": f"I know you, {key}: {dict(request.headers)}", "code": key, "type": key}
        }
        if "refuse" in task:
            return web.json_response(error, status=400)
        if "fail" in task:
            return web.json_response(
                {"output": [], "status": "failed", "error": {"code": "invalid_prompt", "message": key}}
            )
        if "break" in task:
            return web.Response(text=f"<html>{key}</html>", status=400)
        if self._asked % 3 == 0:
            return web.json_response(error, status=503, headers={"Retry-After": "0"})
        body = {"id": "r", "object": "response", "model": "m", "status": "completed", "output": [MESSAGE]}
        return web.json_response(body)

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "m", "object": "model"}]})

    async def export(self, request: web.Request) -> web.Response:
        self.traces.append(await request.read())
        return web.Response(content_type="application/x-protobuf")


@asynccontextmanager
async def tattling() -> AsyncGenerator[Tattler]:
    tattler = Tattler()
    app = web.Application(client_max_size=2**24)
    app.router.add_post("/v1/responses", tattler.respond)
    app.router.add_get("/v1/models", tattler.models)
    app.router.add_post("/v1/traces", tattler.export)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    tattler.url = f"http://{host}:{port}"
    try:
        yield tattler
    finally:
        await runner.cleanup()


def command_lines() -> bytes:
    """The arguments of every process on this machine."""
    found = b""
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += process.read_bytes() + b"\n"
        except OSError:
            continue
    return found


def started(
    folder: Path, tattler: Tattler, environment: Mapping[str, str], *arguments: str
) -> subprocess.Popen[bytes]:
    """``gym-runtime run`` on rows of which three fail."""
    contents = ["count", "count", "refuse me", "break me", "fail me", *["count"] * 20]
    rows = [
        {"responses_create_params": {"input": [{"role": "user", "content": content}]}}
        | {"initial_count": 3, "expected_count": 3}
        for content in contents
    ]
    (folder / "rows.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, rows)))
    command = [sys.executable, "-m", "gym_runtime.cli.main", "run", "example_session_state_mgmt"]
    command += [
        "-i",
        "rows.jsonl",
        "-o",
        "out.jsonl",
        "--model",
        "openai/m",
        "--model-url",
        f"{tattler.url}/v1",
    ]
    ours = {name: value for name, value in os.environ.items() if not name.startswith("GYM_")}
    loud = {
        "GYM_LOG_LEVEL": "debug",
        "OTEL_EXPORTER_OTLP_ENDPOINT": tattler.url,
        "OTEL_BSP_SCHEDULE_DELAY": "50",
    }
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [*command, *arguments], cwd=folder, stdout=log, stderr=log, env={**ours, **loud, **environment}
        )


async def watched(process: subprocess.Popen[bytes]) -> tuple[int, list[bytes]]:
    """A command's status, and the arguments of all processes while it ran, again and again."""
    seen: list[bytes] = []
    while process.poll() is None:
        seen.append(await anyio.to_thread.run_sync(command_lines))
        await anyio.sleep(0.05)
    return process.returncode, seen


@contextmanager
def server(folder: Path, password: str) -> Generator[str]:
    """A broker with a password and a verbose log; its configuration is gone afterwards. Yields its URL."""
    folder.mkdir()
    conf = folder / "conf"
    conf.write_text(
        f'listen: "127.0.0.1:-1"\nauthorization {{ user: "me", password: "{password}" }}\n'
        f'jetstream {{ store_dir: "{folder}" }}\nlogfile: "{folder / "log"}"\n'
    )
    process = subprocess.Popen([find_binary(), "-c", str(conf), "-DV", "--ports_file_dir", str(folder)])
    try:
        ports = folder / f"nats-server_{process.pid}.ports"
        while True:
            with suppress(FileNotFoundError, ValueError):
                yield json.loads(ports.read_bytes())["nats"][0].removeprefix("nats://")
                return
            assert process.poll() is None
            time.sleep(0.002)
    finally:
        process.kill()
        process.wait()
        conf.unlink()


def leaks(secret: str, folder: Path, *more: bytes) -> list[str]:
    """Where a secret is, of all files of a folder and further content."""
    wanted = secret.encode()
    places = [str(path) for path in folder.rglob("*") if path.is_file() and wanted in path.read_bytes()]
    return places + [f"further content {number}" for number, one in enumerate(more) if wanted in one]


async def test_the_models_key_is_nowhere(tmp_path: Path) -> None:
    key = f"sk-{secrets.token_urlsafe(24)}"
    async with tattling() as tattler:
        status, seen = await watched(
            started(tmp_path, tattler, {"OPENAI_API_KEY": key}, "--state-dir", str(tmp_path / "state"))
        )
        log = (tmp_path / "log").read_text()
        assert status == 0, log
        assert tattler.keys == {f"Bearer {key}"}
        assert tattler.traces
        assert len((tmp_path / "out.jsonl").read_bytes().splitlines()) == 22
        failures = [json.loads(line) for line in (tmp_path / "out_failures.jsonl").read_bytes().splitlines()]
        assert len(failures) == 3
        assert "I know you" in json.dumps(failures), "the engine's own words are there"
        assert any(b"gym_runtime.system.supervisor" in lines for lines in seen)
        assert (tmp_path / "state" / "jetstream").is_dir()
        assert leaks(key, tmp_path, *seen, *tattler.traces) == []


@pytest.mark.soak
async def test_the_brokers_password_is_nowhere(tmp_path: Path) -> None:
    password = secrets.token_urlsafe(24)
    work = tmp_path / "work"
    work.mkdir()
    async with tattling() as tattler:
        with server(tmp_path / "server", password) as address:
            environment = {"GYM_NATS_URL": f"nats://me:{password}@{address}", "OPENAI_API_KEY": "sk-none"}
            status, seen = await watched(started(work, tattler, environment))
            assert status == 0, (work / "log").read_text()
        # Now it is gone, and what is said about that must not tell either.
        status, more = await watched(started(work, tattler, environment, "--resume"))
        assert status != 0
    assert f"no broker at nats://{address}" in (work / "log").read_text()
    assert leaks(password, tmp_path, *seen, *more, *tattler.traces) == []


@pytest.mark.soak
async def test_a_seed_is_nowhere_but_in_its_file(tmp_path: Path) -> None:
    seed = identity.new_seed()
    (tmp_path / "me.seed").write_text(seed)
    (tmp_path / "work").mkdir()
    async with tattling() as tattler:
        # The private broker knows nothing of it, and is not told.
        environment = {"GYM_NATS_CREDENTIALS": str(tmp_path / "me.seed"), "OPENAI_API_KEY": "sk-none"}
        status, seen = await watched(started(tmp_path / "work", tattler, environment))
        assert status == 0, (tmp_path / "work" / "log").read_text()
        assert leaks(seed, tmp_path / "work", *seen, *tattler.traces) == []
        environment["GYM_NATS_URL"] = "nats://127.0.0.1:9"
        status, seen = await watched(started(tmp_path / "work", tattler, environment, "--resume"))
        assert status != 0
        assert leaks(seed, tmp_path / "work", *seen, *tattler.traces) == []


async def test_what_the_broker_keeps_is_for_its_owner_only(tmp_path: Path) -> None:
    async with tattling() as tattler:
        status, _ = await watched(
            started(tmp_path, tattler, {"OPENAI_API_KEY": "sk-none"}, "--state-dir", str(tmp_path / "state"))
        )
    assert status == 0
    state = tmp_path / "state"
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert stat.S_IMODE((state / "broker.conf").stat().st_mode) == 0o600
    # Rows are for whom the user's umask says: they are what others are to train on.
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE((tmp_path / "out.jsonl").stat().st_mode) == 0o664 & ~umask
