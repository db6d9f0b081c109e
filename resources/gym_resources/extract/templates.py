"""The description of a multiple-choice row's own prompt: ``template_metadata``."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gym_resources.extract import letters, patterns


class Template(msgspec.Struct, frozen=True):
    """How the row's prompt asks for the answer.

    Attributes:
        output_regex: finds it in the model's text; one expression, or several in order.
    """

    output_regex: str | list[str] | None = None

    @property
    def expressions(self) -> list[str]:
        given = self.output_regex if isinstance(self.output_regex, list) else [self.output_regex]
        return [expression for expression in given if expression]


def matched(text: str, expressions: Sequence[str], options: letters.Options) -> str | None:
    """The letter named by the first expression that names one, each by its last match; see
    `letters.captured`.

    To be run by `patterns.bounded`.
    """
    matches = (patterns.last_match(expression, text) for expression in expressions)
    return next(filter(None, (letters.captured(match, options) for match in matches if match)), None)
