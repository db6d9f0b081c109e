"""Documents that a model has put aside under keys, and prompts that refer to them as ``{{key}}``."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
from gym_runtime import quoted

KEPT_CHARACTERS = 20_000_000
_PLACE = re.compile(r"\{\{([^{}]{1,200})\}\}")


class CharacterRange(msgspec.Struct, frozen=True):
    """A part of a document: from ``start`` to before ``end``."""

    key: str
    start: int | None = None
    end: int | None = None


class Documents:
    """The documents of one session."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def put(self, key: str, text: str) -> str:
        """Keep a text; what the model reads about it."""
        others = sum(len(kept) for name, kept in self._texts.items() if name != key)
        if others + len(text) > KEPT_CHARACTERS:
            return f"ERROR: the data storage is full. Use the keys that are there: {self._listed()}"
        warning = f"WARNING: the key '{key}' was there and is overwritten.\n" if key in self._texts else ""
        self._texts[key] = text
        return (
            f"{warning}SUCCESS: the page is stored under the key '{key}' ({len(text)} characters).\n"
            f"Keys in the data storage: {self._listed()}"
        )

    def fill(self, prompt: str, ranges: Sequence[CharacterRange], most: int) -> tuple[str, str]:
        """The prompt with the documents in it; or empty, and what is wrong with it.

        Args:
            most: characters that the result may have.
        """
        keys = list(dict.fromkeys(_PLACE.findall(prompt)))
        if not keys:
            return "", (
                "ERROR: the prompt refers to no document. Put a key in double braces, as in "
                f"'Summarize this: {{{{key}}}}'. Keys in the data storage: {self._listed()}"
            )
        missing = [key for key in keys if key not in self._texts]
        if missing:
            return "", f"ERROR: there is no key '{missing[0]}'. Keys in the data storage: {self._listed()}"
        parts = {one.key: self._texts[one.key][one.start : one.end] for one in ranges if one.key in keys}
        texts = {key: parts.get(key, self._texts[key]) for key in keys}
        size = len(prompt) + sum(len(texts[key]) for key in _PLACE.findall(prompt))
        if size > most:
            return "", (
                f"ERROR: the prompt with its documents has {size} characters, and the model reads at most "
                f"{most}. Give parts of them with input_character_ranges."
            )
        return _PLACE.sub(lambda place: f"\n{quoted(texts[place[1]])}\n", prompt), ""

    def _listed(self) -> str:
        return ", ".join(self._texts) or "none"
