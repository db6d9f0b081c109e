"""Prefixes from a renderer: exact ids over turns, also where the model's chat template drops its thinking.

A renderer is a template as a Python object. It goes on from the ids that were sampled, where rendering the
conversation again would change them; so a rollout stays one sequence. The package ``renderers`` has them for
many models, and anything with the two methods of `Renderer` is one.

It is trusted only after it rendered a first turn to the very ids that the engine did. Where it does not, or
has no answer, a turn is rendered by the engine, and a new segment may begin, as without it.

Source: renderers 0.1.12, ``renderers/base.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol

import anyio
import msgspec
from anyio import to_thread
from gym_runtime import UsageError
from gym_runtime.adapters import Prefix
from gym_runtime.logs import logger

Message = dict[str, Any]


class Rendered(Protocol):
    """What a renderer gives: ids, among other things."""

    @property
    def token_ids(self) -> Sequence[int]: ...


class Renderer(Protocol):
    """Makes ids of messages of Chat Completions, as the engine's template does."""

    def render_ids(
        self,
        messages: list[Message],
        *,
        tools: list[Message] | None = None,
        add_generation_prompt: bool = False,
    ) -> Sequence[int]:
        """The ids of a conversation."""
        ...

    def bridge_to_next_turn(
        self,
        previous_prompt_ids: list[int],
        previous_completion_ids: list[int],
        new_messages: list[Message],
        *,
        tools: list[Message] | None = None,
    ) -> Rendered | None:
        """The next turn's prompt, which begins with all ids so far; None where there is no such prompt."""
        ...


def renderer_of(said: str, model: str) -> Renderer:
    """The renderer of a model: of the package ``renderers``, or made by a function.

    Args:
        said: ``auto``, or ``MODULE:FUNCTION``; the function gets the model's name.

    Raises:
        UsageError: it cannot be made.
    """
    module, _, name = (
        ("gym_models.vllm_engine.renderer", "", "of_library") if said == "auto" else said.partition(":")
    )
    try:
        return getattr(import_module(module), name)(model)
    except Exception as error:  # foreign code raises what it likes
        missing = isinstance(error, ModuleNotFoundError)
        auto = "pip install 'renderers[transformers]'" if missing else "leave it out, or give MODULE:FUNCTION"
        remedy = auto if said == "auto" else "give auto, or MODULE:FUNCTION"
        what = f"the option renderer={said!r}: {type(error).__name__}: {error}; {remedy}"
        raise UsageError(what) from error


def of_library(model: str) -> Renderer:
    """That of the package ``renderers``: it keeps all thinking, and knows models by their hub names."""
    base: Any = import_module("renderers.base")
    config: Any = import_module("renderers.configs").AutoRendererConfig(thinking_retention="all")
    return base.create_renderer(base.load_tokenizer(model), config)


class RendererPrefixes:
    """The renderer of one engine.

    Args:
        make: makes it, at the first call, in a thread.
    """

    def __init__(self, make: Callable[[], Renderer], url: str) -> None:
        self._make, self._url = make, url
        self._renderer: Renderer | None = None
        self._agrees: bool | None = None
        self._one = anyio.CapacityLimiter(1)

    async def compare(self, chat: bytes, ids: Sequence[int]) -> None:
        """Learn, from the first turn of a conversation, whether it renders what the engine did."""
        if self._agrees is not None:
            return
        messages, tools = _told(chat)

        def rendered() -> list[int]:
            self._renderer = self._renderer or self._make()
            return list(self._renderer.render_ids(messages, tools=tools, add_generation_prompt=True))

        own = await self._called(rendered)
        if self._agrees is None and own is not None:
            self._agrees = own == list(ids)
            if not self._agrees:
                self._give_up("its first prompt has other ids than the engine's")

    async def continued(self, prefix: Prefix, chat: bytes, past: bytes) -> list[int] | None:
        """The prompt that begins with the ids so far; None if the renderer finds no such prompt.

        Args:
            prefix: the ids so far.
            chat: the chat request.
            past: that of the part of the conversation that the prefix holds.
        """
        if not self._agrees or self._renderer is None:
            return None
        renderer, (messages, tools) = self._renderer, _told(chat)
        new = messages[len(_told(past)[0]) :]
        prompt, completion = prefix.prompt_and_completion
        so_far = prompt + completion

        def bridged() -> list[int] | None:
            found = renderer.bridge_to_next_turn(prompt, completion, new, tools=tools)
            return None if found is None else list(found.token_ids)

        found = await self._called(bridged)
        return found if found is not None and found[: len(so_far)] == so_far else None

    async def _called(self, ask: Callable[[], list[int] | None]) -> list[int] | None:
        try:
            return await to_thread.run_sync(ask, limiter=self._one)
        except UsageError:
            raise
        except Exception as error:  # noqa: BLE001 - foreign code; the engine renders instead
            self._give_up(f"{type(error).__name__}: {error}")
            return None

    def _give_up(self, reason: str) -> None:
        self._agrees = False
        logger().warning(
            "the renderer is not used: the engine renders every turn", url=self._url, reason=reason
        )


def _told(chat: bytes) -> tuple[list[Message], list[Message] | None]:
    """Messages and tools of a chat request."""
    body: Mapping[str, Any] = msgspec.json.decode(chat)
    return body["messages"], body.get("tools") or None
