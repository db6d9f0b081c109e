"""What trackers are told: figures that agree with the metrics of the run, few examples, no more."""

from __future__ import annotations

import math
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gym_runtime.client import About
from gym_runtime.client.tracking import load_tracker
from gym_runtime.errors import UsageError
from gym_runtime.files.run_metrics import Metrics
from gym_runtime.messages.outcomes import RolloutRecord
from gym_view.trackers import tracking
from gym_view.trackers.curves import Curves
from gym_view.trackers.example_rollouts import CHARACTERS, COLUMNS, MOST_ROWS, Examples
from gym_view.trackers.tracking import Tracking
from hypothesis import given
from hypothesis import strategies as st
from view.trackers.made import record, scalars, texts

pytestmark = pytest.mark.slow

REWARDS = st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=4, max_size=4), min_size=1, max_size=6)


@given(REWARDS, st.randoms())
def test_the_curves_end_where_the_metrics_do(groups: list[list[float]], random: Any) -> None:
    records = [record(task, k, reward) for task, group in enumerate(groups) for k, reward in enumerate(group)]
    random.shuffle(records)
    curves, metrics = Curves(repeats=4), Metrics()
    for one in records:
        curves.add(one)
        metrics.add(one)
    found, summary = curves.numbers(), metrics.summary()
    assert found["reward/mean"] == pytest.approx(summary.mean_reward)
    assert {k: found[f"pass@{k}"] for k in (1, 2, 4)} == pytest.approx(summary.pass_at)
    assert {k: found[f"pass@{k}/tasks"] for k in (1, 2, 4)} == summary.pass_tasks
    assert {k: found.get(f"pass@{k}/standard_error") for k in (1, 2, 4)} == summary.pass_error
    assert found["tokens/output"] == summary.output_tokens
    assert found["rollouts/done"] == len(records)


def test_curves_of_failures_and_of_rewards_that_are_no_shares() -> None:
    now = [0.0]
    curves = Curves(repeats=2, now=lambda: now[0])
    for one in (
        record(0, 0, 7.0),
        record(0, 1, -1.0),
        record(1, 0, None),
        record(2, 0, 0.5, environment="b"),
    ):
        curves.add(one)
    now[0] = 2.0
    found = curves.numbers()
    assert not any(name.startswith("pass@") for name in found)
    assert found["outcome/failed"] == 0.25
    assert found["failures/model"] == 1
    assert found["reward/quiz"] == 3.0
    assert found["rollouts/per_s"] == 2.0
    assert 1.0 <= found["rollout_s/p50"] <= 2.5
    assert 0.32 <= found["model_s/p50"] <= 0.64
    assert curves.numbers()["rollouts/done"] == 4


def test_rewards_of_any_size_have_curves() -> None:
    metrics = Metrics()
    for one in (record(0, 0, 1e308), record(1, 0, 1e308)):
        metrics.add(one)
    curves = Curves(before=metrics.summary())
    for one in (record(2, 0, 1e308), record(3, 0, 1e308, environment="b")):
        curves.add(one)
    found = curves.numbers()
    assert found["reward/mean"] == found["reward/b"] == 1e308
    assert all(map(math.isfinite, found.values()))


def test_a_resumed_run_goes_on_where_it_was() -> None:
    whole, first = Metrics(), Metrics()
    for one in (record(0, 0, 1.0), record(1, 0, None)):
        first.add(one)
        whole.add(one)
    curves = Curves(before=first.summary())
    curves.add(record(2, 0, 0.0))
    whole.add(record(2, 0, 0.0))
    found, summary = curves.numbers(), whole.summary()
    assert found["rollouts/done"] == 3
    assert found["reward/mean"] == summary.mean_reward == 0.5
    assert found["outcome/failed"] == pytest.approx(1 / 3)
    assert found["tokens/input"] == summary.input_tokens


def test_examples_are_few_and_of_every_kind() -> None:
    examples = Examples()
    records = [record(task, k, float(k % 2)) for task in range(300) for k in range(4)]
    records += [
        record(500, 0, None),
        record(501, 0, 0.5),
        record(0, 0, 1.0, environment="rare", answer="x" * 10_000),
    ]
    for one in records:
        examples.add(one)
    rows = examples.rows()
    assert len(rows) == MOST_ROWS
    kinds = {(row[0], row[COLUMNS.index("outcome")], row[COLUMNS.index("reward")]) for row in rows}
    expected = {("quiz", "completed", reward) for reward in (0.0, 0.5, 1.0)}
    assert kinds == expected | {("quiz", "failed", None), ("rare", "completed", 1.0)}
    assert len({(row[0], row[1], row[4]) for row in rows}) == MOST_ROWS, "each of another task"
    assert all(len(str(cell)) <= CHARACTERS for row in rows for cell in row)
    huge = Examples()
    huge.add(record(0, 0, 1.0, answer="x" * 2**21))
    assert "bytes)" in huge.rows()[0][COLUMNS.index("answer")]
    again = Examples()
    for one in reversed(records):
        again.add(one)
    assert again.rows() == rows


