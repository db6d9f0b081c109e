"""Exports stand under their names when all of them is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from gym_runtime.errors import UsageError
from gym_view.drafts import draft_of


def test_a_target_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    target = tmp_path / "file" / "rows.parquet"
    with (
        pytest.raises(UsageError, match=r"cannot write .*/file/rows\.parquet: Not a directory$"),
        draft_of(target),
    ):
        pass
