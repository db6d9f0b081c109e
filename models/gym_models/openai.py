"""Any engine that speaks OpenAI's Responses API or Chat Completions: OpenAI itself, vLLM, SGLang, hosts.

The `openai` client is the source of truth for the address and the credentials of a hosted engine (base URL,
key, organisation, project, ``OPENAI_*`` variables), and is imported only for those. The bytes go over
clients of less weight (`gym_models.wire.http`): a call costs 1,370 µs of CPU through it (757 µs with its
aiohttp transport, 2,000 µs more for its typed parsing of a large response), and 30 to 100 µs here; a rollout
with two calls may cost 1,000 µs in the whole runtime. `gym_models.wire` holds the parts.

Settings:
    urls: base URLs of replicas, or sources of them (`gym_models.wire.discovery`); a rollout keeps to one of
        them, which keeps its prefix cache warm (`gym_models.wire.replicas`). Without any,
        ``OPENAI_BASE_URL`` or OpenAI's own. ``/v1`` is added where there is no path.
    api_key_variable: else ``OPENAI_API_KEY``; engines in a private network need none.
    extra_body: fields for every request; a row's own fields win.
    options.reasoning: how earlier thinking goes back in Chat Completions: ``reasoning_content`` (default),
        ``reasoning``, ``think`` (tags), ``drop``.
    options.tool_images: where images of tools go in Chat Completions: ``tool`` (their own message),
        ``user`` (a user's message after them), ``auto`` (default: ``user`` at OpenAI, else ``tool``).
    options.max_tokens: the Chat field that limits an answer: ``max_tokens``, for OpenAI
        ``max_completion_tokens``.
    options.sampling: sampling parameters that win over those of rows and runs: ``temperature``, ``top_p``,
        ``max_output_tokens``, and others by the engine's names.
    options.computer: the computer tool that the model knows, for environments that offer the function
        ``computer`` (`gym_models.wire.native`); never for training.
    options.check_model: false for an engine whose list of models is incomplete.
"""

from __future__ import annotations

from typing import Any, Literal, get_args
from urllib.parse import urlsplit

import msgspec
from gym_faces.dialects import ChatVariant, Reasoning, ToolImages, side_channel
from gym_runtime import UsageError
from gym_runtime.adapters import ModelSettings

from gym_models.wire.endpoint import Endpoint
from gym_models.wire.engine import Api, Engine
from gym_models.wire.http_adapter import HttpAdapter
from gym_models.wire.native import Computer


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of this adapter."""

    reasoning: Reasoning = "reasoning_content"
    tool_images: ToolImages | Literal["auto"] = "auto"
    max_tokens: str = ""
    sampling: dict[str, Any] = {}
    check_model: bool = True
    computer: Computer | None = None


class Adapter(HttpAdapter):
    """OpenAI-compatible engines. See the module for its settings."""

    def __init__(self, settings: ModelSettings) -> None:
        if settings.api not in get_args(Api):
            raise UsageError(f"api is one of {', '.join(get_args(Api))}, not '{settings.api}'")
        try:
            self._options = msgspec.convert(settings.options, Options)
        except msgspec.ValidationError as error:
            raise UsageError(f"options of the openai adapter: {error}") from error
        self._settings = settings
        super().__init__(
            settings,
            self._engine,
            check_model=self._options.check_model,
            sampling=self._options.sampling,
        )

    def _engine(self, one: Endpoint) -> Engine:
        settings = self._settings
        newer = _is_openai(one.url)
        images = self._options.tool_images
        return Engine(
            one,
            model=settings.name,
            api=msgspec.convert(settings.api, Api),
            extra_body=msgspec.json.encode(settings.extra_body),
            media_hosts=settings.media_hosts,
            computer=self._options.computer,
            dialect=ChatVariant(
                reasoning=self._options.reasoning,
                tool_images=("user" if newer else "tool") if images == "auto" else images,
                max_tokens=self._options.max_tokens or ("max_completion_tokens" if newer else "max_tokens"),
                engine="OpenAI" if newer else one.url,
                sampling=side_channel.OPENAI_CHAT if newer else side_channel.ALL,
            ),
        )


def key_variable(_: str) -> str:
    """The variable that holds the key, unless a configuration names another."""
    return "OPENAI_API_KEY"


def _is_openai(url: str) -> bool:
    return urlsplit(url).hostname == "api.openai.com"