def test_a_run_is_in_the_event_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "TRACK_EVERY_S", 0.0)
    about = About(run="r", folder=tmp_path / "tb", settings={"model": "scripted/x", "repeats": 2})
    told = load_tracker("tensorboard")(about, pytest.fail, repeats=2)
    told.open()
    hostile = "<script>alert(1)</script>\n![x](http://evil)"
    metrics = Metrics()
    for one in (record(0, 0, 1.0, answer=hostile), record(0, 1, 0.0), record(1, 0, None)):
        told.add(one)
        metrics.add(one)
    told.close(metrics.summary())
    told.close()
    curves, written = scalars(tmp_path / "tb"), texts(tmp_path / "tb")
    assert curves["reward/mean"][3] == 0.5
    assert curves["pass_at_2"][3] == 1.0
    assert (curves["pass_at_2/tasks"][3], curves["tasks/rated"][3], curves["tasks/all"][3]) == (1.0, 1.0, 2.0)
    assert curves["outcome/failed"][3] == pytest.approx(1 / 3)
    assert min(curves["rollouts/done"]) < 3, "it is told before the end"
    assert "scripted/x" in written["settings"]
    assert all(line.startswith("    ") for line in written["rollouts"].splitlines()), "it is code, not markup"
    assert "    answer: <script>" in written["rollouts"]


class Broken:
    """A tracker whose server is gone."""

    def log(self, step: int, numbers: Any) -> None:
        raise ConnectionError("no route to the server\nmore")


class Stuck:
    """A tracker that takes nothing until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.steps: list[int] = []

    def log(self, step: int, numbers: Any) -> None:
        self.go.wait()
        self.steps.append(step)

    def table(self, step: int, columns: Any, rows: Any) -> None: ...

    def alarm(self, name: str, text: str) -> None: ...

    def finish(self, *, failed: bool) -> None: ...


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Tracking with a tracker of ours, and what it said."""
    monkeypatch.setattr(tracking, "TRACK_EVERY_S", 0.0)

    def begin(tracker: Any) -> tuple[Tracking, list[str]]:
        said: list[str] = []
        told = Tracking("wandb", lambda about: tracker, About(run="r", folder=tmp_path), said.append)
        told.open()
        return told, said

    return begin


def test_a_tracker_that_fails_is_said_once_and_the_run_goes_on(begun: Any) -> None:
    told, said = begun(Broken())
    for task in range(3):
        told.add(record(task, 0, 1.0))
    told.close()
    assert said == ["wandb failed, and the run goes on without it: ConnectionError: no route to the server"]


def test_a_tracker_that_hangs_holds_up_nothing(begun: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "TRACKER_CLOSING_S", 0.05)
    stuck = Stuck()
    told, said = begun(stuck)
    for task in range(1000):
        told.add(record(task, 0, 1.0))
    told.close()
    assert "has not taken everything" in said[0]
    stuck.go.set()
    told._thread.join()
    assert len(stuck.steps) <= 4, "snapshots that it had no time for are skipped"


def test_what_is_wrong_is_said_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about = About(run="r", folder=tmp_path)
    with pytest.raises(UsageError, match=r"there are: .*wandb"):
        load_tracker("wand")
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    told = load_tracker("tensorboard")(about, pytest.fail)
    with pytest.raises(UsageError, match=r"pip install 'gym-runtime\[tensorboard\]'"):
        told.open()
    told.close()


@pytest.mark.slow
@given(st.binary(max_size=30))
def test_rows_of_any_content_are_told(noise: bytes) -> None:
    odd = msgspec.structs.replace(record(0, 0, 1.0), row=msgspec.Raw(noise))
    curves, examples = Curves(), Examples()
    for one in (odd, msgspec.structs.replace(odd, row=msgspec.Raw(b'{"_gym":3,"response":[]}'))):
        assert isinstance(one, RolloutRecord)
        curves.add(one)
        examples.add(one)
    assert curves.numbers()["rollouts/done"] == 2
