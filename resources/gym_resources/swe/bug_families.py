"""Small Python modules with places for names and numbers, and the bugs that each may have."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec


class Bug(msgspec.Struct, frozen=True):
    """A text of a module, what stands there by mistake, and how a user reports it."""

    right: str
    wrong: str
    report: str


class Family(msgspec.Struct, frozen=True):
    """Modules of one kind.

    Attributes:
        function: the function that is called.
        source: the module's text, with ``NUMBER`` for a number that varies.
        number: from where to where.
        arguments: makes the arguments of a call.
    """

    function: str
    source: str
    number: tuple[int, int]
    arguments: Callable[[Random], list[Any]]
    bugs: tuple[Bug, ...]


def _numbers(low: int, high: int, most: int) -> Callable[[Random], list[Any]]:
    return lambda random: [[random.randint(low, high) for _ in range(random.randint(0, most))]]


def _words(random: Random) -> str:
    return " ".join(
        "".join(random.choices("abcdehimnorstu", k=random.randint(1, 8))) for _ in range(random.randint(1, 9))
    )


FAMILIES = (
    Family(
        "total",
        '''"""Prices of orders, in cents."""


def total(prices):
    """The sum of the prices; orders of NUMBER cents or more get a discount of a tenth, rounded down."""
    amount = sum(prices)
    if amount >= NUMBER:
        amount -= amount // 10
    return amount
''',
        (500, 5000),
        lambda random: [[random.choice((0, 50, 125, 500, 999, 2500)) for _ in range(random.randint(0, 7))]],
        (
            Bug("amount // 10", "amount // 100", "The discount on large orders is far too small."),
            Bug(
                "amount >= NUMBER", "amount < NUMBER", "Small orders get the discount, and large ones do not."
            ),
        ),
    ),
    Family(
        "wrap",
        '''"""Texts in lines."""

WIDTH = NUMBER


def wrap(text):
    """The words in lines of at most WIDTH characters; a longer word has a line of its own."""
    lines = []
    line = ""
    for word in text.split():
        longer = f"{line} {word}".strip()
        if line and len(longer) > WIDTH:
            lines.append(line)
            line = word
        else:
            line = longer
    if line:
        lines.append(line)
    return lines
''',
        (8, 20),
        lambda random: [_words(random)],
        (
            Bug(
                "    if line:\n        lines.append(line)\n    return",
                "    return",
                "The last line is missing.",
            ),
            Bug("line = word\n", 'line = ""\n', "Words get lost where a line is full."),
            Bug("> WIDTH", ">= WIDTH - 2", "Lines are broken earlier than they have to be."),
        ),
    ),
    Family(
        "merge",
        '''"""Bookings of a room, as pairs of a first and a last minute."""

GAP = NUMBER


def merge(bookings):
    """The bookings in order; those that overlap, or are at most GAP minutes apart, become one."""
    merged = []
    for first, last in sorted(map(tuple, bookings)):
        if merged and first - merged[-1][1] <= GAP:
            merged[-1][1] = max(merged[-1][1], last)
        else:
            merged.append([first, last])
    return merged
''',
        (0, 5),
        lambda random: [
            [
                [start := random.randint(0, 60), start + random.randint(0, 25)]
                for _ in range(random.randint(0, 7))
            ]
        ],
        (
            Bug(
                "max(merged[-1][1], last)", "last", "A short booking within a long one cuts the long one off."
            ),
            Bug(
                "sorted(map(tuple, bookings))",
                "map(tuple, bookings)",
                "Bookings that are not in order stay apart.",
            ),
        ),
    ),
    Family(
        "average",
        '''"""Measurements of a sensor."""

WINDOW = NUMBER


def average(values):
    """The mean of the last WINDOW values at each value, rounded down; of fewer at the beginning."""
    means = []
    for place in range(len(values)):
        window = values[max(0, place - WINDOW + 1) : place + 1]
        means.append(sum(window) // len(window))
    return means
''',
        (2, 5),
        _numbers(-50, 50, 9),
        (
            Bug(
                "max(0, place - WINDOW + 1)", "max(0, place - WINDOW)", "The means are of one value too many."
            ),
            Bug(
                "// len(window)",
                "// WINDOW",
                "The first means are wrong, as if zeros had been measured before.",
            ),
        ),
    ),
    Family(
        "rank",
        '''"""Results of a contest."""

PLACES = NUMBER


def rank(points):
    """The names of the best PLACES players: more points first, and equal ones by name."""
    ordered = sorted(points, key=lambda name: (-points[name], name))
    return ordered[:PLACES]
''',
        (2, 4),
        lambda random: [
            {
                name: random.randint(0, 4)
                for name in random.sample(("Ada", "Bo", "Cy", "Di", "Eva", "Flo", "Gus"), 6)
            }
        ],
        (
            Bug("(-points[name], name)", "-points[name]", "Players with equal points are in an odd order."),
            Bug("-points[name], name", "points[name], name", "The worst players win."),
        ),
    ),
    Family(
        "encode",
        '''"""Texts in a short form."""

LEAST = NUMBER


def encode(text):
    """The text with each run of at least LEAST equal characters as its length and the character."""
    parts = []
    start = 0
    for place in range(1, len(text) + 1):
        if place == len(text) or text[place] != text[start]:
            length = place - start
            parts.append(f"{length}{text[start]}" if length >= LEAST else text[start] * length)
            start = place
    return "".join(parts)
''',
        (2, 4),
        lambda random: [
            "".join(random.choice("abc") * random.randint(1, 6) for _ in range(random.randint(0, 6)))
        ],
        (
            Bug("text[start] * length", "text[start]", "Short runs lose characters."),
            Bug("length >= LEAST", "length > LEAST", "Runs of exactly the least length stay as they are."),
            Bug("range(1, len(text) + 1)", "range(1, len(text))", "The end of the text is missing."),
        ),
    ),
    Family(
        "balance",
        '''"""An account that may be overdrawn."""

LIMIT = NUMBER


def balance(movements):
    """What the account holds after the movements; those that would take it below -LIMIT are refused."""
    amount = 0
    for movement in movements:
        if movement < 0 and amount + movement < -LIMIT:
            continue
        amount += movement
    return amount
''',
        (10, 90),
        _numbers(-80, 60, 9),
        (
            Bug(
                "            continue\n",
                "            break\n",
                "After a refused movement, all later ones are lost.",
            ),
            Bug("< -LIMIT", "< LIMIT", "Withdrawals are refused although the account may be overdrawn."),
        ),
    ),
    Family(
        "plural",
        '''"""Amounts of time as texts."""

HOURS = NUMBER


def plural(hours):
    """Hours as days of HOURS hours and the rest, such as ``1 day, 2 hours``."""
    days, rest = divmod(hours, HOURS)
    parts = []
    if days:
        parts.append(f"{days} day" + ("s" if days != 1 else ""))
    if rest or not days:
        parts.append(f"{rest} hour" + ("s" if rest != 1 else ""))
    return ", ".join(parts)
''',
        (6, 24),
        lambda random: [random.choice((0, 1, 6, 7, 8, 12, 16, 23, 24, 25, 48, 49))],
        (
            Bug("if rest or not days", "if rest", "No hours at all give an empty text."),
            Bug('("s" if rest != 1', '("s" if rest > 1', 'It says "0 hour".'),
            Bug("divmod(hours, HOURS)", "divmod(hours, HOURS + 1)", "The days are too long."),
        ),
    ),
)
