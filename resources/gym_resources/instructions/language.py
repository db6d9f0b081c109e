"""Instructions on the language of a text.

`langdetect` detects languages, always with the same random seed, so that the verdict on a text is
deterministic. A text whose language cannot be detected follows any such instruction, as in IFEval.
Source: github.com/Mimino666/langdetect (Apache-2.0).
"""

from __future__ import annotations

from functools import cache
from typing import Any, cast


def response_language(text: str, *, language: str) -> bool:
    """The text is in a language, given by its ISO 639-1 code."""
    found = _detect(text)
    return found is None or found == language


def english_capitals(text: str) -> bool:
    """The text is English without small letters."""
    return text.isupper() and response_language(text, language="en")


def english_small(text: str) -> bool:
    """The text is English without capitals."""
    return text.islower() and response_language(text, language="en")


@cache
def _profiles() -> Any:
    """The languages' profiles: loading takes half a second, so they are loaded once, apart from those of
    other users of the library.
    """
    from langdetect import DetectorFactory
    from langdetect.detector_factory import PROFILES_DIRECTORY

    factory = cast("Any", DetectorFactory())
    factory.load_profile(PROFILES_DIRECTORY)
    factory.seed = 0
    return factory


def _detect(text: str) -> str | None:
    from langdetect import LangDetectException

    detector = _profiles().create()
    try:
        detector.append(text)
        return str(detector.detect())
    except LangDetectException:
        return None
