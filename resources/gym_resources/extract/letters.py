r"""Which option of a multiple-choice question a text names: by its letter, or by its wording.

Options are given as ``{"A": "its wording", ...}``, with capital letters; a function that takes them returns
one of their letters or None, unless its docstring differs. Every function takes linear time in the text.

The letters outside ASCII are some of those of OpenAI's multilingual MMLU evaluation.
Source: github.com/openai/simple-evals, ``common.py`` (MIT).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from gym_resources.extract.boxed import last_boxed, last_boxed_to_brace

Options = Mapping[str, str]

_ONE_CAPITAL = re.compile(r"[^A-Za-z]*+([A-Z])[^A-Za-z]*+")
_LABEL = re.compile(r"\s*([A-Z])\s*[:).-]")
_TEXT = re.compile(r"\s*\\text\s*\{")
_ANSWER_LINE = re.compile(r"answer\s*+:\s*(.+)", re.IGNORECASE)
_ANSWER_MARK = re.compile(r"answer[*_]{0,2}\s*+:[\s*_]{0,2}", re.IGNORECASE)
_LAST_CAPITAL = re.compile(r"\b[A-Z]\b")
_ANSWER_LETTER = re.compile(r"answer[*_]{0,2}\s*+:[\s*_]{0,2}\s*+([A-Z])(?![A-Za-z0-9])", re.IGNORECASE)
_BESIDE = re.compile(r"\b([A-Z])\b(?=(?:[\s/|&,;]|\b(?i:or|and)\b)++([A-Z])\b)")
_OTHERWISE = re.compile(r"\b(?:not|n't|or|neither|nor|except)\b", re.IGNORECASE)
_ARTICLE = re.compile(r"^(?:an?|the) ")
_FIRST_LETTER = re.compile(r"([A-Za-z])(?![^\W_])")
_FOREIGN = str.maketrans("أبجدঅবডঢＡＢＣＤ", "ABCDABCDABCD")
_AROUND = " \t\r*_`.,;:"


def lettered(options: Iterable[Mapping[str, str | None]]) -> dict[str, str]:
    """A row's options whose name is a single letter, in upper case, and that have a wording."""
    return {
        letter.upper(): wording
        for option in options
        for letter, wording in option.items()
        if len(letter) == 1 and letter.isalpha() and wording is not None
    }


def first_letter(text: str, options: Options) -> str | None:
    """The first capital letter of an option that stands alone in the text.

    >>> first_letter("Fix B, not A.", {"A": "this", "B": "that"})
    'B'
    """
    return next((letter for letter in _LAST_CAPITAL.findall(text) if letter in options), None)


def in_box(text: str, options: Options) -> str | None:
    r"""The only Latin letter in the last box, if it is a capital, or the one that labels its content.

    ``\boxed{B: Iron}`` has a label. It ends with one of ``: ) . -``; ``\text{}`` around the whole content
    does not matter, however often.

    >>> in_box(r"First \boxed{A}. No, \boxed{\text{(B)}}.", {"A": "Tin", "B": "Iron"})
    'B'
    """
    return _labelled(_unwrapped(last_boxed(text) or ""), options)


def in_box_or_worded(text: str, options: Options) -> str | None:
    r"""As `in_box`, or else the only option whose wording is part of the last box's content.

    Case and the amount of white space do not matter. If the content without its ``\text{}`` holds no option's
    wording or several, the unchanged content is searched.
    """
    box = last_boxed(text) or ""
    content = _unwrapped(box)
    letter = _labelled(content, options)
    if letter is not None:
        return letter
    wordings = {letter: plain for letter, wording in options.items() if (plain := _plain(wording))}
    for candidate in (content, box):
        plain = _plain(candidate)
        found = [letter for letter, wording in wordings.items() if wording in plain]
        if len(found) == 1:
            return found[0]
    return None


def after_first_answer(text: str, options: Options) -> str | None:
    r"""The option behind the first ``Answer:``, to the end of the line: a letter in any case, or a wording.

    ``\text{}`` around it does not matter; of options with the same wording the first counts.
    """
    match = _ANSWER_LINE.search(text)
    if match is None:
        return None
    candidate = _unwrapped(match[1]).strip()
    letter = candidate.upper()
    return letter if len(candidate) == 1 and letter in options else _worded(candidate, options)


