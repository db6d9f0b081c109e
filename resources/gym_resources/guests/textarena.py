"""A game of TextArena: ``textarena:GAME``, as in ``textarena:Nim-v0?players=2``.

The policy plays one seat (``seat``, 0 by default), and the model in the role ``opponent`` all others. Rows
are seeds. The reward is TextArena's own for that seat. ``size`` and ``first_seed`` say how many rows there
are, and which; ``nltk`` names a folder with NLTK's word lists, which some games need. All other settings go
to the game.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gym_runtime import Environment, Role, UsageError

from gym_resources.guests.played import named_code, textarena_play
from gym_resources.guests.played.played_episode import PlayedEpisode

SIZE = 50


class GameEpisode(PlayedEpisode):
    """A rollout of one game."""

    play = textarena_play.play
    task: textarena_play.GameTask


def environment(address: str) -> Environment:
    """The environment of an address.

    Raises:
        UsageError: there is no such game, or it does not begin here: the number of players is wrong, a
            setting is unknown, word lists or a network are missing.
    """
    name, settings = named_code.parse(address)
    size, first = settings.pop("size", SIZE), settings.pop("first_seed", 0)
    if not (isinstance(size, int) and size > 0 and isinstance(first, int)):
        raise UsageError(f"textarena:{address}: size is a number above 0, and first_seed a number")
    game = textarena_play.checked(name, settings)

    def generate(limit: int | None, seed: int) -> Iterator[dict[str, Any]]:
        begin = first + seed
        for number in range(begin, begin + (size if limit is None else min(limit, size))):
            yield {"responses_create_params": {"input": []}, "textarena": {"seed": number}}

    here = {
        "address": address,
        "imports": (textarena_play.__name__, game.module),
        "folders": named_code.named_folders(settings),
    }
    return Environment(
        resource=type("GameEpisode", (GameEpisode,), here),
        description=f"TextArena's game {name}",
        extra="textarena",
        roles=(Role(name=textarena_play.OPPONENT),) if game.players > 1 else (),
        generate=generate,
    )
