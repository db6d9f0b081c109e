"""Rollouts in the form that all trainers take: ids, mask, log-probabilities, reward or failure.

A record's sequences are its `Piece`s; a rollout without a verdict has none, and `why_failed` says why. For
trainers that cannot leave it out, `standing_in` gives it a reward without effect.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import msgspec
from gym_runtime import Failed, RolloutRecord
from gym_runtime.client import AnyRow, line
from gym_runtime.errors import UsageError
from gym_runtime.logs import logger
from gym_runtime.messages import conversation
from gym_runtime.statistics import mean

ROW = "gym_row"
"""The column of a trainer's dataset that holds the row, as JSON text."""
SAMPLING: Mapping[str, tuple[Any, ...]] = {
    "temperature": (),
    "top_p": (),
    "top_k": (0, -1),
    "min_p": (0,),
    "stop": ([],),
    "repetition_penalty": (1,),
    "max_tokens": (),
}
"""vLLM's sampling parameters that a rollout may have, with the values that have no effect."""


class Piece(NamedTuple):
    """One sequence to train on, in plain lists.

    Attributes:
        prompt_ids: the first prompt.
        response_ids: everything after it, also tools' outputs; the next two have the same length.
        mask: 1 where the policy sampled the token, else 0.
        log_probs: the engine's, 0.0 where the mask is 0; None if it did not give all of them.
        turns: ``(start, end)`` of each turn's sampled tokens in ``response_ids``.
        cut: a limit ended it.
    """

    prompt_ids: list[int]
    response_ids: list[int]
    mask: list[int]
    log_probs: list[float] | None
    turns: tuple[tuple[int, int], ...]
    cut: bool = False

    def shortened(self, length: int) -> Piece:
        """Its first tokens after the prompt."""
        if len(self.response_ids) <= length:
            return self
        return Piece(
            self.prompt_ids,
            self.response_ids[:length],
            self.mask[:length],
            None if self.log_probs is None else self.log_probs[:length],
            tuple((start, min(end, length)) for start, end in self.turns if start < length),
            cut=True,
        )


def pieces(record: RolloutRecord) -> list[Piece]:
    """The sequences to train on, one per segment of tokens; none if the rollout has no reward.

    Raises:
        UsageError: the rollout was run without ``return_token_ids``.
    """
    if record.reward is None:
        return []
    return [
        Piece(
            one.prompt_ids.tolist(),
            one.completion_ids.tolist(),
            one.mask.astype(int).tolist(),
            None if any(map(math.isnan, one.log_probs.tolist())) else one.log_probs.tolist(),
            one.turns,
            one.truncated,
        )
        for one in record.sequences()
    ]


def only_piece(
    record: RolloutRecord, found: Sequence[Piece], end: int, *, log_probs: bool, why: str = ""
) -> Piece:
    """For trainers that take one sequence per rollout, and cannot leave a failed one out.

    The last of those ``found``; the log says if there were others. If there is none, a single end token that
    is not trained on.

    Args:
        end: the end token.
        log_probs: the trainer wants log-probabilities.
        why: the reason for the log why there is none, if the record does not say it.
    """
    if not found:
        logger().warning("a rollout has no reward", why=why or why_failed(record) or "it has no tokens")
        return Piece([end], [end], [0], [0.0] if log_probs else None, ())
    if len(found) > 1:
        logger().warning(
            "only the last token segment is trained on", rollout=record.rollout_id, of=len(found)
        )
    return found[-1]


def engine_sampling(given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert sampling parameters with vLLM's names to ours; parameters without effect are left out.

    >>> engine_sampling({"temperature": 0.9, "top_k": -1, "repetition_penalty": 1.0, "n": 8, "max_tokens": 5})
    {'temperature': 0.9, 'max_output_tokens': 5}
    """
    found: dict[str, Any] = {}
    for name, without_effect in SAMPLING.items():
        value = given.get(name)
        if value is not None and value not in without_effect:
            found["max_output_tokens" if name == "max_tokens" else name] = value
    return found


def why_failed(record: RolloutRecord) -> str:
    """Why a rollout has no reward; empty if it has one."""
    if record.reward is not None:
        return ""
    return record.outcome.fault.message if isinstance(record.outcome, Failed) else "it was cancelled"


def standing_in(rewards: Iterable[float | None]) -> float:
    """The reward for the failed rollouts of a group, where a trainer demands one: the mean of the others.

    So the group's mean does not change, and the advantage of a failed rollout is 0; only the standard
    deviation becomes smaller.

    >>> standing_in([1.0, None, 0.5]), standing_in([None])
    (0.75, 0.0)
    """
    return mean([reward for reward in rewards if reward is not None]) or 0.0


def dataset_rows(
    rows: Iterable[AnyRow], environment: str | None = None, **columns: Any
) -> list[dict[str, Any]]:
    """Rows for a trainer's dataset: the conversation as ``prompt``, and the whole row in `ROW`.

    Args:
        environment: for rows without an ``agent_ref``, which get one.
        columns: more columns, the same in every row.

    Raises:
        TaskError: one is not a row.
    """
    made: list[dict[str, Any]] = []
    for row in rows:
        one = line(row)
        prompt = conversation(one)
        fields: dict[str, Any] = msgspec.json.decode(one)
        if environment is not None and "agent_ref" not in fields:
            one = msgspec.json.encode({**fields, "agent_ref": {"name": environment}})
        made.append({"prompt": prompt, ROW: one.decode(), **columns})
    return made


def base_class(module: str, name: str) -> Any:
    """A trainer's class to derive from; where the trainer is not installed, one that cannot be used.

    So our modules can be imported without the trainers.
    """
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        what = f"{module.partition('.')[0]} cannot be imported here: {error}"

        def refuse(*_: Any, **__: Any) -> None:
            raise UsageError(what)

        return type(name, (), {"__init__": refuse})
