from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import msgspec
import psutil
import pytest
from gym_runtime.environment import catalogue
from gym_runtime.environment.candidates import as_features
from gym_runtime.environment.isolated import run_isolated, verify_isolated
from gym_runtime.environment.roles import Models
from gym_runtime.environment.verdict import Pending, make_response
from gym_runtime.errors import ResourceError, TaskError, UsageError
from gym_runtime.messages.comparison import Candidate
from gym_runtime.processes.child import wait_for_end
from gym_runtime.sandbox import frames, verifiers, warm
from runtime.bounds import bounds as bounds

from runtime import sandboxed_functions

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(60)]

MODULE = '''"""Heavy in the ways that the row asks for."""

import os, re, signal, subprocess, time

from gym_runtime import Environment, Pending, Reply, Session, Task, Verdict, tool


class HeavyTask(Task):
    how: str


class Heavy(Session[HeavyTask]):
    async def open(self) -> None:
        self.count = 0

    @tool
    def count_up(self) -> int:
        """Count."""
        self.count += 1
        return self.count

    async def verify(self, reply: Reply) -> Verdict:
        how = self.task.how
        if how == "raise":
            raise ZeroDivisionError("by nought")
        if how == "spin":
            while True:
                pass
        if how == "stubborn":
            signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
            re.match("(a|aa)+$", 1000 * "a" + "b")
        if how == "bomb":
            while True:
                try:
                    os.fork()
                except OSError:
                    pass
        if how == "hoard":
            for _ in range(3):
                if os.fork() == 0:
                    hoard = os.urandom(1 << 20) * 50
                    time.sleep(600)
            time.sleep(600)
        if how in ("leave", "leave and die"):
            left = subprocess.Popen(["sleep", "600"], env={"MARK": "heavy-test-left"}, start_new_session=True)
            if how == "leave and die":
                os._exit(3)
            left.returncode = 0
        if how == "die":
            os._exit(3)
        if how == "fork":
            mark = "heavy-test-mark"
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    subprocess.run(["sleep", "600"], env={"MARK": mark})
                os._exit(0)
            time.sleep(600)
        if how == "memory":
            bytearray(1 << 40)
        if how == "flood":
            with open("flood", "wb") as file:
                file.truncate(1 << 40)
        if how == "chatter":
            print("chatter", flush=True)
            os.write(1, b"RETURN 5\\n")
            subprocess.run(["echo", "noise"], check=True)
            assert subprocess.run(["cat"], check=True, capture_output=True).stdout == b""
        if how == "wait":
            return Pending({"count": self.count, "pid": os.getpid()})
        return Verdict(float(self.count), fields={"pid": os.getpid()})


async def compare(candidates):
    return [Verdict(float(os.getpid())) for _ in candidates.rollout_indices]


environment = Environment(resource=Heavy, compare=compare, description="Heavy.", isolated=True)
'''
A_SPARE_ONE = 5  # processes: a shell or two, bubblewrap's, the warm one
CALL = {"type": "function_call", "call_id": "c", "name": "count_up", "arguments": "{}"}
COUNTED = {"type": "function_call_output", "call_id": "c", "output": "{}"}


@pytest.fixture
def module(tmp_path: Path) -> str:
    path = tmp_path / "heavy_module.py"
    path.write_text(MODULE)
    return str(path)


def row(how: str) -> bytes:
    return b'{"responses_create_params": {}, "how": "%s"}' % how.encode()


async def test_calls_are_replayed_and_the_verdict_comes_back_whatever_the_verifier_prints(
    module: str,
) -> None:
    verdict = await verify_isolated(
        module, row("chatter"), make_response(CALL, COUNTED, CALL, COUNTED, "done"), 15
    )
    assert verdict.reward == 2.0
    assert verdict.fields["pid"] != os.getpid()
    again = await verify_isolated(module, row("chatter"), make_response("done"), 15)
    assert again.reward == 0.0
    assert again.fields != verdict.fields


async def test_a_rollout_may_wait_for_its_group_whose_comparison_is_not_isolated(module: str) -> None:
    pending = await verify_isolated(module, row("wait"), make_response(CALL, COUNTED, "done"), 15)
    assert isinstance(pending, Pending)
    assert pending.features["count"] == 1
    assert pending.features["pid"] != os.getpid()
    candidates = [Candidate(rollout_index=index, features=as_features(pending.features)) for index in (0, 1)]
    resource = catalogue.environment(module).resource
    assert [one.reward for one in await resource.compare(row("wait"), candidates, Models())] == [
        float(os.getpid())
    ] * 2


