"""What was said on the command line, as the commands get it: decided once, then only read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec

from gym_runtime.environment import catalogue
from gym_runtime.errors import UsageError
from gym_runtime.workers.adapter import ModelSettings

ModelApi = Literal["auto", "responses", "chat"]

DEFAULT_MODEL = "embedded/smollm2-135m"
DEFAULT_CONCURRENCY = 1024
EMBEDDED_CONCURRENCY = 16
"""More rollouts in flight than the embedded engine has slots would only wait, and use up their time."""
RESULTS = Path("results")


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What ``run`` and ``publish`` were asked to do. None and empty mean: not said.

    Attributes:
        names: environments; ``publish`` has at most one.
        input: dataset rows; None for the environments' own example rows.
        output: where the rollouts go; see `output_path`.
        model: ``PROVIDER/NAME``; see `model_settings`.
        engine_args: for an engine of the worker's own.
        limit: rows of the input at most.
        concurrency: rollouts in flight, over all workers.
        workers: processes of each kind.
        seed_repeats: each repeat of a task gets a seed of its own.
        timeout_s: of one rollout, over all of its attempts; None leaves it to the environment.
        settings: defaults of row fields.
        nats: the broker's URLs; empty to start one.
        file_model: the model of a system's file, for when the command line names none.
    """

    names: tuple[str, ...] = ()
    input: Path | None = None
    output: Path | None = None
    model: str = ""
    model_urls: tuple[str, ...] = ()
    model_api: ModelApi = "auto"
    engine_args: str = ""
    limit: int | None = None
    repeats: int = 1
    concurrency: int = DEFAULT_CONCURRENCY
    workers: int = 1
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    seed_repeats: bool = False
    agent: str | None = None
    max_turns: int | None = None
    timeout_s: float | None = None
    max_attempts: int = 3
    durability: Literal["turn", "result"] = "turn"
    return_token_ids: bool = False
    max_staleness: int | None = None
    resume: bool = False
    settings: dict[str, Any] = {}
    nats: tuple[str, ...] = ()
    prefix: str = "gym"
    state_dir: str = ""
    file_model: ModelSettings | None = None
    json: bool = False

    @property
    def output_path(self) -> Path:
        """Where the rollouts go: as said, else ``results/`` and the environments' or the input's name."""
        if self.output is not None:
            return self.output
        stem = "-".join(Path(name).stem for name in self.names) or (self.input.stem if self.input else "run")
        return RESULTS / f"{stem}.jsonl"

    @property
    def sampling(self) -> dict[str, Any]:
        """What overrides the rows' ``responses_create_params``."""
        said = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_output_tokens": self.max_output_tokens,
        }
        return {name: value for name, value in said.items() if value is not None}

    def with_file(self, path: Path) -> RunOptions:
        """These options, with a system's file for what they do not say of the broker and the model.

        Raises:
            UsageError: the file cannot be read, or is wrong.
        """
        from gym_runtime.cli.config import load_config

        config = load_config(path)
        return msgspec.structs.replace(
            self,
            nats=self.nats or config.urls,
            prefix=config.prefix if self.prefix == RunOptions().prefix else self.prefix,
            state_dir=self.state_dir or config.state_dir,
            file_model=next((pool.model for pool in config.pools if pool.model), None),
        )

    @property
    def leaves_model_open(self) -> bool:
        """Whether a running system is to be joined and nothing says which model."""
        said = self.model or self.model_urls or self.engine_args or self.file_model
        return bool(self.nats) and not said

    def model_settings(self) -> ModelSettings:
        """The model that was asked for, or the file's, or the default one.

        Raises:
            UsageError: no such provider, no name, or an address without a model.
        """
        if self.file_model is not None and not self.model:
            return msgspec.structs.replace(
                self.file_model,
                urls=self.model_urls or self.file_model.urls,
                options=self.file_model.options | _engine_options(self.engine_args),
            )
        return parse_model(self.model, urls=self.model_urls, api=self.model_api, engine_args=self.engine_args)


class StartOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What ``start`` was asked to do. None and empty mean: not said.

    Attributes:
        pools: as they were typed, such as ``resource:mcqa,reasoning_gym``.
    """

    pools: tuple[str, ...] = ()
    config: Path | None = None
    model: str = ""
    model_urls: tuple[str, ...] = ()
    model_api: ModelApi = "auto"
    engine_args: str = ""
    concurrency: int | None = None
    workers: int | None = None
    nats: tuple[str, ...] = ()
    prefix: str = ""
    state_dir: str = ""


class CollectOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What ``collect`` was asked to do."""

    run: str
    output: Path
    nats: tuple[str, ...] = ()
    prefix: str = "gym"
    json: bool = False


def parse_model(
    text: str, *, urls: tuple[str, ...] = (), api: ModelApi = "auto", engine_args: str = ""
) -> ModelSettings:
    """``PROVIDER/NAME`` with its addresses; the default model if nothing was said. Imports no adapter.

    Raises:
        UsageError: no such provider, no name, or an address without a model.
    """
    if urls and not text:
        raise UsageError("--model-url needs the model's name there too: --model openai/NAME")
    options = _engine_options(engine_args)
    settings = ModelSettings.parse(text or DEFAULT_MODEL, urls=urls, api=api, options=options)
    known = catalogue.names("models")
    own_file = Path(settings.provider).with_suffix(".py").is_file()
    if settings.provider not in known and not own_file:
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


def _engine_options(engine_args: str) -> dict[str, Any]:
    return {"engine_args": engine_args} if engine_args else {}


def require_broker(nats: tuple[str, ...]) -> tuple[str, ...]:
    """The broker's URLs, for commands that join a running system.

    Raises:
        UsageError: none was given.
    """
    if not nats:
        raise UsageError(
            "which system? --nats URL, or the environment variable GYM_NATS_URL; "
            "'gym-runtime start' starts one and prints its URL"
        )
    return nats


def parse_settings(given: Iterable[str]) -> dict[str, Any]:
    """``NAME=VALUE`` s; a value is JSON where it can be read as such, else the text itself.

    Raises:
        UsageError: one is not of this form, or a name comes twice.
    """
    settings: dict[str, Any] = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise UsageError(f"--set {text}: write it as NAME=VALUE")
        if name in settings:
            raise UsageError(f"--set {text}: '{name}' has a value already")
        try:
            settings[name] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            settings[name] = value
    return settings


def parse_urls(text: str | None) -> tuple[str, ...]:
    """One or several URLs, separated by commas."""
    return tuple(url.strip() for url in (text or "").split(",") if url.strip())
