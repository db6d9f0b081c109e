"""Rows and records of a small environment that lives in the working directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gym_runtime.errors import Fault
from gym_runtime.files.results import Manifest
from gym_runtime.messages.outcomes import Completed, Failed, Outcome, RolloutRecord
from msgspec import Raw

COUNTING = '''
"""An environment for tests."""
from gym_runtime import Environment, Reply, Task, Verdict


class Counting(Task):
    expected_count: int
    unit: str = "apples"


async def verify(task: Counting, reply: Reply) -> Verdict:
    return Verdict(1.0)


environment = Environment(resource=verify, description="Counts.", timeout_s=60.0)
'''


@pytest.fixture(scope="session")
def counting_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environments")
    (folder / "counting.py").write_text(COUNTING)
    return folder


@pytest.fixture(autouse=True)
def _in_folder(counting_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(counting_folder)


def _row(count: int = 3, **fields: Any) -> dict[str, Any]:
    params = {"input": [{"role": "user", "content": f"Count to {count}."}]}
    return {"responses_create_params": params, "expected_count": count, **fields}


def _record(
    task_index: int,
    rollout_index: int = 0,
    *,
    reward: float | None = 1.0,
    outcome: Outcome | None = None,
    agent: str = "counting",
    text: str = "three",
    attempt: int = 1,
    **numbers: float,
) -> RolloutRecord:
    """A record as an agent worker commits it."""
    outcome = outcome or Completed()
    usage = {"input_tokens": 10, "output_tokens": 2 + task_index, "total_tokens": 12 + task_index}
    fields: dict[str, Any] = {
        **_row(task_index),
        "response": {"id": "r", "output": [{"type": "message", "content": text}], "usage": usage},
        **numbers,
        "agent_ref": {"name": agent},
        "_ng_task_index": task_index,
        "_ng_rollout_index": rollout_index,
        "_gym": {
            "rollout_id": f"run.{task_index}.{rollout_index}",
            "environment": "counting",
            "outcome": outcome,
            "turns": 2,
            "tool_calls": 1,
            "duration_s": 0.5,
        },
    }
    given = {"expected_count": task_index, **usage, **numbers}
    if reward is not None:
        fields["reward"] = given["reward"] = reward
    return RolloutRecord(
        run="run",
        task_index=task_index,
        rollout_index=rollout_index,
        environment="counting",
        outcome=outcome,
        row=Raw(msgspec.json.encode(fields)),
        attempt=attempt,
        reward=reward,
        numbers=given,
        turns=2,
        tool_calls=1,
        duration_s=0.5,
    )


@pytest.fixture(scope="session")
def row() -> Callable[..., dict[str, Any]]:
    """``row(count, **fields)``: a row of the small environment."""
    return _row


@pytest.fixture(scope="session")
def line() -> Callable[..., bytes]:
    """``line(count, **fields)``: such a row as a line."""
    return lambda count=3, **fields: msgspec.json.encode(_row(count, **fields))


@pytest.fixture(scope="session")
def record() -> Callable[..., RolloutRecord]:
    """``record(task_index, rollout_index, reward=…, outcome=…, **numbers)``."""
    return _record


@pytest.fixture(scope="session")
def failure() -> Callable[..., RolloutRecord]:
    """``failure(task_index, rollout_index, kind=…, stage=…)``: a record of a failed rollout."""

    def make(
        task_index: int, rollout_index: int = 0, *, kind: str = "model", stage: str = "model", **more: Any
    ):
        fault = Fault(kind=kind, name="ModelUnavailable", message="gone", stage=stage)
        return _record(task_index, rollout_index, reward=None, outcome=Failed(fault=fault), **more)

    return make


@pytest.fixture(scope="session")
def make_run() -> Callable[..., Manifest]:
    """``make_run(**changes)``: a manifest."""

    def make(**changes: Any) -> Manifest:
        given = {"run": "run", "digest": "d", "rows": 1, "rollouts": 1, "settings": {"repeats": 1}}
        return Manifest(**{**given, **changes})

    return make


@pytest.fixture
def write_lines(tmp_path: Path) -> Callable[..., Path]:
    def write(*lines: bytes, name: str = "rows.jsonl", end: bytes = b"\n") -> Path:
        path = tmp_path / name
        path.write_bytes(end.join(lines) + (end if lines else b""))
        return path

    return write
