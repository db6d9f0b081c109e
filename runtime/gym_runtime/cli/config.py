"""A system described in a file, TOML:

    nats = ["nats://10.0.0.5:4222"]     # the broker; left out, a private one is started
    prefix = "gym"                      # tells systems that share a broker apart
    state_dir = "/var/lib/gym-runtime"  # where a private broker keeps its queue
    drain_s = 60                        # how long stopping workers may take to finish

    [[pools]]                           # as many as you like
    kind = "resource"                   # agent, resource or model
    names = ["mcqa", "reasoning_gym"]   # left out: all agents, all runnable environments, "policy"
    processes = 4
    capacity = 512                      # per process: rollouts in flight, or calls in progress

    [[pools]]
    kind = "model"
    [pools.model]
    provider = "openai"
    name = "Qwen/Qwen3-4B"
    urls = ["http://10.0.0.7:8000/v1", "http://10.0.0.8:8000/v1"]
    api_key_variable = "MODEL_KEY"      # better than api_key = "…"

An ``api_key`` is accepted if no other user can read the file; it goes to the workers through their
environment, never through arguments, logs or messages. Everything in ``[pools.model]`` but ``api_key`` is a
field of `gym_runtime.workers.adapter.ModelSettings`.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from pathlib import Path
from typing import Any, cast

import msgspec

from gym_runtime.cli.options import BROKER, POLICY, BrokerOptions
from gym_runtime.environment import catalogue
from gym_runtime.errors import UsageError
from gym_runtime.messages.choices import choices
from gym_runtime.system.spec import Kind, SystemSpec
from gym_runtime.workers.adapter import ModelSettings

KEY = "api_key"
KEY_VARIABLE = "GYM_MODEL_KEY_{number}"


class PoolConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pool as the file describes it; ``names`` empty: all there are."""

    kind: Kind
    names: tuple[str, ...] = ()
    processes: int = 1
    capacity: int = 0
    model: ModelSettings | None = None


class SystemConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file."""

    nats: str | tuple[str, ...] = ()
    prefix: str = SystemSpec().prefix
    state_dir: str = ""
    drain_s: float = SystemSpec().drain_s
    pools: tuple[PoolConfig, ...] = ()

    @property
    def urls(self) -> tuple[str, ...]:
        """The broker's addresses."""
        return (self.nats,) if isinstance(self.nats, str) else self.nats

    @property
    def models(self) -> dict[str, ModelSettings]:
        """The models that are described, by pool."""
        return {name: pool.model for pool in self.pools if pool.model for name in pool.names or (POLICY,)}

    def broker(self, options: BrokerOptions) -> BrokerOptions:
        """The broker of the options; of what they leave out, the file's."""
        prefix = self.prefix if options.prefix == BROKER.prefix else options.prefix
        return BrokerOptions(nats=options.nats or ",".join(self.urls), prefix=prefix)


def load_config(path: Path | None) -> SystemConfig:
    """Read a system's file; without one, what is then the default. Keys in it are put into this process's
    environment.

    Raises:
        UsageError: the file cannot be read, is not TOML, has an unknown field (with the nearest one) or a
            wrong value, or holds a key and others can read it.
    """
    if path is None:
        return SystemConfig()
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            document = tomllib.loads(file.read().decode("utf-8-sig"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from None
    keys = _take_keys(document)
    if keys and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UsageError(
            f"{path} holds an {KEY} and others can read it: chmod 600 {path}, "
            "or name an environment variable in api_key_variable instead"
        )
    try:
        config = msgspec.convert(document, SystemConfig)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {_place(str(error))}{choices(error, SystemConfig)}") from None
    for pool in config.pools:
        if pool.processes < 1 or pool.capacity < 0:
            raise UsageError(f"{path}: a pool needs at least one process, and a capacity of 0 or more")
    os.environ.update(keys)
    return config


def _take_keys(document: dict[str, Any]) -> dict[str, str]:
    """Take the keys out of the document and name the variables that will hold them instead."""
    pools = document.get("pools")
    tables = cast("list[Any]", pools) if isinstance(pools, list) else []
    keys: dict[str, str] = {}
    for number, pool in enumerate(tables):
        model = cast("dict[str, Any]", pool).get("model") if isinstance(pool, dict) else None
        if isinstance(model, dict) and KEY in model:
            variable = KEY_VARIABLE.format(number=number)
            keys[variable] = str(cast("dict[str, Any]", model).pop(KEY))
            model["api_key_variable"] = variable
    return keys


def _place(message: str) -> str:
    """msgspec's message, with the place first; for an unknown setting, with the nearest one."""
    what, _, where = message.partition(" - at `$")
    place = where.rstrip("`").lstrip(".")
    if unknown := re.fullmatch("Object contains unknown field `(.*)`", what):
        struct = ModelSettings if place.endswith("model") else PoolConfig if place else SystemConfig
        known = struct.__struct_fields__
        hint = catalogue.suggest(unknown[1], [*known]) or f"; there are: {', '.join(known)}"
        return f"there is no setting '{unknown[1]}'{f' in {place}' if place else ''}{hint}"
    return f"{place}: {what[:1].lower()}{what[1:]}" if place else what
