"""Guests without any package: what `gym_resources.guests.played` promises of all of them."""

from __future__ import annotations

import os
import random

from gym_resources.guests.played.fork_messages import Asked, Given, Played
from gym_resources.guests.played.script import Script


def _said(text: str) -> list[dict[str, object]]:
    return [{"role": "user", "content": text}]


def counts(address: str, row: bytes, given: list[Given], cut: bool) -> Played:
    """Three turns; each letter is worth 1."""
    script = Script(given, cut=cut)

    def guest() -> Played:
        letters = 0
        for turn in range(3):
            reply = script.answer(Asked(items=_said(f"{turn} {random.random()}")))
            if reply is None:
                break
            letters += len(reply.all_text)
        with open(os.path.join(os.environ["HOME"], f"left-{random.random()}"), "w"):
            pass
        os.mkdir(os.path.join(os.environ["HOME"], "folder"))
        return Played(digests=[], reward=float(letters), fields={"turns": turn})

    return script.play(row, guest)


def judged(address: str, row: bytes, given: list[Given], cut: bool) -> Played:
    """One turn, and a judge's word on it."""
    script = Script(given, cut=cut)

    def guest() -> Played:
        reply = script.answer(Asked(items=_said("say something")))
        assert reply is not None
        word = script.answer(Asked(role="judge", items=_said(reply.all_text), sampling={"temperature": 0.0}))
        assert word is not None
        return Played(digests=[], reward=float(word.all_text))

    return script.play(row, guest)


def moody(address: str, row: bytes, given: list[Given], cut: bool) -> Played:
    """Asks something else each time."""
    script = Script(given, cut=cut)

    def guest() -> Played:
        script.answer(Asked(items=_said(os.urandom(8).hex())))
        script.answer(Asked(items=_said("on")))
        return Played(digests=[], reward=1.0)

    return script.play(row, guest)
