"""Comparing names of compounds and of reactions as people write them."""

from __future__ import annotations

import re
import unicodedata

_SUPERSCRIPT = re.compile(r"\^\{([\d,]+)\}")
_ITALIC = re.compile(r"\{([a-z])\}")
_NEEDLESS = re.compile(r"([-\d])[(\[{]([a-z0-9]+)[\])}]-")


def same_name(one: str, other: str) -> bool:
    """Whether two names differ only in case, typesetting and spaces for hyphens.

    >>> same_name("2,3-dihydro-1{H}-indole ", "2,3-Dihydro-1H-indole")
    True
    """
    return _plain(one) == _plain(other)


def same_reaction(one: str, other: str) -> bool:
    """`same_name`, or the same without any hyphens, dashes and punctuation.

    >>> same_reaction("Diels–Alder reaction", "DielsAlder reaction")
    True
    """
    return same_name(one, other) or _letters(_plain(one)) == _letters(_plain(other))


def _plain(name: str) -> str:
    name = _SUPERSCRIPT.sub(r"^(\1)", name.strip().casefold())
    name = _ITALIC.sub(r"\1", name).replace("$", "").replace("~", "")
    return _NEEDLESS.sub(r"\1\2-", name).replace("^", "").replace(" ", "-")


def _letters(name: str) -> str:
    characters = unicodedata.normalize("NFKC", name)
    return "".join(c for c in characters if unicodedata.category(c) not in ("Pd", "Po"))
