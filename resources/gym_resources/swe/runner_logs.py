"""Which tests a log says passed or failed, for the runners of the repositories of SWE-bench and SWE-Gym.

The tested code can write to the log, too. A test counts as passed only if no line says that it failed, and of
pytest's log only if pytest came to its summary: so a forged line alone changes nothing. Each reader takes
linear time.

The lists of tests in these data sets were read from logs by SWE-bench's own readers. They end the name of a
pytest test at its first space, and shorten some parameters; a test is therefore known by these names, too.
Source: the formats are those of pytest (``-rA``), Django's and SymPy's runners; the names are those of
SWE-bench 4.1 (github.com/SWE-bench/SWE-bench, MIT).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial

PASSED = frozenset({"PASSED", "XFAIL", "ok", "OK"})
FAILED = frozenset({"FAILED", "ERROR", "FAIL", "F", "E", "XPASS"})
_SUMMARY_END = re.compile(r"=+ (?:[^=]{0,300}[0-9] [a-z]+[^=]{0,300}) in [0-9.]+(?:s| seconds)[^=]{0,40}=+")
_COLOURS = re.compile(r"\x1b\[[0-9;]{0,20}m")
_VERSION = "--version is equivalent to version"
"""A test of Django that prints before its result; SWE-bench counts it as passed where its name stands."""
MAX_LINE = 4000
Report = dict[str, bool]
"""Whether each test passed, by its name."""


def read(log: str, repository: str) -> Report:
    """The tests in the log of a repository's runner."""
    reader = _READERS.get(repository.rpartition("/")[2].lower(), _pytest)
    lines = (_COLOURS.sub("", line[:MAX_LINE]).rstrip() for line in log.split("\n"))
    return reader(lines)


def _put(report: Report, name: str, passed: bool) -> None:
    report[name] = passed and report.get(name, True)


def _pytest(lines: Iterable[str], *, short_paths: bool = False) -> Report:
    report: Report = {}
    ended = False
    for line in lines:
        if line.startswith("="):
            ended = bool(_SUMMARY_END.fullmatch(line)) or ended
            continue
        status, _, name = line.partition(" ")
        if status in FAILED:
            name = name.split(" - ")[0]
        elif status not in PASSED:
            name, _, status = line.rpartition(" ")  # of pytest -v, and of older versions
            name = name if "::" in name and status in PASSED | FAILED else ""
        for known in _names(name.strip(), short_paths=short_paths):
            _put(report, known, status in PASSED)
    return report if ended else dict.fromkeys(report, False)


def _names(name: str, *, short_paths: bool) -> Iterator[str]:
    """A test's own name, and the one that SWE-bench gives it."""
    if not name:
        return
    yield name
    short = name.split()[0]
    test, opened, rest = short.partition("[")
    option, closed, _ = rest.rpartition("]")
    if short_paths and opened and closed:
        if option.startswith("/") and not option.startswith("//") and "*" not in option:
            option = "/" + option.rpartition("/")[2]
        short = f"{test}[{option}]"
    if short != name:
        yield short


def _matplotlib(lines: Iterable[str]) -> Report:
    return _pytest(line.replace("MouseButton.LEFT", "1").replace("MouseButton.RIGHT", "3") for line in lines)


def _django(lines: Iterable[str]) -> Report:
    report: Report = {}
    waiting = speaking = previous = ""
    for full in lines:
        line = full.strip()
        name, separator, status = line.rpartition(" ... ")
        if _VERSION in line:
            _put(report, _VERSION, True)
        if separator:
            waiting = name.partition(" ... ")[0]
            if status.startswith("Testing against Django installed in "):
                speaking = name  # this output of several lines may hold anything before its "ok"
            status = status.strip()
            if status.startswith(("ok", "OK", "skipped", "expected failure")):
                _put(report, name, True)
            elif status in ("FAIL", "ERROR"):
                _put(report, name, False)
        elif line.startswith("ok"):
            for known in {waiting, speaking if previous.endswith(" silenced).") else ""} - {""}:
                _put(report, known, True)
            waiting = speaking = ""
        for prefix in ("FAIL: ", "ERROR: "):
            if line.startswith(prefix):
                failed = line.removeprefix(prefix)
                _put(report, failed, False)
                _put(report, " ".join(failed.split()[:2]), False)  # without what a subtest is called
        previous = line
    return report


def _sympy(lines: Iterable[str]) -> Report:
    report: Report = {}
    for line in lines:
        name, _, status = line.rpartition(" ")
        if name.startswith("test_") and status in ("ok", "F", "E"):
            _put(report, name.split(" ")[0], status == "ok")
        elif line.startswith("_____") and (failed := line.strip("_ ").rpartition(":")[2]):
            _put(report, failed, False)  # the heading of a failure: ____ path/of/file.py:test_name ____
    return report


_READERS = {
    "django": _django,
    "sympy": _sympy,
    "matplotlib": _matplotlib,
    **dict.fromkeys(("requests", "pylint", "pydicom"), partial(_pytest, short_paths=True)),
}
