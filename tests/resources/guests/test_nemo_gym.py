"""A resources server behind HTTP as an environment: `gym-runtime gym-server`, and in one test NeMo Gym's."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import anyio
import pytest
from faces.gym_server.running_server import COUNTER, INCREMENT, choice_row, counter_row, running_server
from gym_runtime.cli.main import run
from gym_runtime.environment import catalogue
from gym_runtime.errors import TaskError, UsageError
from gym_runtime.messages.outcomes import RolloutRecord
from gym_testing.background import settled
from gym_testing.small_system import Engine, Hang, answer, message
from resources.guests.server_guest import guest, made

pytestmark = pytest.mark.anyio


async def test_rollouts_of_a_server_behind_http() -> None:
    engine = Engine(answer(INCREMENT), answer("done"))
    async with running_server() as server, guest(f"{server.url}/{COUNTER}", engine) as (system, name):
        good, bad = await made(system, name, counter_row(note="n"), counter_row(expected_count=5))
        assert (good.reward, bad.reward) == (1.0, 0.0)
        row = json.loads(bytes(good.row))
        assert row["agent_ref"]["name"] == f"{COUNTER}_simple_agent"
        assert row["note"] == "n"
        kinds = [item["type"] for item in row["response"]["output"]]
        assert kinds == ["function_call", "function_call_output", "message"]
        assert not server.engine.calls.items  # the server's own model is not asked


async def test_a_stateless_verifier_and_its_fields() -> None:
    engine = Engine(answer("\\boxed{B}"))
    async with running_server() as server, guest(f"{server.url}/mcqa", engine) as (system, name):
        (record,) = await made(system, name, choice_row())
        assert record.reward == 1.0
        assert json.loads(bytes(record.row))["extracted_answer"] == "B"


async def test_a_session_and_a_verdict_of_a_guest() -> None:
    engine = Engine(answer("x"))
    async with running_server() as server, guest(f"{server.url}/{COUNTER}", engine) as (system, name):
        async with system.client.session(counter_row(), environment=name) as session:
            assert "true" in await session.call("increment_counter", {"count": 1})
            assert (await session.verify("done")).reward == 1.0
        said = [INCREMENT, {"type": "function_call_output", "call_id": "c1", "output": "{}"}]
        verdict = await system.client.verify(counter_row(), [*said, message("done")], environment=name)
        assert verdict.reward == 1.0


async def test_a_servers_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(answer("\\boxed{B}"))
    async with running_server(key="s3cret") as server, guest(f"{server.url}/mcqa", engine) as (system, name):
        (refused,) = await made(system, name, choice_row())
        assert "401" in refused.ending
        monkeypatch.setenv("GYM_SERVER_KEY", "s3cret")
        assert [one.reward for one in await made(system, name, choice_row())] == [1.0]


@pytest.mark.slow
async def test_a_rollout_whose_agent_dies_goes_on_with_the_servers_session() -> None:
    """The journal has the tool's answer, so that the server's counter moves once."""
    engine = Engine(answer(INCREMENT), Hang(), by_attempt={2: [answer("done")]})
    async with running_server() as server, guest(f"{server.url}/{COUNTER}", engine) as (system, name):
        records: list[RolloutRecord] = []

        async def run() -> None:
            records.extend(await made(system, name, counter_row()))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await settled(lambda: len(engine.calls.items) == 2)
            await system.add_agent(name="agent-3")
            system.kill("agent-1")
        (record,) = records
        assert (record.reward, record.attempt) == (1.0, 2)
        assert json.loads(bytes(record.row))["_gym"]["resumed_turns"] == 1


def test_addresses() -> None:
    for wrong, said in (
        ("nemo-gym:127.0.0.1:8000", "is not of the form"),
        ("nemo-gym:http://", "is not of the form"),
        ("nemo-gym:http://gym:secret@host:1", "GYM_SERVER_KEY"),
        ("nemo-gym:http://host:1?key=2", "is not of the form"),
        ("other-gym:http://host:1", "there is no environment"),
    ):
        with pytest.raises(UsageError, match=said) as error:
            catalogue.environment(wrong)
        assert "secret" not in str(error.value)
    found = catalogue.environment("nemo-gym:http://127.0.0.1:8000/mcqa/")
    assert found.name == "nemo_gym_127_0_0_1_8000_mcqa"
    assert catalogue.known_environment(found.name) is found
    assert catalogue.address(found.name) == "nemo-gym:http://127.0.0.1:8000/mcqa/"
    with pytest.raises(UsageError):
        catalogue.known_environment("nemo-gym:http://127.0.0.1:9000")  # data names no address


def test_a_guest_needs_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "nemo-gym:http://127.0.0.1:1", "--model", "scripted/echo"]) == 2
    assert "nemo-gym:http://127.0.0.1:1 has no rows of its own: --input FILE" in capsys.readouterr().err


@asynccontextmanager
async def real_server(folder: Path, python: str, server: str) -> AsyncGenerator[str]:
    """A resources server of NeMo Gym, started as its own launcher does."""
    site = next(Path(python).parent.parent.glob("lib/python*/site-packages"))
    with_socket = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = with_socket.extra(anyio.abc.SocketAttribute.local_port)
    await with_socket.aclose()
    fields = {"entrypoint": "app.py", "domain": "other", "host": "127.0.0.1", "port": port}
    config = {
        "head_server": {"host": "127.0.0.1", "port": 1},
        "served": {"resources_servers": {server: fields}},
        "dry_run": False,
        "use_absolute_ip": False,
    }
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PYTHONPATH": str(site),
        "NEMO_GYM_CONFIG_DICT": json.dumps(config),
        "NEMO_GYM_CONFIG_PATH": "served",
    }
    command = [python, "app.py"]
    async with await anyio.open_process(
        command, cwd=site / "resources_servers" / server, env=environment, stdout=None, stderr=None
    ) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            async with aiohttp.ClientSession() as http:
                with anyio.fail_after(90):
                    while True:
                        try:
                            async with http.get(f"{url}/"):
                                break
                        except aiohttp.ClientConnectionError:
                            assert process.returncode is None, "the server has ended"
                            await anyio.sleep(0.2)
            yield url
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_nemo_gyms_own_server(tmp_path: Path) -> None:
    python = os.environ.get("NEMO_GYM_PYTHON")
    if not python:
        pytest.skip("needs NEMO_GYM_PYTHON: a Python with nemo-gym 0.7")
    engine = Engine(answer(INCREMENT), answer("done"))
    async with real_server(tmp_path, python, COUNTER) as url, guest(url, engine) as (system, name):
        rows = [counter_row(), counter_row(expected_count=5)]
        assert [one.reward for one in await made(system, name, *rows)] == [1.0, 0.0]
        with pytest.raises(TaskError, match="initial_count"):
            bad = counter_row(initial_count="x")
            async with system.client.session(bad, environment=name):
                pass
