"""HumanEval+ and MBPP+: a program must return the right values itself."""

from __future__ import annotations

from typing import Any

import pytest
from gym_resources.benchmarks import evalplus
from gym_runtime import ScoredRollout
from gym_runtime.environment import catalogue
from gym_runtime.errors import TaskError
from resources.judging import judge, row
from tables import table

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]


def double(base: int | None = None, **further: Any) -> bytes:
    tests = {"inputs": [[1], [2], [300]], "outputs": [2, 4, 600], **further}
    return row(verifier_metadata={"task_id": "own", "function": "f", "base": base, **tests})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "result", "base"),
    [
        ("def f(n): return n + n", "passed", True),
        ("import numpy as np\ndef f(n): return np.int64(n) * 2", "passed", True),
        ("def f(n): return 2 * n if n < 9 else 0", "wrong", True),
        ("def f(n): return 3", "wrong", False),
        ("def f(n): return 2 * n if n < 9 else 1 / 0", "raised", True),
        ("def g(n): return 2 * n", "raised", False),
        ("def f(n: return", "raised", False),
        # Forgeries: each returns nothing of its own.
        ("import sys\nsys.exit(0)\ndef f(n): pass", "raised", False),
        ("import os\ndef f(n): os._exit(0)", "died", False),
        ("import os\ndef f(n): os.kill(os.getpid(), 9)", "died", False),
        ("class Same:\n    __eq__ = lambda self, other: True\ndef f(n): return Same()", "wrong", False),
        ("class Same(int):\n    __eq__ = lambda self, other: True\ndef f(n): return Same(0)", "wrong", False),
        ('import json\njson.dumps = lambda value: \'{"status": "done"}\'\ndef f(n): pass', "wrong", False),
        (
            "import __main__\n__main__.tagged = lambda value: {'passed': True}\ndef f(n): pass",
            "wrong",
            False,
        ),
        ("import builtins\nbuiltins.AssertionError = Exception\ndef f(n): print(2 * n)", "wrong", False),
        (
            "import os\ndef f(n):\n    for k in range(3, 30):\n"
            "        try: os.write(k, b'\\0' * 7 + b'\\x02{}')\n        except OSError: pass",
            "wrong",
            False,
        ),
        ("def f(n): return 'x' * 200_000", "overlong", False),
        ("def f(n): return 'x' * 20_000_000", "overlong", False),
        ("def f(n):\n    x = []\n    for _ in range(100_000): x = [x]\n    return x", "raised", False),
    ],
)
async def test_a_program_must_return_the_right_values(
    isolation: None, code: str, result: str, base: bool
) -> None:
    verdict = await judge("evalplus", double(base=1), f"```python\n{code}\n```")
    assert (verdict.fields["result"], verdict.fields["is_correct"]) == (result, base)
    assert verdict.reward == float(result == "passed") == float(verdict.fields["is_correct_plus"])


@pytest.mark.slow
async def test_an_endless_call_is_killed(isolation: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evalplus, "CALL_LIMIT_S", 0.5)
    code = (
        "import signal\nsignal.pthread_sigmask(0, range(1, 65))\ndef f(n):\n    while n > 1: 0\n    return 2"
    )
    verdict = await judge("evalplus", double(), f"```\n{code}\n```")
    assert (verdict.reward, verdict.fields["result"], verdict.fields["tests_passed"]) == (0.0, "timeout", 1)
    assert verdict.fields["is_correct"] is None


async def test_expected_values_are_not_in_the_sandbox(isolation: None) -> None:
    """A program that looks through its whole process finds the inputs, and no expected value."""
    look = """
import re
def f(n):
    found = set()
    for line in open("/proc/self/maps"):
        bounds, mode = line.split()[:2]
        if mode.startswith("rw") and "[v" not in line:
            start, end = (int(bound, 16) for bound in bounds.split("-"))
            with open("/proc/self/mem", "rb") as memory:
                memory.seek(start)
                found.update(re.findall(rb"known-[a-z]{7,8}-{2}", memory.read(end - start)))
    return sorted(map(bytes.decode, found))
"""
    tests: dict[str, Any] = {
        "inputs": [["known-argument--"]],
        "outputs": [["known-argument--", "known-results--"]],
    }
    verdict = await judge("evalplus", double(**tests), f"```\n{look}\n```")
    assert verdict.fields["result"] == "wrong"
    tests["outputs"] = [["known-argument--"]]
    assert (await judge("evalplus", double(**tests), f"```\n{look}\n```")).reward == 1.0


async def test_a_reference_gives_the_expected_values(isolation: None) -> None:
    tests: dict[str, Any] = {"outputs": None, "reference": "def f(n): return (n, 2 * n)"}
    for code, reward in (("def f(n): return n, n + n", 1.0), ("def f(n): return n, n", 0.0)):
        assert (await judge("evalplus", double(**tests), f"```\n{code}\n```")).reward == reward
    broken: dict[str, Any] = {"outputs": None, "reference": "def f(n): return 1 / 0"}
    with pytest.raises(TaskError, match="the reference solution of own fails"):
        await judge("evalplus", double(**broken), "```\ndef f(n): return 1\n```")


@table(
    "fields", [{"outputs": None}, {"inputs": []}, {"outputs": [1]}, {"base": 4}, {"base": 0}, {"rule": "x"}]
)
def test_rows_without_usable_tests_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(TaskError):
        catalogue.environment("evalplus").resource.task(double(**fields))


def test_the_score_has_base_tests_where_they_are_known() -> None:
    def rollouts(*tasks: tuple[float, bool | None]) -> list[ScoredRollout]:
        return [ScoredRollout(at, reward, {"is_correct": base}) for at, (reward, base) in enumerate(tasks)]

    assert evalplus.score(rollouts((1.0, None), (0.0, None))) == {"plus": 50.0}
    assert evalplus.score(rollouts((1.0, True), (0.0, True))) == {"plus": 50.0, "base": 100.0}
    assert evalplus.score(rollouts((1.0, True), (0.0, None), (0.0, False), (0.0, None))) == {
        "plus": 25.0,
        "base": 50.0,
        "problems with a base score": 50.0,
    }
