"""Instructions on the form of a text: lists, marks, wrappings, templates."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterator
from itertools import pairwise

from gym_resources.instructions.sentences import sentences, sentences_by_rules
from gym_resources.instructions.words import PUNCTUATION, plain_words, trimmed

_ANSWERS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
_POSTSCRIPTS = {"P.P.S": re.compile(r"p\.\s?p\.\s?s"), "P.S.": re.compile(r"p\.\s?s\.")}
_STAR_BULLET = re.compile(r"^[^\S\n]*\*[^*].*$", re.MULTILINE)
_DASH_BULLET = re.compile(r"^[^\S\n]*-", re.MULTILINE)
_EMPHASIS = re.compile(r"\*[^\n*]*\*")
_STRONG = re.compile(r"\*\*([^\n*]*)\*\*")
_JSON_FENCES = ("```json", "```Json", "```JSON", "```")
_LETTERED_OPTIONS = re.compile(r"\W{0,5}[aA]\W{0,5}[bB]\W{0,5}[cC]")


def placeholders(text: str, *, num_placeholders: int) -> bool:
    """There are at least so many placeholders in square brackets, such as ``[address]``."""
    return sum(1 for line in text.split("\n") for _ in _bracketed(line)) >= num_placeholders


def _bracketed(line: str) -> Iterator[str]:
    start = line.find("[")
    while start >= 0 and (end := line.find("]", start)) >= 0:
        yield line[start : end + 1]
        start = line.find("[", end)


def postscript(text: str, *, postscript_marker: str) -> bool:
    """There is a postscript, somewhere."""
    marker = postscript_marker.strip()
    known = _POSTSCRIPTS.get(marker)
    return known.search(text.lower()) is not None if known else marker.lower() in text.lower()


def bullets(text: str, *, num_bullets: int) -> bool:
    """There are exactly so many lines that start with ``-``, or with ``*`` and not with two."""
    return len(_STAR_BULLET.findall(text)) + len(_DASH_BULLET.findall(text)) == num_bullets


def constrained_answer(text: str) -> bool:
    """The text has one of three answers, such as ``My answer is maybe.``"""
    return any(answer in text for answer in _ANSWERS)


def highlights(text: str, *, num_highlights: int) -> bool:
    """At least so many sections are highlighted ``*like this*`` (``**this**`` counts as well)."""
    emphasised = sum(bool(found.strip("*").strip()) for found in _EMPHASIS.findall(text))
    strong = sum(bool(found.strip()) for found in _STRONG.findall(text))
    return emphasised + strong >= num_highlights


def sections(text: str, *, section_spliter: str, num_sections: int) -> bool:
    """At least so many sections are marked with a word and a number, such as ``Section 1``."""
    return len(re.findall(rf"{re.escape(section_spliter.strip())}\s?\d+", text)) >= num_sections


def json_only(text: str) -> bool:
    """The whole text is JSON, with or without fences."""
    text = text.strip()
    for fence in _JSON_FENCES:
        text = text.removeprefix(fence)
    try:
        json.loads(text.removesuffix("```"))
    except (ValueError, RecursionError):
        return False
    return True


def title(text: str) -> bool:
    """There is a title in double angular brackets, such as ``<<poem of joy>>``."""
    for line in text.split("\n"):
        start, end = line.find("<<"), line.rfind(">>")
        if start >= 0 and start + 2 < end and line[start : end + 2].lstrip("<").rstrip(">").strip():
            return True
    return False


def hyphened_sentences(text: str) -> bool:
    """Sentences are joined by hyphens without spaces."""
    pairs = zip(text.split("-"), sentences_by_rules(text.replace("-", " ")), strict=False)
    return all(part == sentence for part, sentence in pairs)


def bracketed_words(text: str) -> bool:
    """Each word is in square brackets."""
    return all(word.startswith("[") and word.endswith("]") for word in text.split())


def wrapped_bigrams(text: str) -> bool:
    """Each two words are in double angular brackets, such as ``<<at home>>``."""
    words = text.split()
    pairs = zip(words[::2], words[1::2], strict=False)
    return all(first.startswith("<<") and second.endswith(">>") for first, second in pairs)


def nested_brackets(text: str) -> bool:
    """Brackets of any kind are nested, and closed again in order, at least five levels deep."""
    opened: list[str] = []
    deepest = 0
    for char in text:
        if char in "([{":
            opened.append(char)
            deepest = max(deepest, len(opened))
        elif char in ")]}":
            if opened and opened[-1] + char in ("()", "[]", "{}"):
                opened.pop()
                if deepest >= 5:
                    return True
            else:
                opened, deepest = [], 0
    return False


def nested_quotes(text: str) -> bool:
    """Double and single quotes are nested in turn, and closed again, at least three levels deep."""
    opened: list[str] = []
    deepest = 0
    for char in text:
        if opened and char == opened[-1]:
            opened.pop()
            if deepest - len(opened) >= 3:
                return True
        elif char in "\"'":
            opened.append(char)
            deepest = max(deepest, len(opened))
    return False


def one_option(text: str, *, options: str) -> bool:
    """The text is one of the options (``yes/no/maybe``), in any case; lettered ones must be exact."""
    separator = "/" if "/" in options else "or" if "or" in options else ","
    choices = [option.strip() for option in options.split(separator)]
    if _LETTERED_OPTIONS.match(options):
        return text in choices
    return trimmed(text).lower() in {trimmed(option).lower() for option in choices}


def word_per_line(text: str) -> bool:
    """Each word stands on a line of its own."""
    lines = text.translate(str.maketrans("", "", PUNCTUATION)).strip().split("\n")
    return sum(line != "" for line in lines) == len(plain_words(text))


def emoji_per_sentence(text: str) -> bool:
    """Each sentence has an emoji at its end, before or after its full stop."""
    import emoji

    marks = str.maketrans("", "", PUNCTUATION)
    found = [sentence.translate(marks).strip() for sentence in sentences(text)]
    if not all(found):
        return False
    return all(
        any(emoji.is_emoji(char) for char in sentence[-2:])
        or (index + 1 < len(found) and emoji.is_emoji(found[index + 1][0]))
        for index, sentence in enumerate(found)
    )


def stairs(text: str) -> bool:
    """Each line that is not empty is indented further than the one before.

    IFBench takes the second of two empty lines for one that is not.
    """
    indents = [len(line) - len(line.lstrip(" ")) for line in text.split("\n") if line.strip()]
    return all(less < more for less, more in pairwise(indents))


def explained_quotes(text: str) -> bool:
    """No quotation follows another one at once, and none ends the text."""
    text = text.replace("“", '"').replace("”", '"').replace("'\"'", "")
    text = "".join(text.split())
    return '""' not in text and not text.strip(string.digits + PUNCTUATION.replace('"', "")).endswith('"')


def own_bullets(text: str, *, sep: str) -> bool:
    """A sign used for bullet points is there at least twice."""
    return text.count(sep) >= 2


def italic_thesis(text: str) -> bool:
    """A passage in HTML's italics, ``<i>`` or ``<em>``, is followed by other text."""
    opening = next((tag for tag in ("<i>", "<em>") if tag in text), None)
    _, _, rest = text.partition(opening) if opening else ("", "", "")
    closing = next((tag for tag in ("</i>", "</em>") if tag in rest), None)
    thesis, _, after = rest.partition(closing) if closing else ("", "", "")
    return bool(thesis.strip() and after.strip())


def sub_bullets(text: str) -> bool:
    """Each bullet point ``*`` has a ``-`` behind it before the next; a text without any will do."""
    return all("-" in point for point in text.split("*")[1:])


def sentences_then_bullets(text: str) -> bool:
    """At least two sentences, then at least two bullet points ``*``, and nothing behind them; an empty line
    stands between the two, if anywhere."""
    lines = [line.strip() for line in text.split("\n")]
    points = [line.startswith("*") for line in lines]
    first = points.index(True) if any(points) else len(lines)
    said = [len(sentences(line)) for line in lines[:first]]
    return sum(said) >= 2 and all(said[:-1]) and all(points[first:]) and len(points) - first >= 2


def template(text: str) -> bool:
    """The three headings of a template are there."""
    return all(heading in text for heading in ("My Answer:", "My Conclusion:", "Future Outlook:"))


def no_whitespace(text: str) -> bool:
    """There is no white space at all."""
    return not any(char.isspace() for char in text)
