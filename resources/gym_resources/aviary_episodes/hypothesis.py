"""BixBench-Hypothesis: its problems, the capsules with the data, and what the model reads first."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
from gym_runtime import Asset, Prompt
from msgspec import Meta

from gym_resources.aviary_episodes import capsules
from gym_resources.aviary_episodes.kernel_inside import tree
from gym_resources.judging.asking import JudgedTask

CAPSULES = Asset(
    name="bbh-capsules",
    description="the problems and capsules of BixBench-Hypothesis",
    licence="CC-BY-4.0",
    setting="GYM_BBH_CAPSULES",
    page="https://huggingface.co/datasets/EdisonScientific/bixbench_hypothesis",
)
LISTED = 20
SYSTEM = Prompt("""\
You are a careful analyst of scientific data, who works in a notebook of Python cells.

- Use the data that are there. Never make data up. If something that you need is missing, say so.
- Write short cells, and look at the output of each one before you go on. Repair a cell that failed by running
  it again at its index. Print tables and numbers; figures are not shown to you.
- Choose tests that fit the data, check what they assume, correct for multiple comparisons, and report
  statistics, p-values and the size of effects. Keep correlation and cause apart.
- There is no network, and nothing can be installed. All cells together may take {seconds} seconds.
- When the hypothesis is settled, call submit_answer once: whether the data support it, with the numbers that
  show it, and the limits of the analysis.
""")
TASK = Prompt("""\
Find out whether this hypothesis holds by analysing the data in the working directory, and meet the
objectives.

<hypothesis>
{hypothesis}
</hypothesis>

<objectives>
{objective}
</objectives>

The files:
{files}
""")


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem, with the names of the data set's columns.

    Attributes:
        id: names the capsule where ``input_data_path`` does not.
        answer: whether the hypothesis is true.
        max_points: what the rubric's items give together.
    """

    hypothesis: str
    objective: str
    answer: bool
    rubric: str
    max_points: Annotated[int, Meta(ge=1)]
    id: str = ""
    uuid: str = ""
    input_data_path: str = ""

    @property
    def folders(self) -> tuple[str, ...]:
        """The names that its capsule may have."""
        own = self.id or self.uuid
        names = (self.input_data_path, f"CapsuleData-{own}", f"capsule_{own}")
        return tuple(name.strip("/") for name in names if name)


class HypothesisTask(JudgedTask, kw_only=True):
    """A task. Times are in seconds: of a cell, and of all of them until the last begins."""

    task_idx: Annotated[int, Meta(ge=0)]
    problem: Problem | None = None
    cell_execution_timeout: Annotated[float, Meta(gt=0)] = 180.0
    job_timeout: Annotated[float, Meta(gt=0)] = 1800.0

    def stated(self) -> Problem:
        """
        Raises:
            AssetMissing: the problems are not there.
            TaskError: there is no such problem.
        """
        return self.problem or capsules.problem(CAPSULES, "bbh_aviary", "bbh.jsonl", self.task_idx, Problem)

    def check_assets(self) -> None:
        self.folder()

    def folder(self) -> Path:
        """The folder of the data.

        Raises:
            AssetMissing: it is not there.
        """
        return capsules.capsule(CAPSULES, "bbh_aviary", self.stated().folders)


def first_messages(problem: Problem, capsule: Path, job_timeout_s: float) -> list[dict[str, Any]]:
    """The first observation."""
    files = msgspec.json.format(msgspec.json.encode(tree(str(capsule), LISTED))).decode()
    system = SYSTEM.fill(seconds=f"{job_timeout_s:g}")
    task = TASK.fill(hypothesis=problem.hypothesis, objective=problem.objective, files=files)
    return [{"role": "system", "content": system}, {"role": "user", "content": task}]
