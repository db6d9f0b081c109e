"""Questions on scientific data, answered by analysing them in a notebook (BixBench, by the library aviary).

``edit_cell`` writes a cell of Python and runs it, in a kernel that keeps its variables; ``list_workdir``
lists the files; ``submit_solution`` ends the episode. After each step the model reads the whole notebook.
The kernel is IPython in a sandbox without a network (`aviary_episodes.notebook_kernel`). The reward is
1 if the solution is right, else 0: a model in the role ``judge`` says so, or with ``eval_mode`` ``exact``
or ``contains`` a comparison that ignores case. Nothing submitted is worth 0, and not judged.

A row is a task of the data set by its ``task_idx``, or has its own ``question``, ``ideal`` answer and
``capsule_uuid``. Data set and capsules are an asset: ``gym-runtime prepare --assets bixbench_aviary``
fetches them, or ``BIXBENCH_CAPSULE_DATA_LOCATION`` names a folder that has ``BixBench.jsonl`` and
``CapsuleData-…``.

Rows, tools and rewards as of NeMo Gym's ``bixbench_aviary_agent``. Different on purpose: only the edited
cell runs, not the whole notebook again; images are not shown; files of more than 1 MB cannot be changed;
the model is not told whether it was right, after which it can say nothing anyway.
Source: github.com/Future-House/aviary and BixBench (Mitchener et al. 2025, arXiv:2503.00096), Apache-2.0;
the example rows and their capsules are our own.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import msgspec
from gym_runtime import Environment, Reply, ResourceError, Role, Text, ToolError, Verdict, tool

from gym_resources.aviary_episodes.analysis import Analysis, answered, arguments
from gym_resources.aviary_episodes.bixbench import CAPSULES, NotebookTask, Problem
from gym_resources.aviary_episodes.notebook_cells import CELL_CHARACTERS, Cell, Code, Index, Notebook
from gym_resources.judging.asking import Judging
from gym_resources.judging.final_answer import correct, prompt

LISTED = 1000
TASK = "Solve this problem in a notebook, with the tools and the data in the working directory:\n\n"


class Submission(msgspec.Struct):
    solution: str


class BixBench(Analysis[NotebookTask]):
    finish: ClassVar[str] = "submit_solution"

    async def open(self) -> None:
        self.notebook = Notebook()
        if self.task.eval_mode == "llm" and self.models.get("judge") is None:
            raise ResourceError(
                "no model is given for the role 'judge': --judge PROVIDER/NAME, or --set eval_mode=exact",
                stage="judge",
            )
        await super().open()

    @cached_property
    def problem(self) -> Problem:
        """What the row asks; read where it is needed, also to judge a rollout again."""
        return self.task.problem()

    def capsule(self) -> Path:
        return self.problem.folder()

    async def reset(self) -> list[dict[str, Any]]:
        texts = (TASK + self.problem.question, self.observation())
        return [{"role": "user", "content": text} for text in texts]

    def observation(self) -> str:
        return f"The notebook, as Markdown:\n\n{self.notebook.markdown() or '(no cells yet)'}"

    @tool
    async def edit_cell(self, contents: Code, idx: Index = None) -> Text:
        """Write a code cell and run it: a new one, or instead of the one at an index."""
        if len(contents) > CELL_CHARACTERS:
            raise ToolError(f"A cell has at most {CELL_CHARACTERS} characters.")
        place = self.notebook.place(idx)
        appended = place == len(self.notebook.cells)
        output = await self.kernel.run(contents, self.task.cell_execution_timeout)
        self.notebook.put(place, Cell(contents, output))
        return Text(f"{'Appended new' if appended else 'Edited'} cell #{place}.")

    @tool
    async def list_workdir(self) -> Text:
        """List the files of the working directory, with those in its folders, as JSON."""
        return Text(await self.kernel.files(".", LISTED, hidden=True))

    @tool
    def submit_solution(self, solution: str) -> Text:
        """Submit the solution as plain text, once; this ends the task."""
        self.finished = True
        return Text("Submitted.")

    async def verify(self, reply: Reply) -> Verdict:
        given = (arguments(call, Submission) for call, _ in answered(reply) if call.name == self.finish)
        solution = next((one.solution for one in given if one is not None), "")
        ideal, mode = self.problem.ideal, self.task.eval_mode
        fields: dict[str, Any] = {"solution": solution, "expected_answer": ideal}
        if not solution.strip():
            return Verdict(0.0, fields={**fields, "judge_evaluations": [], "judge_unparseable": 0})
        if mode != "llm":
            ours, theirs = solution.strip().casefold(), ideal.strip().casefold()
            return Verdict(float(ours == theirs if mode == "exact" else theirs in ours), fields=fields)
        judging = Judging(self.models.judge, self.task, correct)
        right = await judging.label(prompt(self.problem.question, solution, ideal)) == "yes"
        return Verdict(float(right), fields={**fields, **judging.fields()})


environment = Environment(
    resource=BixBench,
    description="Questions on scientific data, answered by analysing them in a notebook (BixBench).",
    domain="agent",
    max_turns=100,
    timeout_s=7200.0,
    roles=(Role(name="judge", optional=True, sampling={"max_output_tokens": 8192}),),
    assets=(CAPSULES,),
    data_license="Apache-2.0 (BixBench)",
    extra="notebook",
)
