from __future__ import annotations

import json
import os
import time

import anyio
import msgspec
import psutil
import pytest
from gym_resources import math_with_code
from gym_resources.math_with_code import same
from gym_runtime.environment import catalogue
from gym_runtime.environment.replay import session_of
from gym_runtime.errors import UsageError
from gym_runtime.sandbox import bubblewrap
from resources.judging import call, judge, namesakes, output, outputs, row

pytestmark = pytest.mark.anyio

TASK = row(expected_result="42")


@pytest.fixture
def isolation() -> None:
    try:
        bubblewrap.check(os.getpid())
    except UsageError as error:
        pytest.skip(error.message)


@pytest.mark.parametrize(
    ("answer", "expected", "equal"),
    [
        ("32", "32", True),
        ("32.0", "32", True),
        ("32.00001", "32", True),
        ("32.001", "32", False),
        ("-3", "3", False),
        (r"\frac{333}{1997}", r"\(\frac{333}{1997}\)", True),
        (r"\frac{333} {1997}", r"$\frac{333}{1997}$", True),
        ("$42$", "42", True),
        ("$$42$$", r"\[42\]", True),
        ("$42", "42", False),
        ("$", "$", True),
        ("(0, 1)", "(0,1)", True),
        ("X", "x", True),
        ("x", "y", False),
        ("", "32", False),
        ("", "", False),
        ("nan", "1", False),
        ("0.0000001", "0", False),
    ],
)
def test_an_answer_is_the_same_text_or_nearly_the_same_number(
    answer: str, expected: str, equal: bool
) -> None:
    assert same(answer, expected) is equal


def test_no_answer_takes_long() -> None:
    start_s = time.perf_counter()
    for answer in ("$" * 100_000 + "x", r"\(" * 100_000, " " * 100_000, "1" * 100_000):
        assert not same(answer, "42")
    assert time.perf_counter() - start_s < 2


@pytest.mark.slow
async def test_the_session_answers_like_a_prompt_and_remembers(isolation: None) -> None:
    got = await outputs(
        "math_with_code",
        TASK,
        [
            ("execute_python", {"code": "x = 6"}),
            ("execute_python", {"code": "print(7 * x)"}),
            ("execute_python", {"code": "print(1)\nnope"}),
            ("execute_python", {"code": "print(np.arange(3).sum())"}),
            ("execute_python", {"code": "open('/etc/shadow')"}),
            ("end_session", {}),
            ("execute_python", {"code": "print(x)"}),
        ],
    )
    assert got[:2] == ["", "42\n"]
    assert got[2].startswith("1\nTraceback")
    assert got[2].endswith("NameError: name 'nope' is not defined")
    assert got[3] == "3\n" or "NameError" in got[3]
    assert "FileNotFoundError" in got[4]
    assert got[5] == "Session ended."
    assert "NameError" in got[6]


async def test_the_last_box_counts_else_what_was_printed_last(isolation: None) -> None:
    calls = [call("execute_python", {"code": "print(42)"}), output("42\n")]
    assert (await judge("math_with_code", TASK, r"\boxed{41} or rather \boxed{42}")).reward == 1.0
    assert (await judge("math_with_code", TASK, *calls, "Done.")).reward == 1.0
    assert (await judge("math_with_code", TASK, *calls, r"\boxed{41}")).reward == 0.0
    assert (await judge("math_with_code", TASK, *calls, call("end_session", {}))).reward == 1.0
    wrong = [call("execute_python", {"code": "print(41)"}), output("41\n")]
    assert (await judge("math_with_code", TASK, *calls, *wrong)).reward == 0.0
    assert (await judge("math_with_code", TASK, "42")).reward == 0.0
    boxed = call("execute_python", {"code": r"print('So: \\boxed{41} or \\boxed{42}')"})
    assert (await judge("math_with_code", TASK, *calls, boxed, output(""), "See there.")).reward == 1.0


async def test_what_a_raising_piece_printed_is_no_answer(isolation: None) -> None:
    pieces = ("print(42)", "print(41)\n1 / 0", "41", "")
    calls = [item for code in pieces for item in (call("execute_python", {"code": code}), output(""))]
    assert (await judge("math_with_code", TASK, *calls)).reward == 1.0


@pytest.mark.slow
async def test_a_piece_that_overruns_is_interrupted_and_the_memory_stays(
    isolation: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(math_with_code, "EXECUTION_LIMIT_S", 0.2)
    pieces = ("x = 42", "while True: pass", "print(x)")
    got = await outputs("math_with_code", TASK, [("execute_python", {"code": code}) for code in pieces])
    assert "TimeoutError" in got[1]
    assert got[2] == "42\n"


async def test_the_rows_of_its_namesake_are_won_by_their_result() -> None:
    for task in namesakes("math_with_code"):
        line = json.dumps({**task, "expected_code_contains": None}).encode()
        result = task["expected_result"].removeprefix(r"\(").removesuffix(r"\)")
        assert (await judge("math_with_code", line, rf"So \boxed{{{result}}}.")).reward == 1.0
        assert (await judge("math_with_code", line, rf"So \boxed{{{result}+1}}.")).reward == 0.0


async def test_closing_the_session_kills_what_it_started(isolation: None) -> None:
    resource = catalogue.environment("math_with_code").resource
    mark = f"mark-{time.monotonic_ns()}"
    program = f"import time; time.sleep(99) # {mark}"
    code = f"import subprocess, sys\np = subprocess.Popen([sys.executable, '-c', {program!r}])"

    def living() -> int:
        return sum(
            mark in " ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])
        )

    async with session_of(resource, TASK) as session:
        arguments = msgspec.json.encode({"code": code}).decode()
        assert await resource.call_tool(session, "execute_python", arguments) == ""
        with anyio.fail_after(5):
            while living() != 1:
                await anyio.sleep(0.01)
    assert living() == 0
