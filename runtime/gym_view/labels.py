"""What a person says of rollouts: a label and a note for each, in ``OUT_labels.json`` beside the rows.

The file is one JSON object by ``TASK.ROLLOUT``. An entry has the rollout's id, where its row has one, so that
what was said of an earlier run in the same file is not taken for a word about this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from gym_runtime.errors import UNREADABLE, UsageError
from gym_runtime.files import write_whole
from gym_runtime.own_files import refuse_special
from msgspec import Meta

MAX_FILE_BYTES = 64 * 2**20


class Label(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a person says of one rollout."""

    label: Annotated[str, Meta(max_length=100)] = ""
    note: Annotated[str, Meta(max_length=10_000)] = ""
    rollout_id: Annotated[str, Meta(max_length=200)] = ""


class Labelled(Label, frozen=True, kw_only=True):
    """A label and the rollout's ``TASK.ROLLOUT``."""

    rollout: Annotated[str, Meta(pattern=r"^\d{1,10}\.\d{1,10}$")]


_decode_file = msgspec.json.Decoder(dict[str, Label]).decode
decode_labelled = msgspec.json.Decoder(Labelled).decode


def labels_path(rows: Path) -> Path:
    """Where the labels of a file of rows stand."""
    return rows.with_name(f"{rows.stem}_labels.json")


def load_labels(rows: Path) -> dict[str, Label]:
    """The labels of a file of rows.

    Raises:
        UsageError: the file cannot be read, is no regular file, or is larger than `MAX_FILE_BYTES`.
    """
    path = labels_path(rows)
    refuse_special(path)
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise UsageError(f"{path} is larger than {MAX_FILE_BYTES >> 20} MB: move it away")
        return _decode_file(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, *UNREADABLE) as error:
        raise UsageError(f"{path} holds no labels: {error}; remove it, or repair it") from None


def put_label(rows: Path, said: Labelled) -> None:
    """Store a label; an empty one with an empty note removes it. Of two at once the later one stands.

    Raises:
        UsageError: the file cannot be read or written, or its name is that of a link or a pipe.
    """
    labels = load_labels(rows)
    labels.pop(said.rollout, None)
    if said.label or said.note:
        labels[said.rollout] = Label(label=said.label, note=said.note, rollout_id=said.rollout_id)
    content = msgspec.json.format(msgspec.json.encode(labels), indent=1)
    write_whole(labels_path(rows), iter([content + b"\n"]))


def label_of(labels: Mapping[str, Label], rollout: str, rollout_id: str) -> Label:
    """The label of a rollout; an empty one if it has none."""
    found = labels.get(rollout, Label())
    return found if found.rollout_id in ("", rollout_id) else Label()
