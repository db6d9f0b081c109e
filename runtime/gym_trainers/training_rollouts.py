"""Rollouts in the form that all trainers take: ids, mask, log-probabilities, reward or failure.

A record's sequences are its `Piece`s; a rollout without a verdict has none, and `why_failed` says why. For
trainers that cannot leave it out, `standing_in` gives it a reward without effect.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

import msgspec
from gym_runtime import Failed, RolloutRecord, RolloutSettings, Verdict
from gym_runtime.client import AnyRow, line
from gym_runtime.errors import UsageError
from gym_runtime.logs import logger
from gym_runtime.messages import conversation
from gym_runtime.statistics import mean
from gym_runtime.training import Credit, TokenSequence

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
        mask: 1 where the token is trained on, else 0.
        log_probs: the engine's, 0.0 where nothing was sampled; None if it did not give all of them, or one
            is no finite number.
        turns: ``(start, end)`` of each turn's sampled tokens in ``response_ids``, if they are trained on.
        cut: a limit ended it.
        kind: what its calls are to the rollout.
        experts: as `TokenSequence.experts`.
    """

    prompt_ids: list[int]
    response_ids: list[int]
    mask: list[int]
    log_probs: list[float] | None
    turns: tuple[tuple[int, int], ...]
    cut: bool = False
    kind: str = "main"
    experts: Any = None

    def shortened(self, length: int) -> Piece:
        """Its first tokens after the prompt."""
        if len(self.response_ids) <= length:
            return self
        return self._replace(
            response_ids=self.response_ids[:length],
            mask=self.mask[:length],
            log_probs=None if self.log_probs is None else self.log_probs[:length],
            turns=tuple((start, min(end, length)) for start, end in self.turns if start < length),
            cut=True,
            experts=None if self.experts is None else self.experts[: len(self.prompt_ids) + length],
        )


NO_LOG_PROBS = "the engine did not give all log-probabilities, as finite numbers"
"""Why a rollout is not trained on, where a trainer needs them: in a batch all rollouts have them, or none."""


def lacks_log_probs(found: Sequence[Piece]) -> bool:
    """Whether the engine did not give all log-probabilities of these sequences."""
    return any(one.log_probs is None for one in found)


Sequenced = TypeVar("Sequenced", Piece, TokenSequence)


def unweighted(credit: Credit, trainer: str) -> Credit:
    """The credit, for a trainer that cannot weight a sequence.

    Raises:
        UsageError: a weight is neither 0 nor 1.
    """
    if not isinstance(credit, str) and any(weight not in (0, 1) for weight in credit.values()):
        raise UsageError(
            f"credit={credit!r}: {trainer} takes no weight for a sequence; give each kind 0 or 1"
        )
    return credit


def main_one(found: Sequence[Sequenced]) -> Sequenced:
    """Of the sequences that are trained on, the one for a trainer that takes a single one per rollout.

    It is the last of the conversation that was judged; if none of them is trained on, the last of all.
    """
    return next((one for one in reversed(found) if one.kind == "main"), found[-1])


def pieces(record: RolloutRecord, credit: Credit = "accepted", seat: str | None = None) -> list[Piece]:
    """The sequences to train on: of each segment and branch; none if the rollout has no reward.

    Args:
        credit: which branches are trained on.
        seat: of a rollout with several trained seats, whose; by default the main one's, whose reward the
            record's is.

    Raises:
        UsageError: the rollout was run without ``return_token_ids``; or there is no such credit.
    """
    if record.reward is None:
        return []
    seat = record.seat if seat is None else seat
    return [
        Piece(
            one.prompt_ids.tolist(),
            one.completion_ids.tolist(),
            one.mask.astype(int).tolist(),
            one.log_probs.tolist() if all(map(math.isfinite, one.log_probs.tolist())) else None,
            tuple((start, end) for start, end in one.turns if one.mask[start:end].any()),
            one.truncated,
            one.kind,
            one.experts,
        )
        for one in record.sequences(credit)
        if one.weight and one.seat == seat
    ]


def only_seat(record: RolloutRecord, seat: str, apart: Container[str], trainer: str) -> str:
    """The one seat of a rollout that is trained on, for a trainer that compares all it gets of a prompt.

    Args:
        seat: the one that was asked for; empty for the only one that the policy has.
        apart: roles that another model has: what their seats sampled is not the policy's.

    Raises:
        UsageError: the policy has several seats and none was asked for; or it has not the one that was.
    """
    if record.reward is None:
        return record.seat
    policys = [one for one in record.rewards if one.partition("/")[0] not in apart]
    if seat and seat not in (policys or [record.seat]):
        known = ", ".join(policys) or "no seat but the main one"
        raise UsageError(f"seat={seat!r}: in {record.environment} the policy is trained in {known}")
    if not seat and len(policys) > 1:
        raise UsageError(
            f"in {record.environment} the policy is trained in the seats {', '.join(policys)}, and {trainer} "
            f"compares all rollouts of a prompt with each other: name one with seat={policys[0]!r}"
        )
    return seat or (policys[0] if policys else record.seat)


def sole_reward(verdict: Verdict, remedy: str) -> float:
    """The reward of a conversation that the trainer has held itself.

    Raises:
        UsageError: there are several trained seats, and the conversation would mix what they say.
    """
    if len(verdict.rewards) > 1:
        seats = ", ".join(verdict.rewards)
        what = f"the environment trains the seats {seats}, each with its own conversation"
        raise UsageError(f"{what}: {remedy}")
    return verdict.reward


def roles_apart(settings: RolloutSettings | Mapping[str, Any] | None) -> set[str]:
    """The roles that a pool other than the policy's serves, by the fields of `RolloutSettings`."""
    if isinstance(settings, RolloutSettings):
        return {role for role, pool in settings.roles.items() if pool != settings.model_pool}
    return {str(role) for role in (settings or {}).get("roles") or ()}


def require_no_experts(found: Iterable[TokenSequence], trainer: str) -> None:
    """
    Raises:
        UsageError: the engine told the experts that it chose, and the trainer would route by itself.
    """
    if any(one.experts is not None for one in found):
        raise UsageError(
            f"{trainer} takes no routed experts, and its router would choose others: leave out the model's "
            "option routed_experts"
        )


def only_piece(
    record: RolloutRecord, found: Sequence[Piece], end: int, *, log_probs: bool, why: str = ""
) -> Piece:
    """For trainers that take one sequence per rollout, and cannot leave a failed one out.

    That of `main_one`; the log says if there were others. Without a main sequence, a single end token that
    is not trained on.

    Args:
        end: the end token.
        log_probs: the trainer wants log-probabilities.
        why: the reason for the log why there is none, if the record does not say it.
    """
    if not found:
        logger().warning("a rollout is not trained on", why=why or why_failed(record) or "it has no tokens")
        return Piece([end], [end], [0], [0.0] if log_probs else None, ())
    if len(found) > 1:
        logger().warning(
            "only one of a rollout's sequences is trained on", rollout=record.rollout_id, of=len(found)
        )
    return main_one(found)


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
