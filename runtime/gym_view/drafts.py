"""Writes an export beside its place, and gives it its name when all of it is written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from gym_runtime.errors import UsageError


@contextmanager
def draft_of(target: Path) -> Generator[Path]:
    """A path for a new file or folder, which gets the name of the target at the end of the block.

    Raises:
        UsageError: something stands at the target, or the disk does not take it.
    """
    if target.exists():
        raise UsageError(f"{target} is there already; name a new file or folder")
    draft = target.with_name(f".{target.name}.partial")
    try:
        _remove(draft)  # of an export that was killed
        target.parent.mkdir(parents=True, exist_ok=True)
        yield draft
        draft.rename(target)
    except OSError as error:
        raise unwritten(target, error, draft) from None
    finally:
        with suppress(OSError):  # where it cannot be removed it could not be made
            _remove(draft)


def unwritten(target: Path, error: OSError, draft: Path) -> UsageError:
    """Why the target could not be written: itself, or a file that was read for it."""
    named = None if error.filename is None else Path(os.fsdecode(error.filename))
    if named is None or named.is_relative_to(draft) or target.is_relative_to(named):
        return UsageError(f"cannot write {target}: {error.strerror or error}")
    return UsageError(f"cannot read {named}: {error.strerror}")


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
