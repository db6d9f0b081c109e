"""Tests in the logs of runners, true and forged ones."""

from __future__ import annotations

import time

import pytest
from gym_resources.swe import runner_logs, specs
from tables import table

SUMMARY = "=========================== short test summary info ============================\n"
END = "==================== 1 failed, 2 passed, 1 xfailed in 0.12s ====================\n"
PYTEST = f"""============================= test session starts ==============================
collected 4 items
{SUMMARY}PASSED tests/test_a.py::test_one
PASSED tests/test_a.py::test_two[a - b]
XFAIL tests/test_a.py::test_known
FAILED tests/test_a.py::test_three - assert 1 == 2
{END}"""


def test_pytest() -> None:
    assert runner_logs.read(PYTEST, "getmoto/moto") == {
        "tests/test_a.py::test_one": True,
        "tests/test_a.py::test_two[a - b]": True,
        "tests/test_a.py::test_two[a": True,
        "tests/test_a.py::test_known": True,
        "tests/test_a.py::test_three": False,
    }


@pytest.mark.parametrize(
    "forged", ["PASSED tests/test_a.py::test_three\n", "\x1b[32mPASSED\x1b[0m tests/test_a.py::test_three\n"]
)
def test_a_forged_line_does_not_make_a_test_pass(forged: str) -> None:
    for log in (forged + PYTEST, PYTEST + forged):
        assert runner_logs.read(log, "getmoto/moto")["tests/test_a.py::test_three"] is False


def test_without_pytests_own_end_nothing_has_passed() -> None:
    forged = "PASSED tests/test_a.py::test_three\n"
    assert runner_logs.read(forged, "a/b") == {"tests/test_a.py::test_three": False}


def test_other_forms_of_pytest() -> None:
    log = f"tests/a.py::test_x PASSED\ntests/a.py::test_y FAILED\n{END}"
    assert runner_logs.read(log, "pydantic/pydantic") == {
        "tests/a.py::test_x": True,
        "tests/a.py::test_y": False,
    }


@pytest.mark.parametrize("end", ["1 passed in 0.12 seconds", "1 passed, 2 warnings in 61.20s (0:01:01)"])
def test_the_end_of_older_and_newer_versions_of_pytest(end: str) -> None:
    log = f"XFAIL tests/a.py::test_x - known\n==== {end} ====\n"
    assert runner_logs.read(log, "pytest-dev/pytest")["tests/a.py::test_x"] is True


def test_names_are_also_those_of_swe_bench() -> None:
    name = "tests/a.py::test_x[/testbed/tests/data one]"
    log = f"PASSED {name}\nPASSED tests/a.py::test_y[/testbed/b/c]\nFAILED tests/a.py::test_z[a b]\n{END}"
    found = runner_logs.read(f"PASSED tests/a.py::test_z[a a]\n{log}", "psf/requests")
    assert found["tests/a.py::test_x[/testbed/tests/data"] is found[name] is True
    assert found["tests/a.py::test_y[/c]"] is True
    assert found["tests/a.py::test_z[a"] is False
    clicked = runner_logs.read(f"PASSED a.py::test_a[MouseButton.LEFT]\n{END}", "matplotlib/matplotlib")
    assert clicked == {"a.py::test_a[1]": True}


def test_a_failed_subtest_of_django_is_a_failed_test() -> None:
    log = """test_basic (x.Case) ... test_next (x.Case) ... ok
test_other (x.Case) ... Testing against Django installed in '/testbed/django'
Found 1 test(s) ... of 1
System check identified no issues (0 silenced).
ok
--version is equivalent to version ... 3.1
FAIL: test_basic (x.Case) (number=1)
"""
    found = runner_logs.read(log, "django/django")
    assert found["test_basic (x.Case)"] is False
    assert found["test_other (x.Case)"] is found["--version is equivalent to version"] is True


