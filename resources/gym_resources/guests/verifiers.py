"""An environment of verifiers 0.4: ``verifiers:NAME``, or ``verifiers:FILE.py``.

NAME is a taskset's package, as verifiers' own ``eval`` takes it; ``?KEY=VALUE`` sets fields of its
configuration, and ``?env.KEY=VALUE`` those of its ``Env``. The taskset's tasks are the rows. Setup, tools,
stops, rewards, metrics and judges are verifiers' own, and so is an ``Env`` of several seats of which one is
trained. The conversation is this runtime's: it goes as in verifiers' harness ``null``, so that a taskset gets
its own tools and no shell. A judge asks the model in the role ``judge``, a seat that is not trained the model
in the role of its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gym_runtime import Environment, Role

from gym_resources.guests.played import named_code, verifiers_play
from gym_resources.guests.played.played_episode import PlayedEpisode


def environment(address: str) -> Environment:
    """The environment of an address.

    Raises:
        UsageError: as `verifiers_play.load`.
    """
    name, settings = named_code.parse(address)
    code = named_code.find(name)
    loaded = verifiers_play.load(address)

    def generate(size: int | None, seed: int) -> Iterator[dict[str, Any]]:
        return verifiers_play.rows(loaded, size)

    others = [Role(name=name) for name in verifiers_play.seats(loaded).others]
    judge = [] if verifiers_play.JUDGE in [role.name for role in others] else [verifiers_play.JUDGE]
    here = {
        "play": verifiers_play.play,
        "address": named_code.by_module(address, code.module if code else name),
        "imports": ("gym_resources.guests.played.verifiers_play", *([code.module] if code else [])),
        "sources": code.sources if code else (),
        "folders": named_code.named_folders(settings),
    }
    return Environment(
        resource=type("VerifiersEpisode", (PlayedEpisode,), here),
        description=f"verifiers' taskset {address}",
        extra="verifiers",
        roles=(*others, *(Role(name=name, optional=True) for name in judge)),
        generate=generate,
    )
