"""Two small environments in the working directory, whose rows are easy to tell apart, and a hub."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from stubs.stub_hub import StubHub, stub_hub

MODULE = '''"""An environment whose rows carry a number."""
from gym_runtime import Environment, Reply, Task, Verdict
from gym_runtime.environment.environment import published


class {kind}Task(Task):
    number: int


async def verify(task: {kind}Task, reply: Reply) -> Verdict:
    return Verdict(float(reply.text == str(task.number)))


def generate(size, seed, start=0):
    for index in range(size):
        yield {{"responses_create_params": {{"input": "?"}}, "number": start + index + seed}}


environment = Environment(
    resource=verify, description="Numbers.", generate=generate,
    datasets=(*published("someone/{name}", "MIT"), *published("someone/{name}-2", "MIT", name="second")),
)
'''

Write = Callable[[str, list[Any]], Path]


@pytest.fixture
def environment_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the environments ``apples_env`` and ``pears_env``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    for name in ("apples_env", "pears_env"):
        (tmp_path / f"{name}.py").write_text(MODULE.format(kind=name[:4].title(), name=name))
        rows = [
            {"responses_create_params": {"input": f"Say {n}."}, "number": n, "gold": str(n)} for n in range(5)
        ]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


@pytest.fixture
def write(environment_folder: Path) -> Write:
    """Writes rows (or raw lines) into a file of the working directory."""

    def write(name: str, rows: list[Any]) -> Path:
        lines = [one if isinstance(one, str) else json.dumps(one) for one in rows]
        path = environment_folder / name
        path.write_text("".join(line + "\n" for line in lines))
        return path

    return write


@pytest.fixture
def hub(environment_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StubHub]:
    """A hub that the command line talks to."""
    with stub_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub
