"""Hosts of models, each by its own name: ``--model together/meta-llama/Llama-3.3-70B-Instruct-Turbo``.

``hosted.toml`` has a table for each: its base URL, the variable that holds its key, and how it differs from
the others. Any other host is ``openai/NAME`` with ``--model-url`` and ``api_key_variable``.

Settings: those of `gym_models.openai`. ``urls`` and ``api_key_variable`` take the place of the host's own,
``options.has`` and ``options.lacks`` of the sampling parameters that its table names.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
from gym_faces.dialects import ChatVariant, Reasoning, side_channel
from gym_runtime import UsageError
from gym_runtime.adapters import ModelSettings
from gym_runtime.messages import choices

from gym_models.wire import endpoint
from gym_models.wire.endpoint import Endpoint
from gym_models.wire.engine import Api, Engine
from gym_models.wire.http_adapter import HttpAdapter
from gym_models.wire.native import Computer


class Host(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table of ``hosted.toml``, where the fields are explained."""

    url: str
    key: str
    about: str
    api: Api = "chat"
    reasoning: Reasoning = "drop"
    max_tokens: str = "max_tokens"
    check_model: bool = True
    lists: bool = True
    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    names: dict[str, str] = {}
    computer: Computer | None = None

    @property
    def sampling(self) -> frozenset[str]:
        """Its sampling parameters."""
        return side_channel.OPENAI_CHAT.union(self.has).difference(self.lacks)


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a configuration may override in the table."""

    reasoning: Reasoning | None = None
    max_tokens: str | None = None
    check_model: bool | None = None
    has: tuple[str, ...] | None = None
    lacks: tuple[str, ...] | None = None
    computer: Computer | None = None
    sampling: dict[str, Any] = {}


@cache
def hosts() -> dict[str, Host]:
    """Every host by its name."""
    text = files("gym_models").joinpath("hosted.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, Host])


class Adapter(HttpAdapter):
    """A hosted engine. See the module."""

    def __init__(self, settings: ModelSettings) -> None:
        self._host = host = _host(settings)
        self._settings = msgspec.structs.replace(
            settings,
            urls=settings.urls or (host.url,),
            api_key_variable=settings.api_key_variable or host.key,
        )
        super().__init__(
            self._settings,
            self._engine,
            at=self._at,
            check_model=self._host.check_model,
            sampling=msgspec.convert(settings.options.get("sampling", {}), dict[str, Any]),
        )

    def _at(self, url: str, settings: ModelSettings) -> Endpoint:
        # Unlike the `openai` client: OPENAI_* variables hold credentials for OpenAI, not for other hosts.
        return msgspec.structs.replace(endpoint.plain(url, settings), lists=self._host.lists)

    def _engine(self, one: Endpoint) -> Engine:
        return Engine(
            one,
            model=self._settings.name,
            api=self._host.api,
            extra_body=msgspec.json.encode(self._settings.extra_body),
            media_hosts=self._settings.media_hosts,
            computer=self._host.computer,
            dialect=ChatVariant(
                reasoning=self._host.reasoning,
                tool_images="user",
                max_tokens=self._host.max_tokens,
                engine=self._settings.provider,
                sampling=self._host.sampling,
                names=tuple(self._host.names.items()),
            ),
        )


def _host(settings: ModelSettings) -> Host:
    """A host's table, with the settings' overrides.

    Raises:
        UsageError: there is no such host, or a setting is wrong.
    """
    host = hosts().get(settings.provider)
    if host is None:
        raise UsageError(f"there is no host '{settings.provider}'; there are {', '.join(hosts())}")
    try:
        options = msgspec.convert(settings.options, Options)
        api = host.api if settings.api == "auto" else msgspec.convert(settings.api, Api)
    except msgspec.ValidationError as error:
        said = f"{error}{choices(error, Options) or choices(error, Api)}"
        raise UsageError(f"settings of {settings.provider}: {said}") from error
    said = {name: value for name, value in msgspec.structs.asdict(options).items() if value is not None}
    del said["sampling"]
    return msgspec.structs.replace(host, api=api, **said)


def key_variable(name: str) -> str:
    """The variable that holds a host's key, unless a configuration names another."""
    return hosts()[name].key


def about(name: str) -> str:
    """A host's description, in a line."""
    return hosts()[name].about
