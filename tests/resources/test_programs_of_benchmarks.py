"""Programs that are judged by published tests: unit tests, steps of research, contests in C++."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gym_resources import competitive_coding_challenges
from gym_resources.benchmarks import bigcodebench, scicode
from gym_resources.code.compiled import require_compiler
from gym_resources.code.libraries import missing
from gym_resources.code.libraries import test_methods as count_methods
from gym_runtime import UsageError
from gym_runtime.environment import catalogue
from gym_runtime.environment.replaying import session_of
from gym_runtime.environment.shapes import Episode
from gym_runtime.environment.verdict import Reply, Verdict, make_response
from gym_runtime.errors import TaskError
from resources.judging import judge, row

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("one_loop"),
    pytest.mark.slow,
    pytest.mark.timeout(120),
]


def rows(module: Any) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for line in Path(module.__file__).with_suffix(".jsonl").read_text("utf-8").splitlines()
    ]


def fields_of(task: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in task.items() if key not in ("gold", "responses_create_params")}


async def judged(name: str, task: dict[str, Any], reply: str) -> Verdict:
    return await judge(name, row(**fields_of(task)), reply)


async def programmed(task: dict[str, Any], *replies: str) -> Verdict:
    """The verdict on a problem of research, after these answers."""
    async with session_of(catalogue.environment("scicode").resource, row(**fields_of(task))) as session:
        assert isinstance(session, Episode)
        await session.reset()
        for reply in replies:
            await session.step(Reply(make_response(reply)))
        verdict = await session.verify(Reply(make_response(*replies[-1:])))
        assert isinstance(verdict, Verdict)
        return verdict


def block(code: str, language: str = "python") -> str:
    return f"```{language}\n{code}\n```"


UNIT = rows(bigcodebench)[0]
LAX = """import sys, types, unittest
def task_func(text): return 1
class Lax(unittest.TestCase):
    def run(self, result=None):
        result.startTest(self)
        result.stopTest(self)
