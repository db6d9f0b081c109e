"""Questions that a base model answers in writing: worked examples and the question, in one text.

The forms are those of EleutherAI's lm-evaluation-harness (MIT) where a set's authors have none. Worked
examples are the first of their file, so that every run has the same; a question among them is not asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from gym_runtime.environment import Records

from gym_resources.published_sets.continuations import worked_examples

EXAMS = (
    *("aqua-rat", "gaokao-english", "logiqa-en", "lsat-ar", "lsat-lr", "lsat-rc", "math", "sat-en"),
    *("sat-en-without-passage", "sat-math"),
)
"""AGIEval's English sets."""
LANGUAGES = ("bn", "de", "en", "es", "fr", "ja", "ru", "sw", "te", "th", "zh")
"""MGSM's."""

_MARK = re.compile(r"[^:：]*[:：]\s*")


class Case(NamedTuple):
    """What stands before an answer, the answer as a worked example has it, the one to compare, its category.

    An answer of a worked example that is empty is never shown.
    """

    asked: str
    said: str
    expected: str
    category: str = ""


class Form(NamedTuple):
    """How a set is asked, and how its answers are read.

    Attributes:
        shots: so many worked examples stand before each question.
        stops: the answer ends before the first of these.
        reads: as `gym_resources.benchmarks.base_answer.AnswerTask` has it.
        limit: of the answer's tokens.
        mark: what the answer stands behind.
        head: goes before all.
    """

    shots: int
    stops: Sequence[str]
    reads: str = "math"
    limit: int = 1024
    mark: str = ""
    head: str = ""


def before(text: str, stops: Sequence[str]) -> str:
    """A text up to the first of the stops.

    >>> before("4\\nQuestion: one?", ["Answer:", "Question:"])
    '4\\n'
    """
    return text[: min((place for stop in stops if (place := text.find(stop)) >= 0), default=len(text))]


def asked(prompt: str, stops: Sequence[str], limit: int, **fields: Any) -> dict[str, Any]:
    """A row: one message, and where the engine stops."""
    return {
        "responses_create_params": {
            "input": [{"role": "user", "content": prompt}],
            "max_output_tokens": limit,
            "metadata": {"extra_body": json.dumps({"stop": list(stops)})},
        },
        "stops": list(stops),
        **fields,
    }


def answered(case: Case, form: Form, shown: str = "") -> dict[str, Any]:
    """The row of a case behind its worked examples."""
    fields: dict[str, Any] = {"expected_answer": case.expected, "reads": form.reads}
    fields |= {"mark": form.mark} if form.mark else {}
    fields |= {"category": case.category} if case.category else {}
    fields |= {"should_use_judge": False} if form.reads != "math" else {}
    return asked(form.head + shown + case.asked, form.stops, form.limit, **fields)


def few_shot(form: Form, read: Callable[[dict[str, Any]], Case], files: int = 1) -> Callable[..., Records]:
    """What makes rows of the records of so many files, and of those of the others with worked examples.

    Worked examples are of the question's category where it has some, else of any.
    """

    def rows(*records: Records) -> Iterator[dict[str, Any]]:
        questions = [read(one) for file in records[:files] for one in file]
        texts = {one.asked for one in questions}
        worked = [read(one) for file in records[files:] for one in file]
        examples = [one for one in worked if one.said.strip() and one.asked not in texts]
        shown = worked_examples(((one.category, one.asked + one.said) for one in examples), form.shots)
        every = worked_examples((("", one.asked + one.said) for one in examples), form.shots).get("", "")
        for one in questions:
            yield answered(one, form, shown.get(one.category, every))

    return rows


def agieval(form: Form) -> Callable[..., Records]:
    """Rows of AGIEval's sets, a file each. They have no worked examples: the first questions of each are, and
    are not asked."""

    def rows(*files: Records) -> Iterator[dict[str, Any]]:
        for name, records in zip(EXAMS, files, strict=True):
            cases = [_agieval(one, name) for one in records]
            shown = "".join(f"{one.asked}{one.said}\n\n" for one in cases[: form.shots])
            reads = form.reads if name != "math" else "math"
            for one in cases[form.shots :]:
                yield answered(one, form._replace(reads=reads), shown)

    return rows


def _agieval(record: dict[str, Any], name: str) -> Case:
    if name == "math":
        return Case(record["query"], f" {record['answer']}", record["answer"], name)
    letter = "ABCDE"[record["gold"][0]]
    return Case(record["query"], f" {letter}", letter, name)


def mgsm(form: Form) -> Callable[..., Records]:
    """Rows of MGSM: a file of questions in each language, then one of worked examples in each.

    The words before a question and before its answer are the worked examples' own.
    """

    def rows(*files: Records) -> Iterator[dict[str, Any]]:
        for place, language in enumerate(LANGUAGES):
            worked = list(files[len(LANGUAGES) + place])
            question, answer = (_mark(worked[0][name]) for name in ("question", "answer"))
            shown = "".join(f"{one['question']}\n{one['answer']}\n\n" for one in worked[: form.shots])
            spoken = form._replace(stops=(question.strip(), *form.stops))
            for one in files[place]:
                asks = f"{question}{one['question']}\n{answer.rstrip()}"
                yield answered(Case(asks, "", str(one["answer_number"]), language), spoken, shown)

    return rows


def _mark(text: str) -> str:
    """What a text begins with, up to its first colon and the space behind that.

    Raises:
        ValueError: the text has no colon.
    """
    found = _MARK.match(text)
    if found is None:
        raise ValueError(f"a worked example has no colon: {text[:100]!r}")
    return found[0]
