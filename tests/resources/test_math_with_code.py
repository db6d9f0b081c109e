from __future__ import annotations

import json
import time
from typing import Any

import anyio
import msgspec
import psutil
import pytest
from gym_resources import math_with_code
from gym_resources.math_with_code import last_answer, same
from gym_runtime import Reply
from gym_runtime.environment import catalogue
from gym_runtime.environment.replaying import session_of
from resources.judging import judge, nemo_gym_rows, output, outputs, row
from tables import table

pytestmark = pytest.mark.anyio

TASK = row(expected_result="42")


@table(
    ("answer", "expected", "equal"),
    [
        ("32", "32", True),
        ("32.0", "32", True),
        ("32.00001", "32", True),
        ("32.001", "32", False),
        ("-3", "3", False),
        (r"\frac{333}{1997}", r"\(\frac{333}{1997}\)", True),
        ("42", r"\( $\text{ 42 }$ \)", True),
        (r"\text{yes}", "yes", True),
        (r"\(x\)", "$x$", True),
        (r"$\(x\)$", "x", False),  # only in this order
        (r"\text{$x$}", "x", False),
        ("$$x$$", "x", False),
        (r"\[x\]", "x", False),
        ("$42", "42", False),
        ("$", "$", True),
        ("(0,  1)", "(0, 1)", True),
        ("(0, 1)", "(0,1)", False),
        (r"x\,y", "xy", False),
        ("x  \n y", "x y", True),
        ("X", "x", False),
        ("x", "y", False),
        ("", "32", False),
        ("nan", "1", False),
        ("inf", "1e999", False),
        ("1_000", "1000", True),
        ("0.0000009", "0", True),
        ("0.000001", "0", False),
        ("1000000.9", "1000000", True),
        ("1000001.1", "1000000", False),
    ],
)
def test_an_answer_is_the_same_text_or_nearly_the_same_number(
    answer: str, expected: str, equal: bool
) -> None:
    assert same(answer, expected) is equal


def test_no_answer_takes_long() -> None:
    texts = ("$" * 1_000_000 + "x", r"\(" * 500_000, " " * 1_000_000, "1" * 1_000_000, "1_" * 500_000 + "1")
    boxes = (r"\boxed{" * 140_000, "{" * 1_000_000, r"\boxed{" + "{}" * 500_000, r"\boxed{}" * 120_000)
    outputs = (*boxes, '{"stdout":' + "[" * 1_000_000, '{"stdout":[' + "{}," * 330_000 + "1]}")
    start_s = time.process_time()
    for answer in texts:
        assert not same(answer, "42")
    for text in boxes:
        assert last_answer(Reply.of(text)) is None
    for text in outputs:
        assert last_answer(Reply.of(output(text))) is None
    assert time.process_time() - start_s < 15 * 0.05


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
    # From 3.13 on Python adds what may have been meant.
    assert got[2].splitlines()[-1].startswith("NameError: name 'nope' is not defined")
    assert got[3] == "3\n" or "NameError" in got[3]
    assert "FileNotFoundError" in got[4]
    assert got[5] == "Session ended."
    assert "NameError" in got[6]


EMPTY = {"type": "message", "role": "assistant", "content": []}


@table(
    ("items", "answer"),
    [
        ([r"\boxed{41} or rather \boxed{42}"], "42"),
        ([r"\boxed{ 42 }"], "42"),
        ([r"\boxed{\frac{1}{2}}"], r"\frac{1}{2}"),
        ([r"\boxed {42}"], None),
        ([r"\boxed{42} or \boxed{43"], None),  # an opening that is never closed hides the one before it
        ([r"\boxed{\boxed{42}"], "42"),
        ([r"\boxed{42\}"], "42\\"),  # an escaped brace is a brace
        ([r"\boxed{42}", "I am sure."], "42"),
        ([r"\boxed{42}", r"\boxed{}"], "42"),
        ([r"\boxed{42}", r"\boxed{ }"], "42"),
        ([r"\boxed{42}", r"\boxed{43"], "42"),
        ([r"\boxed{42}", EMPTY], "42"),
        ([r"\boxed{42}", r"\boxed{43}"], "43"),
        (["42"], None),
        ([], None),
        ([output(r"\boxed{42}"), r"\boxed{43}", output(r"\boxed{44}")], "43"),
        ([output(r"\boxed{41}"), output(r"So: \boxed{42}"), output("done"), "See there."], "42"),
        ([output("42")], None),  # what is printed without a box never counts
        ([output(json.dumps({"stdout": r"\boxed{42}", "stderr": r"\boxed{43}"}))], "42"),
        ([output(json.dumps({"stderr": r"\boxed{43}"}))], None),
        ([output(json.dumps({"stdout": [r"\boxed{43}"]}))], None),
        ([output(json.dumps([r"boxed \boxed{42}"]))], "42"),
    ],
)
def test_the_last_box_with_something_in_it_counts(items: list[Any], answer: str | None) -> None:
    assert last_answer(Reply.of(*items)) == answer


async def test_a_box_that_was_printed_is_judged() -> None:
    assert (await judge("math_with_code", TASK, output(r"\boxed{42.0}"))).reward == 1.0
    assert (await judge("math_with_code", TASK, output("42"))).reward == 0.0


@pytest.mark.slow
async def test_a_piece_that_overruns_is_interrupted_and_the_memory_stays(
    isolation: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(math_with_code, "EXECUTION_LIMIT_S", 2.0)
    pieces = ("x = 42", "while True: pass", "print(x)")
    got = await outputs("math_with_code", TASK, [("execute_python", {"code": code}) for code in pieces])
    assert "TimeoutError" in got[1]
    assert got[2] == "42\n"


async def test_rows_in_nemo_gyms_format_are_won_by_their_result() -> None:
    for task in map(json.loads, nemo_gym_rows("math_with_code")):
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
        with anyio.fail_after(15):
            while living() != 1:
                await anyio.sleep(0.01)
    assert living() == 0


@table(
    ("answer", "expected", "equal"),
    [
        (r"\dfrac{1}{6}", r"\frac{1}{6}", True),
        (r"- \tfrac{1}{6}", "-1/6", True),
        ("0.5", r"\frac{1}{2}", True),
        (r"\frac{1}{6}", r"\frac{1}{7}", False),
        (r"\frac{x}{6}", r"\dfrac{x}{6}", False),
        ("1/0", "1/0", True),
    ],
)
def test_fractions_are_numbers_by_the_strict_rule(answer: str, expected: str, equal: bool) -> None:
    assert same(answer, expected, strict=True) is equal
    assert same(answer, expected) is (answer == expected)
