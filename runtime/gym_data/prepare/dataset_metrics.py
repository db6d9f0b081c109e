"""``<stem>_metrics.json``: the metrics of a prepared file or a source, as in NeMo Gym; and the conflict rule.

Metrics that are stored beside the data are a promise: preparing the same data again must give the same
metrics, within a tolerance. Otherwise the new ones are written to ``<stem>_metrics_conflict.json``, and
nothing else is written. The metrics of a source begin with its description, which is not compared.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import msgspec
from gym_runtime.errors import UNREADABLE, UsageError
from gym_runtime.files import write_whole
from gym_runtime.statistics import Clusters

_PARAMS = "responses_create_params"
_NOT_COUNTED = {_PARAMS, "response"}
_DESCRIBING = {
    "name", "type", "jsonl_fpath", "num_repeats", "source", "gitlab_identifier", "huggingface_identifier",
    "prompt_config", "prepare_script", "license",
}  # fmt: skip
MAX_LISTED = 10

_decode_fields = msgspec.json.Decoder(dict[str, Any]).decode


class Figures:
    """Streaming statistics of finite numbers."""

    def __init__(self) -> None:
        self._numbers = Clusters()
        self._min, self._max = math.inf, -math.inf

    def add(self, value: float) -> None:
        self._numbers.add((value,))
        self._min, self._max = min(self._min, value), max(self._max, value)

    def document(self) -> dict[str, float | None]:
        """As in the file; all but the count are rounded: from 1 on to two places, below to three.

        A deviation larger than a double is None.
        """
        found = self._numbers
        low, high, spread = (self._min, self._max, found.deviation()) if found.count else (0.0, 0.0, 0.0)
        return {
            "Total # non-null values": found.count,
            "Average": _rounded(found.mean or 0.0),
            "Min": _rounded(low),
            "Max": _rounded(high),
            "Standard deviation": None if spread is None else _rounded(spread),
        }


class Texts:
    """The number of texts, and of distinct texts."""

    def __init__(self) -> None:
        self.total = 0
        self._seen: set[bytes] = set()

    def add(self, text: str) -> None:
        self.total += 1
        self._seen.add(hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest())

    def document(self) -> dict[str, float]:
        """As in the file."""
        return {"unique_count": len(self._seen), "total_count": self.total}


class DataMetrics:
    """The metrics of one file: `add` its rows.

    A field of the row that is a number, a text or a list of them is counted under its name. The type of its
    first value decides; values of the other type are left out.
    """

    def __init__(self) -> None:
        self.examples = 0
        self._tools, self._words, self._turns, self._temperature = (Figures() for _ in range(4))
        self._fields: dict[str, Figures | Texts] = {}

    def add(self, line: bytes) -> None:
        """Count a row."""
        row = _decode_fields(line)
        params: Mapping[str, Any] = row[_PARAMS]
        self.examples += 1
        self._words.add(len(json.dumps(params).split()))
        if params.get("tools") is not None:
            self._tools.add(len(params["tools"]))
        if turns := _turns(params.get("input")):
            self._turns.add(turns)
        if params.get("temperature") is not None:
            self._temperature.add(float(params["temperature"]))
        for name, value in row.items():
            if name not in _NOT_COUNTED:
                for item in cast("list[Any]", value) if isinstance(value, list) else (value,):
                    self._count(name, item)

    def _count(self, name: str, item: object) -> None:
        if isinstance(item, str):
            known = self._fields.setdefault(name, Texts())
            if isinstance(known, Texts):
                known.add(item)
        elif isinstance(item, int | float):
            known = self._fields.setdefault(name, Figures())
            with suppress(OverflowError):
                if isinstance(known, Figures):
                    known.add(float(item))

    def document(self) -> dict[str, Any]:
        """As in the file."""
        return {
            "Number of examples": self.examples,
            "Number of tools": self._tools.document(),
            "Json-dumped number of words (proxy for token count)": self._words.document(),
            "Number of turns": self._turns.document(),
            "Temperature": self._temperature.document(),
            **{name: counted.document() for name, counted in self._fields.items()},
        }


def write_metrics(path: Path, document: Mapping[str, Any]) -> None:
    """Write metrics, replacing earlier ones, and remove the record of an earlier conflict.

    Raises:
        UsageError: the disk is full or broken.
    """
    write_whole(path, iter((json.dumps(document, indent=4).encode(),)))
    conflict_path(path).unlink(missing_ok=True)


def refuse_conflict(path: Path, document: Mapping[str, Any], *, own: Path | None = None) -> None:
    """Compare with the stored metrics, if any; fields that these lack may be new.

    Args:
        own: where the new metrics will be written, if elsewhere; a conflict is then recorded there.

    Raises:
        UsageError: they differ beyond the tolerance, or cannot be read. The new ones are in a file beside.
    """
    if not path.exists():
        return
    try:
        stored = _decode_fields(path.read_bytes())
    except (OSError, *UNREADABLE) as error:
        remedy = "pass --overwrite-metrics-conflicts to replace them"
        raise UsageError(f"cannot read the stored metrics {path}: {error}; {remedy}") from None
    found = list(differences(_measured(stored), _measured(document)))
    if found:
        conflict = conflict_path(own or path)
        write_whole(conflict, iter((json.dumps(document, indent=4).encode(),)))
        more = [f"  … and {len(found) - MAX_LISTED} more"] if len(found) > MAX_LISTED else []
        raise UsageError(
            "\n".join(
                [
                    f"the data is not what {path} says; its metrics are now in {conflict}",
                    *(f"  {line}" for line in found[:MAX_LISTED]),
                    *more,
                    "if the new data is meant, pass --overwrite-metrics-conflicts",
                ]
            )
        )


def _measured(document: Mapping[str, Any]) -> dict[str, Any]:
    """Without the description of a source; a row's field of such a name has metrics, so it is an object."""
    return {
        name: value
        for name, value in document.items()
        if name not in _DESCRIBING or (isinstance(value, dict) and "type" not in value)
    }


