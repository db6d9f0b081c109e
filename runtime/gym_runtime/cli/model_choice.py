"""Which model and which broker the command line asks for: its options, put together with a system's file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec

from gym_runtime.cli.config import load_config
from gym_runtime.cli.options.run_options import RunOptions
from gym_runtime.cli.options.shared_options import (
    DEFAULT_MODEL,
    BrokerOptions,
    ModelOptions,
    RoleOptions,
    RolePoolOptions,
)
from gym_runtime.environment import catalogue
from gym_runtime.environment.settings import check_role_sampling
from gym_runtime.errors import UNREADABLE, UsageError
from gym_runtime.workers.adapter import ModelSettings


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
    known = catalogue.names("models")
    if not catalogue.exists("models", settings.provider):
        if "/" not in text:
            raise UsageError(
                f"--model {text}: write it as PROVIDER/NAME, such as openai/NAME or scripted/echo; "
                "'gym-runtime ls models' lists the providers"
            )
        near = catalogue.suggest(settings.provider, known, "models")
        raise UsageError(f"--model {text}: there is no model provider '{settings.provider}'{near}")
    if not settings.name:
        raise UsageError(f"--model {text} lacks the model's name: --model {settings.provider}/NAME")
    return settings


POLICY = "policy"
"""As the model of a role: the policy itself."""


def parse_roles(options: RoleOptions) -> dict[str, ModelSettings | None]:
    """The models that were named for roles; None for the policy itself. Imports no adapter.

    Raises:
        UsageError: an option is not of its form, names a role twice, or is the address of a role without a
            model.
    """
    named = _pairs("--role", options.roles, "PROVIDER/NAME")
    if options.judge:
        named.setdefault("judge", []).append(options.judge)
    urls = _pairs("--role-url", options.role_urls, "URL")
    for role in urls:
        if role not in named or named[role] == [POLICY]:
            raise UsageError(
                f"--role-url {role}=… needs the model's name there too: --role {role}=openai/NAME"
            )
    found: dict[str, ModelSettings | None] = {}
    for role, texts in named.items():
        if len(texts) > 1:
            raise UsageError(f"--role {role}=…: the role has a model already")
        option = f"--judge {texts[0]}" if texts[0] == options.judge else f"--role {role}={texts[0]}"
        found[role] = None if texts[0] == POLICY else _parse(option, texts[0], tuple(urls.get(role, ())))
    return found


def parse_role_pools(options: RolePoolOptions) -> dict[str, str]:
    """The pools that were named for roles.

    Raises:
        UsageError: an option is not of its form, or names a role twice.
    """
    named = _pairs("--role", options.roles, "POOL")
    if options.judge:
        named.setdefault("judge", []).append(options.judge)
    for role, pools in named.items():
        if len(pools) > 1:
            raise UsageError(f"--role {role}=…: the role has a pool already")
    return {role: pools[0] for role, pools in named.items()}


def parse_role_sampling(given: Iterable[str]) -> dict[str, dict[str, Any]]:
    """``ROLE.FIELD=VALUE`` s, by role; values as in `parse_row_fields`.

    Raises:
        UsageError: one is not of this form, or comes twice.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, value in parse_row_fields(given, "--role-sampling", "ROLE.FIELD=VALUE").items():
        role, _, field = name.partition(".")
        if not (role and field):
            raise UsageError(f"--role-sampling {name}=…: write it as ROLE.FIELD=VALUE")
        found.setdefault(role, {})[field] = value
    check_role_sampling(found)
    return found


def parse_agent_options(given: Iterable[str]) -> dict[str, Any]:
    """``NAME=VALUE`` s; values as in `parse_row_fields`.

    Raises:
        UsageError: one is not of this form, or comes twice.
    """
    return parse_row_fields(given, "--agent-set")


def _pairs(option: str, given: Iterable[str], what: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not (separator and name and value):
            raise UsageError(f"{option} {text}: write it as NAME={what}")
        found.setdefault(name, []).append(value)
    return found


def _parse(option: str, text: str, urls: tuple[str, ...]) -> ModelSettings:
    try:
        return parse_model(ModelOptions(model=text, model_urls=urls))
    except UsageError as error:
        raise UsageError(error.message.replace(f"--model {text}", option, 1)) from None


def with_file(options: RunOptions) -> tuple[RunOptions, dict[str, ModelSettings]]:
    """A run's options, completed by its ``--config`` file; and the models that the file describes, by pool.

    Raises:
        UsageError: the file cannot be read, or is wrong.
    """
    if options.config is None:
        return options, {}
    config = load_config(options.config)
    prefix = config.prefix if options.broker.prefix == BrokerOptions().prefix else options.broker.prefix
    broker = BrokerOptions(nats=options.broker.nats or ",".join(config.urls), prefix=prefix)
    completed = replace(options, broker=broker, state_dir=options.state_dir or config.state_dir)
    models = {name: pool.model for pool in config.pools if pool.model for name in pool.names or (POLICY,)}
    return completed, models


def require_broker(broker: BrokerOptions) -> tuple[str, ...]:
    """The broker's URLs, for commands that join a running system.

    Raises:
        UsageError: none was given.
    """
    if not broker.urls:
        raise UsageError(
            "which system? --nats URL, or the environment variable GYM_NATS_URL; "
            "'gym-runtime start' starts one and prints its URL"
        )
    return broker.urls


def parse_row_fields(given: Iterable[str], option: str = "--set", form: str = "NAME=VALUE") -> dict[str, Any]:
    """``NAME=VALUE`` s; a value is JSON where it can be read as such, else the text itself.

    Raises:
        UsageError: one is not of this form, or a name comes twice.
    """
    found: dict[str, Any] = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise UsageError(f"{option} {text}: write it as {form}")
        if name in found:
            raise UsageError(f"{option} {text}: '{name}' has a value already")
        try:
            found[name] = msgspec.json.decode(value)
        except UNREADABLE:
            found[name] = value
    return found