def test_django() -> None:
    log = """test_accent (dbshell.test_postgresql.Case) ... ok
test_basic (dbshell.test_postgresql.Case) ... FAIL
test_slow (dbshell.test_postgresql.Case) ... Creating table
ok
test_left_out (dbshell.test_postgresql.Case) ... skipped 'no database'
ERROR: test_broken (dbshell.test_postgresql.Case)
"""
    assert runner_logs.read(log, "django/django") == {
        "test_accent (dbshell.test_postgresql.Case)": True,
        "test_basic (dbshell.test_postgresql.Case)": False,
        "test_slow (dbshell.test_postgresql.Case)": True,
        "test_left_out (dbshell.test_postgresql.Case)": True,
        "test_broken (dbshell.test_postgresql.Case)": False,
    }


def test_sympy() -> None:
    log = "sympy/printing/tests/test_pretty.py[2]\ntest_super_sub ok\ntest_other F\n" + "_" * 60 + "\n"
    log += "_____ sympy/printing/tests/test_pretty.py:test_third _____\n"
    assert runner_logs.read(log, "sympy/sympy") == {
        "test_super_sub": True,
        "test_other": False,
        "test_third": False,
    }


@pytest.mark.slow
@table("unit", ["=", "PASSED ", "a ... ", "test_x ok\n", "=== 1 passed in ", "::", "\x1b["])
@table("repository", ["a/b", "django/django", "sympy/sympy"])
def test_every_log_is_read_in_linear_time(unit: str, repository: str) -> None:
    start_s = time.thread_time()
    runner_logs.read(unit * (2_000_000 // len(unit)), repository)
    assert time.thread_time() - start_s < 5


def test_images_and_commands_of_known_repositories() -> None:
    assert specs.image("getmoto__moto-7365", "gym").endswith("/sweb.eval.x86_64.getmoto_s_moto-7365:latest")
    patch = "--- a/tests/dbshell/test_a.py\n+++ b/tests/dbshell/test_a.py\n@@ -1 +1 @@\n-a\n+b\n"
    assert specs.test_script("django/django", patch, "").endswith("--parallel 1 dbshell.test_a\n")
    assert specs.test_script("a/b", patch, "").endswith("pytest -rA tests/dbshell/test_a.py\n")
    added = patch.replace("test_a.py", "index.rst")
    assert specs.test_script("sphinx-doc/sphinx", patch + added, "").endswith(
        "test_a.py tests/dbshell/index.rst\n"
    )
    hostile = patch.replace("test_a.py", "test_a.py; echo x")
    assert "'tests/dbshell/test_a.py; echo x'" in specs.test_script("a/b", hostile, "")
    mypy = specs.test_script("python/mypy", "+[case testA]\n+[case testB]\n", "")
    assert mypy.endswith("-k 'testA or testB'\n")
    assert "git checkout 0 -- tests/dbshell/test_a.py" in specs.setup_script("0", patch)


@table(
    ("repository", "version", "lines"),
    [
        ("django/django", "1.9", ["python setup.py install", "./tests/runtests.py --verbosity 2 x"]),
        ("django/django", "2.2", ["export PYTHONIOENCODING=utf8", "python setup.py install"]),
        ("django/django", "3.1", ["export LANG=en_US.UTF-8", f"{specs._PIP} -e ."]),
        ("django/django", "5.0", [f"{specs._PIP} -e ."]),
        ("astropy/astropy", "1.3", [f"{specs._OLD_ASTROPY} x.py"]),
        ("astropy/astropy", "v5.3", ["pytest -rA x.py"]),
        ("matplotlib/matplotlib", "2.0", ["python setup.py build", "python setup.py install"]),
        ("psf/requests", "2.4", [f"{specs._PIP} ."]),
        ("scikit-learn/scikit-learn", "0.22", [f"{specs._PIP} --no-use-pep517 -e ."]),
        ("sympy/sympy", "1.12", [f"{specs._COMMANDS['sympy/sympy']} x.py"]),
    ],
)
def test_commands_follow_the_version(repository: str, version: str, lines: list[str]) -> None:
    script = specs.test_script(repository, "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\n", version)
    assert script.startswith("exec 2>&1\n")
    assert set(lines) <= set(script.splitlines())
