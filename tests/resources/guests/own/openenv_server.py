"""Environments on OpenEnv's base classes, served by its own server: ``openenv_server.py KIND PORT``."""

from __future__ import annotations

import random
import sys
from typing import Any

import uvicorn
from openenv.core.env_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Move(Action):
    guess: int


class Seen(Observation):
    hint: str = ""


class Higher(Environment[Move, Seen, State]):
    """Guess a number of 1 to 8, which follows from the seed."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = State()

    def num_tasks(self, split: str) -> int:
        return 5

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[Any]:
        return [{"split": split, "seed": seed} for seed in range(5)][start:stop]

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Seen:
        self._secret = random.Random(kwargs.get("index", seed)).randint(1, 8)
        return Seen(hint="1 to 8")

    def step(self, action: Move, timeout_s: float | None = None, **kwargs: Any) -> Seen:
        if action.guess > 1000:
            raise RuntimeError("the environment is broken")
        done = action.guess == self._secret
        hint = "" if done else "higher" if action.guess < self._secret else "lower"
        told = {"secret": self._secret}
        return Seen(hint=hint, done=done, reward=1.0 if done else -0.1, metadata=told)

    @property
    def state(self) -> State:
        return self._state


class Line(Action):
    message: str


class Echoed(Observation):
    echoed: str = ""


class Echo(Environment[Line, Echoed, State]):
    """One session at a time; the reward is the length of the message, and the second one is the last."""

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Echoed:
        self._steps = 0
        return Echoed(echoed="ready")

    def step(self, action: Line, timeout_s: float | None = None, **kwargs: Any) -> Echoed:
        self._steps += 1
        return Echoed(echoed=action.message, reward=float(len(action.message)), done=self._steps == 2)

    @property
    def state(self) -> State:
        return State()


SERVED = {
    "higher": lambda: create_fastapi_app(Higher, Move, Seen, max_concurrent_envs=8),
    "echo": lambda: create_fastapi_app(Echo, Line, Echoed),
}

if __name__ == "__main__":
    uvicorn.run(SERVED[sys.argv[1]](), host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
