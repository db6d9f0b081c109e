"""Multiple-choice questions of fourteen subjects with up to ten options (MMLU-Pro): 12,032 questions.

Prompt, answer and score are the authors': five worked examples of the subject from the validation set, then
the question; the answer is the letter behind the first ``answer is``, else behind ``Answer:`` (the last one
in the first line that has it), else the last capital from A to J that stands alone. The score is the share
that is right of all questions, and of each subject. Different on purpose: a reply without any such letter is
wrong; where the authors read stored replies again, they draw a letter for it. With ``strict``, which they do
not have, the last statement of an answer must name no other letter (`gym_resources.extract.letters.alone`).

Source: Wang et al. 2024, arXiv:2406.01574; github.com/TIGER-AI-Lab/MMLU-Pro, ``evaluate_from_api.py``
(Apache-2.0), of which the prompt's sentence is; the data is MIT. The example rows are our own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from gym_runtime import Benchmark, DatasetSource, Environment, Reply, Task, Verdict

from gym_resources.benchmarks.scoring.shares import by_category
from gym_resources.extract import letters
from gym_resources.extract.patterns import bounded
from gym_resources.published_sets.choices import ASKED_FOR_LETTER

PROMPT = """\
The following are multiple choice questions (with answers) about {category}. Think step by step and then \
output the answer in the format of "The answer is (X)" at the end.

{worked_examples}Question: {question}
Options: {options_text}
Answer: Let's think step by step."""
LETTERS = "ABCDEFGHIJ"
NEMO_GYM = ASKED_FOR_LETTER.replace("A/B/C/D'", "A/B/C/D/E/F/G/H/I/J'")

_STATED = re.compile(r"answer is \(?([A-J])")
_MARKED = re.compile(r"[aA]nswer:\s*+([A-J])")
_ALONE = re.compile(r"\b[A-J]\b")


class MmluProTask(Task):
    expected_answer: str
    strict: bool = False


def chosen(text: str) -> str | None:
    """The letter of a text's answer.

    >>> chosen("So the answer is (C)."), chosen("Answer: D, as I said"), chosen("B or A?")
    ('C', 'D', 'A')
    """
    if stated := _STATED.search(text):
        return stated[1]
    if first := _MARKED.search(text):
        end = text.find("\n", first.start())
        line_end = len(text) if end < 0 else end
        return [mark for mark in _MARKED.finditer(text) if mark.start() < line_end][-1][1]
    alone = _ALONE.findall(text)
    return alone[-1] if alone else None


async def verify(task: MmluProTask, reply: Reply) -> Verdict:
    answer = await bounded(chosen, reply.joined_text)
    right = answer == task.expected_answer
    if task.strict and right:
        right = letters.alone(reply.joined_text, task.expected_answer, {})
    return Verdict(float(right), fields={"extracted_answer": answer})


def options_text(record: dict[str, Any]) -> str:
    """The options that are not ``N/A``, a line each."""
    options = [option for option in record["options"] if option != "N/A"]
    return "\n".join(f"{letter}. {option}" for letter, option in zip(LETTERS, options, strict=False))


def rows(
    questions: Iterator[dict[str, Any]], validation: Iterator[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    worked: dict[str, str] = {}
    for one in validation:
        answer = one["cot_content"].removeprefix("A: ")
        text = f"Question: {one['question']}\nOptions: {options_text(one)}\nAnswer: {answer}\n\n"
        worked[one["category"]] = worked.get(one["category"], "") + text
    for one in questions:
        yield {
            "question": one["question"],
            "options_text": options_text(one),
            "expected_answer": one["answer"],
            "category": one["category"],
            "question_id": one["question_id"],
            "worked_examples": worked[one["category"]],
        }


environment = Environment(
    resource=verify,
    description="Multiple-choice questions of fourteen subjects with up to ten options (MMLU-Pro).",
    domain="knowledge",
    agent="single_turn",
    benchmark=Benchmark(
        prompt=PROMPT,
        prompts={"nemo-gym": NEMO_GYM},
        score=partial(by_category, field="category"),
        fields=("category",),
    ),
    data_license="MIT",
    datasets=(
        DatasetSource(
            repo_id="TIGER-Lab/MMLU-Pro",
            file="data/test-00000-of-00001.parquet",
            further_files=("data/validation-00000-of-00001.parquet",),
            split="benchmark",
            license="MIT",
            rows=rows,
        ),
    ),
)
