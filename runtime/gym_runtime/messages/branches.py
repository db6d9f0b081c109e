"""The calls of a rollout as a tree: which call continues which, and what each is to the rollout.

Most rollouts are one line: each call continues the one before it. Others have branches: a harness asks again,
makes its history shorter, starts sub-agents. Then the row's ``_gym.calls`` names all calls in the order of
their answers. A call of the transcript is named by its item, which has its tokens. The tokens of every other
call stand here, packed, and short on its parent's, so that what both begin with is stored once.

======================  ================================================================================
kind                    a call
======================  ================================================================================
``main``                of the conversation that is judged
``compaction``          of the same work with another history: made shorter before it, or after
``attempt``             that was to do so, and was thrown away
``subagent``            of a conversation apart, started for a part of the task
``retry``               that was asked again after its answer; the later answer was used
``parallel``            asked at the same time as others with the same conversation
``side``                any other: a title, a summary for people
======================  ================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, get_args

import msgspec

from gym_runtime.errors import UsageError
from gym_runtime.messages.call_tokens import ID_BYTES, Tokens

Kind = Literal["main", "compaction", "attempt", "subagent", "retry", "parallel", "side"]
Rule = Literal["accepted", "all", "main", "last"]
Credit = Rule | Mapping[str, float]
"""Which sampled tokens are trained on: a rule's name, or a weight for each kind.

``accepted``: those of ``main``, ``compaction``, ``subagent`` and ``parallel``. ``all``: every one. ``main``:
those of that kind. ``last``: the last sequence. A kind that a mapping does not name has the weight 0.
"""
ACCEPTED: tuple[Kind, ...] = ("main", "compaction", "subagent", "parallel")
RULES: tuple[Rule, ...] = get_args(Rule)


class BranchCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call of a rollout that has branches.

    Attributes:
        kind: a `Kind`; a reader takes any text.
        parent: the number, in this list, of the call that it continues; -1 if it continues none.
        item: the index, in the response's output, of its last item; -1 if it is not in the transcript.
        tokens: of a call that is not in the transcript: short on the parent's prompt and completion.
        seat: who sampled it, of a rollout with several trained seats.
    """

    kind: str = "main"
    parent: int = -1
    item: int = -1
    tokens: Tokens | None = None
    seat: str = ""


class Branches(NamedTuple):
    """What a row says of its calls: nothing if they are one line.

    ``resampled`` counts sampled tokens that a later prompt of their conversation has not, where they stood.
    """

    calls: Sequence[BranchCall] = ()
    resampled: int = 0


class _Place(NamedTuple):
    parent: int
    same: int
    prompt: int
    whole: int


class CallTree:
    """Collects the calls of a rollout."""

    def __init__(self) -> None:
        self._calls: list[BranchCall] = []
        self._places: list[_Place] = []
        self._resampled = 0

    def add(self, tokens: Tokens, call: BranchCall) -> int:
        """Add a call; return its number. A call that sampled nothing is left out; the number is its parent's.

        Args:
            tokens: short on those of the call's parent, if it has one and shares ids with it.
        """
        if not tokens.generation_ids:
            return call.parent
        prompt = tokens.same + len(tokens.rest if tokens.same else tokens.prompt_ids) // ID_BYTES
        whole = prompt + len(tokens.generation_ids) // ID_BYTES
        self._resampled += self._moved(call.parent, tokens.same)
        self._calls.append(call)
        self._places.append(_Place(call.parent, tokens.same, prompt, whole))
        return len(self._calls) - 1

    def _moved(self, number: int, same: int) -> int:
        """How many sampled tokens of a conversation stand behind its first ids."""
        count, end = 0, self._places[number].whole if number >= 0 else 0
        while number >= 0 and end > same:
            place = self._places[number]
            count += max(0, end - max(same, place.prompt))
            number, end = place.parent, min(end, place.same)
        return count

    def branches(self) -> Branches:
        """The calls, if any but the transcript's one line are among them, and what was resampled."""
        told = any(call.kind != "main" or call.tokens is not None or call.seat for call in self._calls)
        return Branches(tuple(self._calls) if told else (), self._resampled)


def weights(credit: Credit, kinds: Sequence[str]) -> list[float]:
    """The weight of each sequence of a rollout.

    Args:
        kinds: the sequences', in order.

    Raises:
        UsageError: there is no such rule or kind, or a weight is not a number of at least 0.

    >>> weights("accepted", ["main", "retry"]), weights({"main": 1, "retry": 0.5}, ["main", "retry"])
    ([1.0, 0.0], [1.0, 0.5])
    """
    if isinstance(credit, str):
        trained = {"accepted": ACCEPTED, "all": kinds, "main": ("main",), "last": ()}.get(credit)
        if trained is None:
            raise UsageError(
                f"there is no credit {credit!r}: use one of {', '.join(RULES)}, or a weight for each kind"
            )
        last = len(kinds) - 1 if credit == "last" else -1
        return [float(kind in trained or number == last) for number, kind in enumerate(kinds)]
    known = get_args(Kind)
    for kind, weight in credit.items():
        if kind not in known:
            raise UsageError(f"there is no kind of call {kind!r}: the kinds are {', '.join(known)}")
        if not 0 <= weight < float("inf"):
            raise UsageError(f"the weight of {kind} is {weight!r}: give a number of at least 0")
    return [float(credit.get(kind, 0.0)) for kind in kinds]
