"""Programs as agents, and our own loop in a container, while their workers and they themselves are killed.

A real system, real programs, a scripted engine behind a real HTTP server. Each command says the time, a
process and a temporary name, so two runs of a program are never the same, and appends to a file, so a command
that was lost or made twice changes the files. Each disturbed rollout must end like its undisturbed twin: with
the same hash of its files, and with no turn asked of the engine again whose answer was stored.

What takes long (``--soak``) plays with Codex, Claude Code and mini-swe-agent, where ``GYM_TEST_PROGRAMS``
names the folder into which npm and pip have installed them.
"""

from __future__ import annotations

import json
import os
import random
import re
import resource
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
from aiohttp import web
from faults.test_journal import ROW, gym_part
from gym_agents._harness_folder import MARK
from gym_resources.swe import local_rows
from gym_runtime import RolloutSettings, connect
from gym_runtime.client import Client, make_pools
from gym_runtime.messages.outcomes import Completed, RolloutRecord
from gym_runtime.rpc import fresh
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import System, running
from gym_runtime.workers.adapter import ModelSettings
from gym_sandbox import bubblewrap
from gym_sandbox.kernel import PR_SET_CHILD_SUBREAPER, prctl
from gym_sandbox.processes import tree
from gym_sandbox.processes.tree import members
from gym_sandbox.sandbox_errors import SetupError
from time_limits import busy

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.anyio]

PROGRAMS = "GYM_TEST_PROGRAMS"
HASH = "find . -name .git -prune -o -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum"
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
ON_ITS_WAY_S = 1.0
BROKER_BACK_S = 3.0
AT_ONCE_S = 0.1
"""No answer is stored so soon: what is asked again within this time was asked before there was one."""
AT_ONCE_AFTER_S = 10.0
LONG_S = 7200.0
ENDED_S = 10.0
"""After this time at most, no process of a system that was stopped runs."""
IN_FLIGHT_S = 5.0
"""An answer is stored at most so long after the engine was asked for it, on a busy machine."""

OWN = """
import json, os, subprocess, sys, urllib.request

def respond(said):
    body = {"model": "m", "input": said, "tools": [{"type": "function", "name": "bash", "parameters": {}}]}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/responses", json.dumps(body).encode(),
        {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "content-type": "application/json"})
    return json.load(urllib.request.urlopen(request))["output"]

said = [{"role": "developer", "content": f"You are {os.getpid()}."}]
said += [{"role": "user", "content": sys.stdin.read()}]
while True:
    output = respond(said)
    said += output
    calls = [one for one in output if one["type"] == "function_call"]
    for one in calls:
        command = json.loads(one["arguments"])["command"]
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
        said.append({"type": "function_call_output", "call_id": one["call_id"], "output": done.stdout})
    if not calls:
        break
"""
PROVIDER = "{name='gym', base_url='$OPENAI_BASE_URL', env_key='OPENAI_API_KEY', wire_api='responses'}"
CODEX = (
    'exec "$0" exec --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox -m "$OPENAI_MODEL" '
    f'-c model_provider=gym -c "model_providers.gym={PROVIDER}" -'
)


def command(turn: int, turns: int, *, submits: bool) -> str | None:
    """What the model does in a turn; None for a last message."""
    if turn == turns:
        return HASH
    if turn > turns:
        return SUBMIT if submits else None
    work = f"echo {turn} >>log; mkdir -p d{turn}; seq {turn}000 >d{turn}/f; mv d{turn - 2} moved{turn}"
    return f"date +%N; echo pid $$ $(mktemp -u); sleep 0.3; {work}; true"


