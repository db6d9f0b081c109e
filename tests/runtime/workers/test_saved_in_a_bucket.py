"""What sessions save, in an object store that speaks S3: moto's server, its own process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from typing import Any

import anyio
import pytest
from aiohttp import ClientSession
from gym_runtime.errors import ResourceError, UsageError
from gym_runtime.messages.outcomes import Completed
from gym_runtime.workers import saved_parts
from gym_testing.small_system import Engine, answer, function_call, rollout_spec, row, small_system
from ports import free_port
from runtime.workers.agent_worker.agents import row_of
from runtime.workers.agent_worker.test_saved_sessions import Unlucky, done, log
from time_limits import busy

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
ROLLOUT = "/run/x.0.0"


@pytest.fixture(scope="module")
def server() -> Generator[tuple[str, int]]:
    port = free_port()
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        yield f"http://127.0.0.1:{port}", process.pid
        process.kill()


@pytest.fixture
async def bucket(server: tuple[str, int], monkeypatch: pytest.MonkeyPatch, request: Any) -> str:
    name = f"boxes-{abs(hash(request.node.name)) % 10**6}"
    async with ClientSession() as session:
        with anyio.fail_after(30 * busy()):
            while True:
                try:
                    made = await session.put(f"{server[0]}/{name}", data=b"")
                    break
                except OSError:
                    await anyio.sleep(0.1)
        assert made.status == 200
    for variable, value in {
        "AWS_ENDPOINT_URL": server[0],
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        saved_parts.FOLDER: f"s3://{name}/some/prefix",
    }.items():
        monkeypatch.setenv(variable, value)
    return f"s3://{name}/some/prefix"


async def test_parts_are_checked_and_deleted_with_their_rollout(bucket: str) -> None:
    parts, other = (saved_parts.BucketParts(bucket, one) for one in (ROLLOUT, "run.0.1"))
    name = await parts.put(b"one")
    assert await parts.put(b"one") == name
    assert await parts.get(name) == b"one"
    await other.put(b"two")
    for wrong in ("../../etc/passwd", "0" * 32):
        with pytest.raises(ResourceError, match="is gone"):
            await parts.get(wrong)
    import obstore

    await obstore.put_async(saved_parts._bucket(bucket), f"{saved_parts._room(ROLLOUT)}/{name}", b"two")
    with pytest.raises(ResourceError, match="is damaged"):
        await parts.get(name)
    assert sorted(await saved_parts.idle_rollouts(-60.0, 9)) == [ROLLOUT, "run.0.1"]
    assert await saved_parts.idle_rollouts(60.0, 9) == []
    await saved_parts.forget_rollout(ROLLOUT)
    assert await saved_parts.idle_rollouts(-60.0, 9) == ["run.0.1"]


async def test_what_others_keep_in_the_bucket_is_never_deleted(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import obstore

    store, old = saved_parts._bucket(bucket), saved_parts.BucketParts(bucket, ROLLOUT)
    await old.put(b"one")
    for path in ("model-1.2.final/weights", "backup/day", "v1.0.2/file", "file"):
        await obstore.put_async(store, path, b"theirs")
    now_s = time.time()
    monkeypatch.setattr(saved_parts.time, "time", lambda: now_s + 400 * 86_400)
    assert "v1.0.2" not in await saved_parts.idle_rollouts(0.0, 9)
    left = {part["path"] for part in await obstore.list(store).collect_async()}
    assert left == {"model-1.2.final/weights", "backup/day", "v1.0.2/file", "file"}


async def test_a_lost_session_continues_from_the_bucket(bucket: str) -> None:
    sessions = log(1)
    async with small_system() as system:
        await system.add_model(Engine(*[answer(function_call("write"))] * 9))
        await system.add_resource(sessions)
        await system.add_agent({"tool_loop": Unlucky(system, sessions, 3)})
        (record,) = await system.make(rollout_spec(row()))
    assert (record.outcome, record.attempt, record.reward) == (Completed(), 1, 4.0)
    assert done(sessions) == ["write"] * 3 + ["restore", "write"]
    assert row_of(record)["_gym"]["rebuilt_sessions"] == 1


async def test_a_frozen_store_is_given_up_and_an_unknown_one_refused(
    bucket: str, server: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved_parts, "PUT_S", 0.5)
    parts = saved_parts.BucketParts(bucket, ROLLOUT)
    os.kill(server[1], signal.SIGSTOP)
    try:
        with (
            anyio.fail_after(10 * busy()),
            pytest.raises(ResourceError, match=r"did not store|GYM_SAVED_FOLDER"),
        ):
            await parts.put(b"one")
    finally:
        os.kill(server[1], signal.SIGCONT)
    with pytest.raises(UsageError, match="names no object store"):
        saved_parts.BucketParts("nothing://x", ROLLOUT)
