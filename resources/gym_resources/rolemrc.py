"""Answers in a role about a passage, or the refusal that fits the role (RoleMRC, compared with a reference).

The reward is the ROUGE-L F1 of the model's last message, without its thoughts, and ``reference``. Long
messages are compared in a process that can be killed. The score is the mean, and the same by dimension. With
a judge: `rolemrc_judge`.

Rows and rewards are those of NeMo Gym's environment of this name in the mode ``reference``, which reports
BLEU, METEOR and BERTScore beside it; the last needs a model, and none of them is here. Source: Lu et al.
2025, arXiv:2502.11387 (CC-BY-4.0); the example rows are our own.
"""

from __future__ import annotations

from functools import partial

from gym_runtime import Benchmark, Environment, Reply, Task, Verdict

from gym_resources.benchmarks.scoring.shares import by_category
from gym_resources.extract.patterns import bounded
from gym_resources.extract.text_similarity import rouge_l
from gym_resources.judging.texts import last_message
from gym_resources.judging.thoughts import without_thoughts

SHORT_CHARS = 500


class RoleTask(Task):
    reference: str
    dimension: str | None = None
    task: str = ""

    def __post_init__(self) -> None:
        if not self.reference.strip():
            raise ValueError("'reference' is blank")


async def verify(task: RoleTask, reply: Reply) -> Verdict:
    said = without_thoughts(last_message(reply))
    reward = await bounded(rouge_l, said, task.reference, long=SHORT_CHARS)
    return Verdict(reward, fields={"rouge_l": reward})


environment = Environment(
    resource=verify,
    description="Answers in a role about a passage, compared with a reference (RoleMRC).",
    domain="instruction_following",
    agent="single_turn",
    benchmark=Benchmark(score=partial(by_category, field="dimension"), fields=("dimension",)),
    data_license="CC-BY-4.0",
)
