"""The turns with which a forked rollout begins, and the model calls of a transcript.

A row that forks a rollout has them in the field `FIELD`; a published task carries them as `RolloutSpec.fork`.
The agent worker gives the recorded answers to the agent, and repeats the environment's calls in a new session
(`gym_runtime.rollout.shared_turns`).

In a transcript a model call ends at an item with token ids, and before an item of a tool, the environment
or a user.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import Raw

from gym_runtime.errors import ModelUnavailable
from gym_runtime.messages.call_tokens import (
    ID_BYTES,
    Ids,
    Tokens,
    WeightSpan,
    ids_after,
    lengthened,
    pack_ids,
    pack_logprobs,
)
from gym_runtime.messages.routed_experts import read

FIELD = "_gym_fork"
"""The field of a row that forks a rollout; it has a `Fork`."""
OnDifference = Literal["fail", "go_on"]
WHOLE_BYTES = 2**26
"""So many bytes the ids of all shared prompts have at most: an agent worker holds them whole."""
_OURS = (
    *("prompt_token_ids", "generation_token_ids", "generation_log_probs", "weight_versions"),
    *("routed_experts", "routed_experts_start", "token_segment"),
)


class ForkTurn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One recorded turn.

    Attributes:
        response: the model's answer, a response of the Responses API.
        tokens: of the call; the prompt may be short on those of the turns before.
        weight_version: which weights answered, if the tokens do not say.
        after: the items between this answer and the next one.
    """

    response: Raw
    tokens: Tokens | None = None
    weight_version: str | None = None
    after: list[Raw] = []


class Fork(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a rollout begins that forks another one.

    Attributes:
        rollout_id: of the rollout that was forked; empty if its row does not say.
        task_index, rollout_index: that rollout's.
        turns: the shared turns, from the first one on.
        outputs: what the model is told that tools answered in the last shared turn, by ``call_id``, in place
            of what they answered.
        changed: what differs from the recorded rollout: ``system_prompt``, ``tool_output``, or a name of a
            sampling parameter.
        on_difference: what follows if a repeated call is answered differently: the rollout fails, or it goes
            on with the new answer.
        saved: the name of what the session had saved after turn ``saved_turn``; the calls up to there are not
            repeated if it is still there. Empty for none.
        saved_in: the rollouts whose parts it refers to, the forked one first.
    """

    rollout_id: str = ""
    task_index: int = 0
    rollout_index: int = 0
    turns: list[ForkTurn] = []
    outputs: dict[str, str] = {}
    changed: list[str] = []
    on_difference: OnDifference = "fail"
    saved: str = ""
    saved_turn: int = 0
    saved_in: list[str] = []


_decode_fork = msgspec.json.Decoder(Fork).decode


def decode_fork(data: Raw | bytes) -> Fork:
    """The fork of a row.

    Raises:
        msgspec.DecodeError: the text is no fork, or its tokens do not fit each other.
    """
    fork = _decode_fork(data)
    before: Ids = ()
    whole_bytes = 0
    for number, turn in enumerate(fork.turns, 1):
        if turn.tokens is None:
            continue
        # Short prompts of a small row may stand for gigabytes.
        whole_bytes += turn.tokens.same * ID_BYTES + len(turn.tokens.prompt_ids or turn.tokens.rest)
        if whole_bytes > WHOLE_BYTES:
            raise msgspec.ValidationError(
                f"turn {number}: up to here the prompts have more than {WHOLE_BYTES // ID_BYTES:,} tokens; "
                "fork at an earlier turn"
            )
        try:
            tokens = lengthened(turn.tokens, before)
            before = ids_after(tokens, before)
        except ModelUnavailable as error:
            raise msgspec.ValidationError(f"turn {number}: {error.message}") from error
        ids, log_probs = tokens.generation_ids, tokens.log_probs
        odd = any(len(part) % ID_BYTES for part in (tokens.prompt_ids, ids, log_probs))
        if odd or turn.tokens.same < 0 or len(log_probs) not in (0, len(ids)):
            raise msgspec.ValidationError(f"turn {number}: its tokens do not fit each other")
    return fork


class _ItemHead(msgspec.Struct, frozen=True):
    type: str = "message"
    role: str = ""
    generation_token_ids: Raw = Raw()

    @property
    def is_models(self) -> bool:
        return self.role == "assistant" if self.type == "message" else self.type != "function_call_output"

    @property
    def has_tokens(self) -> bool:
        return bytes(self.generation_token_ids) not in (b"", b"null")


class _ItemTokens(msgspec.Struct, frozen=True):
    generation_token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    generation_log_probs: list[float | None] | None = None
    weight_versions: list[WeightSpan] = []
    routed_experts: Raw = Raw()
    routed_experts_start: int = 0


class RecordedCall(msgspec.Struct, frozen=True):
    """A model call of a transcript.

    Attributes:
        start: the index of its first item in the transcript.
        said: the model's items, without token ids.
        tokens: the item with the call's token ids, if there is one.
        after: the items between this call and the next one.
    """

    start: int
    said: list[Raw]
    tokens: Raw | msgspec.UnsetType
    after: list[Raw]


_encode = msgspec.json.Encoder().encode
_decode_item = msgspec.json.Decoder(_ItemHead).decode
_decode_tokens = msgspec.json.Decoder(_ItemTokens).decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode


def recorded_calls(output: Sequence[Raw]) -> list[RecordedCall]:
    """The model calls of a transcript, in order.

    Two answers with nothing between them, and without token ids, cannot be told apart: they are one call.

    Raises:
        msgspec.DecodeError: an item is no object.
    """
    heads = [_decode_item(raw) for raw in output]
    found: list[RecordedCall] = []
    said: list[Raw] = []
    for index, (raw, head) in enumerate(zip(output, heads, strict=True)):
        if not head.is_models:
            if found:
                found[-1].after.append(raw)
            continue
        said.append(_stripped(raw))
        if head.has_tokens or index + 1 == len(output) or not heads[index + 1].is_models:
            tokens = raw if head.has_tokens else msgspec.UNSET
            found.append(RecordedCall(index + 1 - len(said), said, tokens, []))
            said = []
    return found


def item_tokens(item: Raw) -> Tokens:
    """The tokens on an item, with the whole prompt; none of an item without.

    Raises:
        msgspec.DecodeError: they are no numbers.
        struct.error: an id has more than 32 bits.
        TaskError: the routed experts are not as many as they say.
    """
    found = _decode_tokens(item)
    prompt, ids = found.prompt_token_ids or [], found.generation_token_ids or []
    said = [math.nan if one is None else one for one in found.generation_log_probs or ()]
    experts = read(found.routed_experts, found.routed_experts_start)
    return Tokens(
        prompt_ids=pack_ids(prompt),
        generation_ids=pack_ids(ids),
        log_probs=pack_logprobs(said),
        weights=found.weight_versions,
        # Others write a row for the last token, too, which means nothing.
        experts=experts and experts.until(len(prompt) + len(ids)),
    )


def _stripped(raw: Raw) -> Raw:
    """An item as the engine gave it, without tokens."""
    if b"token" not in bytes(raw):
        return raw
    fields = _decode_fields(raw)
    if not any(name in fields for name in _OURS):
        return raw
    return Raw(_encode({name: value for name, value in fields.items() if name not in _OURS}))
