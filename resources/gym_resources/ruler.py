"""Needles in long texts, and chains of variables: the answers that a reply must name (RULER).

The reward is the share of ``outputs`` that occur in the reply, in any case; of the subsets ``qa_1`` and
``qa_2``, whose outputs are forms of one answer, it is 1 if one of them occurs. The field named like the
``subset`` has it too. The score is the mean, and the same by subset.

``prepare ruler --source generate`` makes rows of our own in this form: ``niah_multikey``, the numbers of
some keys among many, and ``vt``, the variables that get a value by a chain of assignments;
``--set words=8000`` says how long the texts are. RULER's own rows have other texts and lengths in tokens.

Rows and rewards are those of NeMo Gym's environment of this name. Source: Hsieh et al. 2024,
arXiv:2404.06654 (Apache-2.0); the rows are our own.
"""

from __future__ import annotations

from functools import partial

from gym_runtime import Benchmark, Environment, Reply, Task, Verdict

from gym_resources.benchmarks.scoring.shares import by_category
from gym_resources.puzzles.needles import generate

ANY = ("qa_1", "qa_2")


class RulerTask(Task):
    outputs: list[str]
    subset: str = ""
    length: int | None = None

    def __post_init__(self) -> None:
        if not self.outputs or not all(one.strip() for one in self.outputs):
            raise ValueError("'outputs' names nothing to find, or a blank text, which is in every reply")


async def verify(task: RulerTask, reply: Reply) -> Verdict:
    said = reply.joined_text.casefold()
    found = [one.casefold() in said for one in task.outputs]
    reward = float(any(found)) if task.subset in ANY else sum(found) / len(found)
    return Verdict(reward, fields={task.subset: reward} if task.subset else {})


environment = Environment(
    resource=verify,
    description="Needles and chains of variables in long texts (RULER).",
    domain="long_context",
    reads_input=False,
    agent="single_turn",
    benchmark=Benchmark(score=partial(by_category, field="subset"), fields=("subset",)),
    data_license="Apache-2.0 (own rows)",
    generate=generate,
)