def after_last_answer(text: str, options: Options) -> str | None:
    """The option behind the last ``Answer:`` that names one by a letter, whatever its markup and its script.

    A line in which two different options' letters stand beside each other (``A or B``) names none. The
    wordings do not matter.

    >>> after_last_answer("**Answer:** A or B. **Answer:** B, it rusts. Answer: unclear", {"A": "", "B": ""})
    'B'
    """
    text = text.translate(_FOREIGN)
    end = len(text)
    for mark in reversed(list(_ANSWER_MARK.finditer(text))):
        line_end = text.find("\n", mark.end(), end)
        letter = _lettered_payload(
            text[mark.end() : end if line_end < 0 else line_end].strip(_AROUND), options
        )
        if letter is not None:
            return letter
        end = mark.start()
    return None


def in_box_or_after_answer(text: str) -> str | None:
    r"""The last lone capital letter in the last box up to its first ``}``, else the letter behind the last
    ``Answer:``.

    It need not be an option's. Source: Artificial Analysis, methodology of its intelligence index; GPQA's
    usual grading.

    >>> in_box_or_after_answer(r"Answer: A. No: \boxed{\text{B}}")
    'B'
    >>> in_box_or_after_answer(r"It is \boxed{10^{-4}}. **Answer: c**")
    'C'
    """
    for found in (_LAST_CAPITAL.findall(last_boxed_to_brace(text) or ""), _ANSWER_LETTER.findall(text)):
        if found:
            return found[-1].upper()
    return None


def alone(text: str, letter: str, options: Options) -> bool:
    r"""Whether a text's last statement of an answer names this option and says nothing of another one.

    The statement is the content of the last box; else what stands behind the last ``answer``, to the end of
    the line; else the whole text. It must hold the letter as the only capital that stands alone, and no *not*
    or *or*; or begin with the option's wording, and have no other option's.

    >>> alone("The answer is (B).", "B", {}), alone("Answer: B or A", "B", {})
    (True, False)
    """
    box = last_boxed(text)
    _, marked, behind = text.rpartition("nswer")
    stated = _unwrapped(box) if box is not None else behind.partition("\n")[0] if marked else text
    stated = stated.translate(_FOREIGN)
    if _OTHERWISE.search(stated):
        return False
    worded = [name for name, wording in options.items() if wording and _plain(wording) in _plain(stated)]
    if worded == [letter]:
        return _ARTICLE.sub("", _plain(stated)).startswith(_ARTICLE.sub("", _plain(options[letter])))
    return set(_LAST_CAPITAL.findall(stated)) == {letter}


def captured(candidate: str, options: Options) -> str | None:
    """The answer in an expression's match: any single letter, an option's or not, or an option's whole
    wording.
    """
    candidate = candidate.translate(_FOREIGN).strip()
    if len(candidate) == 1 and candidate.isalpha():
        return candidate.upper()
    return _worded(candidate, options)


def _labelled(content: str, options: Options) -> str | None:
    match = _ONE_CAPITAL.fullmatch(content) or _LABEL.match(content)
    return match[1] if match and match[1] in options else None


def _lettered_payload(payload: str, options: Options) -> str | None:
    if any(one != other and one in options and other in options for one, other in _BESIDE.findall(payload)):
        return None
    if len(payload) == 1:
        return payload.upper() if payload.upper() in options else None
    leading = _FIRST_LETTER.match(payload)
    if leading and leading[1].upper() in options:
        return leading[1].upper()
    return next((letter for letter in reversed(_LAST_CAPITAL.findall(payload)) if letter in options), None)


def _unwrapped(content: str) -> str:
    r"""The content without every ``\text{}`` that surrounds the whole of it."""
    start, end = 0, len(content)
    while opening := _TEXT.match(content, start, end):
        while end > opening.end() and content[end - 1].isspace():
            end -= 1
        if end == opening.end() or content[end - 1] != "}":
            break
        start, end = opening.end(), end - 1
    return content[start:end]


def _worded(candidate: str, options: Options) -> str | None:
    wanted = _plain(candidate)
    return next((letter for letter, wording in options.items() if wanted and _plain(wording) == wanted), None)


def _plain(text: str) -> str:
    return " ".join(text.lower().split())
