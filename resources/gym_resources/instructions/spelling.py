"""Instructions on the parts of words: letters, syllables, and the endings of verbs."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from gym_resources.instructions.vocabulary import VERB_FORMS, VERBS
from gym_resources.instructions.words import plain_words, tokens

_VOWELS = set("aeiou")
_CONSONANTS = set(string.ascii_lowercase) - _VOWELS
_ENDINGS = (
    ("s", ""),
    ("es", ""),
    ("ies", "y"),
    ("d", ""),
    ("ed", ""),
    ("ied", "y"),
    ("ing", ""),
    ("ing", "e"),
)
_PRIMES = {n for n in range(2, 100) if all(n % divisor for divisor in range(2, n))}


def no_consecutive_letters(text: str) -> bool:
    """No word starts with the letter that follows, in the alphabet, the first of the word before."""
    starts = [word[0].lower() for word in text.split()]
    return all(len(one + other) == 2 and ord(other) - ord(one) != 1 for one, other in pairwise(starts))


def no_same_start(text: str) -> bool:
    """No word starts with the same letter as the word before."""
    return all(one[0] != other[0] for one, other in pairwise(plain_words(text.lower())))


def alphabet(text: str) -> bool:
    """Each word starts with the letter that follows the first of the word before; a follows z."""
    starts = [word[0] for word in plain_words(text.lower())]
    if not starts or starts[0] not in string.ascii_lowercase:
        return False
    first = string.ascii_lowercase.index(starts[0])
    return all(start == string.ascii_lowercase[(first + i) % 26] for i, start in enumerate(starts))


def three_vowels(text: str) -> bool:
    """A single paragraph with at most three different vowels."""
    return "\n" not in text.strip() and len(_VOWELS & set(text.lower())) <= 3


def consonant_clusters(text: str) -> bool:
    """Each word has two consonants in a row."""
    return all(
        any(one in _CONSONANTS and other in _CONSONANTS for one, other in pairwise(word))
        for word in text.lower().split()
    )


def palindrome(text: str) -> bool:
    """Some word reads the same backwards, case and punctuation included; ``a`` does."""
    return any(word == word[::-1] for word in text.split())


def ten_palindromes(text: str) -> bool:
    """At least ten words of five letters or more read the same backwards."""
    return sum(len(word) >= 5 and word == word[::-1] for word in plain_words(text.lower())) >= 10


def prime_lengths(text: str) -> bool:
    """The length of each word is a prime number below 100."""
    return all(len(word) in _PRIMES for word in plain_words(text))


def few_repeats(text: str, *, small_n: int) -> bool:
    """No word is there more than so many times."""
    return all(count <= small_n for count in Counter(plain_words(text.lower())).values())


def syllable_parity(text: str) -> bool:
    """Words with an odd and an even number of syllables take turns, as `syllapy` counts them."""
    import syllapy

    parities = [syllapy.count(word) % 2 for word in plain_words(text.lower())]
    return all(one != other for one, other in pairwise(parities))


def verb_first(text: str) -> bool:
    """The first token is a verb in any of its forms.

    IFBench uses a tagger that is trained on newspapers; here a list of more than five hundred verbs decides.
    So a rare verb is not recognised, and a word that may be a verb or a noun counts as a verb.
    """
    first = next(iter(tokens(text)), "").lower()
    return first in VERB_FORMS or any(base in VERBS for base in _bases(first))


def _bases(word: str) -> Iterator[str]:
    """The base forms of which a word may be a regular form: ``stop`` of ``stopped``, ``use`` of ``using``."""
    yield word
    for ending, replacement in _ENDINGS:
        if word.endswith(ending):
            stem = word.removesuffix(ending) + replacement
            yield stem
            if ending in ("ed", "ing") and stem[-1:] == stem[-2:-1]:
                yield stem[:-1]
