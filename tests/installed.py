"""Which packages are installed, without importing them: each process of the tests collects every file."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from gym_models.embedded import fetch_weights
from gym_runtime.errors import UsageError


def needs(module: str, extra: str) -> pytest.MarkDecorator:
    """The mark of tests that are skipped where ``module``, which the extra brings, is not installed."""
    return pytest.mark.skipif(find_spec(module) is None, reason=f"needs pip install 'gym-runtime[{extra}]'")


def needs_built_in_model() -> None:
    """Skip a test where the built-in model is not installed, or its weights can neither be found nor fetched.

    That it does not start is a failure.
    """
    if find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp is not installed")
    try:
        fetch_weights("smollm2-135m", lambda done, total: None)
    except UsageError as error:
        pytest.skip(f"no weights: {error}")