class Engine:
    """Says what to do in each turn, and notes when it was asked for which turn of which task."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.asked: defaultdict[tuple[int, int], list[float]] = defaultdict(list)
        self.url = ""

    async def respond(self, request: web.Request) -> web.Response:
        body = await request.json()
        names = {tool.get("name") for tool in body.get("tools") or ()}
        said = json.dumps(body["input"])
        item: dict[str, Any]
        if not names & {"bash", "Bash", "exec_command"}:
            item = message("A title")  # a question beside
        else:
            found = re.findall(r"work on task (\d+)", said)
            task = int(found[0])
            turn = sum(one.get("type") == "function_call_output" for one in body["input"])
            self.asked[task, turn].append(time.monotonic())
            item = self._turn(turn, names)
        answer = {"id": "r", "object": "response", "model": "m", "status": "completed", "output": [item]}
        return web.json_response(answer)

    def _turn(self, turn: int, names: set[str]) -> dict[str, Any]:
        told = command(turn, self._loop.turns, submits=self._loop.submits)
        if told is None:
            return message("done")
        name = next(one for one in ("bash", "Bash", "exec_command") if one in names)
        arguments = {"cmd": told} if name == "exec_command" else {"command": told}
        if name == "Bash":
            arguments["description"] = "Works"
        return {
            "type": "function_call",
            "id": f"fc_{turn}",
            "call_id": f"call_{turn}",
            "name": name,
            "arguments": json.dumps(arguments),
        }


def message(text: str) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}


@asynccontextmanager
async def engine(loop: Loop) -> AsyncGenerator[Engine]:
    scripted = Engine(loop)
    app = web.Application(client_max_size=2**24)
    app.router.add_post("/v1/responses", scripted.respond)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    scripted.url = f"http://{host}:{port}/v1"
    try:
        yield scripted
    finally:
        await runner.cleanup()


class Loop(NamedTuple):
    """What runs the rollouts: an environment, and a program unless the environment's own loop does; after how
    many turns with commands the model submits, by a command or in an answer; and the image of containers."""

    environment: str
    program: Sequence[str] = ()
    submits: bool = False
    turns: int = 6
    image: str = ""

    def rows(self, count: int) -> list[dict[str, Any]]:
        if self.program:
            asked = [[{"role": "user", "content": f"work on task {number}"}] for number in range(count)]
            return [{**ROW, "responses_create_params": {"input": one}} for one in asked]
        # The same files in each, and another prompt by which the engine tells them apart.
        row = next(local_rows.agent_rows(1, 7))
        if self.image:
            del row["files"], row["checks"]
            row |= {"image_name": self.image, "setup_script": ":", "test_script": ":"}
        told = row["problem_statement"]
        return [{**row, "problem_statement": f"work on task {number}: {told}"} for number in range(count)]

    @property
    def settings(self) -> RolloutSettings:
        if self.program:
            return RolloutSettings(
                agent="black_box", max_attempts=100, timeout_s=1800, skip_verification=1.0, max_turns=40
            )
        return RolloutSettings(max_attempts=100, timeout_s=LONG_S)


class Played(NamedTuple):
    turns: int
    records: dict[int, RolloutRecord]
    asked: dict[tuple[int, int], list[float]]
    killed: list[tuple[float, str]]
    woken_s: float = float("inf")

    def hashes(self) -> dict[int, str]:
        """By task, what the command said that hashes its files."""
        found: dict[int, str] = {}
        for task, record in self.records.items():
            items = json.loads(bytes(record.row))["response"]["output"]
            texts = [text_of(item["output"]) for item in items if item.get("type") == "function_call_output"]
            (found[task],) = re.findall(r"\b[0-9a-f]{64}\b", texts[self.turns])
        return found

    def asked_again(self) -> list[str]:
        """The turns that were asked again although no kill explains it; when, and after which kills."""
        # A request may be on its way to the engine when its asker is killed, or wait for the broker.
        kills = [(when, BROKER_BACK_S if kind == "broker" else ON_ITS_WAY_S) for when, kind in self.killed]

        def explained(first: float, again: float) -> bool:
            # On a busy machine the requests of a killed worker and of its successor may reach it together.
            least_s = AT_ONCE_AFTER_S if again - first < AT_ONCE_S else 0.0
            return any(
                first - busy() * max(way_s, least_s) <= when <= min(again, first + IN_FLIGHT_S)
                for when, way_s in kills
            )

        def told(task: int, turn: int, first: float, again: float) -> str:
            near = [f"{kind} {when - first:+.2f}" for when, kind in self.killed if first - 15 < when < again]
            return f"turn {turn} of task {task} after {again - first:.2f} s; kills: {', '.join(near)}"

        return [
            told(*turn, first, again)
            for turn, times in self.asked.items()
            for first, again in pairwise(times)
            # What a frozen worker had on its way is sent when it wakes; its answer is refused.
            if again < self.woken_s and not explained(first, again)
        ]


def text_of(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def harnesses() -> list[int]:
    """The programs that play rollouts of workers of this test, by their process ids."""
    found: list[int] = []
    for pid in members(os.getpid()):
        with suppress(OSError):
            parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
            if marked(pid) and not marked(int(parent)):
                found.append(pid)
    return found


def marked(pid: int) -> bool:
    return f"{MARK}=".encode() in Path(f"/proc/{pid}/environ").read_bytes()


FROZEN = "frozen "
"""In front of a kind: a worker is stopped, and goes on when the rollouts are over."""


def boxes() -> list[int]:
    """The first processes of the containers in which rollouts of this test work."""
    found: list[int] = []
    for pid in members(os.getpid()):
        with suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text() == "bwrap\n" and len(members(pid)) > 1:
                found.append(pid)
    return found


async def victims(system: System, gym: Client, kind: str) -> list[int]:
    match kind:
        case "program":
            return await anyio.to_thread.run_sync(harnesses)
        case "box":
            return await anyio.to_thread.run_sync(boxes)
        case "broker":
            return [system.broker_pid]
        case _:
            # A model's calls are over at once, so that its workers hardly ever look as if they were in use;
            # nor do those of resources if a program is the agent.
            # What `workers` tells of their loads is as old as their last announcement.
            known = [one for one in await fresh(gym.driver.bus, await gym.workers()) if one.kind == kind]
            used = [worker.pid for worker in known if worker.in_use and kind != "model"]
            return used or [worker.pid for worker in known if kind != "agent"]


async def hit(system: System, gym: Client, kind: str, chance: random.Random) -> int:
    """Kill or stop one process of a kind; its process id, or 0 if no such process runs now."""
    found = await victims(system, gym, kind.removeprefix(FROZEN))
    with suppress(IndexError, ProcessLookupError):  # it may have ended meanwhile
        pid = chance.choice(found)
        os.kill(pid, signal.SIGSTOP if kind.startswith(FROZEN) else signal.SIGKILL)
        return pid
    return 0


async def played(
    loop: Loop,
    count: int,
    monkeypatch: pytest.MonkeyPatch,
    kills: Sequence[str] = (),
    seed: int = 0,
    every_s: tuple[float, float] = (0.2, 1.5),
    left: int = 0,
    turns: int = 0,
) -> Played:
    """So many rollouts; what is named is killed, one after the other, at random moments, while more than so
    many rollouts are ``left``, and not before so many ``turns`` were asked since the last kill."""
    monkeypatch.setenv("GYM_HARNESS", json.dumps(loop.program))
    chance = random.Random(seed)
    killed: list[tuple[float, str]] = []
    frozen: list[int] = []
    async with engine(loop) as scripted:
        model = ModelSettings(provider="openai", name="m", urls=(scripted.url,), api="responses")
        agents = ("black_box",) if loop.program else ()
        pools = make_pools([loop.environment], model, agents=agents, workers=2, concurrency=8)
        records: dict[int, RolloutRecord] = {}
        async with running(SystemSpec(pools=pools)) as system, connect(system.url) as gym:

            async def follow() -> None:
                async for _ in system.events():  # by which the broker's process is known
                    pass

            async def run(done: anyio.CancelScope) -> None:
                rows = gym.rollouts(loop.rows(count), loop.settings, environment=loop.environment)
                async for record in rows:
                    records[record.task_index] = record
                done.cancel()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run, tasks.cancel_scope)
                tasks.start_soon(follow)
                while len(scripted.asked) < 3:
                    await anyio.sleep(0.05)
                least = 0
                for kind in kills:
                    await anyio.sleep(chance.uniform(*every_s))
                    while len(scripted.asked) < least and count - len(records) > left:
                        await anyio.sleep(0.1)
                    least = len(scripted.asked) + turns
                    if count - len(records) <= left:
                        break
                    while not (pid := await hit(system, gym, kind, chance)):
                        await anyio.sleep(0.1)
                    killed.append((time.monotonic(), kind))
                    frozen += [pid] if kind.startswith(FROZEN) else []
            woken_s = time.monotonic()
            for pid in frozen:
                os.kill(pid, signal.SIGCONT)
    return Played(loop.turns, records, dict(scripted.asked), killed, woken_s)


async def measured(
    loop: Loop, count: int, monkeypatch: pytest.MonkeyPatch, kills: Sequence[str] = ()
) -> tuple[Played, float]:
    """As `played`; and the processor time of all its processes, also of those whose parents were killed.

    None of them may be left.
    """
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = set(members(os.getpid()))  # what watches this process's own sandboxes, too
    try:
        done = await played(loop, count, monkeypatch, kills, seed=1)
        with anyio.move_on_after(ENDED_S), suppress(ChildProcessError):
            while not own.issuperset(members(os.getpid())):  # a process counts when it has been waited for
                if os.waitpid(-1, os.WNOHANG) == (0, 0):  # noqa: ASYNC222
                    await anyio.sleep(0.1)
        left = {pid: tree.content(f"/proc/{pid}/cmdline") for pid in members(os.getpid()) if pid not in own}
    finally:
        prctl(PR_SET_CHILD_SUBREAPER, 0)
    assert not left
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def assert_like_twin(disturbed: Played, twin: Played, count: int) -> None:
    assert len(disturbed.records) == count
    for one in (twin, disturbed):
        outcomes = [record.outcome for record in one.records.values()]
        assert outcomes == [Completed()] * len(outcomes)
        assert not (again := one.asked_again()), "\n".join(again)
    assert len({turn for _, turn in disturbed.asked}) == len({turn for _, turn in twin.asked})
    assert set(disturbed.hashes().values()) == set(twin.hashes().values())
    assert len(set(twin.hashes().values())) == 1
    parts = [gym_part(record) for record in disturbed.records.values()]
    assert not [part["started_anew"] for part in parts if "started_anew" in part]
    assert any(part["resumed_turns"] or part["rebuilt_sessions"] for part in parts)


def boxed() -> Loop:
    """Our own loop, whose commands run in a container."""
    try:
        bubblewrap.check(os.getpid())
    except SetupError as error:
        pytest.skip(str(error))
    return Loop("mini_swe_agent", submits=True)


@pytest.mark.timeout(240)
async def test_a_box_goes_on_with_its_files_when_it_and_its_workers_are_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = boxed()._replace(turns=12)  # so many that they last until the third kill
    twin = await played(loop, 1, monkeypatch)
    disturbed = await played(loop, 2, monkeypatch, ("resource", "box", "agent"), seed=1)
    assert [kind for _, kind in disturbed.killed] == ["resource", "box", "agent"]
    assert_like_twin(disturbed, twin, 2)


@pytest.mark.timeout(120)
async def test_a_program_goes_on_when_it_and_its_workers_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "program.py"
    path.write_text(OWN)
    loop = Loop("example_session_state_mgmt", (sys.executable, str(path)))
    twin = await played(loop, 1, monkeypatch)
    disturbed = await played(loop, 2, monkeypatch, ("program", "agent"), seed=1)
    assert [kind for _, kind in disturbed.killed] == ["program", "agent"]
    assert_like_twin(disturbed, twin, 2)


@pytest.mark.soak
@pytest.mark.timeout(180)
async def test_another_worker_takes_over_from_one_that_is_frozen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The frozen one keeps its folder, so the other one's program works at another path."""
    path = tmp_path / "program.py"
    path.write_text(OWN)
    loop = Loop("example_session_state_mgmt", (sys.executable, str(path)))
    twin = await played(loop, 1, monkeypatch)
    disturbed = await played(loop, 2, monkeypatch, ("frozen agent",), seed=2)
    assert_like_twin(disturbed, twin, 2)


