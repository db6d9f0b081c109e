"""What a run shows: lines by the clock, one line that fits any width, and the result at the end."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from gym_runtime.cli import terminal
from gym_runtime.cli.display import Display
from gym_runtime.cli.result import report
from gym_runtime.client.status import InProgress
from gym_runtime.errors import Fault
from gym_runtime.files.results import OutputFiles
from gym_runtime.files.run_metrics import Metrics
from gym_runtime.messages.outcomes import Cancelled, Completed, Failed, Outcome, RolloutRecord
from msgspec import Raw
from rich.console import Console
from tables import table


def record(
    index: int, reward: float | None = 1.0, outcome: Outcome | None = None, agent: str = "mcqa"
) -> RolloutRecord:
    row = Raw(b'{"agent_ref":{"name":"%b"}}' % agent.encode())
    return RolloutRecord(
        run="r", task_index=index, rollout_index=0, environment="mcqa", reward=reward, row=row, turns=1,
        tool_calls=2, outcome=outcome or Completed(),
        numbers={"input_tokens": 1000, "output_tokens": 10, "total_tokens": 1010},
    )  # fmt: skip


def failed(index: int, message: str = "the engine answered 500", kind: str = "model") -> RolloutRecord:
    fault = Fault(kind=kind, message=message, stage="respond")
    return record(index, None, Failed(fault=fault))


def take(display: Display, one: RolloutRecord) -> None:
    display.tally.metrics.add(one)
    display.add(one)


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def plain(width: int = 200) -> Console:
    return Console(file=io.StringIO(), width=width, markup=False, highlight=False, force_terminal=False)


def lines(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def at_terminal(width: int, encoding: str = "utf-8") -> Console:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    return Console(
        file=file,
        width=width,
        markup=False,
        highlight=False,
        force_terminal=True,
        record=True,
        color_system=None,
    )


# -- plain lines --------------------------------------------------------------------------------------


def test_lines_come_after_two_seconds_then_twice_as_late_each_time() -> None:
    clock, console = Clock(), plain()
    said_at: list[float] = []
    with Display(1000, Metrics(), console=console, now=clock) as display:
        for index in range(400):
            take(display, record(index))
            if len(lines(console)) > len(said_at):
                said_at.append(clock.now_s - 100)
            clock.now_s += 0.25
    assert said_at == [2.0, 6.0, 14.0, 30.0, 62.0]
    assert lines(console)[0] == (
        "Finished 9 / 1,000 rollouts (1%) in 2.0 s (270 rollouts/min). Mean reward 1. About 3 min 40 s left."
    )


def test_a_slow_run_still_says_something_each_minute() -> None:
    clock, console = Clock(), plain()
    with Display(100_000, Metrics(), console=console, now=clock) as display:
        for index in range(60):
            take(display, record(index))
            clock.now_s += 5
    assert len(lines(console)) == 5 + 3 + 1


def test_a_slow_model_is_seen_at_work_before_anything_is_finished() -> None:
    clock, console = Clock(), plain()
    with Display(20, Metrics(), console=console, now=clock) as display:
        for looks in range(15):  # one every two seconds
            clock.now_s += 2
            display.look(InProgress(19, looks // 10, 40 * (looks // 10)))
        for index in range(2):
            clock.now_s += 60
            take(display, record(index))
    assert lines(console) == [
        "Finished 0 / 20 rollouts (0%) in 2.0 s. 19 in progress, no model call yet.",
        "Finished 0 / 20 rollouts (0%) in 6 s. 19 in progress, no model call yet.",
        "Finished 0 / 20 rollouts (0%) in 14 s. 19 in progress, no model call yet.",
        "Finished 0 / 20 rollouts (0%) in 30 s. 19 in progress, 1 model call, 40 tokens written.",
        "Finished 1 / 20 rollouts (5%) in 1 min 30 s (0.67 rollouts/min). 19 in progress, 1 model call, 40 "
        "tokens written. Mean reward 1.",
        "Finished 2 / 20 rollouts (10%) in 2 min 30 s (0.8 rollouts/min). 18 in progress, 1 model call, 40 "
        "tokens written. Mean reward 1.",
    ]


@pytest.mark.parametrize("width", [80, 200])
def test_the_bar_of_a_run_whose_engines_are_away_says_so(width: int) -> None:
    console = at_terminal(width)
    display = Display(20, Metrics(), console=console, now=Clock())
    display.look(InProgress(16, 1, 40, "nothing listens there: start the engine"))
    console.print(display)
    assert console.export_text().rstrip().endswith("waiting for the model's engines")


def test_the_bar_of_a_slow_model_shows_what_is_in_progress_and_no_rate_of_nothing() -> None:
    clock, console = Clock(), at_terminal(100)
    display = Display(20, Metrics(), label="mcqa", console=console, now=clock)
    clock.now_s += 35
    display.look(InProgress(16, 1, 40))
    console.print(display)
    shown = console.export_text().rstrip()
    assert shown.startswith("mcqa 0/20 0%")
    assert shown.endswith("16 in progress, 1 model call, 40 tokens written")
    assert "0/h" not in shown
    for index in range(10):  # ten in four minutes, the last of them more than half a minute ago
        take(display, record(index))
    clock.now_s += 165
    console.print(display)
    clock.now_s += 40
    console.print(display)
    shown = console.export_text().rstrip().splitlines()[-1]
    assert "2/min" in shown
    assert "4 min 00 s left" in shown


def test_the_last_line_is_never_missing_and_never_twice() -> None:
    clock, console = Clock(), plain()
    with Display(3, Metrics(), console=console, now=clock) as display:
        for index in range(3):
            take(display, record(index))
    assert [line.split(" in ")[0] for line in lines(console)] == ["Finished 3 / 3 rollouts (100%)"]


def test_a_line_names_failures_by_kind() -> None:
    console = plain()
    with Display(5, Metrics(), console=console, now=Clock()) as display:
        for one in (record(0, 0.0), failed(1), failed(2), failed(3, kind="deadline")):
            take(display, one)
        take(display, record(4, None, Cancelled()))
    assert "Mean reward 0. 3 failed (2 model, 1 deadline), 1 cancelled." in lines(console)[0]


def test_a_resumed_run_counts_what_is_there() -> None:
    metrics = Metrics()
    for one in (record(0, 1.0), record(1, 0.0), failed(2)):
        metrics.add(one)
    clock, console = Clock(), plain()
    with Display(4, metrics, console=console, now=clock) as display:
        clock.now_s += 1
        take(display, record(3, 0.5))
    assert lines(console) == [
        "Finished 4 / 4 rollouts (100%) in 1.0 s (60 rollouts/min). Mean reward 0.5. 1 failed (1 model)."
    ]


def test_notes_stand_on_their_own_line_and_are_no_markup() -> None:
    console = plain(width=20)
    with Display(1, Metrics(), console=console) as display:
        display.note("[red]agent worker 12 was killed[/red] by SIGKILL")
    assert lines(console) == ["[red]agent worker 12 was killed[/red] by SIGKILL"]


# -- the bar ------------------------------------------------------------------------------------------


@table("width", range(10, 140, 3))
@table("encoding", ["utf-8", "ascii"])
def test_the_bar_is_one_line_at_any_width(width: int, encoding: str) -> None:
    clock, console = Clock(), at_terminal(width, encoding)
    display = Display(2000, Metrics(), label="mcqa", console=console, now=clock)
    for index in range(990):
        take(display, record(index, 0.5))
    for index in range(10):
        take(display, failed(index))
    clock.now_s += 4
    console.print(display)
    shown = console.export_text().splitlines()
    assert len(shown) == 1
    assert len(shown[0]) <= width
    if width >= 22:
        assert shown[0].startswith("mcqa 1,000/2,000 50%")
    if width >= 60:
        assert "10 failed (10 model)" in shown[0]
    if width >= 85:
        assert "reward 0.500" in shown[0]
        assert "250/s" in shown[0]
    if width >= 95:
        assert "4 s left" in shown[0]


def test_a_terminal_gets_a_bar_that_ends_with_the_time_it_took() -> None:
    clock, console = Clock(), at_terminal(100)
    with Display(10, Metrics(), label="mcqa", console=console, now=clock) as display:
        for index in range(10):
            take(display, record(index))
        display.note("agent worker 12 was killed")
        clock.now_s += 5
    shown = console.export_text()
    assert "agent worker 12 was killed\n" in shown
    assert shown.splitlines()[-1].startswith("mcqa 10/10 100%")
    assert shown.rstrip().endswith("reward 1.000  2.0/s  in 5 s")


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    console = at_terminal(100)
    with Display(1, Metrics(), console=console, now=Clock()) as display:
        take(display, record(0))
    assert console.export_text().startswith("Finished 1 / 1 rollout (100%)")


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    file = io.StringIO()
    console = Console(file=file, width=100, force_terminal=True, color_system="truecolor")
    display = Display(2, Metrics(), console=console)
    take(display, failed(0))
    console.print(display)
    assert "\x1b[3" not in file.getvalue()


def test_rewards_of_any_size_are_shown() -> None:
    clock, console, metrics = Clock(), plain(), Metrics()
    for one in (record(0, 1e308), record(1, 1e308)):
        metrics.add(one)
    with Display(3, metrics, console=console, now=clock) as display:
        take(display, record(2, 1e308))
        assert display.tally.metrics.mean_reward == 1e308
    assert "Mean reward 1e+308." in lines(console)[-1]


# -- the result ---------------------------------------------------------------------------------------


def finish(tmp_path: Path, *, as_json: bool, environments: int = 1) -> None:
    clock, metrics = Clock(), Metrics()
    files = OutputFiles.beside(tmp_path / "out.jsonl")
    files.rollouts.write_text("{}\n")
    with Display(4, metrics, console=plain(), now=clock) as display:
        for one in (record(0, 1.0), record(1, 0.0), failed(2, "answered\n500 \x1b[31m[bold]"), failed(3)):
            take(display, one)
        for number in range(1, environments):
            take(display, record(number, agent=f"environment_{number}"))
        clock.now_s += 8
    report(
        metrics.summary(),
        run="some-run",
        files=files,
        tally=display.tally,
        wall_s=display.wall_s,
        as_json=as_json,
    )


def test_the_table_has_all_that_matters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    finish(tmp_path, as_json=False)
    shown = [line.rstrip() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert shown == [
        "run            some-run",
        "mean reward    0.5 ± 0.5  (of 2 rollouts)",
        "pass@1         50.0% ± 50.0%  (of 2 of 4 tasks)",
        "rollouts       2 completed, 2 failed",
        "failed: model  2 (in respond): answered 500 [31m[bold]",
        "tokens         4,000 in, 40 out",
        "turns          4, with 8 tool calls",
        "time           8 s, 30/min",
        f"rollouts       {tmp_path / 'out.jsonl'}",
    ]


def test_the_table_says_that_failures_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = Metrics(failures_as_zero=True)
    with Display(4, metrics, console=plain(), now=Clock()) as display:
        for one in (record(0, 1.0), record(1, 1.0), failed(2), failed(3)):
            metrics.add(one)
    report(metrics.summary(), files=OutputFiles.beside(Path("r.jsonl")), tally=display.tally)
    shown = " ".join(capsys.readouterr().out.split())
    assert "mean reward 0.5 ± 0.29 (of 4 rollouts, 2 failures as 0)" in shown
    assert "pass@1 50.0% ± 28.9% (of 4 of 4 tasks)" in shown


def test_several_environments_get_a_row_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finish(tmp_path, as_json=False, environments=2)
    shown = capsys.readouterr().out
    assert "mcqa" in shown
    assert "environment_1" in shown


def test_the_document_is_all_there_is_on_standard_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finish(tmp_path, as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert document["run"] == "some-run"
    assert document["summary"]["mean_reward"] == 0.5
    assert document["summary"]["outcomes"] == {"completed": 2, "truncated": 0, "failed": 2, "cancelled": 0}
    assert document["failures"]["model"]["count"] == 2
    assert document["failures"]["model"]["example"].startswith("answered 500")
    assert document["files"] == {"rollouts": str(tmp_path / "out.jsonl")}
    assert (document["rollouts"], document["wall_s"], document["rollouts_per_s"]) == (4, 8.0, 0.5)


def test_lines_in_a_pipe_are_not_folded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    terminal.output().print("word " * 100)
    assert capsys.readouterr().out.count("\n") == 1
