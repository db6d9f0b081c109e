# The games' packages are not there where types are checked.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Plays one text adventure, in a process of its own: frames of JSON over standard input and output.

The first frame says which game (`Game`); each answer is a `Scene`, and each further frame is a command.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, BinaryIO

import msgspec

HEAD_BYTES = 8
MOST_COMMANDS = 200
JAVA = "-Xmx400m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto"


class Game(msgspec.Struct, frozen=True):
    """Which game.

    Attributes:
        name: what its framework calls it.
        settings: how it is set up.
        seed: which of the split's variations: of them all, counted from 0 and again from the start.
        java: the folder with the program ``java``.
    """

    framework: str
    name: str
    settings: str
    split: str
    seed: int
    java: str


class Scene(msgspec.Struct, frozen=True):
    """What the player sees.

    Attributes:
        score: so far, as a part of what can be reached; below 0 where the game is lost.
        commands: what can be done now.
        problem: why there is no game.
    """

    text: str = ""
    score: float = 0.0
    ended: bool = False
    commands: list[str] = []
    problem: str = ""


Play = Callable[[str], Scene]


def textworld_express(game: Game) -> tuple[Scene, Play]:
    from textworld_express import TextWorldExpressEnv

    env = TextWorldExpressEnv(envStepLimit=1_000_000)
    seeds = list({"train": env.getValidSeedsTrain, "test": env.getValidSeedsTest}[game.split]())
    env.load(gameName=game.name, gameParams=game.settings)
    text, info = env.reset(seed=int(seeds[game.seed % len(seeds)]), gameFold=game.split)

    def scene(text: str, info: dict[str, Any]) -> Scene:
        ended = bool(info["tasksuccess"] or info["taskfailure"])
        return Scene(
            text, float(info["score"]), ended, sorted(map(str, info["validActions"]))[:MOST_COMMANDS]
        )

    def play(command: str) -> Scene:
        text, _, _, info = env.step(command)
        return scene(text, info)

    return scene(f"{info['taskDescription']}\n\n{text}", info), play


def scienceworld(game: Game) -> tuple[Scene, Play]:
    from scienceworld import ScienceWorldEnv

    env = ScienceWorldEnv("", envStepLimit=1_000_000)
    env.load(game.name, 0, game.settings)
    found = env.get_variations_train() if game.split == "train" else env.get_variations_test()
    env.load(game.name, found[game.seed % len(found)], game.settings)
    text, info = env.reset()

    def scene(text: str, ended: bool, info: dict[str, Any]) -> Scene:
        return Scene(text, info["score"] / 100, ended, sorted(map(str, info["valid"]))[:MOST_COMMANDS])

    def play(command: str) -> Scene:
        text, _, ended, info = env.step(command)
        return scene(text, bool(ended), info)

    return scene(f"{info['taskDesc']}\n\n{text}", False, info), play


FRAMEWORKS = {"textworld_express": textworld_express, "scienceworld": scienceworld}


def main() -> None:
    """Play one game."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # Moved away: a game's package may print.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    game = msgspec.json.decode(_read(requests), type=Game)
    os.environ["PATH"] = f"{game.java}:{os.environ.get('PATH', '')}"
    os.environ["JAVA_TOOL_OPTIONS"] = JAVA
    try:
        scene, play = FRAMEWORKS[game.framework](game)
    except Exception as error:  # noqa: BLE001 - whatever the package raises is the worker's to hear
        scene, play = Scene(problem=f"{type(error).__name__}: {error}"[:1000]), None
    _write(answers, scene)
    while play is not None:
        command = msgspec.json.decode(_read(requests), type=str)
        try:
            scene = play(command)
        except Exception as error:  # noqa: BLE001
            scene = Scene(problem=f"{type(error).__name__}: {error}"[:1000])
        _write(answers, scene)


def _read(requests: BinaryIO) -> bytes:
    head = requests.read(HEAD_BYTES)
    if len(head) < HEAD_BYTES:
        os._exit(0)  # the worker has gone
    return requests.read(int.from_bytes(head, "big"))


def _write(answers: BinaryIO, scene: Scene) -> None:
    frame = msgspec.json.encode(scene)
    answers.write(len(frame).to_bytes(HEAD_BYTES, "big") + frame)
    answers.flush()


if __name__ == "__main__":
    main()
