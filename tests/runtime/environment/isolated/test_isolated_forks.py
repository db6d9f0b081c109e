"""Isolated verification: forks, processor time, answers, calls that hang."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import msgspec
import psutil
import pytest
from gym_runtime.environment.isolated import run_isolated
from gym_runtime.errors import ResourceError
from gym_runtime.system.slot import GC_THRESHOLD
from gym_sandbox import frames, pool, server_process
from gym_sandbox.processes import priority
from gym_sandbox.verifier import verifier
from runtime.bounds import bounds as bounds
from runtime.environment.isolated.heavy_module import descendants

from runtime import sandboxed_functions

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(60)]


async def test_each_call_has_a_fork_of_its_own_of_the_same_process() -> None:
    forks = {await run_isolated(sandboxed_functions.pid, timeout_s=15) for _ in range(5)}
    assert len(forks) == 5
    assert len({await run_isolated(sandboxed_functions.parent, timeout_s=15) for _ in range(3)}) == 1


def test_a_process_whose_worker_ended_while_it_started_ends_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    start = frames.encode_start(
        frames.Start(
            function=frames.name(sandboxed_functions.pid),
            explain=frames.name(frames.explained),
            isolated=False,
        )
    )
    program = [sys.executable, "-P", "-c", server_process.PROGRAM, *sys.path]
    frame = frames.LENGTH.pack(len(start)) + start
    orphan = subprocess.run(program, input=frame, capture_output=True, check=True, timeout=40)
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
    monkeypatch.setattr(pool, "WALL_S", 0.2)
    with pytest.raises(TimeoutError, match=r"^1 s$"):
        await run_isolated(sandboxed_functions.sleep, 60.0, timeout_s=0.2)


async def test_only_named_functions_are_called_and_only_typed_results_come_back() -> None:
    with pytest.raises(TypeError, match="not the function of a module"):
        await run_isolated(lambda: None, timeout_s=15)
    with pytest.raises(ResourceError, match="Expected `str`, got `int`"):
        await run_isolated(sandboxed_functions.run, 5, timeout_s=15)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ResourceError, match="the verifier's result cannot be read"):
        await run_isolated(sandboxed_functions.wrong, timeout_s=15)


async def test_a_fork_that_ends_right_after_its_answer_has_answered() -> None:
    """The end of its answer is still in the pipe when the process that forks finds that it has ended."""
    for number in range(20):
        code = f"import time; time.sleep(0.06); said = 100_000 * 'x' + '{number}'"
        assert len(await run_isolated(sandboxed_functions.run, code, timeout_s=15)) > 100_000


async def test_an_answer_may_be_long_and_has_a_limit() -> None:
    for length in (1_000_000, 5, 3_000_000):
        assert (
            await run_isolated(sandboxed_functions.run, f"said = {length} * 'x'", timeout_s=15)
            == length * "x"
        )
    with pytest.raises(ResourceError, match=r"died: an answer of \d+ bytes, more than 16777216"):
        await run_isolated(sandboxed_functions.run, f"said = {frames.ANSWER_BYTES + 1} * 'x'", timeout_s=15)


HIJACKED = """
import os
body = b'{"type":"done","result":[' + b'0,' * 2_000_000 + b'0]}'
for descriptor in range(3, 64):
    try:
        written = os.write(descriptor, body)
    except OSError:
        continue
    assert written == len(body)
os._exit(0)
"""


async def test_an_answer_of_too_many_values_is_not_decoded() -> None:
    """A reply that has taken over its fork writes the answer itself."""
    with pytest.raises(ResourceError, match="died: its answer has more values than a verdict has"):
        await run_isolated(sandboxed_functions.run, HIJACKED, timeout_s=15)


@pytest.mark.parametrize(
    "piece", [",", "{", "[],", '{"', '"{', "\\{", '\\"{', '\\\\"[,', '",', "\n{", "\0["], ids=repr
)
def test_a_text_of_a_million_characters_may_be_decoded(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))
    answer = frames.encode_answer({"type": "done", "result": {"a": text, "b": [text]}})
    began_s = time.thread_time()
    assert frames.is_decodable(answer) is (len(answer) <= frames.TEXTS_BYTES)
    assert time.thread_time() - began_s < 0.05


@pytest.mark.parametrize("text", ["", "{", '"', "\\", '\\"', '\\\\"', '",{"', "[[" * 20_000])
@pytest.mark.parametrize("values", [b"[]", b'"x"', b'{"a":0}', b"0"])
def test_too_many_values_are_found_behind_any_text(text: str, values: bytes) -> None:
    many = b",".join([values] * (frames.ANSWER_VALUES + 2))
    before = frames.encode_answer(text)
    for answer in (b"[%b,%b]" % (before, many), b"[%b,%b,%b]" % (before, before, many)):
        assert not frames.is_decodable(answer)


@pytest.mark.parametrize("place", ["result", "unknown"])
async def test_an_answer_that_is_nested_too_deeply_is_a_failure_of_its_call(place: str) -> None:
    """Decoding it would exceed the interpreter's limit on recursion."""
    body = f"""b'{{"type":"done","result":"","{place}":' + b'[' * 40_000 + b']' * 40_000 + b'}}'"""
    code = re.sub(r"body = .*", lambda _: f"body = {body}", HIJACKED)
    with pytest.raises(ResourceError, match="recursion depth exceeded"):
        await run_isolated(sandboxed_functions.run, code, timeout_s=15)


