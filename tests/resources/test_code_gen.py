from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from typing import Any

import pytest
from gym_resources.code.output_comparison import same_output
from gym_resources.code.program_tests import Case, Outcome, matches, run_tests
from gym_resources.code_gen import last_block
from gym_runtime.environment import catalogue
from gym_runtime.errors import TaskError
from resources.judging import call, judge, nemo_gym_rows, output, row
from tables import table

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]


def task(*pairs: tuple[str, str], fn_name: str | None = None) -> bytes:
    tests: dict[str, Any] = {"inputs": [pair[0] for pair in pairs], "outputs": [pair[1] for pair in pairs]}
    return row(verifier_metadata={"unit_tests": {**tests, "fn_name": fn_name}})


def refusal(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": text}]}


async def run(code: str, *tests: tuple[str, str], function: str | None = None, limit_s: float = 5) -> Outcome:
    return await run_tests(code, [Case(*pair) for pair in tests], function=function, test_limit_s=limit_s)


@table(
    ("text", "code"),
    [
        ("```python\na\n```", "a"),
        ("```\na\n```\nor\n```python\nb\n\nc\n``` done", "b\n\nc"),
        ("``` a ```", ""),
        ("```python\na", ""),
        ("no fence", ""),
        ("```\na\n```\n```python\nb", ""),
        ("```\n```", ""),
        ("```a\nb\n``` ``` c", "b"),
        ("one\n```\ntwo\n\n```", "two\n"),
        ("\n```\n\n```", ""),
        ("```", ""),
        ("", ""),
    ],
)
def test_the_program_stands_between_the_last_two_lines_with_a_fence(text: str, code: str) -> None:
    assert last_block(text) == code


@table(
    ("printed", "expected", "same"),
    [
        ("1\n2\n", "1\n2", True),
        (" 1 \n\t2", "1\n2\n\n", True),
        ("1\n\n2", "1\n2", False),
        ("1 2", "1  2", True),
        ("a b", "a  b", False),
        ("1.0", "1", True),
        ("1e3", "1000", True),
        ("0.333333", "0.3333333", False),
        ("50000000000000000", "50000000000000001", False),
        ("YES", "yes", False),
        ("", "", True),
        ("", "0", False),
        ("nan", "nan", True),
        ("nan x", "nan  x", False),
    ],
)
def test_outputs_are_compared_line_by_line(printed: str, expected: str, same: bool) -> None:
    assert same_output(printed, expected) is same


@pytest.mark.parametrize(
    ("text", "reward", "result"),
    [
        ("```python\nprint(int(input()) * 2)\n```", 1.0, "passed"),
        ("```python\nprint(4)\n```", 0.0, "wrong"),
        ("```python\nprint(\n```", 0.0, "raised"),
        ("```python\n\n```", 0.0, "no code"),
        ("<think>hm</think>\n```python\nprint(int(input()) * 2)\n```", 0.0, "malformed"),
    ],
)
async def test_all_tests_must_pass(isolation: None, text: str, reward: float, result: str) -> None:
    verdict = await judge("code_gen", task(("2\n", "4\n"), ("3\n", "6\n")), text)
    assert (verdict.reward, verdict.fields["result"]) == (reward, result)


@pytest.mark.parametrize(
    ("items", "code"),
    [
        (["```python\nprint(", "4)\n```", " That is it."], "print(4)"),  # put together without a separator
        (["```python\nprint(4)\n", refusal("No."), "```"], "print(4)"),
        (["```python\nprint(3)\n```\n", call("look", {}), "```python\nprint(4)\n```"], "print(4)"),
        ([call("look", {}), output("```python\nprint(4)\n```")], None),
    ],
)
async def test_all_messages_are_read(isolation: None, items: list[Any], code: str | None) -> None:
    verdict = await judge("code_gen", task(("1\n", "4\n")), *items)
    assert (verdict.reward, verdict.fields["extracted_model_code"]) == (float(code is not None), code)


PROGRAMS = {
    "global variables": "n = 0\ndef f():\n    global n\n    n += 1\nf()\nprint(n)",
    "a main guard": "if __name__ == '__main__':\n    print(1)",
    "names at hand": "print(len(deque([pi])) + sqrt(0).__int__() + gcd(4, 6) - 2)",
    "the stream's bytes": "import sys\nsys.stdout.buffer.write(b'1')",
    "reading descriptor 0": "import os\nos.read(0, 10)\nprint(open(0).read() + '1')",
    "a thread": "import threading\nthreading.Thread(target=lambda: print(1)).start()",
    "an exit handler": "import atexit\natexit.register(print, 1)",
    "exit with a code": "print(1)\nexit(7)",
    "a long number": "print(str(10 ** 40_000)[0])",
    "deep recursion": "def f(n): return n and f(n - 1)\nf(20_000)\nprint(1)",
}


@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_program_runs_as_programs_do(isolation: None, name: str) -> None:
    assert await run(PROGRAMS[name], ("", "1")) == Outcome(passed=1, status="passed")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("print(1)\n1 / 0", "raised"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "died"),
        ("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nimport time; time.sleep(60)", "timeout"),
        ("import signal\nsignal.pthread_sigmask(0, range(1, 65))\nwhile True: pass", "timeout"),
        ("print('x' * 3_000_000)", "overlong"),
        ("x = bytearray(1 << 40)", "raised"),
        ("print(10 ** 60_000)", "raised"),
        (
            "import os\nfor n in range(3, 20):\n    try: os.write(n, b'x' * 99)\n    except OSError: pass",
            "wrong",
        ),
    ],
)
async def test_what_goes_wrong_is_the_programs_outcome(isolation: None, code: str, status: str) -> None:
    assert (await run(code, ("", "1"), limit_s=0.5 if status == "timeout" else 5)).status == status


