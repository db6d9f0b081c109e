"""Questions whose options have labels of their own: records of ARC, OpenBookQA and CommonsenseQA."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gym_resources.published_sets.choices import choice_row


def labelled_rows(questions: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A row for each record: ``question`` or ``question_stem``, ``choices`` with ``text`` and ``label``, and
    the label that is right in ``answerKey``. Options get letters in their order, whatever their labels are.

    Raises:
        ValueError: no option has the label that is right.
    """
    for one in questions:
        listed = one["choices"]
        labels = [str(label) for label in listed["label"]]
        if one["answerKey"] not in labels:
            raise ValueError(f"{one['id']}: no option has the label {one['answerKey']!r}")
        question = one["question_stem"] if "question_stem" in one else one["question"]
        yield choice_row(question, list(listed["text"]), labels.index(one["answerKey"]), id=one["id"])
