r"""Questions for base models, answered in writing behind worked examples (21 base-model tasks).

A row's one message is the whole text: worked examples, then the question up to where its answer goes. Run it
with ``--model-api completions``. The reply ends before the first of the row's ``stops``, which the engine is
told, too: what a base model writes further on is not read. What is read is behind the last ``mark``, up to an
empty line, where the row names one and the reply has it. ``reads`` says how: ``math`` compares the last
expression symbolically, as `math_with_judge` does, with a judge where there is one; ``stated`` takes
`mmlu_pro`'s letter, behind the first ``answer is``; ``letter`` takes the first option's letter that stands
alone. With ``strict`` the last statement of a letter must name no other one. The score is the share that is
right, and the same of each category.

GSM8K (5 worked examples) is the first data set, its answers corrected as by `gsm8k`; the others are
``agieval`` (the English sets; 3), ``gpqa`` (Diamond; 5, of the extended set, with their explanations),
``math`` (4 of the same subject), ``mgsm`` (11 languages; 8, in the language) and ``mmlu_pro`` (5 of the same
subject, in its authors' form).

They are tasks of the suite with which NVIDIA evaluates Nemotron's base models, `base_choice` and `base_code`
are the others. The forms are lm-evaluation-harness's; NVIDIA's variants of them are not published as text, so
figures may differ by a little. Sources: Cobbe et al. 2021 (MIT), Zhong et al. 2023 (MIT), Rein et al. 2023
(CC-BY-4.0, gated), Hendrycks et al. 2021 (MIT), Shi et al. 2022 (CC-BY-SA-4.0), Wang et al. 2024 (MIT); the
example rows are our own.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Literal

from gym_runtime import Benchmark, DatasetSource, Reply, Verdict
from msgspec.structs import replace

from gym_resources import math_with_judge
from gym_resources.benchmarks import gpqa, gsm8k, hendrycks_math, mmlu_pro
from gym_resources.benchmarks.scoring.shares import by_category
from gym_resources.extract import letters
from gym_resources.published_sets import written
from gym_resources.published_sets.written import EXAMS, LANGUAGES, Case, Form, answered, before, few_shot

QUESTION = ("Question:",)
EXPERTS = (
    "Here are some example questions from experts. Answer the final question yourself, following the format "
    "of the previous questions exactly.\n"
)


class AnswerTask(math_with_judge.MathTask, kw_only=True):
    """A text that goes on with an answer; the module says what the fields mean."""

    reads: Literal["math", "stated", "letter"] = "math"
    stops: list[str] = []  # noqa: RUF012 - a msgspec field, copied for each
    mark: str = ""
    category: str | None = None
    strict: bool = False


async def verify(task: AnswerTask, reply: Reply) -> Verdict:
    text = before(reply.joined_text, task.stops)
    if task.mark and task.mark in text:
        text = text.rpartition(task.mark)[2].lstrip().partition("\n\n")[0]
    if task.reads == "math":
        return await math_with_judge.verify(task, Reply.of(text))
    options = dict.fromkeys("ABCDE", "")
    found = mmlu_pro.chosen(text) if task.reads == "stated" else letters.first_letter(text, options)
    right = found == task.expected_answer
    reward = float(right and not (task.strict and not letters.alone(text, task.expected_answer, {})))
    fields = {"library_reward": reward, "extracted_answer": found, "judge_evaluations": None}
    return Verdict(reward, fields=fields)


def gsm8k_case(record: dict[str, Any]) -> Case:
    [row] = gsm8k.rows(iter([record]))
    return Case(f"Question: {row['problem']}\nAnswer:", f" {record['answer']}", row["expected_answer"])


def gpqa_case(record: dict[str, Any]) -> Case:
    [row] = gpqa.rows(iter([record]))
    options = [f"({letter}) {wording}" for one in row["options"] for letter, wording in one.items()]
    asked = ["Question: " + row["question"], "Choices:", *options, "Let's think step by step:"]
    why = record["Explanation"].strip()
    said = f" {why}\nThe answer is ({row['expected_answer']})." if why else ""
    return Case("\n".join(asked), said, row["expected_answer"])


def math_case(record: dict[str, Any]) -> Case:
    answer = hendrycks_math.answer(record["solution"])
    said = f" {record['solution']}\nFinal Answer: The final answer is ${answer}$. I hope it is correct."
    return Case(f"Problem:\n{record['problem']}\n\nSolution:", said, answer, record["type"])


def subjects(*files: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    form = Form(5, QUESTION, "stated", 2048)
    for one in mmlu_pro.rows(*files):
        case = Case(mmlu_pro.PROMPT.format(**one), "", one["expected_answer"], one["category"])
        yield answered(case, form)


CONVERTED = partial(DatasetSource, revision="refs/convert/parquet", split="benchmark")
exams = [
    CONVERTED(repo_id=f"hails/agieval-{name}", file="default/test/0000.parquet", license="MIT")
    for name in EXAMS
]
MGSM = [f"{language}/{split}/0000.parquet" for split in ("test", "train") for language in LANGUAGES]
GSM8K, MMLU_PRO = gsm8k.environment.datasets[0], mmlu_pro.environment.datasets[0]
MATH, GPQA = hendrycks_math.environment.datasets[0], gpqa.environment.datasets[0]
TESTS = (MATH.file, *MATH.further_files)
environment = replace(
    math_with_judge.environment,
    resource=verify,
    description="Questions for base models, answered in writing behind worked examples (GSM8K, MATH …).",
    domain="knowledge",
    agent="single_turn",
    benchmark=Benchmark(score=partial(by_category, field="category"), fields=("category",)),
    data_license="MIT (GSM8K), others by data set",
    datasets=(
        replace(
            GSM8K,
            further_files=(GSM8K.file.replace("test", "train"),),
            rows=few_shot(Form(5, QUESTION, mark="####"), gsm8k_case),
        ),
        replace(
            exams[0],
            name="agieval",
            further_sources=tuple(exams[1:]),
            rows=written.agieval(Form(3, ("\n", "Q:"), "letter", 64)),
        ),
        replace(
            GPQA,
            name="gpqa",
            further_files=("gpqa_extended.csv",),
            rows=few_shot(Form(5, QUESTION, "stated", 2048, head=EXPERTS), gpqa_case),
        ),
        replace(
            MATH,
            name="math",
            further_files=(*TESTS[1:], *(file.replace("test", "train") for file in TESTS)),
            rows=few_shot(Form(4, ("Problem:",), mark="Final Answer:"), math_case, len(TESTS)),
        ),
        CONVERTED(
            repo_id="juletxara/mgsm",
            file=MGSM[0],
            further_files=tuple(MGSM[1:]),
            license="CC-BY-SA-4.0",
            name="mgsm",
            rows=written.mgsm(Form(8, ())),
        ),
        replace(MMLU_PRO, name="mmlu_pro", rows=subjects),
    ),
    agent_refs=(),
)
