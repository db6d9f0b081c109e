"""A shuffled dataset: the same order each time, and the same numbers as in the files' order."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from gym_runtime.errors import UsageError
from gym_runtime.files.dataset import Dataset, open_dataset
from gym_runtime.files.rows import expand
from hypothesis import given
from hypothesis import strategies as st

Line = Callable[..., bytes]
Write = Callable[..., Path]


def made(dataset: Dataset, repeats: int = 1) -> list[tuple[int, int, bytes]]:
    specs = expand(dataset.read(), run="r", repeats=repeats, numbering=dataset.numbering())
    return [(spec.task_index, spec.rollout_index, bytes(spec.row)) for spec in specs]


def test_the_order_is_random_repeatable_and_by_the_seed(line: Line, write_lines: Write) -> None:
    path = write_lines(*(line(count) for count in range(50)))
    orders: list[list[tuple[int, int, bytes]]] = []
    for seed in (None, 1, 1, 2, 0):
        with open_dataset(path, environment="counting", shuffle_seed=seed) as dataset:
            orders.append(made(dataset, repeats=2))
            assert made(dataset, repeats=2) == orders[-1]
    assert orders[1] == orders[2]
    assert len({str(order) for order in orders}) == 4
    assert len({frozenset(order) for order in orders}) == 1
    # Of this seed, in every version of Python.
    with open_dataset(path, environment="counting", limit=6, shuffle_seed=7) as dataset:
        assert [key[0] for key in made(dataset)] == ORDER_OF_7


ORDER_OF_7 = [3, 5, 4, 2, 0, 1]


@given(counts=st.lists(st.integers(0, 3), min_size=1, max_size=12), own=st.booleans(), seed=st.integers(0, 9))
def test_a_row_is_numbered_as_without_shuffling(
    counts: list[int], own: bool, seed: int, tmp_path_factory: pytest.TempPathFactory, line: Line
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    lines = [line(count, **({"_ng_task_index": 20 + count} if own and count % 2 else {})) for count in counts]
    half = len(lines) // 2
    paths: list[Path] = []
    for number, part in enumerate((lines[:half], lines[half:])):
        if part:
            paths.append(folder / f"{number}.jsonl")
            paths[-1].write_bytes(b"\xef\xbb\xbf" + b"\n\n".join(part))
    orders: list[list[tuple[int, int, bytes]]] = []
    for shuffle_seed in (None, seed):
        with open_dataset(*paths, environment="counting", shuffle_seed=shuffle_seed) as dataset:
            orders.append(made(dataset, repeats=2))
    assert sorted(orders[0]) == sorted(orders[1])


def test_rows_are_located_and_changes_are_noticed(line: Line, write_lines: Write) -> None:
    path = write_lines(*(line(count) for count in range(9)))
    with open_dataset(path, environment="counting", shuffle_seed=3) as dataset:
        tasks = [key[0] for key in made(dataset)]
        assert [dataset.locate(row) for row in range(9)] == [f"{path}:{task + 1}" for task in tasks]
        path.write_bytes(b"x")
        with pytest.raises(UsageError, match="changed while it was being read"):
            made(dataset)


@pytest.mark.slow
def test_a_large_dataset_needs_little(line: Line, tmp_path: Path) -> None:
    path, rows = tmp_path / "rows.jsonl", 10_000
    with path.open("wb") as file:
        file.writelines(line(number, filler="x" * 500) + b"\n" for number in range(rows))
    tracemalloc.start()
    with open_dataset(path, environment="counting", shuffle_seed=1) as dataset:
        for _ in dataset.read():
            pass
        kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 40 * rows + 2_000_000
