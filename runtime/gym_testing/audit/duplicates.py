"""Prompts that occur twice: within a file of rows, and in another file, such as the rows of a test.

Texts are compared after Unicode normalisation, in small letters, by words. Two prompts of a file are
near-duplicates if the Jaccard index of their sets of five words in a row is at least 0.8. No pair is left
to chance: the sets are sorted with the rarest first, and two sets this alike share one of their first
(1 - 0.8) n + 1 elements (prefix filter), so only pairs that do are compared. Of prompts that share one of
these with more than `MOST` others, only so many are compared.

A prompt contains another file's text if at least half of its sequences of 13 words occur there; of a prompt
with fewer than 50 words sequences of 8, and of one with fewer than 8 the whole. Only hashes are kept. So each
audit compares its prompts with the benchmarks of the catalogue whose rows are here, as far as the time goes.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, cast

import msgspec
from gym_runtime.errors import UNREADABLE, UsageError
from gym_runtime.files import lines_of

ALIKE = 0.8
SHINGLE = 5
LONG, SHORT, SHORT_PROMPT = 13, 8, 50
CONTAINS = 0.5
SHOWN = 20
MOST = 200
METHOD = (
    f"within: Jaccard of {SHINGLE} words >= {ALIKE}; against: share of {LONG} words "
    f"({SHORT} of prompts with fewer than {SHORT_PROMPT}) >= {CONTAINS} contains, any touches"
)


class Overlap(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a file's prompts another file has.

    Attributes:
        contains, touches: prompts with at least half of their sequences there; with any.
        rows: the numbers of the first that contain.
    """

    contains: int
    touches: int
    rows: list[int]


class Duplicates(msgspec.Struct, frozen=True, kw_only=True):
    """Prompts that occur twice.

    Attributes:
        prompts: that were compared.
        within: prompts with a near-duplicate in the file.
        pairs: the numbers of the rows of the first of these.
        against: by the name of another file, or of a benchmark of the catalogue.
        not_compared: why a benchmark of the catalogue was not compared, by its name.
    """

    prompts: int
    within: int
    pairs: list[list[int]]
    against: dict[str, Overlap] = {}
    not_compared: dict[str, str] = {}
    method: str = METHOD


class _Params(msgspec.Struct):
    input: str | list[dict[str, Any]] = ""


class _Row(msgspec.Struct):
    responses_create_params: _Params


_decode = msgspec.json.Decoder(_Row).decode


def duplicates(
    path: Path,
    against: Sequence[Path] = (),
    *,
    published: Mapping[str, Path] | None = None,
    seconds: float = 60.0,
) -> Duplicates:
    """The duplicates of a file's prompts.

    Args:
        against: files to compare with, each to its end.
        published: where the rows of the catalogue's benchmarks are, by name; files may be missing.
        seconds: how long to compare with these in all.

    Raises:
        UsageError: a file is missing, or has a line that is no row.
    """
    prompts = list(_prompts(path))
    pairs = list(alike([words for _, words in prompts]))
    numbers = [number for number, _ in prompts]
    found = {numbers[place] for pair in pairs for place in pair}
    own = {gram for _, words in prompts for gram in _own_grams(words)}
    overlaps = {str(other): _overlap(prompts, own, other) for other in against}
    left_out: dict[str, str] = {}
    ends_s = monotonic() + seconds
    for name, other in (published or {}).items():
        if other in against:
            continue
        try:
            if not other.is_file():
                left_out[name] = f"its rows are not here: gym-runtime prepare {name}"
            elif other.samefile(path):
                left_out[name] = "these are its rows"
            else:
                overlaps[name] = _overlap(prompts, own, other, ends_s)
        except TimeoutError:
            left_out[name] = f"the time was over: --against {name} compares with all of it"
        except UsageError as error:
            left_out[name] = error.message
    return Duplicates(
        prompts=len(prompts),
        within=len(found),
        pairs=[[numbers[one], numbers[other]] for one, other in sorted(pairs)[:SHOWN]],
        against=overlaps,
        not_compared=left_out,
    )


def alike(texts: Sequence[Sequence[str]]) -> Iterator[tuple[int, int]]:
    """Pairs of texts, as words, that are near-duplicates.

    >>> list(alike([["a", "b"], ["c"], ["a", "b"]]))
    [(0, 2)]
    """
    sets = [set(_grams(words, SHINGLE)) for words in texts]
    counts = Counter(gram for one in sets for gram in one)
    places: dict[int, list[int]] = {}
    for place, one in enumerate(sets):
        ordered = sorted(one, key=lambda gram: (counts[gram], gram))
        seen: set[int] = set()
        for gram in ordered[: int((1 - ALIKE) * len(one) + 1e-9) + 1]:
            others = places.setdefault(gram, [])
            seen.update(others)
            if len(others) < MOST:
                others.append(place)
        for other in sorted(seen):
            if len(one & sets[other]) >= ALIKE * len(one | sets[other]):
                yield other, place


def _overlap(
    prompts: Sequence[tuple[int, list[str]]], own: set[int], path: Path, ends_s: float = float("inf")
) -> Overlap:
    """How much of some prompts a file has; ``own`` are the sequences of all of them.

    Raises:
        TimeoutError: the time was over before the file was.
    """
    there: set[int] = set()
    for _, words in _prompts(path):
        if monotonic() > ends_s:
            raise TimeoutError
        for size in (LONG, SHORT):
            there.update(own.intersection(_grams(words, size)))
    contains: list[int] = []
    touches = 0
    for number, words in prompts:
        grams = _own_grams(words)
        share = sum(gram in there for gram in grams) / len(grams) if grams else 0.0
        touches += share > 0
        if share >= CONTAINS:
            contains.append(number)
    return Overlap(contains=len(contains), touches=touches, rows=contains[:SHOWN])


def _own_grams(words: Sequence[str]) -> list[int]:
    """Those of a prompt that are looked for in another file."""
    return _grams(words, SHORT if len(words) < SHORT_PROMPT else LONG)


def _grams(words: Sequence[str], size: int) -> list[int]:
    """The hashes of all sequences of so many words; of a shorter text, of the whole."""
    return [hash(tuple(words[start : start + size])) for start in range(max(1, len(words) - size + 1))]


def _prompts(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The number and the words of each prompt of a file that has any."""
    if not path.is_file():
        raise UsageError(f"there is no file {path}; --against wants rows, JSONL")
    for number, line in lines_of(path):
        try:
            words = _words(_decode(line).responses_create_params.input)
        except UNREADABLE as error:
            raise UsageError(f"{path}:{number}: not a row: {error}") from None
        if words:
            yield number, words


def _words(given: str | list[dict[str, Any]]) -> list[str]:
    texts = [given] if isinstance(given, str) else _user_texts(given)
    return unicodedata.normalize("NFKC", " ".join(texts)).casefold().split()


def _user_texts(items: Iterable[dict[str, Any]]) -> Iterator[str]:
    for item in items:
        content: Any = item.get("content")
        if item.get("role") != "user":
            continue
        if isinstance(content, str):
            yield content
        elif isinstance(content, list):
            for part in cast("list[Any]", content):
                if isinstance(part, dict):
                    yield str(cast("dict[str, Any]", part).get("text", ""))