async def test_a_test_does_not_see_what_another_has_left(isolation: None) -> None:
    code = "import os\nprint(len(os.listdir('.')))\nimport builtins\nbuiltins.len = lambda _: 7"
    assert (await run(code, ("", "0"), ("", "0"))).status == "passed"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "given", "expected", "status"),
    [
        ("def f(a, b): return a + b", "1\n2", "3", "passed"),
        ("class Solution:\n    def f(self, a): return a", "[1, 2]", "[1, 2]", "passed"),
        ("def f(): return 1, 2", "", "[1, 2]", "raised"),
        ("def f(_): return 1, 2", "0", "[1, 2]", "passed"),
        ("def f(_): return [(1, 2)]", "0", "[[1, 2]]", "passed"),
        ("def f(_): return {'a': ({2: (1,)},)}", "0", '{"a": [{"2": [1]}]}', "passed"),
        ("def f(_): return 0.3333333", "0", "0.33333333333", "passed"),
        ("def f(_): return 0.333", "0", "0.33333333333", "wrong"),
        ("def f(_): return [0.3333333]", "0", "[0.33333333333]", "wrong"),
        ("def f(_): return float('nan')", "0", "NaN", "passed"),
        ("def f(_): return [float('nan')]", "0", "[NaN]", "passed"),
        ("def f(_): return '2.50'", "0", "2.5", "passed"),
        ("def f(_): return 1e999", "0", "1", "wrong"),
        ("def f(_): return 1.0", "0", "1", "passed"),
        ("def f(_): return True", "0", "1", "passed"),
        ("def f(_): return None", "0", "null", "passed"),
        ("def f(n): return n * 10 ** 6000", "1", "1" + 6000 * "0", "passed"),
        ("def f(n): return 10 ** 6000", "1", "1" + 5999 * "0" + "1", "wrong"),
        ("def f(n): return n", "-" + 6000 * "7", "-" + 6000 * "7", "passed"),
        ("def f(_): return {'a': [1]}", "0", '{"a": [1]}', "passed"),
        ("def f(_): return {1: 2}", "0", '{"1": 2}', "passed"),
        ("def f(_): return {1}", "0", "[1]", "wrong"),
        ("def f(_): return '1'", "0", "1", "passed"),
        ("def f(_): print('noise'); return 1", "0", "1", "passed"),
        ("def g(_): return 1", "0", "1", "raised"),
        ("def f(_):\n    x = []\n    x.append(x)\n    return x", "0", "1", "raised"),
    ],
)
async def test_functions_are_judged_by_what_they_return(
    isolation: None, code: str, given: str, expected: str, status: str
) -> None:
    assert (await run(code, (given, expected), function="f")).status == status


