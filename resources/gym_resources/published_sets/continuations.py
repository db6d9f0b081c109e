"""Questions for base models: texts and how they may go on, compared by their log-probabilities.

The forms are those of EleutherAI's lm-evaluation-harness (MIT), in whose words figures of base models are
mostly reported: what stands before an option, and how worked examples are laid before the question. Worked
examples are the first of their file, so that every run has the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from gym_runtime.environment import Records

ECHO = '{"echo": true, "max_tokens": 0}'
LETTERS = "ABCDEFGHIJ"
Case = tuple[list[str], list[str], int]
"""What stands before each option, the options, and which is right; one text before all is enough."""


def row(befores: Sequence[str], options: Sequence[str], answer: int, **fields: Any) -> dict[str, Any]:
    """A row whose input has one message for each option."""
    before = befores if len(befores) == len(options) else [befores[0]] * len(options)
    texts = [start + option for start, option in zip(before, options, strict=True)]
    return {
        "responses_create_params": {
            "input": [{"role": "user", "content": text} for text in texts],
            "metadata": {"extra_body": ECHO},
            "top_logprobs": 1,
        },
        "options": list(options),
        "answer": answer,
        **fields,
    }


def lettered(question: str, options: Sequence[str]) -> str:
    """A question with its options behind letters, up to where the answer goes."""
    lines = [f"{letter}. {option}" for letter, option in zip(LETTERS, options, strict=False)]
    return "\n".join([question.strip(), *lines, "Answer:"])


def by_letter(question: str, options: Sequence[str], answer: int) -> Case:
    return [lettered(question, options)], [f" {letter}" for letter in LETTERS[: len(options)]], answer


def mmlu(record: dict[str, Any]) -> Case:
    return by_letter(record["question"], record["choices"], record["answer"])


def global_mmlu(record: dict[str, Any]) -> Case:
    options = [record[f"option_{letter}"] for letter in "abcd"]
    return by_letter(record["question"], options, LETTERS.index(record["answer"]))


def arc(record: dict[str, Any]) -> Case:
    choices = record["choices"]
    answer = list(map(str, choices["label"])).index(record["answerKey"])
    return by_letter(f"Question: {record['question']}", choices["text"], answer)


def openbookqa(record: dict[str, Any]) -> Case:
    choices = record["choices"]
    options = [f" {text}" for text in choices["text"]]
    return [record["question_stem"]], options, list(choices["label"]).index(record["answerKey"])


def piqa(record: dict[str, Any]) -> Case:
    options = [f" {record['sol1']}", f" {record['sol2']}"]
    return [f"Question: {record['goal']}\nAnswer:"], options, int(record["label"])


def race(record: dict[str, Any]) -> Case:
    before = f"Article: {record['article']}\n\nQuestion: {record['question']}\nAnswer:"
    return [before], [f" {text}" for text in record["options"]], LETTERS.index(record["answer"])


def hellaswag(record: dict[str, Any]) -> Case:
    before = f"{record['activity_label']}: {record['ctx_a']} {record['ctx_b'].capitalize()}"
    return [plain(before)], [f" {plain(one)}" for one in record["endings"]], int(record["label"])


def plain(text: str) -> str:
    """A text of WikiHow without its marks.

    >>> plain(" Wash up [title] Rinse [step]  it. ")
    'Wash up. Rinse it.'
    """
    return (
        re.sub(r"\[.*?\]", "", text.strip().replace(" [title]", ". ")).replace("  ", " ").replace("  ", " ")
    )


def winogrande(record: dict[str, Any]) -> Case:
    """The same end behind either name, so that what is compared is the end alone."""
    before, _, after = record["sentence"].partition("_")
    return (
        [before + record[f"option{number}"] for number in (1, 2)],
        [f" {after.strip()}"] * 2,
        (int(record["answer"]) - 1),
    )


def said(case: Case) -> str:
    """A case as a worked example: with its right option."""
    befores, options, answer = case
    return befores[answer if len(befores) > 1 else 0] + options[answer]


def worked_examples(cases: Iterable[tuple[str, str]], shots: int) -> dict[str, str]:
    """The first cases of each category in one text, with an empty line behind each.

    Args:
        cases: each with its category before it.
    """
    kept: dict[str, list[str]] = {}
    for category, text in cases:
        kept.setdefault(category, []).append(f"{text}\n\n")
    return {category: "".join(texts[:shots]) for category, texts in kept.items()}


def cases(
    read: Callable[[dict[str, Any]], Case],
    shots: int = 0,
    by: str = "",
    head: str = "",
    *,
    by_length: bool = False,
) -> Callable[..., Records]:
    """What makes rows of records, and of those of a second file with worked examples.

    Args:
        shots: so many worked examples stand before each question.
        by: the field of the subject or language; worked examples are of the same one, where there is one.
        head: goes before all, with ``{}`` for the subject.
    """

    def rows(records: Records, *worked: Records) -> Iterator[dict[str, Any]]:
        shown = worked_examples(
            ((str(one.get(by, "")), said(read(one))) for file in worked for one in file), shots
        )
        for record in records:
            category = str(record.get(by, ""))
            befores, options, answer = read(record)
            start = head.format(category.replace("_", " ")) + shown.get(category, "")
            fields: dict[str, Any] = {"category": category} if by else {}
            fields |= {"by_length": True} if by_length else {}
            yield row([start + before for before in befores], options, answer, **fields)

    return rows


class Published(NamedTuple):
    """A data set: its repository, how its records are read, and its files, of which a second has worked
    examples."""

    repo_id: str
    licence: str
    rows: Callable[..., Records]
    files: tuple[str, ...]
    revision: str = "main"


def _of(*splits: str) -> tuple[str, ...]:
    return tuple(f"{split}-00000-of-00001.parquet" for split in splits)


_ABOUT = "The following are multiple choice questions (with answers) about {}.\n\n"
_CONVERTED = "refs/convert/parquet"
SETS = {
    "": Published("cais/mmlu", "MIT", cases(mmlu, 5, "subject", _ABOUT), _of("all/test", "all/dev")),
    "arc_challenge": Published(
        "allenai/ai2_arc", "CC-BY-SA-4.0", cases(arc, 25), _of("ARC-Challenge/test", "ARC-Challenge/train")
    ),
    "global_mmlu_lite": Published(
        "CohereLabs/Global-MMLU-Lite",
        "Apache-2.0",
        cases(global_mmlu, 5, "subject_category"),
        _of("en/test", "en/dev"),
    ),
    "hellaswag": Published(
        "Rowan/hellaswag", "MIT", cases(hellaswag, by_length=True), _of("data/validation")
    ),
    "openbookqa": Published(
        "allenai/openbookqa", "Apache-2.0", cases(openbookqa, by_length=True), _of("main/test")
    ),
    "piqa": Published(
        "ybisk/piqa",
        "AFL-3.0",
        cases(piqa, by_length=True),
        ("plain_text/validation/0000.parquet",),
        _CONVERTED,
    ),
    "race": Published("ehovy/race", "see its card", cases(race), _of("high/test")),
    "winogrande": Published(
        "allenai/winogrande",
        "CC-BY-4.0",
        cases(winogrande, 5),
        ("winogrande_xl/validation/0000.parquet", "winogrande_xl/train/0000.parquet"),
        _CONVERTED,
    ),
}
"""By the name of the data set."""
