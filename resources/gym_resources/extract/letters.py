r"""Which option of a multiple-choice question a text names: by its letter, or by its wording.

Options are given as ``{"A": "its wording", ...}``; a function that takes them returns a letter among them or
None.
The letters outside ASCII are those of OpenAI's multilingual MMLU evaluation.
Source: github.com/openai/simple-evals, ``common.py`` (MIT).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

from gym_resources.extract.boxed import last_boxed

Options = Mapping[str, str]

_ONE_CAPITAL = re.compile(r"[^A-Za-z]*([A-Z])[^A-Za-z]*")
_LABEL = re.compile(r"\s*([A-Z])\s*[:).-]")
_TEXT = re.compile(r"\s*\\text\s*\{(.*)\}\s*", re.DOTALL)
_ANSWER_LINE = re.compile(r"answer\s*:\s*(.+)", re.IGNORECASE)

_MARKUP = "*_`$\"'‘’“”\u200e\u200f\u202a\u202b\u202c\u2066\u2067\u2069"
_ANSWER_MARK = re.compile(rf"answer[\s{_MARKUP}]*:[\s{_MARKUP}]*", re.IGNORECASE)
_LATEX = re.compile(rf"\\(?:boxed|text|textbf|mathbf|mathrm)\s*\{{|\\[()\[\]]|[{{}}{_MARKUP}]")
_LEADING_LETTER = re.compile(r"\(?(\w)(?:\s*[.:)]|$)")
_CAPITAL = re.compile(r"\b[A-Z]\b")
_ANSWER_LETTER = re.compile(r"answer[*_]{0,2}\s*:[\s*_]{0,2}\s*([A-Z])(?![A-Za-z0-9])", re.IGNORECASE)
_FOREIGN = str.maketrans("أابجدঅবডঢ", "AABCDABCD")


def named(candidate: str, options: Options) -> str | None:
    """The option that the candidate is: its letter in either case, or its whole wording.

    Case and the amount of white space do not matter in a wording; one that two options share names
    neither.
    """
    letter = candidate.strip().upper()
    return letter if letter in options else _letters_by_wording(options).get(_plain(candidate))


def first_letter(text: str, options: Options) -> str | None:
    """The first capital letter of an option that stands alone in the text.

    >>> first_letter("Fix B, not A.", {"A": "this", "B": "that"})
    'B'
    """
    return next((letter for letter in _CAPITAL.findall(text) if letter in options), None)


def in_box(text: str, options: Options) -> str | None:
    r"""The one capital letter in the last box, or the one that labels its content (``\boxed{B: Iron}``).

    A label ends with one of ``: ) . -``; a ``\text{}`` around the whole content does not matter.

    >>> in_box(r"First \boxed{A}. No, \boxed{(B)}.", {"A": "Tin", "B": "Iron"})
    'B'
    """
    box = last_boxed(text) or ""
    wrapped = _TEXT.fullmatch(box)
    box = wrapped[1] if wrapped else box
    match = _ONE_CAPITAL.fullmatch(box) or _LABEL.match(box)
    return match[1] if match and match[1] in options else None


def in_box_or_worded(text: str, options: Options) -> str | None:
    """As `in_box`, or else the only option whose wording is part of the last box's content."""
    letter = in_box(text, options)
    if letter is not None:
        return letter
    box = _plain(last_boxed(text) or "")
    found = [letter for letter, wording in options.items() if wording.strip() and _plain(wording) in box]
    return found[0] if len(found) == 1 else None


def after_first_answer(text: str, options: Options) -> str | None:
    """The option that stands behind the first ``Answer:``, up to the end of the line."""
    match = _ANSWER_LINE.search(text)
    return named(match[1], options) if match else None


def after_last_answer(text: str, options: Options) -> str | None:
    """The option behind the last ``Answer:`` that names one, whatever its markup and its script.

    >>> after_last_answer("**Answer:** A? Rather **Answer: Ｂ.** It is iron.", {"A": "Tin", "B": "Iron"})
    'B'
    """
    text = unicodedata.normalize("NFKC", text)
    by_wording = _letters_by_wording(options)
    end = len(text)
    for mark in reversed(list(_ANSWER_MARK.finditer(text))):
        line = text[mark.end() : end].split("\n", 1)[0]
        end = mark.start()
        candidate = _LATEX.sub("", line).strip()
        leading = _LEADING_LETTER.match(candidate)
        letter = leading[1].translate(_FOREIGN).upper() if leading else ""
        found = letter if letter in options else by_wording.get(_plain(candidate))
        if found is not None:
            return found
    return None


def in_box_or_after_answer(text: str) -> str | None:
    r"""The last lone capital letter in the last box, else the letter behind the last ``Answer:``.

    It need not be an option's. Source: Artificial Analysis, methodology of its intelligence index; GPQA's
    usual grading.

    >>> in_box_or_after_answer(r"Answer: A. No: \boxed{\text{B}}")
    'B'
    >>> in_box_or_after_answer(r"It is \boxed{10^{-4}}. **Answer: c**")
    'C'
    """
    capitals = _CAPITAL.findall(last_boxed(text) or "")
    if capitals:
        return capitals[-1]
    behind = _ANSWER_LETTER.findall(text)
    return behind[-1].upper() if behind else None


def _letters_by_wording(options: Options) -> dict[str, str]:
    wordings = [_plain(wording) for wording in options.values()]
    return {
        wording: letter
        for letter, wording in zip(options, wordings, strict=True)
        if wording and wordings.count(wording) == 1
    }


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