ALARM = """
import os, signal
from gym_resources.code import inside

signal.signal(signal.SIGALRM, inside._overrun)
calls = []

def late(wait):
    def waited(*given):
        calls.append(wait(*given))
        if len(calls) == 1:
            os.kill(os.getpid(), signal.SIGALRM)
        return calls[-1]
    return waited

os.waitid, os.waitpid = late(os.waitid), late(os.waitpid)
if (pid := os.fork()) == 0:
    os.setpgid(0, 0)
    os._exit(0)
print(inside._Fork(None, None, 5.0)._ended(pid, os.open(os.devnull, os.O_RDONLY)))
"""


def test_an_alarm_that_rings_while_a_program_ends_loses_nothing() -> None:
    """On a busy machine it rings after the wait for a program of one second has returned."""
    ended = subprocess.run([sys.executable, "-c", ALARM], capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr) == ("done\n", "")


SOLUTIONS = {
    0: """
        a, b = map(int, input().split())
        print(a * b)
    """,
    4: """
        for _ in range(int(input())):
            n, k = map(int, input().split())
            print(sum(sorted(map(int, input().split()))[-k - 1:]))
    """,
    5: """
        import sys
        given = iter(sys.stdin.read().split())
        for _ in range(int(next(given))):
            n, places, found = int(next(given)), {}, []
            for place in range(n):
                places[int(next(given))] = place
            first = last = places[1]
            for m in range(1, n + 1):
                first, last = min(first, places[m]), max(last, places[m])
                found.append(str(int(last - first + 1 == m)))
            print("".join(found))
    """,
}


@pytest.mark.slow
@pytest.mark.parametrize("number", [place for place in SOLUTIONS if place < len(nemo_gym_rows("code_gen"))])
async def test_rows_in_nemo_gyms_format_are_won_by_a_right_program(isolation: None, number: int) -> None:
    line = nemo_gym_rows("code_gen")[number]
    code = textwrap.dedent(SOLUTIONS[number])
    verdict = await judge("code_gen", line, f"Think.\n```python\n{code}\n```\nDone.")
    assert (verdict.reward, verdict.fields["result"]) == (1.0, "passed")
    assert (await judge("code_gen", line, f"```python\n{code}\nprint()\nprint(1)\n```")).reward == 0.0


FORGED = """
import os
def f(_):
    result = max(int(n) for n in os.listdir("/proc/self/fd") if n != "255")
    for descriptor in range(3, result + 1):
        try: os.pwrite(descriptor, b"9" * 1_000_000, 0)
        except OSError: pass
    os._exit(0)
"""


async def test_a_result_that_the_program_writes_itself_does_not_hold_the_worker(isolation: None) -> None:
    """Reading a number of a million digits takes 10 s."""
    start_s = time.process_time()
    assert (await run(FORGED, ("0", "1"), function="f")).status in ("wrong", "died")
    assert time.process_time() - start_s < 2


@pytest.mark.slow
@table(
    ("output", "expected", "same"),
    [
        ("1.000001", "1", True),
        ("1.1", "1", False),
        ("Infinity", "Infinity", True),
        ("-Infinity", "Infinity", False),
        ("5.0", "Infinity", False),
        ("5.0", "1e999", False),
        ('"7"', '"inf"', False),
    ],
)
def test_numbers_that_a_function_returns_may_differ_by_a_little(
    output: str, expected: str, same: bool
) -> None:
    assert matches(output, expected, "f") is same