async def test_what_goes_wrong_is_a_fault_and_the_next_one_is_judged(module: str) -> None:
    silence = make_response()
    with pytest.raises(ResourceError, match="ZeroDivisionError: by nought"):
        await verify_isolated(module, row("raise"), silence, 15)
    with pytest.raises(TaskError, match="missing required field `how`"):
        await verify_isolated(module, b'{"responses_create_params": {}}', silence, 15)
    with pytest.raises(ResourceError, match="the process that verified died"):
        await verify_isolated(module, row("die"), silence, 15)
    with pytest.raises(ResourceError, match=r"verification took longer than 0.2 s"):
        await verify_isolated(module, row("spin"), silence, 0.2)
    assert (await verify_isolated(module, row(""), silence, 15)).reward == 0.0


async def test_cancelling_kills_the_process() -> None:
    await run_isolated(sandboxed_functions.pid, timeout_s=15)
    before = descendants()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(run_isolated, sandboxed_functions.sleep, 60.0, timeout_s=60))
        with anyio.fail_after(15):
            while not asleep():
                await anyio.sleep(0.02)
        tasks.cancel_scope.cancel()
    assert descendants() <= before


def asleep() -> bool:
    """Whether a fork is at work: a warm process has a child."""
    return any(len(process.parents()) >= 5 for process in psutil.Process().children(recursive=True))


async def test_more_calls_than_processes_wait_without_spending_their_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    done: list[float] = []

    async def work() -> None:
        await run_isolated(sandboxed_functions.sleep, 0.3, timeout_s=1)
        done.append(time.monotonic())

    async with anyio.create_task_group() as tasks:
        for _ in range(6):
            tasks.start_soon(work)
    assert len(done) == 6
    assert done[-1] - done[0] >= 0.5


def descendants() -> set[int]:
    return {process.pid for process in psutil.Process().children(recursive=True)}


def with_mark(mark: str) -> list[int]:
    found: list[int] = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("MARK") == mark:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


async def test_descendants_die_too_even_daemons(module: str) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_times_out, module, "fork", 3)
        with anyio.fail_after(15):
            while not with_mark("heavy-test-mark"):
                await anyio.sleep(0.02)
    assert not with_mark("heavy-test-mark")


async def test_what_a_verifier_leaves_behind_ends_with_its_call(module: str) -> None:
    verdict = await verify_isolated(module, row("leave"), make_response(), 15)
    assert not with_mark("heavy-test-left")
    assert verdict.reward == 0.0
    with pytest.raises(ResourceError, match="the process that verified died"):
        await verify_isolated(module, row("leave and die"), make_response(), 15)
    assert not with_mark("heavy-test-left")


async def test_one_that_blocks_signals_and_spins_in_native_code_is_killed(module: str) -> None:
    before = descendants()
    await _times_out(module, "stubborn", 0.3)
    assert len(descendants() - before) <= A_SPARE_ONE


async def test_processes_are_limited(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm, "LIMITS", msgspec.structs.replace(warm.LIMITS, processes=16))
    before = descendants()
    with pytest.raises(ResourceError, match=r"processes at a time, more than|took longer than 1 s"):
        await verify_isolated(module, row("bomb"), make_response(), 1)
    assert len(descendants() - before) <= A_SPARE_ONE