"""


@pytest.mark.parametrize(
    "code",
    [
        "def task_func(text):\n    return 'the'",
        "raise SystemExit(0)",
        "import os\nos._exit(0)",
        "import unittest\nunittest.TestCase.assertEqual = None\ndef task_func(text): return 1",
        f"{LAX}unittest.TestCase = Lax",
        f"{LAX}sys.modules['unittest'] = types.SimpleNamespace(TestCase=Lax)",
        f"{LAX}unittest.TestCase.__getattribute__ = lambda self, name: getattr(Lax(), name)",
        "import unittest\nclass TestCases(unittest.TestCase):\n    def test_a(self): pass",
        "def task_func(text):\n    import unittest\n    raise unittest.SkipTest",
        'print(\'\\n{"passed": 2, "ran": 2, "error": ""}\')',
    ],
)
async def test_a_program_that_does_not_pass_all_unit_tests_is_worth_nothing(
    code: str, isolation: None
) -> None:
    found = await judged("bigcodebench", UNIT, block(code))
    assert (found.reward, found.fields["tests_passed"] < 2) == (0.0, True)


async def test_a_program_that_passes_all_unit_tests(isolation: None) -> None:
    body = "    return Counter(text.lower().split()).most_common(1)[0][0]"
    whole = f"from collections import Counter\ndef task_func(text):\n{body}"
    assert (await judged("bigcodebench", UNIT, block(whole))).fields["result"] == "passed"


async def test_tests_whose_libraries_are_not_installed_are_a_failure(isolation: None) -> None:
    about = {**UNIT["verifier_metadata"], "test": "import nothing_such\n" + UNIT["verifier_metadata"]["test"]}
    with pytest.raises(TaskError, match="not installed here: nothing_such"):
        await judged("bigcodebench", {"verifier_metadata": about}, block("def task_func(text): return 1"))


def test_what_programs_import_and_test_is_read() -> None:
    assert missing("import os, numpy.linalg", "from no_such.one import two\ndef f():\n") == ["no_such"]
    assert (
        count_methods(
            "class A:\n    def test_a(self): ...\n    def helper(self): ...\n    def test_b(self): ..."
        )
        == 2
    )
    assert count_methods("def") == 0


TWO_STEPS, COMPARED = rows(scicode)[0], rows(scicode)[2]
LEFT = "def decayed(n, rate, t):\n    return n * np.exp(-rate * t)"


@pytest.mark.parametrize(
    ("replies", "passed"),
    [
        ((block(LEFT), block("def half_life(rate):\n    return np.log(2) / rate")), ["passed", "passed"]),
        ((block(LEFT), "I do not know."), ["passed", "no code"]),
        (("No.", block("def half_life(rate):\n    return np.log(2) / rate")), ["no code", "NameError"]),
        ((block("def decayed(n, rate, t):\n    return target"), "No."), ["NameError", "no code"]),
        ((block(LEFT),), ["passed", "no code"]),
        (
            (block("def decayed(n, rate, t): return 0\nnp.allclose = lambda *_, **__: True"),),
            ["AssertionError", "no code"],
        ),
    ],
)
async def test_steps_are_tested_on_the_code_before_them(
    replies: tuple[str, ...], passed: list[str], isolation: None
) -> None:
    found = await programmed(TWO_STEPS, *replies)
    ended = [result.partition(":")[0] for result in found.fields["step_results"].values()]
    assert (ended, found.fields["num_steps_passed"]) == (passed, passed.count("passed"))
    assert found.reward == float(set(passed) == {"passed"})


async def test_targets_come_from_the_authors_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolation: None
) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "test_data.h5", "w") as file:
        file["o3.1/test1/var1"] = [[0.0, 1.0]]
        file["o1.1/test1/var1"] = [10.0, 3.6787944117144233]
        file["o1.1/test2/var1"] = [0.36787944117144233]
        file["o1.2/test1/var1"] = 2.0
    monkeypatch.setenv("GYM_SCICODE_TARGETS", str(tmp_path))
    stored = {**TWO_STEPS, "targets": None}
    half_life = block("def half_life(rate):\n    return np.log(2) / rate")
    found = await programmed(stored, block(LEFT), half_life)
    assert [one.partition(":")[0] for one in found.fields["step_results"].values()] == [
        "passed",
        "AssertionError",
    ]
    again = await programmed({**COMPARED, "targets": None}, COMPARED["gold"][0])
    assert again.reward == 1.0
    with pytest.raises(TaskError, match="no targets of the step o4"):
        await programmed({**rows(scicode)[3], "targets": None}, *rows(scicode)[3]["gold"])


MEX = rows(competitive_coding_challenges)[1]
HALF = '#include <cstdio>\nint main() { double x; scanf("%lf", &x); printf("%.2f\\n", x / 2); }'


@pytest.mark.parametrize(
    ("code", "result", "passed"),
    [
        ("int main() { return 0 }", "compile", 0),
        ('#include <cstdio>\nint main() { puts("2"); }', "wrong", 1),
        ("int main() { for (;;); }", "timeout", 0),
        ("int main() { int *p = nullptr; return *p; }", "raised", 0),
        ('#include <cstdio>\nint main() { for (;;) puts("22222222222222222222"); }', "raised", 0),
        ("#include <vector>\nint main() { std::vector<char> v(3u << 30, 1); return v[7] - 1; }", "raised", 0),
    ],
)
async def test_programs_in_cpp_that_fail(code: str, result: str, passed: int, isolation: None) -> None:
    compiler_or_skip()
    quick = {**MEX, "time_limit": 0.5, "time_scale": 1}
    found = await judged("competitive_coding_challenges", quick, block(code, "cpp"))
    assert (found.reward, found.fields["result"], found.fields["tests_passed"]) == (0.0, result, passed)


async def test_numbers_are_compared_and_points_counted(isolation: None) -> None:
    compiler_or_skip()
    found = await judged(
        "competitive_coding_challenges", rows(competitive_coding_challenges)[2], block(HALF, "cpp")
    )
    assert (found.reward, found.fields["points"], found.fields["tests_passed"]) == (1.0, 10, 2)


def compiler_or_skip() -> None:
    try:
        require_compiler()
    except UsageError as error:
        pytest.skip(error.message)


@pytest.mark.parametrize("files", [{"../a.cpp": ""}, {"solution.cpp": ""}, {"-o": ""}])
def test_files_with_other_names_are_refused(files: dict[str, str]) -> None:
    with pytest.raises(TaskError, match="cannot be named"):
        catalogue.environment("competitive_coding_challenges").resource.task(
            row(tests=[{"input": "", "output": ""}], files=files)
        )
