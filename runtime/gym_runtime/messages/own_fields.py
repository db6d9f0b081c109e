"""The fields of a result row that the runtime writes itself: no dataset and no verifier may.

Everything that begins as NeMo Gym's marks (``_ng_``) or ours (``_gym``) is among them, known or not: a
dataset's ``_ng_failure_class`` would make a rollout that succeeded look failed to whatever reads the file.
"""

from __future__ import annotations

NUMBERS = ("_ng_task_index", "_ng_rollout_index")
"""By these a row's rollouts are found; a dataset may bring the first, which is kept as the task's index."""
_MARKS = ("_ng_", "_gym")
_OTHERS = frozenset({"responses_create_params", "response", "reward", "reward_components", "agent_ref"})


def is_mark(name: str) -> bool:
    """Whether a field is a mark that the runtime, or NeMo Gym, puts on a row."""
    return name.startswith(_MARKS)


def may_have_marks(line: bytes) -> bool:
    """Whether a row may have such fields, without decoding it; the names may be written with escapes."""
    return b'"_ng_' in line or b'"_gym' in line or b"\\u00" in line


def is_own(name: str) -> bool:
    """Whether only the runtime writes a field of a result row."""
    return name in _OTHERS or is_mark(name)
