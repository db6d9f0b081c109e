"""Questions on a set of long documents, together about 100,000 tokens (AA-LCR).

A judge compares the model's last message with the row's ``answer``: CORRECT is worth 1. It sees the question
and both answers, not the documents. The score is the mean over 16 rollouts of a question, as in NeMo Gym, and
the same by kind of documents.

Rows, labels and rewards are those of NeMo Gym's environment of this name, whose rows bring the documents; the
judge's prompt is our own. Source: Artificial Analysis, AA-LCR (questions Apache-2.0; the documents belong to
their publishers); the example rows are our own.
"""

from __future__ import annotations

from functools import partial

from gym_runtime import Benchmark, Environment, Model, Reply, Verdict

from gym_resources.benchmarks.scoring.shares import by_category
from gym_resources.judging.asking import JudgedTask
from gym_resources.judging.correctness import verify_correct


class DocumentsTask(JudgedTask, kw_only=True):
    question: str
    answer: str
    document_category: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.answer.strip():
            raise ValueError("'answer' is blank")


async def verify(task: DocumentsTask, reply: Reply, judge: Model) -> Verdict:
    return await verify_correct(task, task.question, task.answer, reply, judge)


environment = Environment(
    resource=verify,
    description="Questions on sets of long documents, answers judged (AA-LCR).",
    domain="long_context",
    agent="single_turn",
    repeats=16,
    roles=("judge",),
    benchmark=Benchmark(score=partial(by_category, field="document_category"), fields=("document_category",)),
    data_license="Apache-2.0 (questions)",
)
