"""Sets that are published in several languages, a file for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from gym_runtime import DatasetSource

Record = dict[str, Any]
RowOf = Callable[[Record, str], Record | None]

NVIDIA = ("de", "es", "fr", "ja")
"""The languages of NVIDIA's translated sets."""
BOXED = {
    "de": "Löse die folgende Aufgabe. Schreibe die endgültige Antwort, und nur sie, in \\boxed{{}}.",
    "es": "Resuelve el siguiente problema. Escribe la respuesta final, y solo ella, en \\boxed{{}}.",
    "fr": "Résous le problème suivant. Écris la réponse finale, et elle seule, dans \\boxed{{}}.",
    "ja": "次の問題を解いてください。最終的な答えだけを \\boxed{{}} の中に書いてください。",
}
"""Asks for an answer in a box, in each of them; in our own words."""


def in_languages(
    repo_id: str, file: str, languages: Sequence[str], row_of: RowOf, license_: str
) -> tuple[DatasetSource, ...]:
    """A source of all languages, without a name, and one of each language, by its name.

    Args:
        file: the path of a language's file, with ``{}`` for the language.
        row_of: the row of a record and its language; None for a record that is left out.
    """

    def source(name: str, of: Sequence[str]) -> DatasetSource:
        first, *others = (file.format(language) for language in of)
        return DatasetSource(
            repo_id=repo_id,
            file=first,
            further_files=tuple(others),
            split="benchmark",
            license=license_,
            name=name,
            rows=partial(rows, languages=tuple(of), row_of=row_of),
        )

    return (source("", languages), *(source(one, [one]) for one in languages))


def rows(*files: Iterator[Record], languages: Sequence[str], row_of: RowOf) -> Iterator[Record]:
    """The rows of files, which are in the order of the languages; each has its ``language``."""
    for records, language in zip(files, languages, strict=True):
        for record in records:
            if (row := row_of(record, language)) is not None:
                yield {**row, "language": language}
