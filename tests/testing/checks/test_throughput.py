"""What environments cost: that everything is measured. How much it is stands in ``tests/bench``."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest
from gym_runtime.cli import main
from gym_runtime.environment import catalogue
from gym_runtime.errors import ResourceError
from gym_testing.checks import cpu_meter, throughput
from gym_testing.checks.throughput import Cost, Meter

pytestmark = pytest.mark.anyio


def whole(cost: Cost) -> bool:
    return cost.calls > 0 and cost.per_s > 0 and cost.wall_us > 0 and cost.cpu_us > 0


async def test_a_stateless_environment_is_measured() -> None:
    found = await throughput.measure(catalogue.environment("xstest"), 0.05)
    assert (found.environment, found.shape, found.isolated, found.tools) == ("xstest", "verify", False, {})
    assert whole(found.gold)
    assert whole(found.silence)
    assert found.session.calls == found.gold.calls + found.silence.calls


async def test_a_measurement_can_be_cancelled() -> None:
    with anyio.move_on_after(0.2) as scope:
        await throughput.measure(catalogue.environment("xstest"), 3600.0)
    assert scope.cancelled_caught


@pytest.mark.slow
async def test_tools_and_steps_are_measured_by_name() -> None:
    found = await throughput.measure(catalogue.environment("example_session_state_mgmt"), 0.05)
    assert set(found.tools) == {"increment_counter", "get_counter_value"}
    assert all(whole(cost) for cost in found.tools.values())
    found = await throughput.measure(catalogue.environment("blackjack"), 0.05)
    assert set(found.tools) == {"reset", "step"}


SLOW_AT_FIRST = '''"""Each kind of row reads a table at its first use."""
import time
from gym_runtime import Environment, Reply, Task, Verdict

tables = set()


class Kind(Task):
    kind: str


async def verify(task: Kind, reply: Reply) -> Verdict:
    for table in (task.kind, bool(reply.text)):
        if table not in tables:
            tables.add(table)
            time.sleep(0.3)
    return Verdict(1.0)


environment = Environment(resource=verify, description="Slow at first.")
'''


@pytest.mark.slow
async def test_what_is_slow_at_first_is_start_up_and_is_not_measured(tmp_path: Path) -> None:
    (tmp_path / "slow_at_first.py").write_text(SLOW_AT_FIRST)
    rows = [{"responses_create_params": {"input": "x"}, "kind": kind, "gold": "y"} for kind in "abc"]
    (tmp_path / "slow_at_first.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = await throughput.measure(catalogue.environment(str(tmp_path / "slow_at_first.py")), 0.05)
    assert found.gold.wall_us < 100_000
    assert found.silence.wall_us < 100_000


@pytest.fixture(params=["a control group", "samples"])
def others_ns(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    if request.param == "samples":
        monkeypatch.setattr(cpu_meter, "_version_1", lambda: None)
        monkeypatch.setattr(cpu_meter, "_version_2", lambda: None)
    with cpu_meter.cpu_meter() as meter:
        if meter.counted_by != request.param:
            pytest.skip("no control group can be made here")
        yield meter.others_ns


def test_work_is_counted_here_and_in_processes_that_were_started(others_ns: Callable[[], int]) -> None:
    meter = Meter(others_ns)
    with meter.timing(4):
        started = time.process_time()
        while time.process_time() - started < 0.02:
            hashlib.sha256(bytes(10_000))
    cost = meter.cost()
    assert cost.calls == 4
    tick_us = 10_000 / cost.calls  # a control group counts in ticks of 10 ms
    assert 4_900 - tick_us <= cost.cpu_us <= cost.wall_us + tick_us
    assert cost.per_s == pytest.approx(1e6 / cost.wall_us)
    assert meter.cost(at_once=2).wall_us == 2 * cost.wall_us

    meter = Meter(others_ns)
    code = "import time\nwhile time.process_time() < 0.1: pass"
    with meter.timing():
        subprocess.run([sys.executable, "-c", code], check=True)
    assert meter.cost().cpu_us > 80_000  # samples miss its last milliseconds


def test_work_of_processes_that_nobody_waited_for_is_counted(others_ns: Callable[[], int]) -> None:
    meter = Meter(others_ns)
    spin = "import time\nwhile time.process_time() < 0.1: pass\nprint(flush=True)"
    code = f"import os, signal\nif os.fork() == 0:\n  exec({spin!r})\n  os._exit(0)\nsignal.pause()"
    with meter.timing(), subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.read(1) == b"\n"
        child.kill()
    assert meter.cost().cpu_us > 80_000


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the system does not tell")
def test_work_of_a_process_that_goes_on_is_counted(others_ns: Callable[[], int]) -> None:
    code = "import time\nwhile time.process_time() < 0.1: pass\nprint(flush=True)\ninput()"
    meter = Meter(others_ns)
    command = [sys.executable, "-c", code]
    with meter.timing():
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        child.stdout.readline()
    with child:
        child.communicate("\n")
    assert meter.cost().cpu_us > 90_000


ISOLATED = '''"""Judged in its own process."""
from gym_runtime import Environment, Reply, Task, Verdict


async def verify(task: Task, reply: Reply) -> Verdict:
    return Verdict(float(sum(range(200_000)) > 0 and reply.text == "yes"))


environment = Environment(resource=verify, description="Adds.", isolated=True)
'''
ROW = {"responses_create_params": {"input": "Well?"}, "gold": "yes"}


@pytest.mark.slow
async def test_a_heavy_environment_is_measured_where_it_is_judged(tmp_path: Path) -> None:
    (tmp_path / "adds_up.py").write_text(ISOLATED)
    (tmp_path / "adds_up.jsonl").write_text(json.dumps(ROW) + "\n")
    found = await throughput.measure(catalogue.environment(str(tmp_path / "adds_up.py")), 0.3)
    assert found.isolated
    assert found.gold.cpu_us > 500
    assert found.silence.calls > 0


@pytest.mark.parametrize("where", ["", "isolated=True"])
async def test_an_environment_that_fails_says_so(where: str, tmp_path: Path) -> None:
    module = ISOLATED.replace("isolated=True", where).replace("sum(", "None + sum(")
    (tmp_path / "fails_always.py").write_text(module)
    (tmp_path / "fails_always.jsonl").write_text(json.dumps(ROW) + "\n")
    with pytest.raises(ResourceError, match="TypeError"):
        await throughput.measure(catalogue.environment(str(tmp_path / "fails_always.py")), 0.1)


@pytest.mark.slow
def test_bench_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["bench", "xstest", "blackjack", "--seconds", "0.05"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        "environment", "verdicts/s", "CPU", "µs", "silent,", "CPU", "µs", "session,", "CPU", "µs", "tools,",
        "CPU", "µs",
    ]  # fmt: skip
    assert [line.split()[0] for line in lines[1:3]] == ["xstest", "blackjack"]
    assert lines[3].startswith("CPU ")
    assert " step " in lines[2]


def test_bench_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["bench", "xstest", "--seconds", "0.05", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)[0]
    assert found["environment"] == "xstest"
    assert set(found["throughput"]["gold"]) == {"calls", "per_s", "wall_us", "cpu_us"}


@pytest.mark.parametrize("line", ["bench", "bench xstest --all", "bench xtsest"])
def test_a_mistake_is_one_line_and_status_2(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(line.split()) == 2
    assert capsys.readouterr().err.count("\n") == 1
