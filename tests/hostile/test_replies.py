"""No reply blocks or bloats a worker: every environment judges a megabyte of every shape, wherever it stands.

What is measured is the processor time of the thread that the event loop runs in, and how much this process's
memory grows. What an environment does in processes of its own is bounded there
(`gym_runtime.environment.isolated`), and has to come to a verdict in time all the same. Which reward it is
does not matter here, but it has to be one: by a failure a reply would escape its 0.
"""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from gym_resources.instructions.registry import CHECKERS, bind
from gym_runtime.environment import catalogue, examples, requirements
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.environment.isolated import verify_isolated
from gym_runtime.environment.replay import rejudge
from gym_runtime.environment.verdict import make_response
from gym_runtime.errors import GymError, UsageError
from hostile.shapes import SIZE_BYTES, TEXTS, replies
from resources.instructions.cases import CASES

LOOP_S = 0.05
GROWTH_BYTES = 200_000_000
TRIES = 3
"""A busy machine slows a thread down by its caches, too: the fastest of a few tries counts."""

ENVIRONMENTS = catalogue.names("environments")
ISOLATED = {
    "ether0": "RDKit reads molecules",
    "math_with_judge": "SymPy computes",
    "reasoning_gym": "the library's scorers compute",
    "spider2_lite": "SQLite runs queries",
    "structured_outputs": "documents are parsed, and a schema's expressions are searched for",
    "terminus_judge": "similarity takes quadratic time",
}
"""What is judged in processes of its own, and why. Besides, `mcqa`, `gpqa_diamond` and
`instruction_following` read long texts, and search for expressions of a row, in such processes; and what runs
code has its sandbox."""
EVERY_ROW = {"instruction_following", "mcqa", "structured_outputs"}
"""Their rows differ in how an answer is read."""

KNOWN_SLOW = {("math_with_judge", "boxes that are never closed", "message in parts")}
"""What does not keep the bounds yet: environment, shape and place. One that does must not stand here.

SymPy's reader takes 12 s, and the worker looks after the process five times a second: 60 ms in all, none of
them at once."""

QUICK = ("boxes that are never closed", "combining marks on one letter", "answers that say nothing")
QUICK_ENVIRONMENTS = {
    "arc_agi",
    "calendar",
    "gpqa_diamond",
    "mcqa",
    "single_step_tool_use_with_argument_comparison",
    "xlam_fc",
}


class Cost(NamedTuple):
    loop_s: float
    growth_bytes: int


def load(name: str) -> LoadedEnvironment:
    environment = catalogue.environment(name)
    try:
        requirements.require(environment)
    except UsageError as error:
        pytest.skip(error.message)
    return environment


def rows(environment: LoadedEnvironment) -> list[bytes]:
    every = [example.row for example in examples.read(environment)]
    return every if environment.name in EVERY_ROW else every[:1]


def tool_of(environment: LoadedEnvironment, row: bytes) -> str:
    """A tool that the row or the environment offers; any name if there is none."""
    offered = [
        tool.get("name", "f") for tool in msgspec.json.decode(row)["responses_create_params"].get("tools", [])
    ]
    return next(iter((*offered, *environment.resource.tools)), "f")


async def judge(environment: LoadedEnvironment, row: bytes, response: bytes) -> None:
    """As a resource worker does it; the verdict can be sent."""
    definition = environment.definition
    if definition.isolated:
        verdict = await verify_isolated(
            str(environment.source), row, response, definition.verify_timeout_s, environment.asset_folders
        )
    else:
        verdict = await rejudge(environment.resource, row, response)
    msgspec.json.encode(verdict.checked())


async def cost(environment: LoadedEnvironment, row: bytes, response: bytes) -> Cost:
    gc.collect()
    before = memory_bytes("VmRSS", forget_peak=True)
    start_s = time.thread_time()
    await judge(environment, row, response)
    loop_s = time.thread_time() - start_s
    return Cost(loop_s, memory_bytes("VmHWM") - before)


def memory_bytes(field: str, *, forget_peak: bool = False) -> int:
    """What the kernel says of this process's memory."""
    if forget_peak:
        Path("/proc/self/clear_refs").write_text("5")
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024


async def broken(environment: LoadedEnvironment, row: bytes, items: list[Any]) -> str | None:
    """Which bound a reply breaks, every time; None if it keeps them."""
    response, problem = make_response(*items), None
    for _ in range(TRIES):
        try:
            spent = await cost(environment, row, response)
        except GymError as error:
            return f"{type(error).__name__}: {error.message:.300}"
        if spent.loop_s <= LOOP_S and spent.growth_bytes <= GROWTH_BYTES:
            return None
        problem = f"{spent.loop_s * 1000:.0f} ms in the loop, {spent.growth_bytes / 1e6:.0f} MB more"
    return problem


async def check(name: str, shape: str) -> None:
    environment = load(name)
    assert environment.definition.isolated is (name in ISOLATED)
    text = TEXTS[shape](SIZE_BYTES)
    problems: list[str] = []
    for number, row in enumerate(rows(environment), 1):
        await judge(environment, row, make_response("short"))  # what is imported and compiled once
        for place, items in replies(text, tool_of(environment, row)):
            if number > 1 and place not in ("message", "arguments", "argument"):
                continue
            problem = await broken(environment, row, items)
            known = (name, shape, place) in KNOWN_SLOW
            if problem and not known:
                problems.append(f"row {number}, {place}: {problem}")
            if known and not problem and number == 1:
                problems.append(f"row {number}, {place}: keeps the bounds, so it must leave KNOWN_SLOW")
    assert not problems, "\n".join(problems)


def marks(name: str, shape: str) -> list[pytest.MarkDecorator]:
    quick = name in QUICK_ENVIRONMENTS and shape in QUICK
    return [] if quick else [pytest.mark.soak, pytest.mark.timeout(600)]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "shape"),
    [pytest.param(name, shape, marks=marks(name, shape)) for name in ENVIRONMENTS for shape in TEXTS],
)
async def test_a_megabyte_of_any_shape_is_judged_within_bounds(name: str, shape: str) -> None:
    await check(name, shape)


@pytest.mark.slow
@pytest.mark.parametrize(
    "instruction",
    [
        pytest.param(name, marks=[] if number % 8 == 0 else pytest.mark.soak)
        for number, name in enumerate(CHECKERS)
    ],
)
def test_no_instruction_takes_more_than_linear_time(instruction: str) -> None:
    """Ten times the text takes not much more than ten times as long, where long texts are checked."""
    checker = bind(instruction, CASES[instruction][0][0])
    slow: list[str] = []
    for shape, make in TEXTS.items():
        short_s, long_s = (
            min(spent_s(checker, make(size)) for _ in range(TRIES)) for size in (2_000, 20_000)
        )
        if long_s > 40 * short_s + 0.1:
            slow.append(f"{shape}: {short_s:.3f} s, then {long_s:.3f} s")
    assert not slow


def spent_s(checker: Callable[[str], object], text: str) -> float:
    start_s = time.thread_time()
    checker(text)
    return time.thread_time() - start_s
