"""Which packages are installed, without importing them: each process of the tests collects every file."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def needs(module: str, extra: str) -> pytest.MarkDecorator:
    """The mark of tests that are skipped where ``module``, which the extra brings, is not installed."""
    return pytest.mark.skipif(find_spec(module) is None, reason=f"needs pip install 'gym-runtime[{extra}]'")
