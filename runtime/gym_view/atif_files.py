"""Files of ATIF documents: result rows become documents, and documents become result rows.

Rows are read and written one at a time. Nothing stands at the target before all is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
from gym_runtime.errors import UNREADABLE, UsageError
from gym_runtime.files import with_images
from gym_runtime.messages import as_object

from gym_view import selection
from gym_view.atif import Tokens, from_atif, to_atif
from gym_view.atif_reading import BadDocument
from gym_view.drafts import draft_of
from gym_view.once import NO_ROW, readable_once
from gym_view.training_data import Exported

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode
TRAJECTORY, RESULT = "trajectory.json", "result.json"
NOTHING = "nothing can be written: no rollout is left, or the folder has no document"


def export(
    files: Sequence[Path],
    target: Path,
    *,
    tokens: Tokens = "completion",
    best_of: int | None = None,
    min_reward: float | None = None,
) -> Exported:
    """Write the rollouts of result files that have a verdict, as documents.

    ``target`` is one file of lines if its name ends in ``.jsonl``, else a folder with a file for each
    rollout, ``TASK.ROLLOUT.json``.

    Args:
        tokens: as `to_atif`.
        best_of: of each task of a file, only the best of its first ``best_of`` rollouts.
        min_reward: only rollouts with at least this reward.

    Raises:
        UsageError: no rollout is left, something stands at the target, or the disk does
            not take it.
    """
    left_out, written = Counter[str](), list[str]()

    def documents() -> Iterator[tuple[str, bytes]]:
        for path in files:
            places = selection.judged(readable_once(path, left_out), best_of=best_of, min_reward=min_reward)
            with path.open("rb") as file:
                for place in places:
                    file.seek(place.offset)
                    try:
                        row = _decode(with_images(file.read(place.size), path.parent))
                    except UNREADABLE:
                        left_out[NO_ROW] += 1
                        continue
                    name = ".".join(str(_index(row.get(f"_ng_{one}_index"))) for one in ("task", "rollout"))
                    yield (name if len(files) == 1 else f"{path.stem}-{name}"), _encode(to_atif(row, tokens))

    if target.suffix == ".jsonl":
        rows = _write_lines(target, (document for _, document in documents()))
        return Exported(rows=rows, left_out=left_out, files=[str(target)])
    with draft_of(target) as draft:
        draft.mkdir()
        for name, document in documents():
            path, number = draft / f"{name}.json", 2
            while path.exists():  # rows of several environments in one file
                path, number = draft / f"{name}-{number}.json", number + 1
            path.write_bytes(document)
            written.append(str(target / path.name))
        if not written:
            raise UsageError(NOTHING)
    return Exported(rows=len(written), left_out=left_out, files=written)


def imported(files: Sequence[Path], target: Path, *, environment: str = "") -> int:
    """Write documents as result rows; return how many.

    Args:
        files: documents (JSON), files with one a line (``.jsonl``), and folders: each ``trajectory.json`` in
            them, else each ``.json``; in a trial's folder of Harbor with the reward of its ``result.json``.
        environment: whose rows they become, where a document does not say.

    Raises:
        UsageError: a file is missing or is no document, with the step; two are different rollouts with one
            number, as those of several runs are; or as `export`.
    """

    def rows() -> Iterator[bytes]:
        rollouts: dict[str, int] = {}
        tasks: dict[str, int] = {}
        known: dict[tuple[str, int, int], tuple[str, bytes]] = {}
        for where, document, result in _documents(files):
            try:
                row = from_atif(document)
            except BadDocument as error:
                raise UsageError(f"{where} is no ATIF document: {error}") from error
            if (reward := _reward(result)) is not None:
                row.setdefault("reward", reward)
            if environment:
                row.setdefault("agent_ref", {"name": environment})
            # Trials of one task are rollouts of one row.
            task = str(result.get("task_name") or where)
            row.setdefault("_ng_task_index", tasks.setdefault(task, len(tasks)))
            row.setdefault("_ng_rollout_index", rollouts.setdefault(task, 0))
            rollouts[task] += 1
            line = _encode(row)
            number = _index(row["_ng_task_index"]), _index(row["_ng_rollout_index"])
            digest = blake2b(line, digest_size=16).digest()
            there, same = known.setdefault((str(row.get("agent_ref")), *number), (where, digest))
            if same != digest:
                said = f"{there} and {where} are different rollouts with the same number"
                raise UsageError(f"{said}; import each run into a file of its own")
            yield line

    return _write_lines(target, rows())


def without_trajectory(files: Sequence[Path]) -> int:
    """How many trials of Harbor in some folders have a result and no trajectory: they become no rows."""
    results = {place for path in files if path.is_dir() for place in path.rglob(RESULT)}
    return sum(
        "task_name" in _object(str(place), place.read_bytes())
        for place in results
        if place.is_file() and not place.is_symlink() and not any(place.parent.rglob(TRAJECTORY))
    )


def _write_lines(target: Path, lines: Iterable[bytes]) -> int:
    count = 0
    with draft_of(target) as draft:
        with draft.open("xb") as file:
            for count, line in enumerate(lines, 1):  # noqa: B007 - the number of the last one
                file.write(line + b"\n")
        if not count:
            raise UsageError(NOTHING)
    return count


def _index(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 2**63 else 0


def _documents(files: Sequence[Path]) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Where each document is, the document, and the ``result.json`` of its trial."""
    for path in files:
        if path.is_dir():
            for place in sorted(path.rglob(TRAJECTORY)) or sorted(path.glob("*.json")):
                if place.is_file() and not place.is_symlink():
                    yield str(place), _object(str(place), place.read_bytes()), _trial(place)
        elif not path.is_file():
            raise UsageError(f"there is no file {path}; name ATIF documents, or a folder of them")
        elif path.suffix == ".jsonl":
            with path.open("rb") as file:
                for number, line in enumerate(file, 1):
                    if line.strip():
                        yield f"{path}:{number}", _object(f"{path}:{number}", line), {}
        else:
            yield str(path), _object(str(path), path.read_bytes()), _trial(path)


def _object(where: str, content: bytes) -> dict[str, Any]:
    try:
        return _decode(content)
    except UNREADABLE as error:
        raise UsageError(f"{where} is no JSON object: {error}") from error


def _trial(trajectory: Path) -> dict[str, Any]:
    """The result of the trial of Harbor whose ``agent/trajectory.json`` this is; empty elsewhere."""
    place = trajectory.parent.parent / RESULT
    if trajectory.parent.name != "agent" or not place.is_file() or place.is_symlink():
        return {}
    return _object(str(place), place.read_bytes())


def _reward(result: dict[str, Any]) -> float | None:
    """A trial's reward: ``reward``, or the only one. One that Harbor does not hold for valid is none."""
    rewards = as_object(as_object(result.get("verifier_result")).get("rewards"))
    value = rewards.get("reward", next(iter(rewards.values())) if len(rewards) == 1 else None)
    if result.get("reward_valid") is False or isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)
