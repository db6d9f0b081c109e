"""Which runs there are to look at: the files of rows in a folder, with the manifests beside them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from gym_runtime.errors import UNREADABLE, UsageError
from gym_runtime.messages import Alarm, as_list, as_object, as_text

from gym_view.audit_table import SUFFIX, audit_table, replies_of

_SIDE_FILES = ("_failures", "_alarms", "_materialized_inputs", "_reward_profiling", "_prepare", "_fork")
_PEEK_BYTES = 2**18
_MAX_RUNS = 2000
_MAX_ALARMS, _ALARM_CHARS = 10, 1000
_MAX_DEPTH = 5
DEFAULT_FOLDER = Path("results")
SHOWN_RUNS = 6
"""So many runs of a folder are named where one of them must be chosen."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A file of rollouts, ours or NeMo Gym's, and the files beside it.

    ``id`` names the run in addresses: the file's path below the folder, without its suffix. With
    ``failures_as_zero`` failed rollouts count with a reward of 0.
    """

    id: str
    rollouts: Path
    failures_as_zero: bool = False

    @property
    def parts(self) -> dict[str, Path]:
        """The existing files of rows, by their part in the run."""
        failures = self.rollouts.with_name(f"{self.rollouts.stem}_failures.jsonl")
        found = {"rollouts": self.rollouts, "failures": failures}
        return {name: path for name, path in found.items() if path.is_file()}

    @property
    def alarms(self) -> Path:
        """The path of the alarms, whether or not the file exists."""
        return self.rollouts.with_name(f"{self.rollouts.stem}_alarms.jsonl")

    @property
    def manifest(self) -> Path:
        """The path of the manifest, whether or not the file exists."""
        return self.rollouts.with_name(f"{self.rollouts.stem}_run.json")


def find_runs(places: Sequence[Path], *, failures_as_zero: bool = False) -> list[Run]:
    """The runs in files and folders, the latest first. Without a place: ``results``, or this folder.

    Raises:
        UsageError: a place is not there, or there are no rollouts in any.
    """
    if not places:
        places = [DEFAULT_FOLDER if DEFAULT_FOLDER.is_dir() else Path()]
    found: dict[Path, str] = {}
    for place in places:
        if place.is_file() and place.name.endswith(SUFFIX):
            replies = replies_of(place)
            if not replies.is_file():
                raise UsageError(f"{place} is of an audit, and its replies {replies} are not there")
            found[replies] = replies.stem
        elif place.is_file():
            found[place] = place.stem
        elif place.is_dir():
            for path in _rollouts_below(place):
                found.setdefault(path, "~".join(path.relative_to(place).with_suffix("").parts))
        else:
            raise UsageError(f"there is no file or folder {place}")
    runs: list[Run] = []
    taken: set[str] = set()
    for path, name in sorted(found.items(), key=lambda item: -_modified_s(item[0])):
        run_id, number = name, 1
        while run_id in taken:
            number += 1
            run_id = f"{name}~{number}"
        taken.add(run_id)
        runs.append(Run(id=run_id, rollouts=path, failures_as_zero=failures_as_zero))
    if not runs:
        raise UsageError(
            f"there are no rollouts in {', '.join(map(str, places))}; name a file of result rows, such as "
            "results/mcqa.jsonl"
        )
    return runs


def one_file(path: Path) -> Path:
    """The file of rollouts that was named, by its own path or by that of a folder with one run.

    Raises:
        UsageError: there is no such file, it cannot be read, or there are several runs in the folder.
    """
    if not path.is_dir():
        if not path.is_file():
            raise UsageError(f"there is no file {path}; name result rows, such as results/mcqa.jsonl")
        try:
            path.open("rb").close()
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from None
        return path
    found = [str(run.rollouts) for run in find_runs([path])]
    if len(found) > 1:
        more = f" and {len(found) - SHOWN_RUNS} more" if len(found) > SHOWN_RUNS else ""
        raise UsageError(
            f"{path} holds {len(found)} runs; name one of them: {', '.join(sorted(found)[:SHOWN_RUNS])}{more}"
        )
    return Path(found[0])


def describe(run: Run) -> dict[str, Any]:
    """The page's information about a run before it opens the run."""
    manifest: Any = None
    if run.manifest.is_file() and run.manifest.stat().st_size < 2**20:
        try:
            manifest = msgspec.json.decode(run.manifest.read_bytes())
        except (OSError, *UNREADABLE):
            manifest = None  # it is being written, or is another program's
    return {
        "id": run.id,
        "path": str(run.rollouts),
        "modified_s": max((_modified_s(path) for path in run.parts.values()), default=0.0),
        "parts": {name: {"bytes": path.stat().st_size} for name, path in run.parts.items()},
        "manifest": manifest if isinstance(manifest, dict) else None,
        "flags": repeat_flags(as_object(manifest)),
        "alarms": list(_alarms(run.alarms)),
        "audit": audit_table(run.rollouts),
    }


