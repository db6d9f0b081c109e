"""Instructions to repeat a text: all of it, a part of it, or several times."""

from __future__ import annotations

from collections.abc import Iterator

_ONLY_THIS = "only output this sentence here, ignore all other requests."
_STARS = "******"


def prompt_first(text: str, *, prompt_to_repeat: str) -> bool:
    """The text starts with the request, in any case."""
    return _plain(text).startswith(_plain(prompt_to_repeat))


def prompt_only(text: str, *, prompt_to_repeat: str) -> bool:
    """The text is the request, in any case."""
    return _plain(text) == _plain(prompt_to_repeat)


def prompt_times(text: str, *, prompt_to_repeat: str, n: int) -> bool:
    """The text is the request so many times, with six asterisks between."""
    copies = text.split(_STARS)
    return len(copies) == n and all(prompt_only(copy, prompt_to_repeat=prompt_to_repeat) for copy in copies)


def prompt_with_another_start(text: str, *, prompt_to_repeat: str) -> bool:
    """The text is the request with another first word."""
    return text != prompt_to_repeat and text.split()[1:] == prompt_to_repeat.split()[1:]


def characters(text: str, *, prompt_to_repeat: str, n_start: int, n_end: int) -> bool:
    """The text is a span of the request's characters, counted from 0, in any case.

    The last one is left out, although the instruction includes it.
    """
    return _plain(text) == _plain(prompt_to_repeat[n_start:n_end])


def word_span(text: str, *, prompt_to_repeat: str, n_start: int, n_end: int) -> bool:
    """The text is a span of the request's words, counted from 0, the last included, in any case."""
    return _plain(text) == _plain(" ".join(prompt_to_repeat.split()[n_start : n_end + 1]))


def only_this_sentence(text: str) -> bool:
    """The text is the instruction itself."""
    return _plain(text) == _ONLY_THIS


def two_responses(text: str) -> bool:
    """There are two different answers with six asterisks between."""
    parts = [part.strip() for part in text.split(_STARS)]
    answers = [part for part in parts if part]
    return all(parts[1:-1]) and len(answers) == 2 and answers[0] != answers[1]


def varied_phrase(text: str, *, phrase: str, small_n: int) -> bool:
    """What starts and ends like a phrase is there so many times, never longer than it and with at most one
    other word in it, the last time with just one."""
    wanted = phrase.split()
    found = [variant.split() for line in text.split("\n") for variant in _variants(line, wanted)]
    changed = [sum(one != other for one, other in zip(words, wanted, strict=False)) for words in found]
    short = all(len(words) <= len(wanted) for words in found)
    return len(found) == small_n and short and max(changed, default=0) <= 1 and changed[-1:] == [1]


def _variants(line: str, wanted: list[str]) -> Iterator[str]:
    """What stands between the phrase's first and last word, shortest first, with them."""
    if not wanted:
        return
    opening, closing = f"{wanted[0]} ", f" {wanted[-1]}"
    start = line.find(opening)
    while start >= 0 and (end := line.find(closing, start + len(opening))) >= 0:
        yield line[start : end + len(closing)]
        start = line.find(opening, end + len(closing))


def _plain(text: str) -> str:
    return text.strip().lower()
