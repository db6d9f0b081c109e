"""BixBench: its questions, and the capsules with the data that they are about."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from gym_runtime import Asset
from msgspec import Meta

from gym_resources.aviary_episodes import capsules
from gym_resources.judging.asking import JudgedTask

HUB = "https://huggingface.co/datasets/futurehouse/BixBench/resolve/main"
CAPSULES = Asset(
    name="bixbench-capsules",
    description="the capsules of BixBench",
    licence="Apache-2.0",
    urls={"BixBench.jsonl": f"{HUB}/BixBench.jsonl"},
    size_bytes=16 << 20,
    setting="BIXBENCH_CAPSULE_DATA_LOCATION",
    install=f"""
set -e
sed -n 's/.*"data_folder": *"\\([A-Za-z0-9_-]*\\)\\.zip".*/\\1/p' BixBench.jsonl | sort -u >capsules.txt
while read -r name; do
  [ -d "$name" ] && continue
  rm -rf part part.zip
  curl -fsSL --retry 3 -o part.zip "{HUB}/$name.zip"
  unzip -q part.zip -d part
  mv part "$name"
  rm part.zip
done <capsules.txt
chmod -R o+rX .
""",
)


class Problem(msgspec.Struct, frozen=True):
    """A question on the data of a capsule."""

    question: str
    ideal: str
    capsule_uuid: str

    def folder(self) -> Path:
        """The capsule's folder; zips have it below one of another name.

        Raises:
            AssetMissing: it is not there.
        """
        data, packed = f"CapsuleData-{self.capsule_uuid}", f"CapsuleFolder-{self.capsule_uuid}"
        names = (data, f"{packed}/{data}", f"{packed}/{packed}/{data}")
        return capsules.capsule(CAPSULES, "bixbench_aviary", names)


class NotebookTask(JudgedTask, kw_only=True):
    """A task. ``cell_execution_timeout``: how many seconds a cell may take."""

    task_idx: Annotated[int, Meta(ge=0)]
    question: str | None = None
    ideal: str | None = None
    capsule_uuid: str | None = None
    eval_mode: Literal["llm", "exact", "contains"] = "llm"
    cell_execution_timeout: Annotated[float, Meta(gt=0)] = 600.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.question is None) == (self.ideal is None) == (self.capsule_uuid is None):
            raise ValueError("'question', 'ideal' and 'capsule_uuid' go together")

    def problem(self) -> Problem:
        """
        Raises:
            AssetMissing: the data set is not there.
            TaskError: it has no such task.
        """
        if self.question is not None and self.ideal is not None and self.capsule_uuid is not None:
            return Problem(self.question, self.ideal, self.capsule_uuid)
        return capsules.problem(CAPSULES, "bixbench_aviary", "BixBench.jsonl", self.task_idx, Problem)

    def check_assets(self) -> None:
        self.problem().folder()
