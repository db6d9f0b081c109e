"""An environment of skyrl-gym: ``skyrl-gym:NAME``, ``skyrl-gym:FILE.py:CLASS`` or ``skyrl-gym:MODULE:CLASS``.

NAME is one that skyrl-gym has registered. ``?data=FILE`` names rows in SkyRL's format (JSONL or Parquet:
``prompt``, ``reward_spec``, …); their ``env_class`` is ignored. ``max_turns`` goes to the environment as
SkyRL's generator sets it, and all other settings are its ``env_config``; a setting that is a folder can be
read. The reward is the sum of its steps' rewards, its metrics are fields of the result. The model's text is
trained as it was sampled, also where the environment returns a ``postprocessed_action``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gym_runtime import Environment

from gym_resources.guests.played import named_code, skyrl_play
from gym_resources.guests.played.played_episode import PlayedEpisode


class SkyEpisode(PlayedEpisode):
    """A rollout in an environment of skyrl-gym."""

    play = skyrl_play.play
    task: skyrl_play.SkyTask


def environment(address: str) -> Environment:
    """The environment of an address.

    Raises:
        UsageError: as `skyrl_play.creator`.
    """
    name, settings = named_code.parse(address)
    code = named_code.find(name.rpartition(":")[0]) if ":" in name else None
    kind = skyrl_play.creator(address)

    def generate(size: int | None, seed: int) -> Iterator[dict[str, Any]]:
        return skyrl_play.rows(address, size)

    here = {
        "address": named_code.by_module(address, f"{code.module}:{kind.__name__}" if code else name),
        "imports": (skyrl_play.__name__, code.module if code else kind.__module__),
        "sources": code.sources if code else (),
        "folders": named_code.named_folders(settings),
    }
    return Environment(
        resource=type("SkyEpisode", (SkyEpisode,), here),
        description=f"skyrl-gym's environment {name}",
        extra="skyrl-gym",
        generate=generate,
    )
