"""The models that the command line asks for: its options, put together with a system's file."""

from __future__ import annotations

import msgspec

from gym_runtime.cli.options import ModelOptions, RoleOptions, named_values
from gym_runtime.cli.terminal import downloading
from gym_runtime.environment import catalogue
from gym_runtime.errors import UsageError
from gym_runtime.workers.adapter import ModelSettings

DEFAULT_MODEL = "embedded/smollm2-135m"
DEFAULT_CONCURRENCY = 1024
EMBEDDED_CONCURRENCY = 16
"""More rollouts in flight than the embedded engine has slots would only wait, and use up their time."""
POLICY = "policy"
"""The model that rollouts ask for by default; as the model of a role, the policy itself."""


def parse_model(options: ModelOptions, file_model: ModelSettings | None = None) -> ModelSettings:
    """The model that was asked for, else the file's, else the default one. Imports no adapter.

    Raises:
        UsageError: no such provider, no name, or an address without a model.
    """
    text, engine = options.model, {"engine_args": options.engine_args} if options.engine_args else {}
    if file_model is not None and not text:
        return msgspec.structs.replace(
            file_model,
            urls=options.model_urls or file_model.urls,
            options=file_model.options | engine,
            requests_per_minute=options.requests_per_minute or file_model.requests_per_minute,
        )
    if options.model_urls and not text:
        raise UsageError("--model-url needs the model's name there too: --model openai/NAME")
    settings = ModelSettings.parse(
        text or DEFAULT_MODEL,
        urls=options.model_urls,
        api=options.model_api,
        options=engine,
        requests_per_minute=options.requests_per_minute or 0.0,
    )
    if not catalogue.exists("models", settings.provider):
        if "/" not in text:
            raise UsageError(
                f"--model {text}: write it as PROVIDER/NAME, such as openai/NAME or scripted/echo; "
                "'gym-runtime ls models' lists the providers"
            )
        near = catalogue.suggest(settings.provider, catalogue.names("models"), "models")
        raise UsageError(f"--model {text}: there is no model provider '{settings.provider}'{near}")
    if not settings.name:
        raise UsageError(f"--model {text} lacks the model's name: --model {settings.provider}/NAME")
    return settings


def parse_roles(options: RoleOptions) -> dict[str, ModelSettings | None]:
    """The models that were named for roles; None for the policy itself. Imports no adapter.

    Raises:
        UsageError: an option is not of its form, names a role twice, or is the address of a role without a
            model.
    """
    named = named_values("--role", options.roles, "PROVIDER/NAME", judge=options.judge)
    urls = named_values("--role-url", options.role_urls, "URL")
    for role in urls:
        if role not in named or named[role] == [POLICY]:
            raise UsageError(
                f"--role-url {role}=… needs the model's name there too: --role {role}=openai/NAME"
            )
    found: dict[str, ModelSettings | None] = {}
    for role, texts in named.items():
        if len(texts) > 1:
            raise UsageError(f"--role {role}=…: the role has a model already")
        text = texts[0]
        option = f"--judge {text}" if text == options.judge else f"--role {role}={text}"
        found[role] = None if text == POLICY else _role_model(option, text, tuple(urls.get(role, ())))
    return found


def _role_model(option: str, text: str, urls: tuple[str, ...]) -> ModelSettings:
    try:
        return parse_model(ModelOptions(model=text, model_urls=urls))
    except UsageError as error:
        raise UsageError(error.message.replace(f"--model {text}", option, 1)) from None


def fetch_weights(model: ModelSettings) -> None:
    """Have an embedded model's weights at hand before its worker needs them; nothing for other models.

    Raises:
        UsageError: they are nowhere to be had.
    """
    if model.provider == "embedded":
        fetch = catalogue.load("models", "embedded").fetch_weights
        with downloading(f"weights of {model.name}") as report:
            fetch(model.name, report)