def installed(name: str) -> Loop:
    """A program of npm or pip as the agent."""
    folder = os.environ.get(PROGRAMS, "")
    npm = f"{folder}/node_modules/.bin"
    commands = {
        "codex": ("sh", "-c", CODEX, f"{npm}/codex"),
        "claude": (
            *("env", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", f"{npm}/claude"),
            *("--print", "--allowedTools", "Bash,Edit,Write"),
        ),
        "mini": (
            *("env", "MSWEA_CONFIGURED=true", "MSWEA_COST_TRACKING=ignore_errors"),
            *("LITELLM_LOCAL_MODEL_COST_MAP=True", f"{folder}/bin/mini", "--yolo", "--exit-immediately"),
            *("--cost-limit", "0", "--model", "openai/policy", "--task", "{prompt}"),
        ),
    }
    program = commands[name]
    if not any(os.access(part, os.X_OK) for part in program if part.startswith("/")):
        packages = "npm install --prefix DIR @openai/codex @anthropic-ai/claude-code; "
        packages += "python -m venv DIR; DIR/bin/pip install mini-swe-agent mcp"
        pytest.skip(f"{PROGRAMS} names no folder with {name}: {packages}; {PROGRAMS}=DIR")
    return Loop("example_session_state_mgmt", program, submits=name == "mini")


@pytest.mark.soak
@pytest.mark.timeout(LONG_S)
@pytest.mark.parametrize("name", ["boxed", "mini", "codex", "claude"])
async def test_harnesses_go_on_whatever_is_killed(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``GYM_TEST_ROLLOUTS`` says how many rollouts, ``GYM_TEST_KILLS`` how many kills.

    ``GYM_TEST_TWINS`` says how many undisturbed ones; as many as rollouts tell what the kills cost, and
    ``GYM_TEST_KINDS``, such as ``resource``, what is killed, tells it for one kind.
    """
    loop = (boxed() if name == "boxed" else installed(name))._replace(turns=12)
    told = (os.environ.get(f"GYM_TEST_{what}") for what in ("ROLLOUTS", "KILLS", "TWINS"))
    count, kills, twins = (int(one or least) for one, least in zip(told, (8, 8, 1), strict=True))
    own = "program agent program model program agent resource model"
    own = "box agent resource box box agent resource box" if name == "boxed" else own
    kinds = os.environ.get("GYM_TEST_KINDS", f"{own} broker").split()
    twin, usual_s = await measured(loop, twins, monkeypatch)
    disturbed, cpu_s = await measured(loop, count, monkeypatch, [kinds[n % len(kinds)] for n in range(kills)])
    others = [record for record in disturbed.records.values() if record.outcome != Completed()]
    assert not others, "\n".join(map(str, others))
    parts = [gym_part(record) for record in disturbed.records.values()]
    again = sum(len(times) - 1 for times in disturbed.asked.values())
    by_kind = Counter(kind for _, kind in disturbed.killed)
    (right,) = set(twin.hashes().values())
    with capsys.disabled():
        print(
            f"\n{name}: {count} rollouts, {len(disturbed.killed)} kills "
            f"({', '.join(f'{many} {kind}' for kind, many in by_kind.items())}), "
            f"{sum(part['resumed_turns'] for part in parts)} turns from the journal, "
            f"{sum(part.get('drifted_calls', 0) for part in parts)} of them drifted; "
            f"{len(disturbed.asked)} turns, {again} asked twice, "
            f"{len(disturbed.asked_again())} of them although no kill explains it; "
            f"{sum(found != right for found in disturbed.hashes().values())} hashes differ; "
            f"{cpu_s / count:.1f} s of processor time a rollout, {usual_s / twins:.1f} undisturbed ({twins})"
        )
    assert_like_twin(disturbed, twin, count)
