"""What a person says of rollouts: a label and a note for each, in ``OUT_labels.json`` beside the rows.

The file is one JSON object by ``TASK.ROLLOUT``. An entry has the rollout's id, where its row has one, so that
what was said of an earlier run in the same file is not taken for a word about this one.

A label says what it replaces: where another tab, or another viewer of the file, has stored something else
meanwhile, it is refused.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import msgspec
from gym_runtime.errors import UNREADABLE, UsageError
from gym_runtime.files import write_whole
from gym_runtime.own_files import refuse_special
from msgspec import Meta

MAX_FILE_BYTES = 64 * 2**20
_SHOWN_CHARACTERS = 100


class Label(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a person says of one rollout."""

    label: Annotated[str, Meta(max_length=100)] = ""
    note: Annotated[str, Meta(max_length=10_000)] = ""
    rollout_id: Annotated[str, Meta(max_length=200)] = ""


class Labelled(Label, frozen=True, kw_only=True):
    """A label and the rollout's ``TASK.ROLLOUT``; ``was`` is the label that it replaces."""

    rollout: Annotated[str, Meta(pattern=r"^\d{1,10}\.\d{1,10}$")]
    was: Label = Label()


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
    """Store a label; an empty one with an empty note removes it.

    Where the stored one is another than ``said.was``, what ``said`` leaves as it was is kept as it is stored.

    Raises:
        UsageError: both have changed the same; the file cannot be read or written, or its name is that of a
            link or a pipe.
    """
    with _alone(rows.parent):
        labels = load_labels(rows)
        there = label_of(labels, said.rollout, said.rollout_id)
        label = _merged("label", said.was.label, said.label, there.label)
        note = _merged("note", said.was.note, said.note, there.note)
        labels.pop(said.rollout, None)
        if label or note:
            labels[said.rollout] = Label(label=label, note=note, rollout_id=said.rollout_id)
        content = msgspec.json.format(msgspec.json.encode(labels), indent=1)
        write_whole(labels_path(rows), iter([content + b"\n"]))


def _merged(name: str, was: str, ours: str, theirs: str) -> str:
    if theirs in (was, ours):
        return ours
    if ours == was:
        return theirs
    shown = theirs if len(theirs) <= _SHOWN_CHARACTERS else f"{theirs[:_SHOWN_CHARACTERS]} …"
    done = f"changed this {name} to “{shown}”" if theirs else f"removed this {name}"
    raise UsageError(f"Another tab has {done}. Yours is not stored: Enter in its field stores it.")


@contextmanager
def _alone(folder: Path) -> Generator[None]:
    """Of all viewers of a folder only one writes labels: the file is read and written as a whole."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # this file system has no locks
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def label_of(labels: Mapping[str, Label], rollout: str, rollout_id: str) -> Label:
    """The label of a rollout; an empty one if it has none."""
    found = labels.get(rollout, Label())
    return found if found.rollout_id in ("", rollout_id) else Label()
