"""One environment's part in a split: its source's rows as they are written, and the files of that source.

A row is written as it went in, with ``agent_ref`` and without the ``gold`` that only example rows have. One
that names its environment keeps that name, if it is one of the environment that was asked. Of each source all
rows are in ``<stem>_prepare.jsonl``, also if a blend takes only a share of them, and
``<stem>_metrics.json`` counts them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from gym_runtime.files.appender import write_whole
from gym_runtime.files.dataset import Dataset
from gym_runtime.files.row_reader import Row
from msgspec import Raw

from gym_data.prepare.dataset_metrics import DataMetrics, refuse_conflict, write_metrics
from gym_data.prepare.sources import Wanted

_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode


class PreparedPart(msgspec.Struct, kw_only=True):
    """One environment's share of a split, and all rows of its source as files of their own.

    Attributes:
        dataset: None if the share is nothing.
        source: the path of those files, without ``_prepare.jsonl`` and ``_metrics.json``.
        stored: the same of the file that the rows are of, whose metrics may stand beside it, to be read.
    """

    wanted: Wanted
    dataset: Dataset | None
    share: int
    entry: dict[str, Any]
    source: Path
    stored: Path | None = None
    metrics: dict[str, Any] = {}

    def measure(self, repeats: int, *, overwrite_conflicts: bool) -> None:
        """Count what the source holds.

        Raises:
            UsageError: its stored metrics say otherwise.
        """
        if self.dataset is None:
            return
        counted = DataMetrics()
        for row in self.dataset.read():
            counted.add(finished(row))
        self.metrics = {**self.wanted.describe(repeats), **counted.document()}
        if not overwrite_conflicts:
            own = metrics_of(self.source)
            refuse_conflict(own, self.metrics)
            if self.stored is not None:
                refuse_conflict(metrics_of(self.stored), self.metrics, own=own)

    def write(self) -> None:
        """Write the source's files.

        Raises:
            UsageError: the disk is full or broken.
        """
        if self.dataset is not None:
            write_whole(rows_of(self.source), (finished(row) + b"\n" for row in self.dataset.read()))
            write_metrics(metrics_of(self.source), self.metrics)


def finished(row: Row) -> bytes:
    """A row as it is written: with ``agent_ref``, without ``gold``; all else stays to the byte."""
    fields = _decode_fields(row.line)
    if "gold" not in row.environment.resource.task_type.__struct_encode_fields__:
        fields.pop("gold", None)
    name = row.environment.name
    if row.agent_ref is not None:
        name = msgspec.json.decode(row.agent_ref, type=dict[str, Any])["name"]
    fields["agent_ref"] = Raw(_encode({"type": "responses_api_agents", "name": name}))
    return _encode(fields)


def rows_of(source: Path) -> Path:
    """The file of a source's rows, by the path of its files."""
    return source.with_name(f"{source.name}_prepare.jsonl")


def metrics_of(stem: Path) -> Path:
    """The file that counts what is in ``<stem>.jsonl``, or in a source."""
    return stem.with_name(f"{stem.name}_metrics.json")
