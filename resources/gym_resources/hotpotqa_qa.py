"""Questions that need two facts, answered from memory in a few words (HotpotQA, closed book).

The reply is a JSON object whose ``answer`` is text; the last object of the reply counts, else the whole reply
is the answer. Answers are compared without case, punctuation, the articles a, an and the, and superfluous
spaces, as in HotpotQA's own evaluation. The reward is 1 if the answer is ``expected_answer`` or one of
``alternatives``; that a part of an answer is worth nothing is our reading. ``answer_em`` says the same,
``answer_f1`` the best F1 of words, which is 0 where only one of the two is yes, no or noanswer. The score is
the exact matches and the F1.

Rows are those of NeMo Gym's environment of this name. Source: Yang et al. 2018, arXiv:1809.09600,
``hotpot_evaluate_v1.py`` (Apache-2.0; data CC-BY-SA-4.0); the example rows are our own.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from gym_runtime import Benchmark, DatasetSource, Environment, Reply, ScoredRollout, Task, Verdict

from gym_resources.benchmarks.scoring.shares import by_task, mean
from gym_resources.extract.jsons import object_at_the_end

PROMPT = """\
Answer the question from what you know, in as few words as possible.

Question: {question}

Reply with a JSON object and nothing else: {{"answer": "<your answer>"}}"""
WORDS = {"yes", "no", "noanswer"}
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


class HotpotTask(Task):
    expected_answer: str
    alternatives: list[str] = []  # noqa: RUF012 - a msgspec field, copied for each

    def __post_init__(self) -> None:
        if not normal(self.expected_answer):
            raise ValueError("'expected_answer' is blank")


def normal(text: str) -> str:
    """An answer as it is compared.

    >>> normal("The  Beatles!")
    'beatles'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def word_f1(given: str, wanted: str) -> float:
    """The F1 of the words of two answers in their compared form.

    >>> word_f1("chief of staff", "chief of protocol"), word_f1("yes it is", "yes")
    (0.6666666666666666, 0.0)
    """
    if given != wanted and (given in WORDS or wanted in WORDS):
        return 0.0
    ours, theirs = given.split(), wanted.split()
    same = sum((Counter(ours) & Counter(theirs)).values())
    return 2 * same / (len(ours) + len(theirs)) if same else 0.0


async def verify(task: HotpotTask, reply: Reply) -> Verdict:
    said = reply.joined_text.strip()
    found = (object_at_the_end(said) or {}).get("answer", said)
    given = normal(found if isinstance(found, str) else "")
    golds = [normal(one) for one in (task.expected_answer, *task.alternatives)]
    exact = float(bool(given) and given in golds)
    fields = {"extracted_answer": given or None, "answer_em": exact}
    return Verdict(exact, fields={**fields, "answer_f1": max(word_f1(given, one) for one in golds)})


def score(rollouts: Sequence[ScoredRollout]) -> dict[str, float]:
    """Exact matches and F1."""
    tasks = by_task(rollouts)
    return {"exact match": mean(tasks), "f1": mean(tasks, "answer_f1")}


def rows(questions: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in questions:
        yield {
            "question": one["question"],
            "expected_answer": one["answer"],
            **{name: one[name] for name in ("id", "type", "level")},
        }


environment = Environment(
    resource=verify,
    description="Questions that need two facts, answered from memory (HotpotQA, closed book).",
    domain="knowledge",
    reads_input=False,
    agent="single_turn",
    benchmark=Benchmark(prompt=PROMPT, score=score, fields=("answer_f1",)),
    data_license="CC-BY-SA-4.0",
    datasets=(
        DatasetSource(
            repo_id="hotpotqa/hotpot_qa",
            file="distractor/validation-00000-of-00001.parquet",
            split="benchmark",
            license="CC-BY-SA-4.0",
            rows=rows,
        ),
    ),
    agent_refs=("hotpotqa_closedbook",),
)