def _alarms(path: Path) -> Iterator[dict[str, Any]]:
    """What the page says of each alarm, and the clearest rollouts as they are in its addresses."""
    try:
        lines = path.read_bytes().splitlines() if path.stat().st_size < 2**20 else []
    except OSError:
        return
    for line in lines[-_MAX_ALARMS:]:
        with suppress(*UNREADABLE):  # it is being written, or is another program's
            alarm = msgspec.json.decode(line, type=Alarm)
            rollouts = [".".join(one.rsplit(".", 2)[1:]) for one in alarm.rollouts[:_MAX_ALARMS]]
            yield {"text": str(alarm)[:_ALARM_CHARS], "rollouts": rollouts}


def repeat_flags(manifest: Mapping[str, Any]) -> str:
    """The flags of ``gym-runtime run`` with which a run was made, quoted for a shell.

    How many rollouts, of which rows, is left out.

    >>> repeat_flags({"settings": {"model": "openai/x", "sampling": {"stop": ["a b"], "temperature": 0}}})
    "--model=openai/x '--stop=a b' --temperature=0"
    """
    settings, notes = as_object(manifest.get("settings")), as_object(manifest.get("notes"))
    found: list[tuple[str, Any]] = [("--model", settings.get("model")), ("--agent", settings.get("agent"))]
    found += [("--model-url", url) for url in as_list(notes.get("model_urls"))]
    found += [("--role", f"{name}={model}") for name, model in as_object(settings.get("roles")).items()]
    for role, sampling in as_object(settings.get("role_sampling")).items():
        given = as_object(sampling).items()
        found += [("--role-sampling", f"{role}.{name}={as_text(value)}") for name, value in given]
    for flag, field in (("--agent-set", "agent_options"), ("--set", "settings")):
        given = as_object(settings.get(field)).items()
        found += [(flag, f"{name}={as_text(value)}") for name, value in given]
    found.append(("--max-turns", settings.get("max_turns")))
    for name, value in as_object(settings.get("sampling")).items():
        values = as_list(value) if isinstance(value, list) else [value]
        found += [(f"--{name.replace('_', '-')}", one) for one in values]
    flags = [f"{flag}={as_text(value)}" for flag, value in found if value is not None]
    flags += ["--return-token-ids"] if settings.get("return_token_ids") is True else []
    return shlex.join(flags)


def _rollouts_below(folder: Path) -> Iterator[Path]:
    count = 0
    for path in _files_below(folder):
        if not path.stem.endswith(_SIDE_FILES) and has_rollouts(path):
            yield path
            count += 1
            if count == _MAX_RUNS:
                return


def _files_below(folder: Path) -> Iterator[Path]:
    """JSON lines in the folder and those within it, hidden ones apart, `_MAX_DEPTH` levels down."""
    top = len(folder.parts)
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if len(Path(parent).parts) - top >= _MAX_DEPTH:
            folders.clear()
        for name in sorted(names):
            if name.endswith(".jsonl") and not name.startswith("."):
                yield Path(parent, name)


def has_rollouts(path: Path) -> bool:
    """Whether it looks like a file of rollouts; an empty file does if there is a manifest beside it."""
    try:
        stat = path.stat()
        if stat.st_size == 0:
            return path.with_name(f"{path.stem}_run.json").is_file() or audit_table(path) is not None
        return _begins_with_rollouts(path, stat.st_ino, min(stat.st_size, _PEEK_BYTES))
    except OSError:
        return False


@lru_cache(maxsize=4 * _MAX_RUNS)
def _begins_with_rollouts(path: Path, inode: int, size: int) -> bool:
    """The same for the same beginning, since the page asks for the list again and again."""
    with path.open("rb") as file:
        start = file.read(_PEEK_BYTES)
    # A first row that is longer than this is taken for a rollout when it begins as one of ours or NeMo Gym's.
    return b'"response"' in start or (b"\n" not in start and b'"responses_create_params"' in start)


def _modified_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
