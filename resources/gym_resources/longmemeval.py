"""Questions on what a user said in earlier conversations (LongMemEval).

A judge is told the right answer and how to grade this kind of question: reasoning about time forgives an
error of one day, week or month; a fact that changed must have its last value, whatever else is said of
earlier ones; for a preference the right answer says what a good reply takes into account; and where the
question cannot be answered (``abstention``) a reply is right that says so. These rules are the authors', the
words are our own. CORRECT is worth 1. The score is the share that is right, and the same by kind of question.

Rows and rewards are those of NeMo Gym's environment of this name. Source: Wu et al. 2024, arXiv:2410.10813,
``evaluate_qa.py`` (MIT); the example rows are our own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
from gym_runtime import Benchmark, DatasetSource, Environment, Model, Reply, Role, Verdict

from gym_resources.benchmarks.scoring.shares import by_category
from gym_resources.judging.asking import JudgedTask
from gym_resources.judging.correctness import SAME, verify_correct

PROMPT = """\
Below are earlier chats between you and a user. Answer the question from what was said in them.

{history}

Today is {date}.
Question: {question}
Answer:"""
UNANSWERABLE = """\
The question cannot be answered from the conversations; RIGHT says why. ANSWER is correct if it says that it
is not known, or that something else was said. An answer that gives what is asked for is incorrect."""
RULES = {
    "temporal-reasoning": f"{SAME}\nA number of days, weeks or months that is one off is correct.",
    "knowledge-update": f"{SAME}\nEarlier values beside the last one, which RIGHT gives, do no harm.",
    "single-session-preference": """\
RIGHT describes what the user would want of a reply. ANSWER is correct if it recalls and uses what the user
said of themselves; it need not meet every point.""",
}


class About(msgspec.Struct):
    question: str
    answer: str
    question_type: str = ""
    abstention: bool = False


class MemoryTask(JudgedTask, kw_only=True):
    verifier_metadata: About


async def verify(task: MemoryTask, reply: Reply, judge: Model) -> Verdict:
    about = task.verifier_metadata
    rule = UNANSWERABLE if about.abstention else RULES.get(about.question_type, SAME)
    verdict = await verify_correct(task, about.question, about.answer, reply, judge, rule)
    kind = "abstention" if about.abstention else about.question_type
    return Verdict(verdict.reward, fields={**verdict.fields, "kind": kind})


def _said(message: dict[str, Any]) -> dict[str, str]:
    return {name: message[name] for name in ("role", "content")}


def rows(questions: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in questions:
        days = zip(one["haystack_dates"], one["haystack_sessions"], strict=True)
        chats = [f"Chat of {date}:\n{json.dumps([_said(said) for said in chat])}" for date, chat in days]
        asked = PROMPT.format(history="\n\n".join(chats), date=one["question_date"], question=one["question"])
        yield {
            "responses_create_params": {"input": [{"role": "user", "content": asked}]},
            "verifier_metadata": {
                **{name: one[name] for name in ("question_id", "question_type", "question", "question_date")},
                "answer": str(one["answer"]),
                "abstention": one["question_id"].endswith("_abs"),
            },
        }


environment = Environment(
    resource=verify,
    description="Questions on what a user said in earlier conversations, answers judged (LongMemEval).",
    domain="long_context",
    agent="single_turn",
    roles=(Role(name="judge", sampling={"temperature": 0.0}),),
    benchmark=Benchmark(score=partial(by_category, field="kind"), fields=("kind",)),
    data_license="MIT",
    datasets=tuple(
        DatasetSource(
            repo_id="xiaowu0162/longmemeval-cleaned",
            file=f"longmemeval_{file}.json",
            split="benchmark",
            license="MIT",
            name=name,
            rows=rows,
        )
        for name, file in (("", "oracle"), ("s", "s_cleaned"))
    ),
)
