"""HumanEval+ and MBPP+ as rows: one for each problem whose tests can be read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from gym_resources.code.function_tests import FunctionTests, from_humaneval


def humaneval_rows(
    records: Iterator[dict[str, Any]], humaneval: Iterator[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    originals = {one["task_id"]: one["test"] for one in humaneval}
    return rows(records, made_by=lambda one: from_humaneval(one, originals.get(one["task_id"], "")))


def rows(
    records: Iterator[dict[str, Any]], *, made_by: Callable[[dict[str, Any]], tuple[str, FunctionTests]]
) -> Iterator[dict[str, Any]]:
    left_out: list[str] = []
    for one in records:
        try:
            problem, tests = made_by(one)
        except ValueError as error:
            left_out.append(f"{one['task_id']} ({error})")
        else:
            yield {"problem": problem, "verifier_metadata": msgspec.to_builtins(tests)}
    if left_out:
        logging.getLogger(__name__).warning(
            "problems left out, because their tests cannot be read: %d: %s",
            len(left_out),
            "; ".join(left_out),
        )