async def test_the_memory_of_all_its_processes_is_limited(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = msgspec.structs.replace(warm.LIMITS, memory_bytes=120 << 20, disk_bytes=4 << 20)
    monkeypatch.setattr(warm, "LIMITS", limits)
    before = descendants()
    with pytest.raises(ResourceError, match=r"verified died: .*MiB of memory in"):
        await verify_isolated(module, row("hoard"), make_response(), 10)
    assert len(descendants() - before) <= A_SPARE_ONE


async def test_a_module_that_cannot_be_loaded_says_so_each_time(tmp_path: Path) -> None:
    raises, ends = tmp_path / "raises.py", tmp_path / "ends.py"
    raises.write_text("1 / 0")
    ends.write_text("import os; os._exit(3)")
    for _ in range(3):  # and no input is blamed
        with pytest.raises(UsageError, match="ZeroDivisionError"):
            await verify_isolated(str(raises), row(""), make_response(), 15)
        with pytest.raises(ResourceError, match="ended while it imported"):
            await verify_isolated(str(ends), row(""), make_response(), 15)


async def test_an_idle_process_that_the_system_has_killed_is_no_inputs_fault() -> None:
    await run_isolated(sandboxed_functions.pid, timeout_s=15)
    for process in psutil.Process().children():
        if process.name() == "bwrap":
            process.kill()
            await wait_for_end(process.pid)
    assert await run_isolated(sandboxed_functions.pid, timeout_s=15)


async def _times_out(module: str, how: str, timeout_s: float) -> None:
    with pytest.raises(ResourceError, match="took longer"):
        await verify_isolated(module, row(how), make_response(), timeout_s)


async def test_memory_and_file_size_are_limited(module: str) -> None:
    with pytest.raises(ResourceError, match="MemoryError"):
        await verify_isolated(module, row("memory"), make_response(), 15)
    with pytest.raises(ResourceError, match=r"OSError.*File too large"):
        await verify_isolated(module, row("flood"), make_response(), 15)


async def test_an_input_that_has_killed_two_processes_is_refused(module: str) -> None:
    silence = make_response("quarantine me")
    for _ in range(2):
        with pytest.raises(ResourceError, match="the process that verified died"):
            await verify_isolated(module, row("die"), silence, 15)
    with pytest.raises(
        ResourceError, match=r"quarantined: a rollout of 'heavy_module' \(sha256 [0-9a-f]{12}\)"
    ):
        await verify_isolated(module, row("die"), silence, 15)
    assert (await verify_isolated(module, row(""), silence, 15)).reward == 0.0


async def test_each_call_has_a_fork_of_its_own_of_the_same_process() -> None:
    forks = {await run_isolated(sandboxed_functions.pid, timeout_s=15) for _ in range(5)}
    assert len(forks) == 5
    assert len({await run_isolated(sandboxed_functions.parent, timeout_s=15) for _ in range(3)}) == 1


def test_a_process_whose_worker_ended_while_it_started_ends_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    start = frames.encode_start(frames.Start(function=frames.name(sandboxed_functions.pid), isolated=False))
    program = [sys.executable, "-P", "-c", warm.PROGRAM, *sys.path]
    frame = frames.LENGTH.pack(len(start)) + start
    orphan = subprocess.run(program, input=frame, capture_output=True, check=True, timeout=15)
    assert orphan.stdout == b""
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as served:
        assert served.stdin
        assert served.stdout
        served.stdin.write(frame)
        served.stdin.flush()
        assert served.stdout.read(frames.LENGTH.size)
        served.stdin.close()


async def test_limits_count_processor_time() -> None:
    await run_isolated(sandboxed_functions.sleep, 0.6, timeout_s=0.2)
    with pytest.raises(TimeoutError, match=r"0.2 s of processor time"):
        await run_isolated(sandboxed_functions.spin, 60.0, timeout_s=0.2)
    assert await run_isolated(sandboxed_functions.pid, timeout_s=15)


async def test_what_only_waits_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifiers, "WALL_S", 0.2)
    with pytest.raises(TimeoutError, match=r"^1 s$"):
        await run_isolated(sandboxed_functions.sleep, 60.0, timeout_s=0.2)


async def test_only_named_functions_are_called_and_only_typed_results_come_back() -> None:
    with pytest.raises(TypeError, match="not the function of a module"):
        await run_isolated(lambda: None, timeout_s=15)
    with pytest.raises(ResourceError, match="Expected `str`, got `int`"):
        await run_isolated(sandboxed_functions.run, 5, timeout_s=15)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ResourceError, match="the verifier's result cannot be read"):
        await run_isolated(sandboxed_functions.wrong, timeout_s=15)


async def test_an_answer_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ResourceError, match=r"died: an answer of \d+ bytes, more than 67108864"):
        await run_isolated(sandboxed_functions.run, f"said = {frames.ANSWER_BYTES + 1} * 'x'", timeout_s=15)


async def test_calls_that_hang_do_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    monkeypatch.setattr(verifiers, "USUAL_S", 0.01)

    async with anyio.create_task_group() as tasks:
        for number in range(6):
            tasks.start_soon(
                partial(run_isolated, sandboxed_functions.sleep, 1000.0 + number, timeout_s=1000)
            )
        await anyio.lowlevel.checkpoint()
        await run_isolated(sandboxed_functions.pid, timeout_s=15)
        tasks.cancel_scope.cancel()


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="the kernel does not group by session")
async def test_who_overruns_has_the_lowest_priority_in_and_among_sessions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verifiers, "USUAL_S", 0.01)

    def low() -> bool:
        for pid in descendants():
            with suppress(psutil.Error, OSError):  # it may have ended
                session = Path(f"/proc/{pid}/autogroup").read_text()
                if psutil.Process(pid).nice() == 19 and session.endswith("nice 19\n"):
                    return True
        return False

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(run_isolated, sandboxed_functions.sleep, 1000.0, timeout_s=1000))
        with anyio.fail_after(15):
            while not low():
                await anyio.sleep(0.02)
        tasks.cancel_scope.cancel()
