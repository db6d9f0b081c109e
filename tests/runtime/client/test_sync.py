"""The client for synchronous code, on a real system of several processes; forked, spawned, in a notebook."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import pickle
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import gym_runtime
import pytest
from gym_runtime.adapters import Control
from gym_runtime.client import Client, SyncClient
from gym_runtime.errors import ConnectionLost, ResourceError, TaskError, UsageError
from runtime.client.worker_process import make_rollouts
from time_limits import busy

pytestmark = pytest.mark.slow
NAME = "example_session_state_mgmt"
COUNT = {"type": "object", "properties": {"count": {"type": "integer", "minimum": 1}}, "required": ["count"]}
INCREMENT = {"type": "function", "name": "increment_counter", "parameters": COUNT}


def row(n: int) -> dict[str, Any]:
    """The scripted model counts one up: right for even numbers."""
    params = {"input": "go", "tools": [INCREMENT]}
    return {"responses_create_params": params, "initial_count": 3, "expected_count": 4 + n % 2, "n": n}


@pytest.fixture(scope="module")
def gym() -> Iterator[SyncClient]:
    with gym_runtime.connect_sync(model="scripted/tool-then-message", environments=[NAME]) as gym:
        yield gym


def test_rollouts_and_groups_in_the_order_of_the_rows(gym: SyncClient) -> None:
    rows = [row(n) for n in range(20)]
    made = gym.groups(rows, environment=NAME, repeats=2, keys=range(20), ordered=True, return_token_ids=True)
    groups = list(made)
    assert [group.key for group in groups] == list(range(20))
    assert [group.rewards for group in groups] == [[1.0 - n % 2] * 2 for n in range(20)]
    (sequence,) = groups[0].rollouts[0].sequences()
    assert len(sequence.turns) == 2
    assert sequence.mask.sum() == sum(end - start for start, end in sequence.turns)
    ordered = gym.rollouts(rows, environment=NAME, ordered=True)
    assert [record.numbers["n"] for record in ordered] == list(range(20))


GUESSES = """
from gym_runtime import Environment, Episode, Reply, Step, Task

class Guess(Episode[Task]):
    async def step(self, reply: Reply) -> Step:
        return Step(observation="Again.", reward=REWARD)

