"""Runs a model's program and the published tests of it, inside the sandbox: a script that imports nothing of
this project.

It reads ``{"code", "tests", "setup", "targets", "unittest", "mark"}`` from its standard input. ``setup``, a
trusted program, is run before all; what it leaves as ``targets``, or else the given list, is what a test
finds as ``target``. With ``unittest`` the tests are one program whose test cases are run; without, each is
run by itself after the code, and finds the names of those before. The last line that it writes is the mark,
which the model's program is not told, and ``{"passed", "ran", "error"}``. What the program prints is dropped.

Test and program share a process, as the authors' do, so a program that searches this process may forge a
result; one that ends it, or prints anything, has none.
"""

from __future__ import annotations

import builtins
import json
import math
import os
import sys
import types
import unittest
from typing import Any

ERROR_CHARACTERS = 500
PATCHED = (builtins, math, json, unittest.case, unittest.TestCase, unittest.TestResult, unittest.TestLoader)
"""What a program may have changed is put back before the tests."""


def main() -> None:
    """Answer the one request."""
    given = json.load(sys.stdin)
    mark = given.pop("mark")
    answers = os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    os.chdir("/tmp")
    leave, write, dump = os._exit, os.write, json.dumps  # a program may replace them
    passed, ran, error = 0, 0, ""
    try:
        module = types.ModuleType("__test__")
        sys.modules["__test__"] = module
        targets = given["targets"]
        if given["setup"]:
            names: dict[str, Any] = {}
            exec(compile(given["setup"], "<setup>", "exec", dont_inherit=True), names)
            targets = names.get("targets", targets)
        kept = [(owner, dict(vars(owner))) for owner in PATCHED]
        exec(compile(given["code"], "<program>", "exec", dont_inherit=True), module.__dict__)
        for owner, names in kept:
            for name, value in names.items():
                if vars(owner).get(name) is not value:
                    setattr(owner, name, value)
        if given["unittest"]:
            passed, ran, error = _cases(given["tests"][0], module)
        else:
            beside = dict(module.__dict__)  # so the program's functions do not find the target by its name
            for number, test in enumerate(given["tests"]):
                if targets:
                    beside["target"] = targets[number]
                ran += 1
                exec(compile(test, "<test>", "exec", dont_inherit=True), beside)
                passed += 1
    except BaseException as problem:  # noqa: BLE001 - what a model's code raises is its result
        error = f"{type(problem).__name__}: {problem!s:.{ERROR_CHARACTERS}}"
    write(answers, f"\n{mark}{dump({'passed': passed, 'ran': ran, 'error': error})}".encode())
    leave(0)


def _cases(program: str, module: types.ModuleType) -> tuple[int, int, str]:
    """How many test methods passed, how many ran, and the first problem."""
    runner, loader, case = unittest.TestResult(), unittest.TestLoader(), unittest.TestCase
    exec(compile(program, "<test>", "exec", dont_inherit=True), module.__dict__)
    for one in list(module.__dict__.values()):
        if isinstance(one, type) and issubclass(one, case) and one.__module__ == "__test__":
            loader.loadTestsFromTestCase(one).run(runner)
    bad = [*runner.failures, *runner.errors]
    left = len(bad) + len(runner.skipped) + len(runner.expectedFailures) + len(runner.unexpectedSuccesses)
    error = bad[0][1].strip().splitlines()[-1][:ERROR_CHARACTERS] if bad else ""
    return runner.testsRun - left, runner.testsRun, error


if __name__ == "__main__":
    main()
