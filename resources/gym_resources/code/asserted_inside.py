"""Runs a model's program and the published tests of it, inside the sandbox: a script that imports nothing of
this project.

It reads ``{"code", "tests", "setup", "targets", "unittest", "mark"}`` from its standard input. ``setup``, a
trusted program, is run before all; what it leaves as ``targets``, or else the given list, is what a test
finds as ``target``. With ``unittest`` the tests are one program whose test cases are run; without, each is
run by itself after the code, and finds the names of those before. The last line that it writes is the mark,
which the model's program is not told, and ``{"passed", "ran", "error"}``. What the program prints is dropped.

Test and program share a process, as the authors' do, so a program that searches this process may forge a
result; one that ends it, or prints anything, has none. Before the tests, the public functions and classes of
all modules that were there before the program, and of those that the tests import, are put back; what the
program changes while a test calls it is not.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import json
import math
import os
import sys
import types
import unittest
from collections.abc import Callable
from typing import Any

ERROR_CHARACTERS = 500
WHOLE = (builtins, math, json, unittest.case)
CLASSES = (unittest.TestCase, unittest.TestResult, unittest.TestLoader)
"""Of these, private names are put back, too, and of the classes new ones removed."""


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
        put_back = _kept(given["tests"])
        exec(compile(given["code"], "<program>", "exec", dont_inherit=True), module.__dict__)
        put_back()
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


def _kept(tests: list[str]) -> Callable[[], None]:
    """What puts back the modules, functions and classes that are there now, and those that tests import."""
    for test in tests:
        with contextlib.suppress(Exception):
            for node in ast.walk(ast.parse(test)):
                if isinstance(node, ast.Import):
                    names = [one.name for one in node.names]
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    names = [node.module]
                else:
                    continue
                for name in names:
                    with contextlib.suppress(Exception):
                        importlib.import_module(name)
    modules = {name: one for name, one in list(sys.modules.items()) if hasattr(one, "__dict__")}
    kept: list[tuple[Any, dict[str, Any]]] = [(owner, dict(vars(owner))) for owner in (*WHOLE, *CLASSES)]
    for owner in modules.values():
        public = ((name, value) for name, value in vars(owner).items() if name[:1] != "_")
        kept.append((owner, {name: value for name, value in public if callable(value)}))
    mine: Callable[[Any], Any] = vars
    change, remove, put = setattr, delattr, sys.modules.update  # a program may replace them

    def put_back() -> None:
        put(modules)
        for owner, names in kept:
            now: dict[str, Any] = {**mine(owner)}
            for name in now:
                if owner in CLASSES and name not in names:
                    remove(owner, name)
            for name, value in names.items():
                if now.get(name) is not value:
                    change(owner, name, value)

    return put_back


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