environment = Environment(resource=Guess, max_turns=TURNS, repeats=TURNS, description="Guesses.")
"""


def test_a_process_uses_an_edited_environment_whole_when_it_connects_again(tmp_path: Path) -> None:
    # The workers' part, which judges, and the client's part, such as `max_turns`, must be of one version.
    file = tmp_path / "guesses.py"
    rows = [{"responses_create_params": {"input": "Guess."}}]
    for turns, reward in ((2, 1.0), (3, 0.25)):
        file.write_text(GUESSES.replace("TURNS", str(turns)).replace("REWARD", str(reward)))
        with gym_runtime.connect_sync(model="scripted/echo", environments=[str(file)]) as own:
            made = list(own.rollouts(rows, environment=str(file)))
        assert [(one.turns, one.reward) for one in made] == [(turns, turns * reward)] * turns


def test_leaving_the_loop_cancels_what_is_left(gym: SyncClient) -> None:
    for _ in gym.rollouts([row(n) for n in range(300)], environment=NAME):
        break

    async def over(client: Client) -> str:
        with anyio.fail_after(20 * busy()):
            while (run := (await client.runs())[-1]).state == "active":
                await anyio.sleep(0.01)
        return run.state

    assert gym.call(over) == "cancelled"


def test_a_loop_that_is_forgotten_is_left_also_in_the_clients_own_thread(gym: SyncClient) -> None:
    forgotten = [gym.rollouts([row(n) for n in range(300)], environment=NAME)]
    next(forgotten[0])

    async def forget(client: Client) -> None:
        forgotten.clear()

    gym.call(forget)
    assert next(gym.rollouts([row(0)], environment=NAME)).reward == 1.0


def test_errors_are_raised_where_the_call_stands(gym: SyncClient) -> None:
    with pytest.raises(TaskError, match="initial_count"):
        list(gym.rollouts([{"responses_create_params": {"input": "go"}}], environment=NAME))
    with pytest.raises(UsageError, match="must be rows in a list"):
        gym.rollouts(row(0), environment=NAME)  # pyright: ignore[reportArgumentType]


def test_rows_that_ask_their_own_client_are_told(gym: SyncClient) -> None:
    """A curriculum, such as one that verifies an answer before it gives the next row."""

    def asking() -> Iterator[dict[str, Any]]:
        yield row(0)
        gym.verify(row(0), "4", environment=NAME)

    with pytest.raises(UsageError, match="in the client's own thread, where its methods cannot be called"):
        list(gym.rollouts(asking(), environment=NAME))


def test_several_threads_share_a_client_and_a_standing_run(gym: SyncClient) -> None:
    with gym.standing_run(environment=NAME) as run, ThreadPoolExecutor(8) as threads:
        records = list(threads.map(lambda n: run.rollout(row(n)), range(40)))
    assert [record.numbers["n"] for record in records] == list(range(40))
    assert len({record.run for record in records}) == 1


def test_sessions_verdicts_and_weights(gym: SyncClient) -> None:
    with gym.session(row(0), environment=NAME) as session:
        assert [tool["name"] for tool in session.tools] == ["increment_counter", "get_counter_value"]
        session.call("increment_counter", {"count": 1})
        assert session.verify("done").reward == 1.0
        with pytest.raises(ResourceError, match="is not an Episode"):
            session.step("done")
    assert gym.verify(row(0), "done", environment=NAME).reward == 0.0
    gym.update_weights("/weights/1", "step-1")
    with gym.weights_paused("step-2"):
        assert {answer.paused for answer in gym.control(Control(op="state")).values()} == {True}
    assert {answer.version for answer in gym.control(Control(op="state")).values()} == {"step-2"}
    assert {worker.kind for worker in gym.workers()} == {"agent", "model", "resource"}
    assert list(gym.rollouts([row(0)], environment=NAME))
    assert gym.status().runs


def test_it_works_within_an_event_loop(gym: SyncClient) -> None:
    async def main() -> list[float | None]:
        return [record.reward for record in gym.rollouts([row(0)], environment=NAME)]

    assert asyncio.run(main()) == [1.0]


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_worker_process_connects_by_itself(gym: SyncClient, method: str) -> None:
    context = multiprocessing.get_context(method)
    found = context.Queue()
    halves = [[row(n) for n in range(start, start + 3)] for start in (0, 3)]
    workers = [context.Process(target=make_rollouts, args=(gym, half, NAME, found)) for half in halves]
    for worker in workers:
        worker.start()
    results = [found.get(timeout=40) for _ in range(6)]
    for worker in workers:
        worker.join(20)
        assert worker.exitcode == 0
    assert sorted((n, reward) for _, n, reward in results) == [(n, 1.0 - n % 2) for n in range(6)]
    assert len({pid for pid, *_ in results} - {os.getpid()}) == 2
    # The parent's connection is as it was.
    assert next(gym.rollouts([row(0)], environment=NAME)).reward == 1.0


def test_an_environment_that_cannot_be_imported_here(gym: SyncClient, tmp_path: Path) -> None:
    """A client whose process has neither the environment's module nor its package."""
    code = (
        "import sys, gym_runtime\n"
        "from gym_runtime.environment import catalogue\n"
        "catalogue._modules = lambda kind: {}\n"  # nothing is installed here
        "row = sys.stdin.read()\n"
        "with gym_runtime.connect_sync(sys.argv[1]) as gym:\n"
        f"    for record in gym.rollouts([row], environment={NAME!r}): print(record.reward)\n"
        f"    print(gym.verify(row, 'done', environment={NAME!r}).reward)\n"
        f"    with gym.session(row, environment={NAME!r}) as session: print(len(session.tools))\n"
        "    try: list(gym.rollouts([row], environment='mcqa'))\n"
        "    except gym_runtime.UsageError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, gym.urls[0]],
        input=json.dumps(row(0)),
        capture_output=True,
        text=True,
        timeout=50,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:3] == ["1.0", "0.0", "2"]
    assert "there is no environment 'mcqa'" in done.stdout


def test_a_script_that_does_not_close_ends_all_the_same(gym: SyncClient) -> None:
    code = "import sys, gym_runtime; gym = gym_runtime.connect_sync(sys.argv[1]); print(len(gym.workers()))"
    done = subprocess.run(
        [sys.executable, "-c", code, gym.urls[0]], capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stdout.strip()) == (0, "3"), done.stderr


def test_closing_ends_what_is_still_open(gym: SyncClient) -> None:
    other = gym_runtime.connect_sync(gym.urls)
    session = other.session(row(0), environment=NAME)
    session.__enter__().call("increment_counter", {"count": 1})
    rollouts = other.rollouts([row(n) for n in range(50)], environment=NAME)
    next(rollouts)
    other.close()
    with pytest.raises(ConnectionLost, match="closed before this was complete"):
        session.__exit__(None, None, None)
    with pytest.raises(UsageError, match="the client is closed"):
        list(rollouts)


