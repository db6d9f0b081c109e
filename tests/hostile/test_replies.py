"""No reply blocks or bloats a worker: every environment judges a megabyte of every shape, wherever it stands.

What is measured is the processor time of the thread that the event loop runs in, and how much this process's
memory grows. What an environment does in its own processes is bounded there
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
from gym_resources.instructions.instruction_ids import CHECKERS, bind
from gym_runtime.environment import catalogue, examples
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.environment.examples import Example
from gym_runtime.environment.isolated import judge_recorded
from gym_runtime.environment.roles import ScriptedAnswers
from gym_runtime.environment.verdict import Pending, make_response
from gym_runtime.errors import GymError
from hostile.shapes import SIZE_BYTES, TEXTS, replies
from resources.instructions.cases import CASES
from resources.judging import usable


def verifier(name: str) -> str:
    """The environment whose module has the verifier of this one; empty if a module of parts has it."""
    module = catalogue.environment(name).definition.resource.__module__.rpartition(".")[2]
    return module if module in catalogue.names("environments") else ""


LOOP_S = 0.05
GROWTH_BYTES = 200_000_000
TRIES = 3
"""A busy machine slows a thread down by its caches, too: the fastest of a few tries counts."""

NAMES = catalogue.names("environments")
ENVIRONMENTS = [name for name in NAMES if verifier(name) in (name, "")]
"""A benchmark on another environment's verifier is left out."""
ISOLATED = {
    "ether0": "RDKit reads molecules",
    "math_with_judge": "SymPy computes",
    "reasoning_gym": "the library's scorers compute",
    "spider2_lite": "SQLite runs queries",
    "structured_outputs": "documents are parsed, and a schema's expressions are searched for",
    "terminal_multi_harness": "similarity takes quadratic time",
    "terminus_judge": "similarity takes quadratic time",
}
"""What is judged in its own processes, and why. Besides, `mcqa`, `gpqa_diamond` and
`instruction_following` read long texts, and search for expressions of a row, in such processes; and what runs
code has its sandbox."""
QUESTIONS = 64
"""How often the answers of a role in an example are repeated: a long reply may be asked about more often."""
EVERY_ROW = {
    "bfcl",
    "instruction_following",
    "litmus_agent",
    "mcqa",
    "structured_outputs",
    "terminal_multi_harness",
}
"""Their rows differ in how an answer is read."""

KNOWN_SLOW: set[tuple[str, str, str]] = set()
"""What does not keep the bounds yet: environment, shape and place. One that does must not stand here."""

QUICK = ("boxes that are never closed", "combining marks on one letter", "answers that say nothing")
QUICK_ENVIRONMENTS = {
    "arc_agi",
    "bfcl",
    "calendar",
    "gpqa_diamond",
    "mcqa",
    "mmlu_pro",
    "single_step_tool_use_with_argument_comparison",
    "xlam_fc",
}


QUICK_REPLAYED = ("bfcl_multi_turn", "quotes")
"""Its turns are repeated, so a text that is read more often than once costs most here."""


class Cost(NamedTuple):
    loop_s: float
    growth_bytes: int


def rows(environment: LoadedEnvironment) -> list[Example]:
    every = examples.read(environment)
    return every if environment.name in EVERY_ROW else every[:1]


def tool_of(environment: LoadedEnvironment, row: bytes) -> str:
    """A tool that the row or the environment offers; any name if there is none."""
    offered = [
        tool.get("name", "f") for tool in msgspec.json.decode(row)["responses_create_params"].get("tools", [])
    ]
    return next(iter((*offered, *environment.resource.tools)), "f")


async def judge(environment: LoadedEnvironment, example: Example, response: bytes) -> None:
    """As a resource worker does it; the verdict can be sent. Roles answer as in the example's rollout."""
    scripted = ScriptedAnswers({role: answers * QUESTIONS for role, answers in example.roles.items()})
    models = scripted.models(environment.resource.roles)
    verdict = await judge_recorded(environment, example.row, response, models)
    msgspec.json.encode(verdict.features if isinstance(verdict, Pending) else verdict.checked())


async def cost(environment: LoadedEnvironment, example: Example, response: bytes) -> Cost:
    gc.collect()
    before = memory_bytes("VmRSS", forget_peak=True)
    start_s = time.thread_time()
    await judge(environment, example, response)
    loop_s = time.thread_time() - start_s
    return Cost(loop_s, memory_bytes("VmHWM") - before)


def memory_bytes(field: str, *, forget_peak: bool = False) -> int:
    """What the kernel says of this process's memory."""
    if forget_peak:
        Path("/proc/self/clear_refs").write_text("5")
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024


async def broken(environment: LoadedEnvironment, example: Example, items: list[Any]) -> str | None:
    """Which bound a reply breaks, every time; None if it keeps them."""
    response, problem = make_response(*items), None
    for _ in range(TRIES):
        try:
            spent = await cost(environment, example, response)
        except GymError as error:
            return f"{type(error).__name__}: {error.message:.300}"
        if spent.loop_s <= LOOP_S and spent.growth_bytes <= GROWTH_BYTES:
            return None
        problem = f"{spent.loop_s * 1000:.0f} ms in the loop, {spent.growth_bytes / 1e6:.0f} MB more"
    return problem


async def check(name: str, shape: str) -> None:
    environment = usable(name)
    assert environment.definition.isolated is (name in ISOLATED)
    text = TEXTS[shape](SIZE_BYTES)
    problems: list[str] = []
    for number, example in enumerate(rows(environment), 1):
        await judge(environment, example, make_response("short"))  # what is imported and compiled once
        for place, items in replies(text, tool_of(environment, example.row)):
            if number > 1 and place not in ("message", "arguments", "argument"):
                continue
            problem = await broken(environment, example, items)
            known = (name, shape, place) in KNOWN_SLOW
            if problem and not known:
                problems.append(f"row {number}, {place}: {problem}")
            if known and not problem and number == 1:
                problems.append(f"row {number}, {place}: keeps the bounds, so it must leave KNOWN_SLOW")
    assert not problems, "\n".join(problems)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """All shapes for all environments are thousands of tests, so they exist only where they are asked for."""
    if metafunc.function is not test_a_megabyte_of_any_shape_is_judged_within_bounds:
        return
    quick = [(name, shape) for name in ENVIRONMENTS if name in QUICK_ENVIRONMENTS for shape in QUICK]
    quick.append(QUICK_REPLAYED)
    every = [(name, shape) for name in ENVIRONMENTS for shape in TEXTS if (name, shape) not in quick]
    rest = [pytest.param(*case, marks=pytest.mark.timeout(600)) for case in every]
    metafunc.parametrize(("name", "shape"), quick + (rest if metafunc.config.getoption("--soak") else []))


@pytest.mark.slow
@pytest.mark.anyio
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
        for _ in range(TRIES):
            short_s, long_s = (spent_s(checker, make(size)) for size in (2_000, 20_000))
            if long_s <= 40 * short_s + 0.1:
                break
        else:
            slow.append(f"{shape}: {short_s:.3f} s, then {long_s:.3f} s")
    assert not slow


def spent_s(checker: Callable[[str], object], text: str) -> float:
    start_s = time.thread_time()
    checker(text)
    return time.thread_time() - start_s
