"""Logs of inspect_ai, of rollouts that have theirs: ``inspect view`` and ``inspect score`` read them.

The guest ``inspect:`` with ``log=true`` puts the log of its sample into the row, as ``inspect_log``. The
rollouts of one task in one file become one log, with the repeats as epochs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from gym_runtime.errors import UsageError
from gym_runtime.messages import as_list, as_object

from gym_view.drafts import draft_of
from gym_view.once import rows_in_files
from gym_view.training_data import Exported

FIELD = "inspect_log"
NO_LOG = "the row has no log of inspect: run 'inspect:NAME?log=true'"


def export(files: Sequence[Path], target: Path) -> Exported:
    """Write the logs of some result files to a folder, one for each task of a file.

    Raises:
        UsageError: a file is missing, no row has a log, something stands at the target, or the disk does not
            take it.
    """
    logs: dict[bytes, dict[str, Any]] = {}
    left_out, rows = Counter[str](), 0
    for path, row in rows_in_files(files, left_out):
        log = as_object(row.get(FIELD))
        header, samples = as_object(log.get("eval")), as_list(log.get("samples"))
        ids = [as_object(sample).get("id") for sample in samples]
        if len(ids) != 1 or not isinstance(ids[0], (str, int)) or not isinstance(header.get("task"), str):
            left_out[NO_LOG] += 1
            continue
        rows += 1
        # Of each file its own: another run's rollouts are no further epochs.
        run = [str(path), as_object(row.get("agent_ref")).get("name")]
        name = msgspec.json.encode([*run, *map(header.get, ("task", "task_args", "task_file"))])
        whole = logs.setdefault(name, {**log, "samples": []})
        repeat = row.get("_ng_rollout_index")
        whole["samples"].append({**as_object(samples[0]), "epoch": 1 + repeat if type(repeat) is int else 1})
    if not logs:
        raise UsageError(f"nothing can be written: {next(iter(left_out), NO_LOG)}")
    written: list[str] = []
    with draft_of(target) as draft:
        draft.mkdir()
        for number, log in enumerate(logs.values(), 1):
            path = draft / f"{number}_{_plain(log['eval']['task'])}.json"
            path.write_bytes(msgspec.json.encode(_counted(log)))
            written.append(str(target / path.name))
    return Exported(rows=rows, left_out=dict(left_out), files=written)


def _counted(log: dict[str, Any]) -> dict[str, Any]:
    """A log with the counts of its samples. Its metrics are those that ``inspect score`` computes."""
    samples: list[dict[str, Any]] = log["samples"]
    header = as_object(log["eval"])
    ids = list(dict.fromkeys(sample.get("id") for sample in samples))
    dataset = {**as_object(header.get("dataset")), "samples": len(ids), "sample_ids": ids}
    config = {
        **as_object(header.get("config")),
        "epochs": max(sample["epoch"] for sample in samples),
        "sample_id": ids,
    }
    no_scores: list[Any] = []
    counts = {"total_samples": len(samples), "completed_samples": len(samples), "scores": no_scores}
    return {
        **log,
        "eval": {**header, "dataset": dataset, "config": config},
        "results": {**as_object(log.get("results")), **counts},
    }


def _plain(text: str) -> str:
    return "".join(one if one.isalnum() or one in "-_" else "_" for one in text[:100])
