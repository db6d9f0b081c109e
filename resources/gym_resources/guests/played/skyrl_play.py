# pyright: reportMissingImports=false
"""Plays an environment of skyrl-gym, and reads rows in SkyRL's format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import skyrl_gym
from gym_runtime import ResourceError, Task, TaskError, UsageError
from gym_runtime.errors import UNREADABLE
from gym_runtime.messages import CreateParams
from msgspec import UNSET, UnsetType
from omegaconf import OmegaConf
from skyrl_gym.envs.registration import load_env_creator, registry

from gym_resources.guests.played import named_code
from gym_resources.guests.played.fork_messages import Asked, Given, Played
from gym_resources.guests.played.script import Script, numbers

ROW = "skyrl_gym"
"""The row's field with the dataset's own fields, which the environment gets as ``extras``."""
DATA = "data"
MAX_TURNS = "max_turns"


class SkyTask(Task):
    """A row. Its prompt is either the input, or the first of the environment's observations."""

    skyrl_gym: dict[str, Any]
    prompt: list[dict[str, Any]] | UnsetType = UNSET


def creator(address: str) -> Any:
    """What makes the environment: its class.

    Raises:
        UsageError: no environment has this name.
    """
    name = named_code.parse(address).name
    if name in registry:
        entry = registry[name].entry_point
        return load_env_creator(entry) if isinstance(entry, str) else entry
    module, _, kind = name.rpartition(":")
    code = named_code.find(module) if module else None
    if code is None:
        known = ", ".join(sorted(registry))
        raise UsageError(
            f"there is no environment '{name}' of skyrl-gym. There are {known}; one of your own is "
            "skyrl-gym:FILE.py:CLASS or skyrl-gym:MODULE:CLASS"
        )
    found: Any = vars(named_code.load(module, code)).get(kind)
    if not (isinstance(found, type) and issubclass(found, cast("type[object]", skyrl_gym.Env))):
        raise UsageError(f"{module} has no class '{kind}' that derives from skyrl_gym's Env")
    return cast("Any", found)


def rows(address: str, size: int | None) -> Iterator[dict[str, Any]]:
    """The rows of a file in SkyRL's format, in their order. They do not choose the environment.

    Raises:
        UsageError: the address names no file, or it cannot be read.
    """
    given = named_code.parse(address).settings.get(DATA)
    if not given:
        raise UsageError(
            f"skyrl-gym:{address} has no rows of its own: skyrl-gym:…?data=FILE.parquet with rows in SkyRL's "
            "format, or --input FILE"
        )
    for number, row in enumerate(_records(Path(str(given)))):
        if size is not None and number >= size:
            return
        if not isinstance(row, dict):
            raise UsageError(f"{given}: row {number + 1} is no object")
        row = cast("dict[str, Any]", row)
        if "prompt" not in row:
            raise UsageError(f"{given}: row {number + 1} has no 'prompt'")
        extras = {name: value for name, value in row.items() if name not in ("prompt", "env_class")}
        yield {"responses_create_params": {"input": []}, "prompt": row["prompt"], ROW: extras}


def _records(file: Path) -> Iterator[Any]:
    try:
        if file.suffix == ".parquet":
            from pyarrow import parquet  # pandas would round numbers to 10 digits

            yield from parquet.read_table(file).to_pylist()
            return
        # As bytes: text is also split at other separators, which JSON may hold.
        for line in file.read_bytes().splitlines():
            if line.strip():
                yield json.loads(line)
    except (ImportError, OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from error


def play(address: str, row: bytes, given: list[Given], cut: bool) -> Played:
    """Play a rollout, in a fork."""
    script = Script(given, cut=cut)
    return script.play(row, lambda: _play(address, row, script))


def _play(address: str, row: bytes, script: Script) -> Played:
    task = msgspec.json.decode(row, type=SkyTask)
    settings = {**named_code.parse(address).settings}
    settings.pop(DATA, None)
    extras = dict(task.skyrl_gym)
    if MAX_TURNS in settings:
        extras[MAX_TURNS] = settings.pop(MAX_TURNS)
    env = creator(address)(env_config=OmegaConf.create(settings), extras=extras)
    try:
        return _rollout(env, task, script)
    finally:
        env.close()


def _rollout(env: Any, task: SkyTask, script: Script) -> Played:
    there = _conversation(task.responses_create_params)
    prompt = there if isinstance(task.prompt, UnsetType) else task.prompt
    observations, _ = env.init([dict(message) for message in prompt])
    if list(observations[: len(there)]) != there:
        raise ResourceError("the environment's init changes the row's input: give it as the field 'prompt'")
    observations = observations[len(there) :]
    rewards: list[float] = []
    done = False
    while not done:
        reply = script.answer(Asked(items=[_item(message) for message in observations]))
        if reply is None:
            break
        out = env.step(reply.all_text)
        rewards.append(_reward(out["reward"]))
        observations, done = out["observations"], bool(out["done"])
    if not rewards:
        raise ResourceError("the rollout ended before the environment has seen an answer")
    return Played(digests=[], reward=sum(rewards), fields=numbers(env.get_metrics()))


def _reward(found: Any) -> float:
    if found is None:
        raise ResourceError("the environment's step returned no reward")
    return float(found)


def _conversation(params: CreateParams) -> list[dict[str, Any]]:
    try:
        return [msgspec.json.decode(item, type=dict[str, Any]) for item in params.input_items()]
    except UNREADABLE as error:
        raise TaskError(f"the row's input: {error}") from error


def _item(message: dict[str, Any]) -> dict[str, Any]:
    """A chat message as an item; what a tool said is the user's, since there was no call of a tool."""
    role = message["role"] if message["role"] in ("system", "user", "assistant", "developer") else "user"
    return {"role": role, "content": message["content"]}