@pytest.mark.parametrize(
    "piece", [b"{}", b"[]", b"0", b"1e9", b'"x"', b'"' + b"x" * 50 + b'"', b'{"a":0}', b"[[0]]"]
)
def test_what_may_be_decoded_is_decoded_within_50_ms(piece: bytes) -> None:
    containers = piece.count(b"{") + piece.count(b"[")
    count = min(
        frames.ANSWER_VALUES,
        (frames.ANSWER_CONTAINERS - 3) // containers if containers else frames.ANSWER_VALUES,
        (frames.ANSWER_BYTES - 100) // (len(piece) + 1),
    )
    answer = b'{"type":"done","result":[' + b",".join([piece] * count) + b"]}"
    assert frames.is_decodable(answer)
    took_s: list[float] = []
    usual = gc.get_threshold()
    # A worker's: with Python's own, most of the time would be collections of all that the tests have made.
    gc.set_threshold(*GC_THRESHOLD)
    try:
        for _ in range(5):
            began_s = time.thread_time()
            found = frames.decode_answer(answer)
            assert isinstance(found, frames.CallDone)
            assert len(msgspec.json.decode(found.result)) == count
            took_s.append(time.thread_time() - began_s)
    finally:
        gc.set_threshold(*usual)
    assert min(took_s) < 0.15, "50 ms on a usual machine"


async def test_calls_that_hang_do_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    monkeypatch.setattr(pool, "USUAL_S", 0.01)

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
    monkeypatch.setattr(pool, "USUAL_S", 0.01)

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


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="the kernel does not group by session")
async def test_a_spare_process_that_is_needed_gets_its_priority_though_the_kernel_refuses_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The kernel takes ten changes a second from all users without privilege together.
    weigh, refusals = priority.weigh, iter(range(3))

    def refused(session: int, niceness: int) -> bool:
        return (niceness == priority.LEAST or next(refusals, None) is None) and weigh(session, niceness)

    monkeypatch.setattr(priority, "weigh", refused)
    prepared_slowly = verifier(sandboxed_functions.pid, sandboxed_functions.sleep_first, ("1",))

    def seen() -> set[int]:
        found: set[int] = set()
        for pid in descendants():
            with suppress(ProcessLookupError):
                found.add(os.getsid(pid))
        return found

    # By sessions, not by processes: what tests before left may start more processes in its own meanwhile.
    others = seen()
    process = server_process.ServerProcess(prepared_slowly, spare=True)
    sessions = seen() - others

    def yields() -> bool:
        return any(Path(f"/proc/{pid}/autogroup").read_text().endswith("nice 19\n") for pid in sessions)

    try:
        assert yields()
        await process.prepare()
        assert not yields()
    finally:
        await process.close()


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="the kernel does not group by session")
async def test_a_process_whose_call_overran_takes_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """To start another one costs a second of imports, on a machine that is busy already."""
    monkeypatch.setattr(pool, "USUAL_S", 0.01)
    lowered: list[int] = []
    lower = priority.lower

    def noted(pids: Iterable[int]) -> None:
        found = list(pids)
        lowered.extend(found)
        lower(found)

    monkeypatch.setattr(priority, "lower", noted)
    alive = pool.pool()._alive
    await run_isolated(sandboxed_functions.sleep, 0.0, timeout_s=15)
    first = set(alive)
    await run_isolated(sandboxed_functions.sleep, 2.0, timeout_s=15)
    assert lowered
    assert first
    assert first <= alive
    sessions = [Path(f"/proc/{process._child.pid}/autogroup") for process in first]
    with anyio.fail_after(30):  # on a busy machine a short call may overrun, too
        while any(path.read_text().endswith("nice 19\n") for path in sessions):
            async with anyio.create_task_group() as tasks:
                for _ in range(2):
                    tasks.start_soon(partial(run_isolated, sandboxed_functions.sleep, 0.0, timeout_s=15))
    assert first <= alive
