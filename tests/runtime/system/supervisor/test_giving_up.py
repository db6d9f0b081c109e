"""The supervisor gives up on what cannot start, and says why."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from gym_runtime.client import make_pools
from gym_runtime.errors import UsageError
from gym_runtime.rpc.quarantine import MAX_DEATHS
from gym_runtime.system.slot import MAX_FALSE_STARTS, Deaths, Slot
from gym_runtime.system.spec import Event, PoolSpec, SystemSpec
from gym_runtime.system.system import running
from gym_runtime.workers.adapter import ModelSettings
from runtime.system.supervisor.supervised import NAME, is_empty, model, spec
from time_limits import busy

pytestmark = [pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(60)]


CRASHING = """
import os
from gym_runtime import Environment, Reply, Task, Verdict
{crash}

def verify(task: Task, reply: Reply) -> Verdict:
    return Verdict(1.0)

environment = Environment(resource=verify, description="crashes")
"""


async def test_a_worker_that_never_gets_ready_is_given_up_soon(tmp_path: Path) -> None:
    module = tmp_path / "crashing.py"
    module.write_text(CRASHING.format(crash="os._exit(7)"))
    said: list[Event] = []
    pools = (PoolSpec(kind="resource", names=(str(module),)),)
    message = "status 7; it failed 5 times to get ready"
    with anyio.fail_after(15 * busy()), pytest.raises(UsageError, match=message):
        async with running(SystemSpec(pools=pools), said.append):
            pass
    assert [event.event for event in said].count("restarted") == MAX_FALSE_STARTS - 1


def test_a_process_that_dies_again_and_again_is_given_up() -> None:
    deaths = Deaths(20, 60.0)
    assert [deaths.count("it died") for _ in range(20)] == [*range(1, 21)]
    with pytest.raises(UsageError, match=r"^it died, 21 times within 60 s; see its log above$"):
        deaths.count("it died")


def test_thirty_rows_that_end_their_workers_end_no_system() -> None:
    slot = Slot(PoolSpec(kind="resource", names=(NAME,)))
    for _ in range(30 * MAX_DEATHS):
        slot.ready = True
        slot.put_off("it died")


@pytest.mark.parametrize(
    ("pool", "message"),
    [
        (PoolSpec(kind="model", names=("policy",)), "does not say which model; give --model PROVIDER/NAME"),
        (
            PoolSpec(kind="model", names=("policy",), model=ModelSettings.parse("scripted/ecko")),
            "there is no script 'ecko'; did you mean 'echo'",
        ),
        (
            PoolSpec(kind="model", names=("policy",), model=ModelSettings.parse("opnai/x")),
            "there is no model 'opnai'; did you mean 'openai'",
        ),
    ],
)
async def test_a_worker_that_says_why_it_cannot_start_stops_everything_with_that_reason(
    pool: PoolSpec, message: str, temporary: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    others = make_pools([NAME], model())
    with anyio.fail_after(15 * busy()), pytest.raises(UsageError, match=message):
        async with running(SystemSpec(pools=(*others, pool))):
            pass
    assert is_empty(temporary)
    assert "Traceback" not in capfd.readouterr().err


ADAPTER = """
class Adapter:
    def __init__(self{settings}): ...
    async def {enter}(self): ...
    async def __aexit__(self, *exception): ...
"""


UNTYPED = """
from gym_runtime import Environment, Verdict
def verify(task, reply): return Verdict(1.0)
environment = Environment(resource=verify, description="")
"""


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (
            "model",
            ADAPTER.format(settings="", enter="__aenter__"),
            r"shout.py: its class 'Adapter' must take __init__\(self, ModelSettings\): too many",
        ),
        (
            "model",
            ADAPTER.format(settings=", settings", enter="enter"),
            "shout.py: its class 'Adapter' needs the methods __aenter__ and __aexit__, both async",
        ),
        ("agent", "class Loop: ...", r"^shout\.py has no class 'Agent'$"),
        (
            "agent",
            "class Agent:\n    def __init__(self, settings): ...\n    async def run(self, rollout): ...",
            r"must take __init__\(self\): missing a required argument: 'settings'",
        ),
        ("resource", UNTYPED, r"shout.py:3: verify's first parameter must be annotated with a subclass of"),
    ],
)
async def test_a_module_that_lacks_what_it_is_for_is_one_line_at_once(
    kind: Any, text: str, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    module = tmp_path / "shout.py"
    module.write_text(text)
    settings = ModelSettings(provider=str(module), name="x") if kind == "model" else None
    pool = PoolSpec(kind=kind, names=("policy" if settings else str(module),), model=settings)
    said: list[Event] = []
    with anyio.fail_after(15 * busy()), pytest.raises(UsageError, match=message) as caught:
        async with running(SystemSpec(pools=(pool,)), said.append):
            pass
    assert "\n" not in str(caught.value)
    assert "restarted" not in [event.event for event in said]
    assert "Traceback" not in capfd.readouterr().err


LOCKED = """
class Adapter:
    def __init__(self, settings): ...
    async def __aenter__(self): raise RuntimeError("no licence")
    async def __aexit__(self, *exception): ...
"""


async def test_an_adapter_that_raises_at_its_start_is_named_with_one_traceback(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    module = tmp_path / "locked.py"
    module.write_text(LOCKED)
    pool = PoolSpec(kind="model", names=("policy",), model=ModelSettings(provider=str(module), name="x"))
    message = r"ended: RuntimeError: no licence \(.*locked.py:4\); it failed 5 times to get ready"
    with anyio.fail_after(15 * busy()), pytest.raises(UsageError, match=message):
        async with running(SystemSpec(pools=(pool,))):
            pass
    written = capfd.readouterr().err
    assert written.count("Traceback") == 1
    assert written.count("RuntimeError: no licence") == MAX_FALSE_STARTS


async def test_a_broker_that_is_not_there_is_one_line_within_seconds(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with anyio.fail_after(15 * busy()), pytest.raises(UsageError) as raised:
        async with running(spec(nats=("nats://127.0.0.1:1",))):
            pass
    assert "127.0.0.1:1" in raised.value.message
    assert "\n" not in raised.value.message
    assert "Traceback" not in capfd.readouterr().err


async def test_a_specification_that_cannot_be_read_is_one_line() -> None:
    command = [sys.executable, "-m", "gym_runtime.system.supervisor"]
    process = await anyio.run_process(command, input=b'{"pool": []}\n', check=False)
    assert process.returncode == 2
    assert b"the system's description cannot be read" in process.stdout
    assert b"pool" in process.stdout
