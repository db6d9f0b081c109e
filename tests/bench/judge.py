"""What a judge and a comparison cost the runtime, and whether anything but the judge is waited for.

    python tests/bench/judge.py                     # all cases
    python tests/bench/judge.py --case cpu          # or: group, occupancy

The stub engine is policy and judge. ``cpu`` compares the processor time of an answer of the judge with that
of one more turn of the policy: of rollouts with one turn, two, one and a judge. ``group``: groups of 16 that
are compared, without a judge, and with one question to the judge for each member. ``occupancy``: the judge
answers after a second, and of 2,048 rollouts in flight as many are with the judge as the role allows. It is
the share of that limit that was used: over all of the run, and from when the limit was first reached until
the last question was asked, by what the judge itself had in flight, looked at every `LOOK_S` seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

import anyio
import anyio.to_thread
import psutil
from gym_runtime import connect
from gym_runtime.client import Client
from gym_runtime.messages.outcomes import Completed
from gym_runtime.workers.adapter import ModelSettings
from measure import cpu_s, print_table, tree
from stubs import stub_engine

LIMIT = 256
LOOK_S = 0.05
ENVIRONMENTS = {
    "plain": '''"""Judged by nobody."""

from gym_runtime import Environment, Reply, Task, Verdict


class Question(Task):
    pass


async def verify(task: Question, reply: Reply) -> Verdict:
    return Verdict(float(bool(reply.text)))


environment = Environment(resource=verify, description="One message.", agent="single_turn")
''',
    "judged": f'''"""Judged by a model."""

from gym_runtime import Environment, Model, Reply, Role, Task, Verdict


class Question(Task):
    pass


async def verify(task: Question, reply: Reply, judge: Model) -> Verdict:
    said = await judge.ask(f"Is this an answer? {{reply.text}}", temperature=0.0)
    return Verdict(float(bool(said.text)))


environment = Environment(
    resource=verify,
    description="One message.",
    agent="single_turn",
    roles=(Role(name="judge", concurrency={LIMIT}),),
)
''',
}
GROUPED = '''"""Judged as a group."""

import anyio
from gym_runtime import Candidates, Environment, Model, Pending, Reply, Task, Verdict


class Question(Task):
    pass


async def verify(task: Question, reply: Reply) -> Pending:
    return Pending(reply.text)


async def compare(candidates: Candidates[Question]JUDGE) -> list[Verdict]:
    said = candidates.features(str)
    async with anyio.create_task_group() as tasks:
        for text in said:
            tasks.start_soon(ASK, f"Is this an answer? {text}")
    return [Verdict(float(bool(text))) for text in said]


async def nobody(question: str) -> None:
    """Nobody is asked."""


environment = Environment(
    resource=verify, compare=compare, description="One message.", agent="single_turn", roles=ROLES
)
'''
ENVIRONMENTS["grouped"] = GROUPED.replace("JUDGE", "").replace("ASK", "nobody").replace("ROLES", "()")
ENVIRONMENTS["ranked"] = (
    GROUPED.replace("JUDGE", ", judge: Model").replace("ASK", "judge.ask").replace("ROLES", "('judge',)")
)
TWICE = '''"""Has the model answer twice."""


class Agent:
    async def run(self, rollout):
        await rollout.respond()
        await rollout.respond()
'''


def settings(url: str) -> ModelSettings:
    return ModelSettings(provider="openai", name="stub", urls=(url,), api="responses")


@contextlib.contextmanager
def modules() -> Generator[None]:
    """The environments and the agent, as files in the working directory: so workers find them."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for name, source in {**ENVIRONMENTS, "twice": TWICE}.items():
            Path(f"{name}.py").write_text(source)
        yield