@pytest.mark.slow
def test_nothing_that_a_program_writes_takes_long() -> None:
    """An integer of a million digits takes 10 s if read in quadratic time; a thread reads long ones."""
    digits = "9" * 1_000_000
    printed = (digits, "1 " * 500_000, "1e999999 " * 100_000, "\n" * 1_000_000, "x" * 1_000_000)
    returned = (digits, f"[{digits}]", "[" * 1_000_000, f"[{'[],' * 330_000}1]", f'{{"int": "{digits}"}}')
    start_s = time.thread_time()
    for text in printed:
        assert not matches(text, "1", None)
    for text in returned:
        assert not matches(text, "1", "f")
    assert not matches("1", digits, "f")
    assert time.thread_time() - start_s < 5


def test_no_reply_takes_long_to_read() -> None:
    start_s = time.thread_time()
    for text in ("```" * 330_000, "```\n" * 250_000, "\n" * 1_000_000, "```\n" + "\n" * 1_000_000):
        last_block(text)
    assert time.thread_time() - start_s < 4 * 0.05


@pytest.mark.parametrize("unit_tests", [{"inputs": ["1"], "outputs": []}, {"inputs": [], "outputs": []}, {}])
def test_a_row_whose_tests_do_not_pair_up_is_refused(unit_tests: dict[str, Any]) -> None:
    with pytest.raises(TaskError):
        catalogue.environment("code_gen").resource.task(row(verifier_metadata={"unit_tests": unit_tests}))


CHANGES = """
import atexit, builtins, os, random, signal, sys
fresh = (
    "mark" not in globals()
    and not hasattr(sys, "mark")
    and os.getcwd() == os.environ["HOME"]
    and "MARK" not in os.environ
    and signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
    and sys.getrecursionlimit() == 50_000
    and len("ab") == 2
    and sys.stdin.readline() == "7\\n"
    and sys.stdin.read() == ""
)
print(fresh)
mark = sys.mark = os.environ["MARK"] = "mark"
os.mkdir(str(random.random()))
os.chdir("/")
signal.signal(signal.SIGALRM, print)
signal.alarm(1000)
sys.setrecursionlimit(60)
builtins.len = None
atexit.register(print, "end")
os.close(0)
sys.stdin = None
"""
SEES = """
import os, math
print(hasattr(math, "mark"))
math.mark = True
"""


async def test_what_a_test_changes_is_undone_before_the_next(isolation: None) -> None:
    outcome = await run(CHANGES, *[("7\n", "True\nend")] * 12)
    assert outcome == Outcome(passed=12, status="passed"), outcome


async def test_what_cannot_be_undone_fails_no_test(isolation: None) -> None:
    """Each test that sees what one before it left is repeated in its own process."""
    assert await run(SEES, *[("", "False")] * 8) == Outcome(passed=8, status="passed")
    leaves = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    assert await run(f"{leaves}print(threading.active_count())", *[("", "2")] * 3) == Outcome(
        passed=3, status="passed"
    )
    ends = "import os\nprint(1, flush=True)\nos._exit(0)"
    assert await run(ends, *[("", "1")] * 3) == Outcome(passed=3, status="passed")


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 4, 5, 9])
async def test_the_first_test_that_fails_is_told_wherever_it_is(isolation: None, number: int) -> None:
    code = (
        "n = int(input())\nif n == 7: raise ValueError(n)\nif n == 8: import time; time.sleep(60)\nprint(n)"
    )
    tests = [(str(one), "0") for one in [0] * number]
    more = [("0", "0")] * 3
    for given, status in (("7", "raised"), ("1", "wrong"), ("8", "timeout")):
        outcome = await run(code, *tests, (given, "0"), *more, limit_s=1 if status == "timeout" else 5)
        assert (outcome.passed, outcome.status) == (number, status), outcome
