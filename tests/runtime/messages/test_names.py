"""Tokens of subjects: which names may be one, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import msgspec
import pytest
from gym_runtime.client import Client, RunInfo
from gym_runtime.client.run import Run
from gym_runtime.errors import UsageError
from gym_runtime.messages.names import MAX_CHARS, rollout_token, token
from gym_runtime.messages.outcomes import Failed, decode_record
from gym_runtime.messages.rollout_spec import RolloutSpec, decode_spec, encode_spec
from gym_runtime.rpc.ask import Router
from gym_runtime.rpc.members import Heartbeat, encode_heartbeat
from gym_testing.background import hosting
from gym_testing.small_system import Engine, answer, small_system
from tables import table

NO_TOKENS = [
    *("", "*", ">", "a.b", ".", "..", "a b", " a", "a\t", "a\n", "\na", "a\0", "a\x7f", "a\x85", "a\u2028"),
    *("run.>", "run.*", "*.*", "a\ud800", "x" * (MAX_CHARS + 1)),
]


@table("name", NO_TOKENS)
def test_what_is_no_token_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot name a run"):
        token(name, "run")
    with pytest.raises(UsageError):
        rollout_token(f"{name}.0.0")


@pytest.mark.parametrize(
    "name", ["a", "20261122-134058-a1b2c3", "Qwen/Qwen3-4B", "modèle_2", "x" * MAX_CHARS]
)
def test_what_is_a_token_stays_as_it_is(name: str) -> None:
    assert token(name, "model") == name
    assert rollout_token(f"{name}.12.3") == f"{name}.12.3"


@table(
    ("field", "name"),
    product(
        ["run", "environment", "agent", "model"],
        [name for name in NO_TOKENS if name.isprintable() or name.isascii()],
    ),
)
def test_no_task_with_such_a_name_is_decoded(field: str, name: str) -> None:
    task = {"run": "r", "task_index": 0, "rollout_index": 0, "environment": "e", "agent": "a", "row": {}}
    assert decode_spec(msgspec.json.encode(task)).run == "r"
    with pytest.raises(msgspec.ValidationError):
        decode_spec(msgspec.json.encode(task | {field: name}))


@pytest.mark.anyio
@pytest.mark.parametrize("name", NO_TOKENS, ids=repr)
async def test_no_client_does_anything_with_such_a_name(name: str) -> None:
    """What is waiting stays, whatever is asked for."""
    other = RolloutSpec(
        run="other", task_index=0, rollout_index=0, environment="e", agent="a", row=msgspec.Raw(b"{}")
    )
    async with small_system() as system, hosting() as tasks:
        gym = Client(system.bus, tasks)
        await gym.driver.open_run(RunInfo(run="other", total=1))
        await gym.driver.publish([other])
        before = await gym.driver.bus.counts("runs.>")
        info = RunInfo(run=name, total=1)
        replace = msgspec.structs.replace
        row = {"responses_create_params": {"input": "go"}, "options": [{"A": "x"}], "expected_answer": "A"}
        asked: list[Callable[[], Any]] = [
            lambda: gym.cancel(name),
            lambda: gym.cancel(name, 0),
            lambda: gym.cancel(name, 0, 0),
            lambda: gym.run(name),
            lambda: gym.driver.open_run(info),
            lambda: gym.driver.open_run(RunInfo(run="new", total=1, agents=[name])),
            lambda: gym.driver.open_run(RunInfo(run="new", total=1, environments=[name])),
            lambda: gym.driver.finish_run(info),
            lambda: gym.driver.close_run(info),
            lambda: anext(gym.collect(name)),
            lambda: Run(gym.driver, info, lambda record: None, total=1).follow(),
            lambda: Run(gym.driver, info, lambda record: None).attached().__aenter__(),
            lambda: gym.driver.publish([replace(other, run=name)]),
            lambda: gym.driver.publish([replace(other, agent=name)]),
            lambda: gym.driver.publish([replace(other, environment=name)]),
            lambda: gym.driver.publish([replace(other, model=name)]),
            lambda: anext(gym.rollouts([row], environment="mcqa", model_pool=name)),
        ]
        for ask in asked:
            with pytest.raises(BaseException) as raised:  # noqa: PT011 - a task group may wrap it
                await ask()
            assert "cannot name a" in repr(leaf(raised.value))
        assert await gym.driver.bus.counts("runs.>") == before
        assert (await gym.run("other")).state == "active"
        assert await gym.driver.bus.counts("task.>") == {"task.a.e.other": 1}
        assert len(await gym.runs()) == 1


def leaf(error: BaseException) -> BaseException:
    return leaf(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


@pytest.mark.anyio
async def test_a_task_for_an_agent_that_its_worker_does_not_serve_fails_by_name() -> None:
    task = RolloutSpec(
        run="r", task_index=0, rollout_index=0, environment="e", agent="../trap", row=msgspec.Raw(b"{}")
    )
    other = msgspec.structs.replace(task, rollout_index=1, agent="trap")
    async with small_system() as system:
        await system.add_model(Engine(answer("x")), capacity=1)
        await system.add_agent()
        for sent in (task, other):
            await system.bus.enqueue("task.tool_loop.e.r", encode_spec(sent))
        async for stored in system.bus.records("rollout.r.>"):
            record = decode_record(stored.payload)
            assert isinstance(record.outcome, Failed)
            if record.rollout_index == 1:
                assert "does not serve agent 'trap'" in record.outcome.fault.message
                break
            assert "cannot be read" in record.outcome.fault.message


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_member_that_cannot_be_read_ends_no_search_for_workers() -> None:
    good = Heartbeat(worker="model-1", kind="model", pools=["policy"])
    payloads = {
        "model.a": b"{",
        "model.b": encode_heartbeat(msgspec.structs.replace(good, worker="a.b")),
        "model.c": encode_heartbeat(msgspec.structs.replace(good, pools=["*"])),
        "model.model-1": encode_heartbeat(good),
    }
    async with small_system() as system, hosting() as tasks:

        async def join() -> None:
            for name, payload in payloads.items():
                await system.bus.publish(f"join.{name}", payload)

        gym = Client(system.bus, tasks)
        async with system.bus.serve("call", lambda _: tasks.start_soon(join)):
            assert [one.worker for one in await gym.workers()] == ["model-1"]
        for pool, worker in (("*", "model-1"), ("policy", "*"), ("policy.>", "x")):
            with pytest.raises(UsageError, match="cannot name a"):
                await Router(system.bus).close_session(pool, worker, "s")
