"""Rows that an environment makes: numpy's numbers are plain, and what its code raises is one line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from gym_runtime import Environment, Reply, Task, Verdict
from gym_runtime.cli import main
from gym_runtime.environment.catalogue import loaded
from gym_runtime.errors import UsageError
from gym_runtime.files.rows import generated_rows


async def verify(task: Task, reply: Reply) -> Verdict:
    return Verdict(1.0)


def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: Any) -> list[dict[str, Any]]:
    monkeypatch.setenv("GYM_CACHE", str(tmp_path))

    def generate(size: int, seed: int) -> Iterator[dict[str, Any]]:
        for _ in range(size):
            if isinstance(row, BaseException):
                raise row
            yield row

    own = Environment(resource=verify, description="Own.", generate=generate)
    path = generated_rows(loaded(own, tmp_path / "own.py"), "own", 2)
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


def test_numbers_of_numpy_are_plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"n": np.int64(3), "board": np.zeros((1, 2)), "responses_create_params": {"input": "hi"}}
    assert [one["board"] for one in made(tmp_path, monkeypatch, row)] == [[[0.0, 0.0]]] * 2


@pytest.mark.parametrize(
    "error", [KeyError("x"), ZeroDivisionError("x"), RuntimeError("x"), SystemExit("x"), TypeError("x")]
)
def test_what_a_generator_raises_is_one_line_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    with pytest.raises(
        UsageError, match=rf"^own cannot make its rows: {type(error).__name__}: .*\.py:\d+\)$"
    ):
        made(tmp_path, monkeypatch, error)


PREPARED = '''
"""Numbers."""

import numpy as np
from gym_runtime import Environment, Reply, Task, Verdict


async def verify(task: Task, reply: Reply) -> Verdict:
    return Verdict(1.0)


def generate(size, seed):
    for n in range(size):
        yield {"n": np.int64(1 // n if seed else n), "responses_create_params": {"input": "hi"}}


environment = Environment(resource=verify, generate=generate, description="Numbers.")
'''


def test_prepare_takes_them_and_says_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "numbered.py").write_text(PREPARED)
    command = ["prepare", "numbered", "--source", "generate", "--size", "2", "-o", "out"]
    assert main.run(command) == 0
    assert [json.loads(line)["n"] for line in Path("out/train.jsonl").read_text().splitlines()] == [0, 1]
    capsys.readouterr()
    assert main.run([*command[:-1], "other", "--seed", "1"]) == 2
    said = capsys.readouterr().err
    assert "'numbered' generated no row 1 of 2: ZeroDivisionError: " in said
    assert said.count("\n") == 1
