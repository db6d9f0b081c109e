"""Rows that name no environment: refused, left out, or taken by the one that was named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from gym_runtime.environment import catalogue
from gym_runtime.errors import UsageError
from gym_runtime.files.dataset import open_dataset

Line = Callable[..., bytes]
Write = Callable[..., Path]


def named(line: Line, count: int, ref: str) -> bytes:
    return line(count, agent_ref={"name": ref})


@pytest.fixture
def blend(line: Line, write_lines: Write) -> Path:
    catalogue.environment("counting")  # from now on, rows may name it
    refs = ["other_agent", "counting", "other_agent", "third", "counting_simple_agent", "counting", "third"]
    return write_lines(*(named(line, count, ref) for count, ref in enumerate(refs)))


@pytest.mark.parametrize("shuffle_seed", [None, 3])
def test_rows_of_unknown_names_are_left_out_and_counted(blend: Path, shuffle_seed: int | None) -> None:
    with pytest.raises(UsageError, match="no environment has agent_ref 'other_agent'"):
        open_dataset(blend)
    with open_dataset(blend, skip_unknown=True, shuffle_seed=shuffle_seed) as dataset:
        assert dict(dataset.skipped) == {"other_agent": 2, "third": 2}
        assert (dataset.rows, dict(dataset.environments)) == (3, {"counting": 3})
        counts = [row.line for row in dataset.read()]
        assert len(counts) == 3
        assert counts == [row.line for row in dataset.read()]
        places = {dataset.locate(row) for row in range(3)}
        assert places == {f"{blend}:{number}" for number in (2, 5, 6)}
        first = int(dataset.locate(0).rpartition(":")[2]) - 1
        assert f'"expected_count":{first}'.encode() in counts[0].replace(b" ", b"")


def test_a_file_of_unknown_names_only_is_refused(line: Line, write_lines: Write) -> None:
    path = write_lines(named(line, 1, "other_agent"))
    with pytest.raises(UsageError, match="has no rows of an environment that there is"):
        open_dataset(path, skip_unknown=True)


def test_the_environment_that_was_named_takes_them_if_it_may(blend: Path) -> None:
    with pytest.raises(UsageError, match="no environment has agent_ref 'other_agent'"):
        open_dataset(blend, environment="counting")
    with open_dataset(blend, environment="counting", adopt=True, skip_unknown=True) as dataset:
        assert dict(dataset.adopted) == {"other_agent": 2, "third": 2}
        assert (dataset.rows, dataset.skipped) == (7, {})
