"""A run grows: what was made keeps its key, and only what is new is made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gym_runtime.errors import UsageError
from gym_runtime.files.dataset import open_dataset
from gym_runtime.files.results import InputWriter, OutputFiles, ResultWriter, load_manifest
from gym_runtime.files.resume import Progress, grows, obstacles, start_run
from gym_runtime.files.rows import expand
from gym_runtime.files.run_metrics import Metrics

Line = Callable[..., bytes]
Run = Callable[..., list[tuple[int, int]]]


@pytest.fixture
def files(tmp_path: Path) -> OutputFiles:
    return OutputFiles.beside(tmp_path / "out.jsonl")


@pytest.fixture
def run(files: OutputFiles, record: Any, make_run: Any, write_lines: Callable[..., Path]) -> Run:
    """Make a run of some rows, resumed if it exists; returns the keys that were made."""

    def go(
        *rows: bytes, repeats: int = 1, limit: int | None = None, extend: bool = False, most: int = 1000
    ) -> list[tuple[int, int]]:
        previous = load_manifest(files.manifest)
        path = write_lines(*rows)
        earlier = previous.rows if previous else None
        with open_dataset(path, environment="counting", limit=limit, earlier_rows=earlier) as dataset:

            def tasks() -> Any:
                return expand(dataset.read(), run="r", repeats=repeats, numbering=dataset.numbering())

            manifest = make_run(
                digest=dataset.digest,
                rows=dataset.rows,
                rollouts=dataset.rows * repeats,
                settings={
                    "repeats": repeats, "limit": limit, "environments": dict(dataset.environments), "t": 1,
                },
            )  # fmt: skip
            progress: Progress = start_run(
                files,
                manifest,
                resume=previous is not None,
                earlier_digest=dataset.earlier_digest if extend else None,
                metrics=Metrics(),
                tasks=tasks,
            )
            made: list[tuple[int, int]] = []
            with (
                InputWriter(files.materialized_inputs, resume=progress.previous is not None) as inputs,
                ResultWriter(files) as writer,
            ):
                for task in tasks():
                    if len(made) == most:
                        break
                    inputs.add(task)
                    for left in progress.remaining([task]):
                        writer.write(record(left.task_index, left.rollout_index))
                        made.append((left.task_index, left.rollout_index))
        return made

    return go


def test_more_repeats_and_rows_are_made_and_nothing_again(run: Run, line: Line, files: OutputFiles) -> None:
    one, two, three = line(1), line(2), line(3)
    assert run(one, two, one, repeats=1) == [(0, 0), (1, 0), (0, 1)]
    assert run(one, two, one, repeats=2, extend=True) == [(1, 1), (0, 2), (0, 3)]
    assert run(one, two, one, three, repeats=2, extend=True) == [(2, 0), (2, 1)]
    assert run(one, two, one, three, repeats=2) == []
    grown = files.materialized_inputs.read_bytes()
    for path in files.all():
        path.unlink(missing_ok=True)
    run(one, two, one, three, repeats=2)
    assert files.materialized_inputs.read_bytes() == grown


def test_an_interrupted_run_grows_and_is_interrupted_again(run: Run, line: Line) -> None:
    one, two = line(1), line(2)
    made = run(one, two, repeats=3, most=2)
    made += run(one, two, repeats=4, extend=True, most=3)
    made += run(one, two, repeats=4)
    assert sorted(made) == [(task, rollout) for task in (0, 1) for rollout in range(4)]


def test_a_limit_is_lifted(run: Run, line: Line) -> None:
    rows = [line(count) for count in range(4)]
    assert len(run(*rows, limit=2)) == 2
    assert run(*rows, limit=3, extend=True) == [(2, 0)]
    assert run(*rows, extend=True) == [(3, 0)]
    assert run(*rows, limit=9, extend=True) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: {"rows": rows, "repeats": 1}, "repeats was 2, is 1: a run only grows"),
        (lambda rows: {"rows": rows[:1], "repeats": 2}, "it had 2 rows, now it has 1: a run only grows"),
        (lambda rows: {"rows": rows[::-1] * 2, "repeats": 2}, "its 2 rows are not the first of these 4"),
    ],
)
def test_what_is_no_growth_is_refused(
    change: Callable[[list[bytes]], dict[str, Any]], message: str, run: Run, line: Line, files: OutputFiles
) -> None:
    rows = [line(1), line(2)]
    run(*rows, repeats=2)
    before = {path: path.read_bytes() for path in files.all() if path.exists()}
    changed = change(rows)
    with pytest.raises(UsageError, match=message):
        run(*changed["rows"], repeats=changed["repeats"], extend=True)
    assert {path: path.read_bytes() for path in files.all() if path.exists()} == before


def test_a_row_that_would_shift_the_numbers_of_others_is_refused(run: Run, line: Line) -> None:
    run(line(1), line(2))
    with pytest.raises(UsageError, match="are not the first of these 3 with the same numbers"):
        run(line(1), line(2), line(3, _ng_task_index=7), extend=True)


def test_growth_is_offered_where_it_was_not_asked_for(run: Run, line: Line) -> None:
    run(line(1))
    with pytest.raises(UsageError, match="--resume --extend makes the run larger"):
        run(line(1), repeats=2)
    with pytest.raises(UsageError) as caught:
        run(line(2), repeats=1)
    assert "--extend" not in caught.value.message


def test_files_are_replaced_only_if_they_are_a_run_s(
    run: Run, line: Line, files: OutputFiles, make_run: Any
) -> None:
    run(line(1))
    start_run(files, make_run(run="next"), resume=False, overwrite=True, metrics=Metrics())
    assert [path for path in files.all() if path.exists()] == [files.manifest]
    files.manifest.unlink()
    files.rollouts.write_text("my notes\n")
    with pytest.raises(UsageError, match="not known to be of a run"):
        start_run(files, make_run(), resume=False, overwrite=True, metrics=Metrics())
    assert files.rollouts.read_text() == "my notes\n"


def test_files_that_a_killed_run_would_have_replaced_come_back(
    run: Run, line: Line, files: OutputFiles, make_run: Any
) -> None:
    run(line(1))
    before = {path: path.read_bytes() for path in files.all() if path.exists()}
    start_run(files, make_run(run="next"), resume=False, overwrite=True, metrics=Metrics())
    with files.lock():  # of the next command: the run was killed before it had begun
        assert {path: path.read_bytes() for path in files.all() if path.exists()} == before
    start_run(files, make_run(run="next"), resume=False, overwrite=True, metrics=Metrics())
    files.rollouts.write_bytes(b"{}\n")
    with files.lock():  # what was written since is kept
        assert files.rollouts.read_bytes() == b"{}\n"
        assert load_manifest(files.manifest) == make_run(run="next")
    files.drop_aside()
    assert not [*files.rollouts.parent.glob(".*")]


def test_each_environment_of_a_run_may_have_its_own_repeats(make_run: Any) -> None:
    def asked(repeats: Any, rollouts: int) -> Any:
        environments = {"gpqa": 1, "mcqa": 1}
        return make_run(
            rows=2, rollouts=rollouts, settings={"repeats": repeats, "environments": environments}
        )

    each = {"gpqa": 8, "mcqa": 1}
    assert grows(asked(each, 9), asked(8, 16))
    assert not grows(asked(2, 4), asked(each, 9))
    assert obstacles(asked(2, 4), asked(each, 9), "")[0] == "repeats was 2, is 1: a run only grows"
