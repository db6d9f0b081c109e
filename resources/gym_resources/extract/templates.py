"""What a multiple-choice row says about its own prompt: ``template_metadata``."""

from __future__ import annotations

import msgspec

from gym_resources.extract import letters, patterns


class Template(msgspec.Struct, frozen=True):
    """How the row's prompt asks for the answer.

    Attributes:
        output_regex: finds it in the model's text; one expression, or several in order.
    """

    output_regex: str | list[str] | None = None

    async def option(self, text: str, options: letters.Options) -> str | None:
        """The option that the first expression to name one names: by its letter or by its whole wording.

        Raises:
            TaskError: an expression took too long.
        """
        given = self.output_regex if isinstance(self.output_regex, list) else [self.output_regex]
        expressions = [expression for expression in given if expression]
        if not expressions:
            return None
        found = await patterns.last_matches_guarded(expressions, text)
        return next(filter(None, (letters.named(match, options) for match in found if match)), None)
