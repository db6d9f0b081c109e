"""Containers that run in boxes of a provider, by leases: one alone, and those of an environment."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from boxes.e2b_server import E2BServer
from boxes.kubernetes_server import KubernetesServer
from gym_boxes.containers import leased
from gym_runtime import Environment, Reply, Session, Task, Verdict, tool
from gym_runtime.messages.outcomes import Completed
from gym_sandbox import Container, SetupError, bubblewrap
from gym_sandbox.sandbox_errors import StartError
from gym_sandbox.saved_files import SavedFiles
from gym_testing.memory import MemoryBroker
from gym_testing.small_system import (
    Engine,
    answer,
    environment,
    function_call,
    rollout_spec,
    row,
    small_system,
)

try:
    bubblewrap.check(os.getpid())
    _refusal = ""
except SetupError as error:
    _refusal = str(error)
pytestmark = [
    *(pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(120)),
    pytest.mark.skipif(bool(_refusal), reason=_refusal),
]
IMAGE = "python:3.12"


@pytest.fixture
async def service(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[E2BServer]:
    async with E2BServer().run() as server:
        monkeypatch.setenv("E2B_API_KEY", "key")
        monkeypatch.setenv("E2B_API_URL", server.url)
        monkeypatch.setenv("E2B_SANDBOX_URL", server.url)
        monkeypatch.setenv("GYM_BOXES_PER_S", "50")
        monkeypatch.setenv("GYM_BOXES_MOST", "2")
        yield server
    assert not server.boxes, "each box has ended"


@asynccontextmanager
async def leasing() -> AsyncGenerator[None]:
    async with MemoryBroker().connect() as bus, leased(bus):
        yield


def container(**more: Any) -> Container:
    return Container(IMAGE, directory="/tmp/user/work", provider="e2b", **more)


async def test_a_container_in_a_box_runs_commands_as_one_of_this_machine(service: E2BServer) -> None:
    async with leasing(), container(variables={"ONE": "1"}) as box:
        done = await box.run("echo $ONE >f; pwd; cat; echo err >&2; exit 3", stdin=b"a\0b", timeout_s=20)
        assert (done.exit_code, done.stdout, done.stderr) == (3, b"/tmp/user/work\na\0b", b"err\n")
        assert (await box.run("cat f", timeout_s=20)).stdout == b"1\n"
        assert (await box.run("sleep 60", timeout_s=1)).timed_out
        long = await box.run("seq 200000", timeout_s=20, output_bytes=2 << 20)
        assert (long.stdout.split()[-1], long.truncated) == (b"200000", False)
        short = await box.run("seq 200000", timeout_s=20, output_bytes=1000)
        assert (short.truncated, short.stdout[:2], short.stdout[-7:]) == (True, b"1\n", b"200000\n")
        (made,) = service.boxes.values()
        assert (made.template, made.asked["allow_internet_access"]) == (IMAGE, False)
        with pytest.raises(SetupError, match="need podman or docker"):
            box.as_user("1000")
    assert service.counts["created"] == service.counts["ended"] == 1


async def test_a_container_in_a_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    async with KubernetesServer().run() as cluster:
        monkeypatch.setenv("GYM_KUBERNETES_URL", cluster.url)
        monkeypatch.setenv("GYM_KUBERNETES_TOKEN", "token")
        box = Container(IMAGE, directory="/tmp/user/work", provider="kubernetes", network="public")
        async with leasing(), box:
            done = await box.run("cat >f; wc -c <f; exit 3", stdin=b"x" * 300_000, timeout_s=20)
            assert (done.exit_code, done.stdout) == (3, b"300000\n")
            (pod,) = cluster.pods.values()
            assert pod["metadata"]["labels"]["gym-internet"] == "true"
        assert not cluster.pods


async def test_its_files_are_saved_and_continue_in_another_box(service: E2BServer) -> None:
    kept: dict[str, bytes] = {}

    class Kept:
        limit_bytes = 1 << 30

        async def put(self, part: bytes) -> str:
            kept[name := str(len(kept))] = part
            return name

        async def get(self, name: str) -> bytes:
            return kept[name]

    async with leasing():
        async with container() as one:
            files = SavedFiles(one, Kept())
            await files.begin()
            await one.run("echo kept >f; head -c 600000 /dev/urandom >big", timeout_s=20)
            saved = await files.save()
            sums = (await one.run("sha256sum f big", timeout_s=20)).stdout
        async with container() as other:
            await SavedFiles(other, Kept()).begin(saved)
            assert (await other.run("sha256sum f big", timeout_s=20)).stdout == sums


async def test_a_box_that_is_gone_is_the_end_of_its_container(service: E2BServer) -> None:
    async with leasing(), container() as box:
        await box.run("true", timeout_s=20)
        for name in list(service.boxes):
            await service.boxes.pop(name).container.close()
        lost = await box.run("true", timeout_s=20)
        assert b"the container has ended" in lost.stderr
        assert "gone" in (box.ended or "")


async def test_what_is_refused(service: E2BServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SetupError, match="leased by the workers of environments only"):
        await container().start()
    async with leasing():
        with pytest.raises(SetupError, match="needs an image"):
            await Container(directory="w", provider="e2b").start()
        with pytest.raises(SetupError, match="there is no provider of boxes 'nowhere'"):
            await Container(IMAGE, directory="/w", provider="nowhere").start()
        monkeypatch.setenv("GYM_BOXES_MOST", "many")
        with pytest.raises(StartError, match="GYM_BOXES_MOST=many must be a number above 0"):
            await container().ready()


class Workshop(Session[Task]):
    """Its container names no provider: the worker's setting does."""

    async def open(self) -> None:
        self.box = Container(IMAGE, directory="/tmp/user/work")
        await self.box.start()

    async def close(self) -> None:
        await self.box.close()

    @tool
    async def sh(self, command: str) -> str:
        """Run a command."""
        return (await self.box.run(command, timeout_s=20)).stdout.decode()

    async def verify(self, reply: Reply) -> Verdict:
        done = await self.box.run("cat made", timeout_s=20)
        return Verdict(float(done.stdout == b"here\n"))


async def test_an_environments_containers_run_where_its_worker_says(
    service: E2BServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GYM_CONTAINERS", "e2b")
    monkeypatch.setenv("GYM_BOXES_TEMPLATES", json.dumps({IMAGE: "my-python"}))
    told = [answer(function_call("sh", json.dumps({"command": "echo here >made; ls"}))), answer("done")]
    async with small_system() as system:
        await system.add_model(Engine(*told))
        await system.add_resource(environment(Environment(resource=Workshop, description="w")))
        await system.add_agent()
        tools = [{"type": "function", "name": "sh", "parameters": {"type": "object"}}]
        params = {"input": "make it", "tools": tools}
        (record,) = await system.make(rollout_spec(row(responses_create_params=params)))
    assert (record.outcome, record.reward) == (Completed(), 1.0)
    assert service.templates == {"my-python"}
