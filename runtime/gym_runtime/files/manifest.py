"""The manifest of a run: what it was asked to do, so that going on with it does the same."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec

from gym_runtime.errors import UNREADABLE, UsageError
from gym_runtime.files.results import write_whole

FORMAT = 1
GROWING = ("repeats", "limit", "environments")
"""The settings that may differ where a run grows; ``environments`` counts the rows of each."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What ``OUT_run.json`` holds.

    Attributes:
        run: the run's id; that of its latest part, if it was resumed.
        digest: of the input rows (`Dataset.digest`).
        rows: how many input rows there are.
        rollouts: how many rollouts they make.
        settings: everything that changes results, as JSON values: environments, agent, model, sampling,
            repeats, limit, seeds … A resumed run must have the same.
        notes: what may change between its parts, such as file names and URLs. Never a secret.
        counts: rollouts by outcome, once a part of the run has ended.
        started_s: in seconds since the epoch.
        version: of this runtime.
        format: of this file.
    """

    run: str
    digest: str
    rows: int
    rollouts: int
    settings: dict[str, Any]
    notes: dict[str, Any] = {}
    counts: dict[str, int] = {}
    started_s: float = 0.0
    version: str = ""
    format: int = FORMAT

    def save(self, path: Path) -> None:
        """Write it, all or nothing."""
        write_whole(path, iter([msgspec.json.format(msgspec.json.encode(self), indent=2), b"\n"]))

    def differences(self, other: Manifest, *, but: Collection[str] = ()) -> list[str]:
        """Each setting in which another run differs from this one, with both values.

        Args:
            but: settings that may differ.
        """
        # Ours was read from a file, so it is JSON already.
        mine, theirs = self.settings, _plain(other.settings)
        return [
            f"{name} was {_show(mine.get(name))}, is {_show(theirs.get(name))}"
            for name in dict.fromkeys([*mine, *theirs])
            if name not in but and mine.get(name) != theirs.get(name)
        ]


def load_manifest(path: Path) -> Manifest | None:
    """The manifest in a file, or None if there is no file.

    Raises:
        UsageError: the file is not a manifest, or one of a newer version.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except UNREADABLE as error:
        raise UsageError(f"{path} is not the manifest of a run: {error}") from None
    if manifest.format > FORMAT:
        raise UsageError(
            f"{path} was written by gym-runtime {manifest.version}, in format {manifest.format}; "
            f"this one reads up to {FORMAT}: upgrade it"
        )
    return manifest


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings after a round trip through JSON, so that a tuple equals its list."""
    return msgspec.json.decode(msgspec.json.encode(settings), type=dict[str, Any])


def _show(value: Any) -> str:
    return "not set" if value is None else msgspec.json.encode(value).decode()
