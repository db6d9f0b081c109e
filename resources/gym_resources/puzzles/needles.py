"""Long texts with things to find in them, of any length, the same ones for the same seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from string import ascii_uppercase
from typing import Any

FILLER = (
    "The ferry leaves at noon.",
    "Rain is expected on the coast.",
    "The baker has sold all rolls.",
    "A heron stands in the shallow water.",
    "Nobody has seen the key to the shed.",
    "The lamp in the hall burns all night.",
)
COLOURS = ("amber", "blue", "crimson", "green", "ivory", "olive", "silver", "violet")
ANIMALS = ("badger", "crane", "falcon", "heron", "lynx", "otter", "raven", "stoat")
CHAIN = 4


def generate(size: int, seed: int, *, words: int = 2000) -> Iterator[dict[str, Any]]:
    """Rows of `ruler` of two kinds by turns; ``words`` is about the length of their texts."""
    draw = random.Random(seed)
    for number in range(size):
        subset, make = KINDS[number % len(KINDS)]
        prompt, outputs = make(draw, words)
        yield {
            "responses_create_params": {"input": [{"role": "user", "content": prompt}]},
            "outputs": outputs,
            "subset": subset,
            "length": len(prompt.split()),
        }


def _mixed(draw: random.Random, needles: list[str], words: int) -> str:
    """Needles in their order, spread over filler."""
    lines = [draw.choice(FILLER) for _ in range(max(words // 6, len(needles)))]
    for place, needle in zip(sorted(draw.sample(range(len(lines)), len(needles))), needles, strict=True):
        lines[place] = needle
    return "\n".join(lines)


def _multikey(draw: random.Random, words: int) -> tuple[str, list[str]]:
    keys = [f"{colour}-{animal}" for colour in COLOURS for animal in ANIMALS]
    numbers = {key: str(draw.randrange(10**6, 10**7)) for key in draw.sample(keys, 16)}
    asked = draw.sample(sorted(numbers), 2)
    text = _mixed(draw, [f"The number of {key} is {number}." for key, number in numbers.items()], words)
    question = f"What are the numbers of {asked[0]} and of {asked[1]}?"
    return f"Numbers are hidden in this text. Remember them.\n\n{text}\n\n{question}", [
        numbers[key] for key in asked
    ]


def _variables(draw: random.Random, words: int) -> tuple[str, list[str]]:
    names: list[str] = []
    while len(names) < 2 * CHAIN:
        name = "".join(draw.choices(ascii_uppercase, k=5))
        if name not in names:
            names.append(name)
    chains = (names[:CHAIN], names[CHAIN:])
    value, other = draw.sample(range(10_000, 100_000), 2)
    steps: list[list[str]] = []
    for chain, given in zip(chains, (value, other), strict=True):
        first = [f"VAR {chain[0]} = {given}"]
        steps.append(first + [f"VAR {new} = VAR {old}" for old, new in pairwise(chain)])
    needles = [line for pair in zip(*steps, strict=True) for line in pair]
    text = _mixed(draw, needles, words)
    question = f"Which variables have the value {value}? Name all of them."
    return f"Follow the assignments in this text.\n\n{text}\n\n{question}", chains[0]


KINDS: tuple[tuple[str, Callable[[random.Random, int], tuple[str, list[str]]]], ...] = (
    ("niah_multikey", _multikey),
    ("vt", _variables),
)
