"""Where an environment's rows are published, and how rows are made of files that hold something else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec

from gym_runtime.assets import Asset

Split = Literal["train", "validation", "example", "benchmark"]
Records = Iterator[dict[str, Any]]
RowMaker = Callable[..., Records]
"""``rows(records, ...)``: rows made of the records of a source's files, one iterator for each file."""


class DatasetSource(msgspec.Struct, frozen=True, kw_only=True):
    """A public file of rows for an environment: in a repository on the Hugging Face hub, of an asset, or of
    an installed Python package.

    Attributes:
        repo_id: ``owner/name`` on the hub; with ``installed``, the name of the package as pip knows it; empty
            for a file of ``asset``.
        asset: what is not on the hub; ``file`` is a path below its folder, and ``revision`` says nothing.
        installed: the files are the package's; their paths begin with the name that is imported.
        file: its path in the repository.
        further_files: of the same repository, where the rows are made of several.
        further_sources: files of other repositories, whose records come after those of ``further_files``.
        revision: a branch, tag or commit; ``prepare`` records the commit that it resolved to.
        license: of this file.
        name: distinguishes several sources of one split, as in ``prepare math_with_judge:stack_overflow``;
            the source without a name is the default.
        rows: makes rows of the files' records (JSON lines, a JSON list, CSV, Parquet or text, by the ending
            of the name; ``.gz`` may follow); by default the file holds rows as JSON lines. These rows have no
            ``input`` where the environment's benchmark has a prompt.
    """

    repo_id: str = ""
    asset: Asset | None = None
    file: str
    further_files: tuple[str, ...] = ()
    further_sources: tuple[DatasetSource, ...] = ()
    split: Split = "train"
    revision: str = "main"
    installed: bool = False
    license: str
    name: str = ""
    rows: RowMaker | None = None

    @property
    def origin(self) -> str:
        """The repository's or the asset's name."""
        return self.asset.name if self.asset else self.repo_id


def published(
    repo_id: str,
    data_license: str,
    *,
    train: str = "train.jsonl",
    validation: str = "validation.jsonl",
    name: str = "",
) -> tuple[DatasetSource, ...]:
    """The sources of a repository with one file per split; pass an empty name for a split that it lacks."""
    files: dict[Split, str] = {"train": train, "validation": validation}
    return tuple(
        DatasetSource(repo_id=repo_id, file=file, split=split, license=data_license, name=name)
        for split, file in files.items()
        if file
    )