def test_weights_that_are_half_sent_when_the_client_is_closed_get_no_new_name(gym: SyncClient) -> None:
    other = gym_runtime.connect_sync(gym.urls)
    within, closed = threading.Event(), threading.Event()

    def send() -> None:
        with other.weights_paused("half"):
            within.set()
            closed.wait(30)

    try:
        with ThreadPoolExecutor(1) as threads:
            sending = threads.submit(send)
            assert within.wait(30)
            other.close()
            closed.set()
            with pytest.raises(ConnectionLost, match="closed before this was complete"):
                sending.result(30)
        states = gym.control(Control(op="state")).values()
        assert {(state.paused, state.version == "half") for state in states} == {(True, False)}
    finally:
        gym.control(Control(op="resume"))


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
@pytest.mark.parametrize("where", ["client", "session", "loop"])
def test_a_forked_child_ends_wherever_its_parent_is(gym: SyncClient, where: str) -> None:
    """In a program of its own, whose child leaves each ``with`` and each loop by `SystemExit`."""
    code = (
        "import os, signal, sys, gym_runtime\n"
        "url, where, row, name = sys.argv[1:]\n"
        "def fork():\n"
        "    child = os.fork()\n"
        "    if child == 0: signal.alarm(15), sys.exit(7)\n"
        "    return child\n"
        "with gym_runtime.connect_sync(url) as gym:\n"
        "    if where == 'client': child = fork()\n"
        "    elif where == 'session':\n"
        "        with gym.session(row, environment=name): child = fork()\n"
        "    else:\n"
        "        for _ in gym.rollouts([row] * 3, environment=name): child = fork(); break\n"
        "    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7\n"
        "    print(next(gym.rollouts([row], environment=name)).reward)\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", code, gym.urls[0], where, json.dumps(row(0)), NAME]
    done = subprocess.run(command, capture_output=True, text=True, timeout=40)
    assert (done.returncode, done.stdout) == (0, "1.0\n"), done.stderr


def test_a_closed_client_says_so_and_leaves_no_thread(gym: SyncClient) -> None:
    before = threading.active_count()
    other = gym_runtime.connect_sync(gym.urls)
    assert threading.active_count() == before + 1
    other.close()
    other.close()
    assert threading.active_count() == before
    for closed in (other, pickle.loads(pickle.dumps(other))):
        with pytest.raises(UsageError, match="the client is closed"):
            closed.workers()
    with pytest.raises(UsageError, match="say which system"):
        gym_runtime.connect_sync()
    assert threading.active_count() == before


# -- cells of a notebook ------------------------------------------------------------------------------

CELLS = [
    "import gym_runtime\ngym = gym_runtime.connect({url!r})\nawait gym.open()",
    "records = [record async for record in gym.rollouts([{row!r}], environment={name!r})]\n"
    "print(records[0].reward)",
    "async with gym.session({row!r}, environment={name!r}) as session: print(len(session.tools))",
    "await gym.close()\ntry: await gym.workers()\nexcept gym_runtime.UsageError as error: print(error)",
    "await gym.open()\nprint(len(await gym.workers()))",
    "async for _ in gym.rollouts([{row!r}] * 3, environment={name!r}, progress=True): pass",
    "with gym_runtime.connect_sync({url!r}) as blocking:\n"
    "    for _ in blocking.groups([{row!r}], environment={name!r}, repeats=4, progress=True): pass",
    "async for _ in gym.rollouts(({row!r} for _ in range(20000)), environment={name!r}, progress=True): pass",
    # The interrupted cell's generator is closed by the event loop, some time after the cell.
    "import asyncio\n"
    "while (state := (await gym.runs())[-1].state) == 'active': await asyncio.sleep(0.05)\n"
    "print(state, len(await gym.workers()))\nawait gym.close()",
]
INTERRUPTED = 7


@pytest.mark.filterwarnings("ignore")
def test_opened_in_one_cell_and_closed_in_another(gym: SyncClient) -> None:
    manager = pytest.importorskip("jupyter_client.manager", reason="needs pip install 'gym-runtime[dev]'")
    kernel, client = manager.start_new_kernel(kernel_name="python3")
    said: list[str] = []
    displayed: list[list[tuple[str, str, str]]] = []

    def hear(message: dict[str, Any]) -> None:
        said.append(message["content"].get("text", ""))
        if message["msg_type"] in ("display_data", "update_display_data"):
            name = message["content"]["transient"]["display_id"]
            data = message["content"]["data"]
            displayed[-1].append((message["msg_type"], name, data["text/plain"]))
            if len(displayed) == INTERRUPTED + 1 and len(displayed[-1]) == 1:
                kernel.interrupt_kernel()
            assert set(data) == {"text/plain", "text/html"}

    try:
        for cell in CELLS:
            code = cell.format(url=gym.urls[0], row=row(0), name=NAME)
            displayed.append([])
            reply = client.execute_interactive(code, output_hook=hear, timeout=30)
            ended = "error" if len(displayed) == INTERRUPTED + 1 else "ok"
            assert reply["content"]["status"] == ended, reply["content"]
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)
    lines = "".join(said).splitlines()
    assert [line for line in lines if line][:2] == ["1.0", "2"]
    assert "the client is not open" in lines[2]
    assert lines[3] == "3"
    # An interrupted cell cancels its run only.
    assert lines[4] == "cancelled 3"
    # One output below each cell, replaced until the end; also from the thread of a client that blocks.
    assert [len(outputs) > 1 for outputs in displayed] == [False] * 5 + [True, True, True, False]
    for outputs, count in zip(displayed[5:7], (3, 4), strict=True):
        kinds, names, texts = zip(*outputs, strict=True)
        assert kinds == ("display_data", *["update_display_data"] * (len(outputs) - 1))
        assert len(set(names)) == 1
        assert texts[0] == f"rollouts: 0 of {count}"
        assert texts[-1].startswith(f"rollouts: {count} of {count}, mean reward 1.000, ")
        assert re.search(r" in 0:\d\d$", texts[-1])