async def run(
    gym: Client, environment: str, agent: str, count: int, in_flight: int, repeats: int = 1
) -> float:
    """Make rollouts, ``repeats`` for each row; the seconds it took."""
    rows = [
        {"responses_create_params": {"input": f"question {number}"}} for number in range(count // repeats)
    ]
    started, completed = time.perf_counter(), 0
    made = gym.rollouts(rows, environment=environment, agent=agent, in_flight=in_flight, repeats=repeats)
    async for record in made:
        completed += isinstance(record.outcome, Completed) and record.reward is not None
    assert completed == count, f"{count - completed} of {count} failed"
    return time.perf_counter() - started


Cases = dict[str, tuple[str, str]]
TURNS: Cases = {
    "one turn": ("plain", "single_turn"),
    "two turns": ("plain", "twice"),
    "one turn and a judge": ("judged", "single_turn"),
}
GROUPS: Cases = {
    "one turn": ("plain", "single_turn"),
    "compared": ("grouped", "single_turn"),
    "compared by a judge": ("ranked", "single_turn"),
    "one turn and a judge": ("judged", "single_turn"),
}
MEMBERS = 16


async def spent_ms(cases: Cases, count: int, in_flight: int, repeats: int, members: int) -> dict[str, float]:
    """The processor time of one rollout of each case, in milliseconds: the median of ``repeats`` runs."""
    spent: dict[str, list[float]] = {case: [] for case in cases}
    with modules(), stub_engine.running() as policy:
        async with connect(
            model=settings(policy.url),
            roles={"judge": "policy"},
            environments=list(ENVIRONMENTS),
            agents=["single_turn", "twice"],
            concurrency=in_flight,
        ) as gym:
            for environment, name in cases.values():
                await run(gym, environment, name, 320, in_flight, members)
            everything = [
                p for p in tree([psutil.Process().pid]) if "stub_engine" not in " ".join(p.cmdline())
            ]
            for _ in range(repeats):
                for case, (environment, name) in cases.items():
                    before = cpu_s(everything)
                    await run(gym, environment, name, count, in_flight, members)
                    spent[case].append((cpu_s(everything) - before) / count * 1e3)
    return {case: statistics.median(figures) for case, figures in spent.items()}


async def group(count: int, in_flight: int, repeats: int) -> None:
    medians = await spent_ms(GROUPS, count, in_flight, repeats, MEMBERS)
    one = medians["one turn"]
    added, asked = medians["compared"] - one, medians["compared by a judge"] - one
    table = [[case, f"{figure:.2f} ms"] for case, figure in medians.items()]
    table += [
        ["a comparison adds, per member", f"{added:.2f} ms"],
        ["with one question per member", f"{asked:.2f} ms"],
    ]
    print_table(f"CPU per rollout in groups of {MEMBERS}", ["rollout", "CPU"], [list(row) for row in table])


async def cpu(count: int, in_flight: int, repeats: int) -> None:
    medians = await spent_ms(TURNS, count, in_flight, repeats, 1)
    one = medians["one turn"]
    turn, judged = medians["two turns"] - one, medians["one turn and a judge"] - one
    table = [[case, f"{figure:.2f} ms"] for case, figure in medians.items()]
    table += [
        ["one more turn", f"{turn:.2f} ms"],
        ["a judge", f"{judged:.2f} ms"],
        ["ratio", f"{judged / turn:.2f}"],
    ]
    print_table("CPU per rollout", ["rollout", "CPU"], [list(row) for row in table])


async def occupancy(count: int, in_flight: int) -> None:
    with (
        modules(),
        stub_engine.running() as policy,
        stub_engine.running("--latency-s", "1") as judge,
    ):
        async with connect(
            model=settings(policy.url),
            roles={"judge": settings(judge.url)},
            environments=list(ENVIRONMENTS),
            concurrency=in_flight,
        ) as gym:
            await run(gym, "judged", "single_turn", LIMIT, in_flight)
            judge.stats(reset=True)
            held: list[int] = []

            async def look() -> None:
                while (now := await anyio.to_thread.run_sync(judge.stats)).requests < count:
                    if now.max_in_flight >= LIMIT:
                        held.append(now.in_flight)
                    await anyio.sleep(LOOK_S)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(look)
                wall_s = await run(gym, "judged", "single_turn", count, in_flight)
        most = judge.stats().max_in_flight
    whole, steady = count / (LIMIT * wall_s), statistics.mean(held) / LIMIT
    row: list[object] = [count, in_flight, most, f"{wall_s:.1f} s", f"{whole:.1%}", f"{steady:.1%}"]
    print_table(
        f"A judge that answers after 1 s, {LIMIT} questions at once",
        ["rollouts", "in flight", "most at the judge", "time", "occupancy, whole run", "at the limit"],
        [row],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--case", choices=("cpu", "group", "occupancy"))
    parser.add_argument("--rollouts", type=int, default=3000)
    parser.add_argument("--repeats", type=int, default=3)
    said = parser.parse_args()
    if said.case in (None, "cpu"):
        anyio.run(cpu, said.rollouts, 256, said.repeats, backend_options={"use_uvloop": True})
    if said.case in (None, "group"):
        count = said.rollouts // MEMBERS * MEMBERS
        anyio.run(group, count, 256, said.repeats, backend_options={"use_uvloop": True})
    if said.case in (None, "occupancy"):
        anyio.run(occupancy, 8192, 2048, backend_options={"use_uvloop": True})


if __name__ == "__main__":
    main()
