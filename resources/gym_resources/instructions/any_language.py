"""Instructions of VerifIF that rules decide, on texts in any language: counts, letter case, starts and ends.

Where IFEval has an instruction of the same id, arguments and rule differ. Words are runs of letters, digits
and underscores; sentences end with ``. ! ? 。 ！ ？`` or a line. All checks take linear time in the text.
Sources: ids and arguments of the rows of NeMo Gym's ``verifif``; the rules are our own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Literal

from gym_resources.instructions.text_forms import json_only, placeholders, postscript, title
from gym_resources.instructions.words import occurrences

Relation = Literal[
    "at least", "at most", "less than", "more than", "greater than", "equal to", "exactly", "equal"
]
_WORD = re.compile(r"\w+")
_SENTENCE_END = re.compile(r"[.!?。！？\n]")
_NUMBERED = re.compile(r"^[ \t]*\d+[.)][ \t]", re.MULTILINE)
_BULLET = re.compile(r"^[ \t]*[-*•+][ \t]", re.MULTILINE)
_DIVIDER = re.compile(r"\n[ \t]*\n")
_MARKS = " \t\n\"'“”„«»‘’()[]{}*_#>`~—–-.,;:!?¡¿…。、，！？「」『』،؛؟"
_PAIRS = {")": "(", "]": "[", "}": "{"}


def holds(count: float, relation: Relation, threshold: float) -> bool:
    """Whether a count stands in a relation to a threshold."""
    if relation == "at least":
        return count >= threshold
    if relation == "at most":
        return count <= threshold
    if relation == "less than":
        return count < threshold
    return count > threshold if relation in ("more than", "greater than") else count == threshold


def number_words(text: str, *, relation: Relation, num_words: int) -> bool:
    """So many words are there."""
    return holds(len(_WORD.findall(text)), relation, num_words)


def number_characters(text: str, *, relation: Relation, num_chars: int) -> bool:
    """The text has so many characters."""
    return holds(len(text), relation, num_chars)


def at_most_words(text: str, *, max_words: int) -> bool:
    """There are at most so many words."""
    return len(_WORD.findall(text)) <= max_words


def unique_words(text: str, *, relation: Relation, num_unique: int) -> bool:
    """There are so many different words, in any case."""
    return holds(len({word.casefold() for word in _WORD.findall(text)}), relation, num_unique)


def word_repetition(text: str, *, max_repeats: int) -> bool:
    """No word is there more often, in any case."""
    counts = Counter(word.casefold() for word in _WORD.findall(text))
    return max(counts.values(), default=0) <= max_repeats


def number_paragraphs(text: str, *, relation: Relation, num_paragraphs: int) -> bool:
    """Paragraphs have an empty line between them."""
    return holds(len(_paragraphs(text)), relation, num_paragraphs)


def sentences_per_paragraph(text: str, *, relation: Relation, num_sentences: int) -> bool:
    """Each paragraph has so many sentences."""
    counts = [len(_sentences(one)) for one in _paragraphs(text)]
    return bool(counts) and all(holds(count, relation, num_sentences) for count in counts)


def _sentences(text: str) -> list[str]:
    return [part for part in _SENTENCE_END.split(text) if any(map(str.isalnum, part))]


def _paragraphs(text: str) -> list[str]:
    return [part for part in _DIVIDER.split(text) if part.strip()]


def numbered_list(text: str, *, relation: Relation, num_numbered_items: int) -> bool:
    """So many lines begin with a number and a dot or bracket."""
    return holds(len(_NUMBERED.findall(text)), relation, num_numbered_items)


def bullets(text: str, *, relation: Relation, num_bullets: int) -> bool:
    """So many lines begin with a bullet and a space."""
    return holds(len(_BULLET.findall(text)), relation, num_bullets)


def sections(text: str, *, section_splitter: str, relation: Relation, num_sections: int) -> bool:
    """Lines that begin with the splitter, whatever marks stand before it."""
    begins = section_splitter.strip().casefold()
    found = sum(line.lstrip(_MARKS).casefold().startswith(begins) for line in text.splitlines())
    return holds(found, relation, num_sections)


def placeholders_in_relation(text: str, *, relation: Relation, num_placeholders: int) -> bool:
    """Placeholders stand in square brackets, such as ``[address]``."""
    if relation == "at least":
        return placeholders(text, num_placeholders=num_placeholders)
    found = sum(line.count("[") for line in text.splitlines() if "]" in line)
    return holds(found, relation, num_placeholders)


def existence(text: str, *, keywords: list[str]) -> bool:
    """Each keyword is there, if only as a part of a word."""
    return all(occurrences(text, keyword) for keyword in keywords)


def frequency(text: str, *, keyword: str, relation: Relation, frequency: int) -> bool:
    """A keyword is there so many times, not as a part of another word."""
    return holds(_count(text, keyword), relation, frequency)


def forbidden_words(text: str, *, forbidden_words: list[str]) -> bool:
    """None of the words is there, save as a part of another word."""
    return not any(_count(text, word) for word in forbidden_words)


def _count(text: str, phrase: str) -> int:
    r"""How often a phrase is there in any case, with no letter before it or behind it."""
    return len(re.findall(rf"(?<!\w){re.escape(phrase.strip())}(?!\w)", text, re.IGNORECASE))


def letter_frequency(text: str, *, letter: str, let_relation: Relation, let_frequency: int) -> bool:
    """A letter is there so many times, in any case."""
    return holds(text.casefold().count(letter.strip().casefold()), let_relation, let_frequency)


def mark_frequency(text: str, *, punctuation: str, relation: Relation, frequency: int) -> bool:
    """A mark is there so many times."""
    return holds(text.count(punctuation), relation, frequency)


def balance(text: str) -> bool:
    """Brackets are closed in order."""
    opened: list[str] = []
    for char in text:
        if char in _PAIRS.values():
            opened.append(char)
        elif char in _PAIRS and (not opened or opened.pop() != _PAIRS[char]):
            return False
    return not opened


def no_comma(text: str) -> bool:
    """There is no comma of any script."""
    return not any(mark in text for mark in ",،、，")


def no_period(text: str) -> bool:
    """There is no full stop of any script."""
    return not any(mark in text for mark in ".。．۔")


def start(text: str, *, start_phrase: str) -> bool:
    """The text begins with a phrase, in any case, behind marks only."""
    wanted = start_phrase.strip().casefold()
    return any(one.casefold().startswith(wanted) for one in (text.strip(), text.lstrip(_MARKS)))


def end(text: str, *, end_phrase: str) -> bool:
    """The text ends with a phrase, in any case; quotes may follow, and a mark if the phrase has none."""
    wanted = end_phrase.strip().casefold()
    said = text.rstrip(" \t\n\"'”»’*_`").casefold()
    return said.endswith(wanted) or text.rstrip(_MARKS).casefold().endswith(wanted)


def wrapped(text: str, *, wrap_phrase: str) -> bool:
    """The text begins and ends with a phrase; it is there twice."""
    return (
        start(text, start_phrase=wrap_phrase)
        and end(text, end_phrase=wrap_phrase)
        and occurrences(text, wrap_phrase.strip()) > 1
    )


def in_quotes(text: str) -> bool:
    """The whole text is in quotes."""
    said = text.strip()
    return len(said) > 1 and said[0] + said[-1] in ('""', "“”", "„“", "«»", "「」", "『』", "''", "‘’")


def all_capitals(text: str) -> bool:
    """There are letters, and none is small."""
    return text.isupper()


def all_small(text: str) -> bool:
    """There are letters, and none is a capital."""
    return text.islower()


def capital_starts(text: str) -> bool:
    """Each word that begins with a letter begins with a capital, and goes on in small letters."""
    words = [word for word in _WORD.findall(text) if word[0].isalpha()]
    return bool(words) and all(word[0] == word[0].upper() and word[1:] == word[1:].lower() for word in words)


def capital_sentences(text: str) -> bool:
    """The first letter of each sentence is a capital."""
    first = [next((char for char in one if char.isalpha()), "") for one in _sentences(text)]
    return bool(first) and all(char == char.upper() for char in first)


def case_share(text: str, *, min_fraction: float, max_fraction: float) -> bool:
    """The share of capitals among the letters that have a case."""
    capitals, small = sum(map(str.isupper, text)), sum(map(str.islower, text))
    return bool(capitals + small) and min_fraction <= capitals / (capitals + small) <= max_fraction


def capitals_of_target(text: str, *, target_string: str) -> bool:
    """A target is there, each time in capitals."""
    return _as(text, target_string, target_string.upper())


def small_target(text: str, *, target_string: str) -> bool:
    """A target is there, each time in small letters."""
    return _as(text, target_string, target_string.lower())


def _as(text: str, target: str, form: str) -> bool:
    """A text has a target, and each time in one form."""
    found = re.findall(re.escape(target), text, re.IGNORECASE)
    return bool(found) and all(one == form for one in found)


VERIFIF: dict[str, Callable[..., bool]] = {
    "change_case:all_caps": all_capitals,
    "change_case:all_caps_target": capitals_of_target,
    "change_case:case_ratio": case_share,
    "change_case:first_letter_cap": capital_starts,
    "change_case:first_letter_sentence": capital_sentences,
    "change_case:lowercase": all_small,
    "change_case:lowercase_target": small_target,
    "detectable_content:number_placeholders": placeholders_in_relation,
    "detectable_content:postscript": postscript,
    "detectable_format:json_format": json_only,
    "detectable_format:multiple_sections": sections,
    "detectable_format:number_bullet_lists": bullets,
    "detectable_format:number_paragraphs": number_paragraphs,
    "detectable_format:numbered_list": numbered_list,
    "detectable_format:sentences_per_paragraph": sentences_per_paragraph,
    "detectable_format:title": title,
    "keywords:existence": existence,
    "keywords:forbidden_words": forbidden_words,
    "keywords:frequency": frequency,
    "keywords:letter_frequency": letter_frequency,
    "length:max_word_count": at_most_words,
    "length_constraints:number_characters": number_characters,
    "length_constraints:number_words": number_words,
    "length_constraints:unique_words": unique_words,
    "length_constraints:word_repetition": word_repetition,
    "punctuation:balance": balance,
    "punctuation:frequency": mark_frequency,
    "punctuation:no_comma": no_comma,
    "punctuation:no_period": no_period,
    "startend:end_checker": end,
    "startend:quotation": in_quotes,
    "startend:start_checker": start,
    "startend:wrap_checker": wrapped,
}
