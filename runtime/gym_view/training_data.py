"""Result rows as Parquet, with the columns that trainers want: one file, or a Hugging Face dataset.

It streams: rows are chosen in a first reading (`selection`), read one at a time, and written in groups of at
most `GROUP_ROWS` rows or about `GROUP_BYTES` (`parquet`).

==============  ==========================================================================================
``rollouts``    everything: numbers as columns, what is nested as JSON text, with stored images in it
``messages``    a conversation in ``messages``, as supervised fine-tuning takes it
``completion``  the same in two parts, ``prompt`` and ``completion``, so that only the second is trained on
``pairs``       ``prompt``, ``chosen`` and ``rejected``, as preference training (DPO) takes them
==============  ==========================================================================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from gym_runtime.errors import UNREADABLE, UsageError
from gym_runtime.files import with_images
from gym_runtime.messages import as_object
from msgspec import Raw

from gym_view import selection
from gym_view.drafts import draft_of
from gym_view.labels import Label, label_of, load_labels
from gym_view.once import NO_ROW, readable_once
from gym_view.parquet import NESTED, Form, Writer, arrow
from gym_view.row_messages import Unusable, completion, prompt, tools
from gym_view.selection import Place

_NUMBERS = ("reward", "_ng_task_index", "_ng_rollout_index", "agent_ref")
_decode_row = msgspec.json.Decoder(dict[str, Any]).decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """What an export wrote.

    Attributes:
        rows: in all files.
        left_out: rows that were chosen and have no such form, by the reason.
        files: their paths.
    """

    rows: int
    left_out: dict[str, int]
    files: list[str]


def export(
    files: Sequence[Path],
    target: Path,
    *,
    form: Form = "rollouts",
    best_of: int | None = None,
    min_reward: float | None = None,
) -> Exported:
    """Write the rollouts of result files that have a verdict.

    ``target`` is one file if its name ends in ``.parquet``, else a folder that
    ``datasets.load_dataset(FOLDER)`` reads. Nothing stands there before all is written.

    Args:
        best_of: of each task of a file, only the best of its first ``best_of`` rollouts; of pairs, the pair
            that these make.
        min_reward: only rollouts with at least this reward; of pairs, those whose better one has it.

    Raises:
        UsageError: no row is left, something stands at the target, pyarrow is not
            installed, or the disk does not take it.
    """
    arrow()
    if target.suffix in (".jsonl", ".json", ".csv"):
        raise UsageError(f"{target}: rows are written as Parquet; name one file, NAME.parquet, or a folder")
    left_out: Counter[str] = Counter()
    with draft_of(target) as draft:
        with Writer(draft, form, one_file=target.suffix == ".parquet") as writer:
            for record, size_bytes in _records(files, form, best_of, min_reward, left_out):
                writer.add(record, size_bytes)
        if not writer.rows:
            few = f"no rollout{' of this form' if left_out.keys() - {NO_ROW} else ''} has a verdict"
            few += "" if min_reward is None else f" and a reward of at least {min_reward:g}"
            none = "no task has rollouts with different rewards" if form == "pairs" else few
            reasons = "".join(f"; {count:,} left out: {reason}" for reason, count in left_out.items())
            raise UsageError(f"there is nothing to write: {none}{reasons}")
    written = [target] if target.is_file() else sorted(target.rglob("*.parquet"))
    return Exported(rows=writer.rows, left_out=dict(left_out), files=[str(path) for path in written])


# -- rows as records ----------------------------------------------------------------------------------


def _records(
    files: Sequence[Path],
    form: Form,
    best_of: int | None,
    min_reward: float | None,
    left_out: Counter[str],
) -> Iterator[tuple[dict[str, Any], int]]:
    """The records to be written, each with the size of its source in bytes."""
    for path in files:
        rows = readable_once(path, left_out)
        places = (
            selection.pairs(rows, best_of=best_of, min_reward=min_reward)
            if form == "pairs"
            else ((place,) for place in selection.judged(rows, best_of=best_of, min_reward=min_reward))
        )
        labels = load_labels(path)
        with path.open("rb") as file:
            for taken in places:
                lines = [_read(file, place) for place in taken]
                if form == "rollouts":  # the others have no images
                    lines = [with_images(line, path.parent) for line in lines]
                try:
                    record = _FORMS[form](*lines)
                    if form != "pairs":
                        record |= _labelled(labels, record)
                except UNREADABLE:
                    left_out[NO_ROW] += 1
                except Unusable as reason:
                    left_out[str(reason)] += 1
                else:
                    yield record, sum(map(len, lines))


def _read(file: BinaryIO, place: Place) -> bytes:
    file.seek(place.offset)
    return file.read(place.size)


def _rollout(line: bytes) -> dict[str, Any]:
    fields = _decode_fields(line)
    kept = {name: bytes(raw).decode() for name, raw in fields.items() if name in NESTED}
    row = _decode_row(line)
    about = _about(row)
    # What a column has whole is left out.
    held = {*NESTED, *_NUMBERS} - ({"agent_ref"} if row.get("agent_ref") != _ref(about) else set[str]())
    rest = {name: raw for name, raw in fields.items() if name not in held}
    return {**about, **kept, "fields": _encode(rest).decode()}


def _ref(about: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": about["environment"]}


def _messages(line: bytes) -> dict[str, Any]:
    row = _decode_row(line)
    return {**_about(row), "messages": [*prompt(row), *completion(row)], "tools": tools(row)}


def _completion(line: bytes) -> dict[str, Any]:
    row = _decode_row(line)
    return {**_about(row), "prompt": prompt(row), "completion": completion(row), "tools": tools(row)}


def _pair(chosen_line: bytes, rejected_line: bytes) -> dict[str, Any]:
    chosen, rejected = _decode_row(chosen_line), _decode_row(rejected_line)
    about, other = _about(chosen), _about(rejected)
    return {
        "environment": about["environment"],
        "_ng_task_index": about["_ng_task_index"],
        "prompt": prompt(chosen),
        "chosen": completion(chosen),
        "rejected": completion(rejected),
        "score_chosen": about["reward"],
        "score_rejected": other["reward"],
        "tools": tools(chosen),
    }


_FORMS: dict[str, Callable[..., dict[str, Any]]] = {
    "rollouts": _rollout,
    "messages": _messages,
    "completion": _completion,
    "pairs": _pair,
}


def _about(row: dict[str, Any]) -> dict[str, Any]:
    """The columns that identify the rollout and give its outcome; None for a missing value."""
    agent, own, response = (as_object(row.get(name)) for name in ("agent_ref", "_gym", "response"))
    usage = as_object(response.get("usage"))
    outcome = as_object(own.get("outcome")).get("type")
    if not isinstance(outcome, str):
        outcome = "truncated" if response.get("incomplete_details") else "completed"
    return {
        "rollout_id": _if(str, own.get("rollout_id")),
        "environment": _if(str, agent.get("name")),
        "_ng_task_index": _if(int, row.get("_ng_task_index")),
        "_ng_rollout_index": _if(int, row.get("_ng_rollout_index")),
        "reward": float(row["reward"]),  # the index says that there is one
        "outcome": outcome,
        "model": _if(str, response.get("model")),
        "input_tokens": _if(int, usage.get("input_tokens")),
        "output_tokens": _if(int, usage.get("output_tokens")),
        "turns": _if(int, own.get("turns")),
        "tool_calls": _if(int, own.get("tool_calls")),
    }


def _labelled(labels: Mapping[str, Label], record: Mapping[str, Any]) -> dict[str, str | None]:
    """What a person says of a rollout."""
    name = f"{record['_ng_task_index']}.{record['_ng_rollout_index'] or 0}"
    said = label_of(labels, name, record["rollout_id"] or "")
    return {"label": said.label or None, "note": said.note or None}


def _if(kind: type, value: Any) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        return None
    return value if kind is not int or abs(value) < 2**63 else None  # Parquet's integers have 64 bits
