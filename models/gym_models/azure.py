"""OpenAI's models as Azure serves them, by deployment: ``--model azure/DEPLOYMENT``.

The adapter speaks both APIs: ``/openai/v1/`` with the Responses API and Chat Completions, and, where an
``api_version`` with a date is given, the older ``/openai/deployments/DEPLOYMENT/chat/completions``.

Settings:
    urls: the resource, such as ``https://NAME.openai.azure.com``; else ``AZURE_OPENAI_ENDPOINT``.
    options.api_version: else ``OPENAI_API_VERSION``; empty for the ``v1`` surface.
    options.reasoning, options.max_tokens: as in `gym_models.openai`.

Credentials come from the first of these that is set:

    ============================  ==================================================================
    ``options.token_command``     a command, as a list of words, that prints
                                  ``{"accessToken": …, "expires_on": …}``, as
                                  ``az account get-access-token`` does
    ``AZURE_OPENAI_API_KEY``      a key, or the variable that ``api_key_variable`` names
    ``AZURE_OPENAI_AD_TOKEN``     an Entra token that another program refreshes
    the package azure-identity    whatever it finds: a managed identity, a service principal, ``az login``
    ============================  ==================================================================
"""

from __future__ import annotations

import importlib.util
import os
import re
from typing import Literal
from urllib.parse import urlsplit

import msgspec
from gym_faces.dialects import ChatVariant, Reasoning, side_channel
from gym_runtime import UsageError
from gym_runtime.adapters import ModelSettings
from gym_runtime.messages import choices

from gym_models.wire import endpoint, entra
from gym_models.wire.endpoint import Endpoint
from gym_models.wire.engine import Engine
from gym_models.wire.http import Authorize
from gym_models.wire.http_adapter import HttpAdapter

Api = Literal["auto", "responses", "chat"]

KEY = "AZURE_OPENAI_API_KEY"
TOKEN = "AZURE_OPENAI_AD_TOKEN"
ENDPOINT = "AZURE_OPENAI_ENDPOINT"
VERSION = "OPENAI_API_VERSION"
_DATED = re.compile(r"\d{4}-\d{2}-\d{2}")
_SURFACES = ("/v1", "/openai")


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of this adapter."""

    api_version: str = ""
    token_command: tuple[str, ...] = ()
    reasoning: Reasoning = "drop"
    max_tokens: str = "max_completion_tokens"


class Adapter(HttpAdapter):
    """Deployments on Azure. See the module for its settings."""

    def __init__(self, settings: ModelSettings) -> None:
        try:
            self._options = msgspec.convert(settings.options, Options)
            self._api = msgspec.convert(settings.api, Api)
        except msgspec.ValidationError as error:
            said = f"{error}{choices(error, Options) or choices(error, Api)}"
            raise UsageError(f"settings of the azure adapter: {said}") from error
        self._version = self._options.api_version or os.environ.get(VERSION, "")
        self._classic = _DATED.match(self._version) is not None
        if self._classic and self._api == "responses":
            raise UsageError(
                f"the api_version {self._version} has Chat Completions only; the Responses API is on the v1 "
                f"surface: leave out options.api_version and {VERSION}"
            )
        urls = settings.urls or tuple(url for url in (os.environ.get(ENDPOINT, ""),) if url)
        if not urls:
            raise UsageError(
                f"the Azure resource is not set: --model-url https://NAME.openai.azure.com, or {ENDPOINT}"
            )
        self._settings = msgspec.structs.replace(settings, urls=urls)
        self._authorize: Authorize | None = None
        # A resource lists the models that could be deployed, not its deployments.
        super().__init__(self._settings, self._engine, at=self._at, check_model=False)

    def _at(self, text: str, settings: ModelSettings) -> Endpoint:
        root = text.rstrip("/")
        for surface in _SURFACES:
            root = root.removesuffix(surface)
        path, query = "/openai/v1", f"?api-version={self._version}" if self._version else ""
        if self._classic:
            path = f"/openai/deployments/{settings.name}"
        url, host = endpoint.base_url(root + path)
        if urlsplit(root).path:
            raise UsageError(
                f"'{text}' is not an Azure resource; it looks like https://NAME.openai.azure.com"
            )
        variable, login = self._login()
        headers = {"accept": "application/json", "content-type": "application/json", **login}
        headers.update((name.lower(), value) for name, value in settings.headers.items())
        return Endpoint(
            url=url,
            headers=headers,
            private=endpoint.is_private(host),
            query=query,
            key_variable=variable,
            has_key=True,
        )

    def _login(self) -> tuple[str, dict[str, str]]:
        """The source of the credentials, and their headers; a token that expires has no fixed header."""
        if command := self._options.token_command:
            self._authorize = self._authorize or entra.Login(entra.from_command(command))
            return "options.token_command", {}
        variable = self._settings.api_key_variable or KEY
        if key := os.environ.get(variable, "").strip():
            return variable, {"api-key": key}
        if token := os.environ.get(TOKEN, "").strip():
            return TOKEN, {"authorization": f"Bearer {token}"}
        if importlib.util.find_spec("azure") and importlib.util.find_spec("azure.identity"):
            self._authorize = self._authorize or entra.Login(entra.from_identity())
            return "azure-identity", {}
        raise UsageError(
            f"no Azure credentials: set {variable} or {TOKEN}, or "
            'pip install "gym-runtime[azure]" for managed identities and az login'
        )

    def _engine(self, one: Endpoint) -> Engine:
        return Engine(
            one,
            model=self._settings.name,
            api="chat" if self._classic else self._api,
            extra_body=msgspec.json.encode(self._settings.extra_body),
            media_hosts=self._settings.media_hosts,
            dialect=ChatVariant(
                reasoning=self._options.reasoning,
                tool_images="user",
                max_tokens=self._options.max_tokens,
                engine="Azure",
                sampling=side_channel.OPENAI_CHAT,
            ),
            authorize=self._authorize,
        )


def key_variable(_: str) -> str:
    """The variable that holds the key, unless a configuration names another."""
    return KEY