def conflict_path(path: Path) -> Path:
    """Where metrics go that contradict the stored ones."""
    return path.with_name(f"{path.stem}_conflict.json")


def differences(stored: object, new: object, where: str = "") -> Iterator[str]:
    """How the new metrics differ from the stored ones, one line each.

    >>> list(differences({"a": 1.0, "b": 2}, {"a": 1.004, "c": 3}))
    ["'b' is gone"]
    """
    if isinstance(stored, dict) and isinstance(new, dict):
        mine, theirs = cast("dict[str, object]", stored), cast("dict[str, object]", new)
        for name, value in mine.items():
            place = f"{where}.{name}" if where else name
            if name in theirs:
                yield from differences(value, theirs[name], place)
            else:
                yield f"'{place}' is gone"
    elif isinstance(stored, int | float) and isinstance(new, int | float):
        if not _close(stored, new):
            yield f"'{where}' was {stored:g} and is {new:g}"
    elif isinstance(stored, list) and isinstance(new, list):
        if _counted(cast("list[object]", stored)) != _counted(cast("list[object]", new)):
            yield f"'{where}' has other elements"
    elif stored != new:
        yield f"'{where}' was {stored!r} and is {new!r}"


def _counted(values: list[object]) -> Counter[bytes]:
    return Counter(msgspec.json.encode(value) for value in values)


def _close(a: float, b: float) -> bool:
    return abs(a - b) <= (5e-3 if max(abs(a), abs(b)) >= 1 else 5e-4)


def _rounded(value: float) -> float:
    return round(float(value), 2 if abs(value) >= 1 else 3)


def _turns(given: object) -> int:
    """The user's messages of an input."""
    if isinstance(given, str):
        return 1
    items = cast("list[object]", given) if isinstance(given, list) else []
    return sum(
        cast("dict[str, object]", item).get("role") == "user" for item in items if isinstance(item, dict)
    )
