"""Hypotheses that are accepted or rejected by analysing data in a notebook (BixBench-Hypothesis, bundled).

``run_cell`` runs a cell of Python, in a kernel that keeps its variables, and answers with its output;
``reset_kernel`` begins with an empty notebook, ``list_dir`` lists files, ``submit_answer`` ends the
episode. The kernel is IPython in a sandbox without a network (`aviary_episodes.notebook_kernel`). A
model in the role ``rubric`` scores the notebook and the conclusion, and is asked up to three times until it
gives a score; the reward is the score over ``max_points``, from 0 to 1. No answer, or no score, is worth 0.
Cells are refused when ``job_timeout`` is over; the answer can still be submitted.

A row is a problem of ``bbh.jsonl`` by its ``task_idx``, or has the fields of `Problem` itself. Problems and
capsules cannot be fetched by `prepare`: let ``GYM_BBH_CAPSULES`` name a folder with the data set as
``bbh.jsonl`` and the capsules (docs/how-to/aviary.md). On a server they are ``aviary_remote``.

Rows, tools and rewards as of NeMo Gym's ``bbh_aviary_agent``. Different on purpose: there is no network;
images are not shown; a rubric model that fails is a failure.
Source: github.com/EdisonScientific/hypotest (Apache-2.0); prompts, example rows and capsules are our own.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
from gym_runtime import Environment, Reply, Role, Text, ToolError, Verdict, tool
from msgspec import Meta

from gym_resources.aviary_episodes import hypothesis_rubric
from gym_resources.aviary_episodes.analysis import Analysis, answered, arguments
from gym_resources.aviary_episodes.hypothesis import CAPSULES, LISTED, HypothesisTask, first_messages
from gym_resources.aviary_episodes.notebook_cells import CELL_CHARACTERS, Cell, Code, Index, Notebook
from gym_resources.judging.asking import Judging

TIME_OVER = "The time is over: no cell runs any more. Call submit_answer with what was found."
_NUMBER = re.compile(r"\[Cell #(\d{1,6})\]", re.ASCII)


class Cells(msgspec.Struct):
    code: str


class Submission(msgspec.Struct):
    answer: str


class Hypothesis(Analysis[HypothesisTask]):
    finish: ClassVar[str] = "submit_answer"

    async def open(self) -> None:
        self.cells = 0
        self.end_s = time.monotonic() + self.task.job_timeout
        await super().open()

    def capsule(self) -> Path:
        return self.task.folder()

    async def reset(self) -> list[dict[str, Any]]:
        return first_messages(self.task.stated(), self.capsule(), self.task.job_timeout)

    @tool
    async def run_cell(self, code: Code, idx: Index = None) -> Text:
        """Run a code cell and answer with its output: a new one, or instead of the one at an index."""
        if len(code) > CELL_CHARACTERS:
            raise ToolError(f"A cell has at most {CELL_CHARACTERS} characters.")
        left_s = self.end_s - time.monotonic()
        if left_s <= 0:
            raise ToolError(TIME_OVER)
        place = idx if idx is not None and 0 <= idx < self.cells else self.cells
        output = await self.kernel.run(code, min(self.task.cell_execution_timeout, left_s))
        self.cells = max(self.cells, place + 1)
        return Text(f"[Cell #{place}] {output}")

    @tool
    async def reset_kernel(self) -> Text:
        """Start over with an empty notebook: all variables and new files are gone."""
        await self.kernel.close()
        self.cells = 0
        return Text("Kernel reset successfully.")

    @tool
    async def list_dir(
        self,
        directory: str = ".",
        max_files: Annotated[int, Meta(ge=1, le=1000)] = LISTED,
        show_hidden: bool = False,
    ) -> Text:
        """List the files of a folder of the working directory, with those in its folders, as JSON."""
        return Text(await self.kernel.files(directory, max_files, hidden=show_hidden))

    @tool
    def submit_answer(self, answer: str) -> Text:
        """Submit the conclusion on the hypothesis, once; this ends the task."""
        self.finished = True
        return Text("Submitted.")

    async def verify(self, reply: Reply) -> Verdict:
        notebook, answer = read(reply)
        problem = self.task.stated()
        fields: dict[str, Any] = {"answer": answer, "raw_score": None, "max_score": problem.max_points}
        if not answer.strip():
            return Verdict(0.0, fields={**fields, "judge_evaluations": [], "judge_unparseable": 0})
        judging = Judging(self.models.rubric, self.task, hypothesis_rubric.score)
        asked = hypothesis_rubric.prompt(
            hypothesis=problem.hypothesis,
            accepted=problem.answer,
            rubric=problem.rubric,
            max_points=problem.max_points,
            notebook=notebook.markdown(),
            conclusion=answer,
        )
        score = await judging.label(asked, tries=hypothesis_rubric.TRIES)
        fields = {**fields, "raw_score": None if score is None else int(score), **judging.fields()}
        return Verdict(min(1.0, int(score or 0) / problem.max_points), fields=fields)


def read(reply: Reply) -> tuple[Notebook, str]:
    """The notebook that a transcript led to, and the answer that was submitted; empty without one."""
    notebook = Notebook()
    for call, output in answered(reply):
        number = _NUMBER.match(output)
        if call.name == "reset_kernel":
            notebook = Notebook()
        elif call.name == "run_cell" and number and (cell := arguments(call, Cells)):
            notebook.put(int(number[1]), Cell(cell.code, output[number.end() :].strip()))
        elif call.name == Hypothesis.finish and (given := arguments(call, Submission)):
            return notebook, given.answer
    return notebook, ""


environment = Environment(
    resource=Hypothesis,
    description="Hypotheses accepted or rejected by analysing data in a notebook (BixBench-Hypothesis).",
    domain="agent",
    max_turns=100,
    timeout_s=7200.0,
    roles=(Role(name="rubric", timeout_s=180.0),),
    assets=(CAPSULES,),
    data_license="CC-BY-4.0 (BixBench-Hypothesis)",
    extra="notebook",
)
