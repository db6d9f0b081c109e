"""SciCode's comparisons, under the names by which its tests import them: trusted, run inside the sandbox
before a model's program."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np


def close(one: Any, other: Any) -> bool:
    """Whether two values have the same form, and numbers that are nearly the same."""
    kind: type[object] = one.__class__
    if issubclass(kind, dict):
        same = isinstance(other, dict) and one.keys() == other.keys()
        return same and all(close(one[key], other[key]) for key in one)
    if hasattr(one, "toarray"):
        return hasattr(other, "toarray") and close(one.toarray(), other.toarray())
    if issubclass(kind, list | tuple):
        return len(one) == len(other) and all(close(a, b) for a, b in zip(one, other, strict=True))
    try:
        return bool(np.allclose(one, other))
    except TypeError:
        return bool(np.all(one == other))


compare = types.ModuleType("scicode.compare.cmp")
for name in ("cmp_tuple_or_list", "are_dicts_close", "are_csc_matrix_close"):
    setattr(compare, name, close)
for name in ("scicode", "scicode.compare", "scicode.compare.cmp"):
    sys.modules[name] = compare
