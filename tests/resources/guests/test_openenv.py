"""Environments of OpenEnv behind a server: one that speaks its protocol, and OpenEnv's own."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import anyio
import anyio.to_thread
import pytest
from aiohttp import web
from gym_resources.open_env.openenv_connection import MAX_BYTES, Connection
from gym_runtime.environment import catalogue
from gym_runtime.errors import ResourceError, UsageError
from gym_runtime.messages.outcomes import Completed, Failed, Truncated
from gym_testing.small_system import answer, function_call
from resources.guests.guest_runs import OWN, guest, made, own_rows, result, said
from resources.guests.openenv_stub import GAME, MCP, TEXT, Stub, served

pytestmark = pytest.mark.anyio
ROW: dict[str, Any] = {"responses_create_params": {"input": []}, "reset": {"seed": 3}}


def act(arguments: str, call_id: str = "c", name: str = "act") -> dict[str, Any]:
    return function_call(name, arguments, call_id)


async def test_actions_are_calls_of_a_function() -> None:
    turns = [answer(act('{"amount": 1}')), answer(act('{"amount": 2}', "a"), act('{"amount": 9}', "b"))]
    async with served(Stub(GAME)) as stub, guest(f"openenv:{stub.url}", *turns) as system:
        (record,) = await made(system, f"openenv:{stub.url}", [ROW])
    assert isinstance(record.outcome, Completed)
    assert record.reward == 1.0
    assert said(record) == [
        ("user", '{"count":0}'),
        ("function_call", '{"amount": 1}'),
        ("function_call_output", '{"count":1}'),
        ("function_call", '{"amount": 2}'),
        ("function_call", '{"amount": 9}'),
        ("function_call_output", '{"count":3}'),
        ("function_call_output", "The episode has ended."),
    ]
    (tool,) = result(record)["responses_create_params"]["tools"]
    assert (tool["name"], set(tool["parameters"]["properties"])) == ("act", {"amount", "note"})
    assert stub.resets == [{"seed": 3}]
    assert stub.open == 0


async def test_an_action_of_one_text_is_a_plain_answer() -> None:
    async with (
        served(Stub(TEXT)) as stub,
        guest(f"openenv:{stub.url}", answer("hello"), answer("stop")) as system,
    ):
        (record,) = await made(system, f"openenv:{stub.url}", [ROW])
        assert record.reward == 1.0
        assert ("user", '{"heard":"hello"}') in said(record)
        (cut,) = await made(system, f"openenv:{stub.url}", [ROW], max_turns=1)
        assert isinstance(cut.outcome, Truncated)
        assert cut.reward == 0.5


async def test_tools_over_mcp_and_an_answer_that_ends_the_episode() -> None:
    turns = [answer(act('{"amount": 1}', name="add")), answer("I am done")]
    async with served(Stub(MCP)) as stub, guest(f"openenv:{stub.url}", *turns) as system:
        (record,) = await made(system, f"openenv:{stub.url}", [ROW])
    assert record.reward == 0.0
    assert [tool["name"] for tool in result(record)["responses_create_params"]["tools"]] == ["add"]


async def test_the_model_reads_what_is_wrong_with_its_action() -> None:
    turns = [
        answer(act('{"amount": "x"}', "a"), act("[1]", "b"), act("{}", "d", name="other")),
        answer('{"amount": 3}'),
    ]
    async with served(Stub(GAME)) as stub, guest(f"openenv:{stub.url}", *turns) as system:
        (record,) = await made(system, f"openenv:{stub.url}", [ROW])
    assert record.reward == 1.0
    outputs = [text for kind, text in said(record) if kind == "function_call_output"]
    assert [text.split(":")[0] for text in outputs] == [
        "Invalid message",
        "the arguments are not a JSON object",
        "there is no function 'other'; call 'act'",
    ]


async def test_a_server_with_one_session_serves_several_rollouts() -> None:
    async with (
        served(Stub(GAME, sessions=1)) as stub,
        guest(f"openenv:{stub.url}", answer(act('{"amount": 3}'))) as system,
    ):
        records = await made(system, f"openenv:{stub.url}", own_rows(f"openenv:{stub.url}", 4))
    assert [record.reward for record in records] == [1.0] * 4
    assert sorted(reset["seed"] for reset in stub.resets) == [0, 1, 2, 3]
    assert stub.ended == 4


async def test_a_lost_connection_costs_an_attempt_and_no_reward() -> None:
    turns = [answer(act('{"amount": 1}')), answer(act('{"amount": 2}', "d"))]
    async with served(Stub(GAME)) as stub, guest(f"openenv:{stub.url}", *turns) as system:
        stub.drop_at = 2
        (record,) = await made(system, f"openenv:{stub.url}", [ROW])
        assert (record.reward, record.attempt) == (1.0, 2)
        assert len(stub.resets) == 2


@pytest.mark.parametrize(
    ("row", "turn", "kind", "said"),
    [
        (ROW, '{"amount": "broken"}', "resource", "the environment is broken"),
        ({**ROW, "reset": {"seed": -1}}, "{}", "task", "does not accept the row's reset"),
        (ROW, '{"amount": 3}', "resource", "gave no reward"),
    ],
)
async def test_what_fails_is_no_reward(row: dict[str, Any], turn: str, kind: str, said: str) -> None:
    async with (
        served(Stub(GAME, rewarded=False)) as stub,
        guest(f"openenv:{stub.url}", answer(act(turn))) as system,
    ):
        (record,) = await made(system, f"openenv:{stub.url}", [row], max_attempts=1)
    assert record.reward is None
    assert isinstance(record.outcome, Failed)
    assert record.outcome.fault.kind == kind
    assert said in record.outcome.fault.message


@pytest.mark.parametrize("action", [GAME, MCP])
async def test_a_model_that_does_not_act_has_no_rewards(action: dict[str, Any]) -> None:
    """It was a failure of the server, which no mean counts: what is left was too good."""
    async with served(Stub(action)) as stub, guest(f"openenv:{stub.url}", answer("I will not.")) as system:
        (record,) = await made(system, f"openenv:{stub.url}", [ROW], max_attempts=1)
    assert (record.outcome, record.reward) == (Completed(), 0.0)


async def test_a_server_leads_to_no_other_one() -> None:
    async with served(Stub(GAME)) as other:

        async def elsewhere(request: web.Request) -> web.Response:
            raise web.HTTPTemporaryRedirect(other.url + request.path)

        stub = Stub(GAME)
        stub.serve = elsewhere  # type: ignore[assignment]
        async with served(stub), guest(f"openenv:{stub.url}", answer("x")) as system:
            (record,) = await made(system, f"openenv:{stub.url}", [ROW], max_attempts=1)
    assert "it redirects with status 307" in record.ending
    assert not other.resets


async def test_a_schema_may_come_in_pieces_and_has_a_bound() -> None:
    for size, bounded in ((300_000, False), (MAX_BYTES, True)):
        large = {**TEXT, "description": "x" * size}
        async with served(Stub(large)) as stub:
            connection = Connection(stub.url)
            try:
                if bounded:
                    with pytest.raises(ResourceError, match="/schema answered more than 4 MiB"):
                        await connection.action_schema()
                else:
                    assert await connection.action_schema() == large
            finally:
                await connection.close()


@pytest.mark.parametrize("kind", ["schema", "observation"])
async def test_what_has_millions_of_values_is_not_read(kind: str) -> None:
    """Decoding it held the event loop for seconds."""
    many = {**TEXT, "x": [[]] * 500_000}
    stub = Stub(many if kind == "schema" else GAME)
    if kind == "observation":

        async def serve(request: web.Request) -> web.WebSocketResponse:
            socket = web.WebSocketResponse()
            await socket.prepare(request)
            await socket.send_json({"type": "observation", "data": {"observation": many}})
            await socket.receive()
            return socket

        stub.serve = serve  # type: ignore[method-assign]
    async with served(stub), guest(f"openenv:{stub.url}", answer("x")) as system:
        (record,) = await made(system, f"openenv:{stub.url}", [ROW], max_attempts=1)
    assert record.reward is None
    assert ("no schema" if kind == "schema" else "more than 100,000 objects and lists") in record.ending


async def test_a_server_that_is_gone_or_another_one() -> None:
    async with served(Stub(GAME)) as stub:
        pass
    async with guest(f"openenv:{stub.url}", answer("x")) as system:
        (record,) = await made(system, f"openenv:{stub.url}", [ROW], max_attempts=1)
        assert "is lost" in record.ending


def test_addresses_and_rows() -> None:
    for wrong, problem in (
        ("openenv:127.0.0.1:8000", "is not of the form"),
        ("openenv:http://gym:secret@host:1", "holds a user"),
        ("openenv:http://host:1?seed=2", "is not of the form"),
    ):
        with pytest.raises(UsageError, match=problem):
            catalogue.environment(wrong)
    long = [catalogue.environment(f"openenv:http://host:1/{'x' * 200}/{end}").name for end in "ab"]
    assert [len(name) for name in long] == [128, 128]
    assert long[0] != long[1]
    assert own_rows("openenv:http://host:1", 2) == [{**ROW, "reset": {"seed": n}} for n in (0, 1)]
    with pytest.raises(UsageError, match="--limit N"):
        own_rows("openenv:http://host:1")


# -- OpenEnv's own server -----------------------------------------------------------------------------


@asynccontextmanager
async def real_server(kind: str) -> AsyncGenerator[str]:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    await listener.aclose()
    command = [sys.executable, str(OWN / "openenv_server.py"), kind, str(port)]
    async with await anyio.open_process(command, stdout=None, stderr=None) as process:
        try:
            async with aiohttp.ClientSession() as http:
                with anyio.fail_after(60):
                    while True:
                        try:
                            async with http.get(f"http://127.0.0.1:{port}/health"):
                                break
                        except aiohttp.ClientConnectionError:
                            assert process.returncode is None, "the server has ended"
                            await anyio.sleep(0.2)
            yield f"openenv:http://127.0.0.1:{port}"
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_openenvs_own_server_with_a_game() -> None:
    pytest.importorskip("openenv", reason="needs openenv: pip install openenv")
    turns = [answer(act(f'{{"guess": {guess}}}', f"c{guess}")) for guess in range(1, 9)]
    async with real_server("higher") as name, guest(name, *turns) as system:
        records = await made(system, name, own_rows(name, 3), repeats=2)
        rewards = [record.reward for record in records]
        assert all(reward is not None and reward > 0 for reward in rewards)
        assert rewards[::2] == rewards[1::2]
        assert not any("secret" in text for record in records for _, text in said(record))
        listed = await anyio.to_thread.run_sync(own_rows, f"{name}?split=train")
        assert [row["reset"] for row in listed] == [{"split": "train", "index": n} for n in range(5)]
        assert len({row["openenv_task"] for row in listed}) == 5
        assert [one.reward for one in await made(system, name, listed[:3])] == rewards[::2]
        (cut,) = await made(system, name, own_rows(name, 1), max_turns=1)
        assert cut.reward in (1.0, -0.1)
    async with real_server("higher") as name, guest(name, answer(act('{"guess": 1001}'))) as system:
        (record,) = await made(system, name, own_rows(name, 1), max_attempts=1)
        assert isinstance(record.outcome, Failed)
        assert "the environment is broken" in record.outcome.fault.message


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_openenvs_own_server_with_one_session() -> None:
    pytest.importorskip("openenv", reason="needs openenv: pip install openenv")
    async with real_server("echo") as name, guest(name, answer("abc"), answer("de")) as system:
        records = await made(system, name, own_rows(name, 3))
    assert [record.reward for record in records] == [5.0] * 3
