"""Text adventures: read what happens, answer with one short command (TALES).

A row names a ``framework``, a game of it (``task_no``), its ``split`` and a ``seed``, which chooses the
game's variation. Each turn the model reads what the game says and answers with a command, such as ``take
coin``: the last line of its answer, without marks around it. The reward is the highest score that the game
gave, as a part of what can be reached, 0 to 1. It ends when the game does, or after ``steps`` commands. With
``--set admissible_commands=true`` the model is told what can be done.

Here are the 16 games of TextWorldExpress and the 30 of ScienceWorld, which their packages carry; they need
Java. Not here: TextWorld's cooking games, ALFWorld's and Jericho's, whose files their packages do not carry
and which other licences rule; their rows are read, and refused when they are played. Each game has a process
in the sandbox, without a network, which takes some 400 MB and seconds to start; if it is lost, so is the
session. ``gym-runtime test tales`` starts one for each time that it plays a row, so it takes minutes.

Rows are those of NeMo Gym's environment of this name; its answers are taken whole, and the reward is TALES'.
Source: Cui et al. 2025, arXiv:2504.14128 (MIT); TextWorldExpress and ScienceWorld (Apache-2.0), `textworld-
express` and `scienceworld` on PyPI; the rows are our own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from gym_runtime import Environment, Episode, Reply, Step, Task, TaskError, UsageError, Verdict
from msgspec import Meta

from gym_resources.adventures.game_play import Game, Scene
from gym_resources.adventures.game_process import GameProcess, command
from gym_resources.adventures.tales_games import ELSEWHERE, games, java, java_folders


class AdventureTask(Task):
    framework: Literal["textworld_express", "scienceworld", "textworld", "alfworld", "jericho"] = "textworld"
    task_no: Annotated[int, Meta(ge=0, le=200)] = 0
    split: Literal["train", "test"] = "train"
    seed: Annotated[int, Meta(ge=0, le=2**31)] = 0
    steps: Annotated[int, Meta(ge=1, le=1000)] = 100
    admissible_commands: bool = False

    def __post_init__(self) -> None:
        if self.framework not in ELSEWHERE and self.task_no >= len(games(self.framework)):
            raise ValueError(f"'task_no': {self.framework} has {len(games(self.framework))} games")

    def game(self) -> Game:
        """The game as its process is told of it.

        Raises:
            TaskError: it cannot be had.
        """
        if self.framework in ELSEWHERE:
            raise TaskError(
                f"{ELSEWHERE[self.framework]} are not in their package and not played here; leave rows of "
                f"'{self.framework}' out, or take those of textworld_express and scienceworld"
            )
        name, settings = games(self.framework)[self.task_no]
        return Game(self.framework, name, settings, self.split, self.seed, f"{home()}/bin")


class Adventure(Episode[AdventureTask]):
    process: GameProcess | None = None

    async def open(self) -> None:
        self.game = self.task.game()
        self.best, self.moves = 0.0, 0

    async def _begun(self) -> GameProcess:
        if self.process is None:
            process = GameProcess(self.game, java_folders(home()))
            await process.__aenter__()
            self.process = process
        return self.process

    async def close(self) -> None:
        if self.process is not None:
            await self.process.__aexit__(None, None, None)

    async def reset(self) -> str:
        return self._shown((await self._begun()).first)

    async def step(self, reply: Reply) -> Step:
        scene = await (await self._begun()).play(command(reply.lines_text))
        self.moves += 1
        self.best = min(1.0, max(self.best, scene.score))
        over = scene.ended or self.moves >= self.task.steps
        return Step(observation=None if over else self._shown(scene), terminated=over)

    async def verify(self, reply: Reply) -> Verdict:
        return Verdict(self.best, fields={"moves": self.moves})

    def _shown(self, scene: Scene) -> str:
        told = "\nYou can: " + ", ".join(scene.commands) if self.task.admissible_commands else ""
        return scene.text.strip() + told


def home() -> Path:
    found = java()
    if found is None:
        raise UsageError("TextWorldExpress and ScienceWorld need Java: apt install default-jre-headless")
    return found


def require() -> None:
    home()


environment = Environment(
    resource=Adventure,
    description="Text adventures of TextWorldExpress and ScienceWorld, one command a turn (TALES).",
    domain="games",
    max_turns=1000,
    data_license="Apache-2.0 (own rows, and the games)",
    extra="tales",
    require=require,
    opens_first=True,
)
