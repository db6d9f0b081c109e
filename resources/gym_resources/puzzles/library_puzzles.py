"""Rows of the library reasoning-gym, made with its own generators."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

from gym_runtime import UsageError
from gym_runtime.environment import catalogue

ASK = "\n\nGive your final answer between <answer> and </answer>."


def generate(size: int, seed: int, dataset: str = "", **settings: Any) -> Iterator[dict[str, Any]]:
    """Rows of a dataset of the library, generated with its settings; of several datasets (names separated by
    commas), or of all, in turn.

    Raises:
        UsageError: there is no such dataset, or settings are given for more than one.
    """
    import reasoning_gym  # pyright: ignore[reportMissingImports]

    library = cast("Any", reasoning_gym)
    known = sorted(set(library.factory.DATASETS) - {"composite"})
    chosen = [name.strip() for name in dataset.split(",")] if dataset else known
    for name in chosen:
        if name not in known:
            raise UsageError(f"reasoning-gym has no dataset '{name}'{catalogue.suggest(name, known)}")
    if settings and len(chosen) > 1:
        raise UsageError("settings need exactly one dataset: --set dataset=NAME")
    per_dataset = -(-size // len(chosen))
    made = [library.create_dataset(name, size=per_dataset, seed=seed, **settings) for name in chosen[:size]]
    for index in range(size):
        # Some entries hold numpy's texts and numbers, which are Python's for json and not for msgspec.
        entry = json.loads(json.dumps(made[index % len(made)][index // len(made)]))
        message = {"role": "user", "content": entry["question"] + ASK}
        yield {"responses_create_params": {"input": [message]}, **entry}
