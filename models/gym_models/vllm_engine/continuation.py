"""The prompt of a conversation's next turn, and the requests to the engine that build it.

`gym_runtime.workers.prefixes` has the rules, `engine` the two ways in which an engine renders a conversation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from gym_faces.dialects import pieces
from gym_runtime.adapters import Prefix
from gym_runtime.messages import Reasoning, decode_item, unpack_ids
from gym_runtime.workers import splice
from msgspec import Raw

from gym_models.vllm_engine import tokens
from gym_models.vllm_engine.tokens import Rendering

Render = Callable[[Sequence[Raw]], Awaitable[Rendering]]
Detokenize = Callable[[list[int]], Awaitable[str]]
IsSpace = Callable[[int], Awaitable[bool]]


class Prompt(NamedTuple):
    """The tokens of a prompt; ``features`` are its images', where there are any."""

    ids: list[int]
    features: Raw | None = None


async def continued(
    prefix: Prefix,
    items: Sequence[Raw],
    whole: Rendering,
    render: Render,
    detokenize: Detokenize,
    is_space: IsSpace,
) -> Prompt | None:
    """The prompt that starts with the tokens so far, or None if there is no such prompt.

    Args:
        items: the whole conversation.
        whole: its rendering, with a prompt to answer.
        render: renders a part of it, without one.
        is_space: whether a token is space, such as the newline that a template writes after the end of a
            turn: a turn that was cut off there has no end, and engines do not tell which tokens end one.
    """
    so_far = unpack_ids(prefix.ids)
    if whole.token_ids[: len(so_far)] == so_far:
        # The usual case: the template's own prompt goes on from them, and nothing else has to be rendered.
        return Prompt(whole.token_ids)
    past = items[: prefix.items]
    history = await render(past)
    ids = splice(so_far, history.token_ids, whole.token_ids)
    if (
        ids is None
        or await is_space(so_far[-1])
        or await _drops_thinking(past, so_far, history.token_ids, detokenize)
    ):
        return None
    if pieces.is_null(whole.features):
        return Prompt(ids)
    features = tokens.moved_features(whole, ids, so_far, history.token_ids)
    return None if features is None else Prompt(ids, features)


async def _drops_thinking(
    items: Iterable[Raw], so_far: list[int], history: list[int], detokenize: Detokenize
) -> bool:
    """Whether the tokens so far hold thinking that the template no longer shows the model."""
    thoughts = [thought for item in items if (thought := _thought(item))]
    if not thoughts:
        return False
    shown = await detokenize(history)
    hidden = [thought for thought in thoughts if thought not in shown]
    if not hidden:
        return False
    held = await detokenize(so_far)
    return any(thought in held for thought in hidden)


def _thought(raw: Raw) -> str:
    """The thinking of a reasoning item; empty for every other."""
    if b'"reasoning"' not in bytes(raw):
        return ""
    item = decode_item(raw)
    return item.text.strip() if isinstance(item, Reasoning) else ""
