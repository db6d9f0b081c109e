"""Names that become one token of a subject, or part of a file's name or of a metric's label.

A dot, a space or a wildcard in a name would turn one subject into another, or into a pattern that matches
many. So every name from a person, a row or a message passes `token` before it is put into a subject, and
decoding a message refuses bad names too (`Token`).
"""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

from gym_runtime.errors import UsageError

MAX_CHARS = 128
SHOWN_CHARS = 60
_REFUSED = r"\s.*>\x00-\x1f\x7f-\x9f\ud800-\udfff"
_TOKEN = re.compile(rf"[^{_REFUSED}]{{1,{MAX_CHARS}}}")

Token = Annotated[str, msgspec.Meta(pattern=rf"^[^{_REFUSED}]{{1,{MAX_CHARS}}}\Z")]
"""The type of a message's field that becomes a part of a subject."""


def is_token(name: str) -> bool:
    """Whether a name can be one token of a subject: 1 to `MAX_CHARS` characters, none of them white space,
    ``.``, ``*``, ``>`` or a control character.
    """
    return _TOKEN.fullmatch(name) is not None


def token(name: str, what: str) -> str:
    """The name, if it can be one token of a subject.

    Args:
        what: what it names, for the message: ``run``, ``agent``, ``environment``, ``model``, ``worker``.

    Raises:
        UsageError: it cannot.
    """
    if is_token(name):
        return name
    shown = name if len(name) <= SHOWN_CHARS else f"{name[:SHOWN_CHARS]}…"
    article = "an" if what[0] in "aeiou" else "a"
    raise UsageError(
        f"{shown!r} cannot name {article} {what}: a name has 1 to {MAX_CHARS} characters, and no white "
        "space, '.', '*', '>' or control character"
    )


def rollout_token(rollout_id: str) -> str:
    """``<run>.<task_index>.<rollout_index>``, if it is three tokens.

    Raises:
        UsageError: it is not.
    """
    parts = rollout_id.split(".")
    if len(parts) != 3:
        raise UsageError(
            f"{rollout_id[:SHOWN_CHARS]!r} is not a rollout id: it needs the form "
            "<run>.<task_index>.<rollout_index>"
        )
    return ".".join(token(part, "rollout") for part in parts)


# -- the fields of a result row that the runtime writes itself: no dataset and no verifier may.
# Everything that begins as NeMo Gym's marks (`_ng_`) or ours (`_gym`) is among them, known or not: a
# dataset's `_ng_failure_class` would make a rollout that succeeded look failed to whatever reads the file.

NUMBERS = ("_ng_task_index", "_ng_rollout_index")
"""By these a row's rollouts are found; a dataset may bring the first, which is kept as the task's index."""
_MARKS = ("_ng_", "_gym")
_OTHERS = frozenset({"responses_create_params", "response", "reward", "reward_components", "agent_ref"})


def is_mark(name: str) -> bool:
    """Whether a field is a mark that the runtime, or NeMo Gym, puts on a row."""
    return name.startswith(_MARKS)


def is_own(name: str) -> bool:
    """Whether only the runtime writes a field of a result row."""
    return name in _OTHERS or is_mark(name)
