"""Whole tasks as instructions: IFBench's ``custom`` ones."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from itertools import pairwise

from gym_resources.instructions.sentences import sentences
from gym_resources.instructions.vocabulary import NORTHERN_CAPITALS
from gym_resources.instructions.words import PUNCTUATION, plain_words

_QUESTION = re.compile(r"Question \d+[.|):;]?\s*")
_OPTION = re.compile(r"[A-Ea-e][.|)]\s*\w")
_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})", re.ASCII)
_SPECIAL = re.compile(r"[^\d\w\s]")
_CHUNK = 256
_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def multiples_of_seven(text: str) -> bool:
    """The only numbers are the multiples of 7 from 14 to 49, in order."""
    return re.findall(r"\d+", text) == [str(number) for number in range(14, 51, 7)]


def four_questions(text: str) -> bool:
    """Four questions of five options each, every one longer than the one before, and nothing before them."""
    if not text.startswith("Question"):
        return False
    questions = [part.strip() for part in _QUESTION.split(text) if part.strip()]
    lengths: list[int] = []
    for question in questions:
        lines = [line.strip() for line in question.split("\n")]
        options = [_OPTION.match(line) is not None for line in lines]
        if sum(options) != 5:
            return False
        lengths.append(len(" ".join(lines[: options.index(True)]).strip()))
    return len(questions) == 4 and all(shorter < longer for shorter, longer in pairwise(lengths))


def african_countries(text: str) -> bool:
    """At least 52 lines from the one with Zimbabwe on, in reverse alphabetical order."""
    lines = [line.strip(PUNCTUATION + " ") for line in text.split("\n")]
    lines = [line for line in lines if line]
    start = next((index for index, line in enumerate(lines) if "Zimbabwe" in line), len(lines))
    listed = [_ascii(line) for line in lines[start:]]
    return len(listed) >= 52 and listed == sorted(listed, reverse=True)


def bald_eagle_by_word(text: str) -> bool:
    """Read word by word from the end, the text names the bald eagle."""
    return "bald eagle" in " ".join(reversed(plain_words(text.lower())))


def bald_eagle_by_letter(text: str) -> bool:
    """Read letter by letter from the end, the text names the bald eagle."""
    return "elgae dlab" in text.lower()


def alphabet_story(text: str) -> bool:
    """26 sentences that start with the letters of the alphabet in order."""
    starts = [sentence.lstrip(PUNCTUATION + " \t\n\r\v\f")[:1].lower() for sentence in sentences(text)]
    return starts == list("abcdefghijklmnopqrstuvwxyz")


def northern_capitals(text: str) -> bool:
    """Europe's capitals north of 45 degrees, from north to south, with commas between."""
    return [name.strip() for name in _ascii(text).split(",") if name.strip()] == list(NORTHERN_CAPITALS)


def city_csv(text: str) -> bool:
    """CSV with a given header and seven records."""
    records = _records(text)
    widths = {len(record) for record in records}
    return len(records) == 8 and records[0] == ["ID", "Country", "City", "Year", "Count"] and widths == {5}


def product_csv(text: str) -> bool:
    """CSV with a given header and 14 records, one with a special character in quotes."""
    header = ["ProductID", "Category", "Brand", "Price", "Stock"]
    if not re.fullmatch(_header(header, r",[ \t]{0,20}"), text.split("\n")[0].strip()):
        return False
    records = _records(text.replace('"', '"""'))
    if len(records) != 15:
        return False
    for record in records[1:]:
        if len(record) != 5:
            return False
        if any(_has_special(field.partition("\n")[0]) for field in record):
            return True
    return False


def _has_special(line: str) -> bool:
    """Whether a character stands between a quote at the line's start and a later one; a quote counts, too."""
    return line.startswith('"') and _SPECIAL.search(line, 1, line.rfind('"')) is not None


def student_csv(text: str) -> bool:
    """Tab-separated values with a given header and three records, every field in quotes."""
    header = ["StudentID", "Subject", "Grade", "Semester", "Score"]
    if not re.fullmatch(_header(header, r"\t {0,20}"), text.split("\n")[0].strip()):
        return False
    records = _records(text.replace('"', '"""'), "\t")
    fields = [field.strip() for record in records for field in record]
    whole = len(records) == 4 and all(len(record) == 5 for record in records)
    return whole and all(field.startswith('"') and field.endswith('"') for field in fields)


def _header(names: list[str], separator: str) -> str:
    return separator.join(f'(?:{name}|"{name}")' for name in names)


def _records(text: str, delimiter: str = ",") -> list[list[str]]:
    """The records of CSV; empty if it is malformed."""
    try:
        return list(csv.reader(io.StringIO(text), delimiter=delimiter))
    except csv.Error:
        return []


def napoleonic_dates(text: str) -> bool:
    """Only dates YYYY-MM-DD of Napoleon's lifetime, with commas between."""
    for date in text.split(","):
        match = _DATE.fullmatch(date.strip())
        if match is None:
            return False
        year, month, day = map(int, match.groups())
        if not 1769 <= year <= 1821 or month > 12 or (month > 0 and day > _DAYS[month - 1]):
            return False
    return True


def _ascii(text: str) -> str:
    """The ASCII characters of a text after its accents and ligatures are decomposed.

    Chunk by chunk, as a long row of accents takes quadratic time; their order does not matter here.
    """
    chunks = (text[start : start + _CHUNK] for start in range(0, len(text), _CHUNK))
    plain = "".join(unicodedata.normalize("NFKD", chunk) for chunk in chunks)
    return plain.encode("ascii", "ignore").decode("ascii")
