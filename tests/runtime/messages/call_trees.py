"""Rollouts whose calls are a tree, drawn at random or made to measure."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import get_args

import msgspec
from gym_runtime.messages.branches import BranchCall, CallTree, Kind
from gym_runtime.messages.call_tokens import Tokens, chained, pack_ids, pack_logprobs, shortened
from gym_runtime.messages.outcomes import Completed, RolloutRecord
from msgspec import Raw

KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass
class Drawn:
    """One call, with the whole prompt; ``item`` is -1 beside the transcript."""

    kind: Kind
    parent: int
    item: int
    prompt: list[int]
    ids: list[int]
    log_probs: list[float]
    tokens: Tokens = field(default_factory=Tokens)

    @property
    def whole(self) -> list[int]:
        return self.prompt + self.ids

    @property
    def known(self) -> list[int]:
        """What a later call may be short on."""
        return self.whole if self.ids else []


def call(
    chance: random.Random, calls: list[Drawn], parent: int, kind: Kind, item: int, size: int, cut: int = 0
) -> Drawn:
    """A call that continues another one, whose last ``cut`` ids it has not."""
    old = calls[parent].whole if parent >= 0 else []
    kept = old[: len(old) - cut]
    # No prompt is empty: a template or the tokenizer begins it.
    prompt = kept + [chance.randrange(50_000) for _ in range(chance.randint(not kept, size))]
    ids = [chance.randrange(50_000) for _ in range(chance.randint(parent < 0, size))]
    # Exact in 32 bits, so that they can be compared.
    log_probs = [-chance.randrange(1000) / 64 for _ in ids]
    tokens = Tokens(
        prompt_ids=pack_ids(prompt), generation_ids=pack_ids(ids), log_probs=pack_logprobs(log_probs)
    )
    return Drawn(kind, parent, item, prompt, ids, log_probs, tokens)


def draw(chance: random.Random, *, most: int = 12, size: int = 6) -> list[Drawn]:
    """The calls of a rollout in the order of their answers: a main line, and branches of all kinds."""
    calls: list[Drawn] = []
    last, item = -1, 0
    for _ in range(chance.randint(1, most)):
        if chance.random() < 0.5 or not calls:
            parent, kind = last, "main"
            last = len(calls)
        else:
            parent, kind = chance.randint(-1, len(calls) - 1), chance.choice(KINDS)
        place = 2 * item if last == len(calls) else -1
        item += place >= 0
        cut = chance.randint(0, len(calls[parent].whole)) if parent >= 0 and chance.random() < 0.2 else 0
        calls.append(call(chance, calls, parent, kind, place, size, cut))
    return calls


def record(calls: list[Drawn]) -> RolloutRecord:
    """Its record, as a worker makes it."""
    tree = CallTree()
    numbers: list[int] = []
    for one in calls:
        short = shortened(one.tokens, pack_ids(calls[one.parent].known if one.parent >= 0 else []))
        named = None if one.item >= 0 else short
        parent = numbers[one.parent] if one.parent >= 0 else -1
        numbers.append(tree.add(short, BranchCall(kind=one.kind, parent=parent, item=one.item, tokens=named)))
    told = tree.branches()
    main = {one.item: one.tokens for one in calls if one.item >= 0}
    output = [{"type": "message", "role": "assistant", "content": ""} for _ in range(2 * len(main))]
    gym = {"calls": told.calls} if told.calls else {}
    return RolloutRecord(
        run="r",
        task_index=0,
        rollout_index=0,
        environment="e",
        outcome=Completed(),
        row=Raw(msgspec.json.encode({"response": {"output": output}, "_gym": gym})),
        tokens=chained(main),
    )


def alone(calls: list[Drawn], one: Drawn) -> list[bytes]:
    """What only this call has, packed."""
    short = shortened(one.tokens, pack_ids(calls[one.parent].known if one.parent >= 0 else []))
    return [short.rest or short.prompt_ids, short.generation_ids, short.log_probs]
