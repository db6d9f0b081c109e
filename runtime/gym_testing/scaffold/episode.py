"""A number to guess: after each guess the environment says "higher" or "lower".

Change the task's fields and the steps, and write your rows beside it; `gym-runtime test`
says what is missing.
"""

from __future__ import annotations

from gym_runtime import Environment, Episode, Reply, Step, Task


class GuessTask(Task):
    secret: int


class Guess(Episode[GuessTask]):
    async def reset(self) -> str:
        return "I think of a number from 1 to 100. Answer with your guess alone."

    async def step(self, reply: Reply) -> Step:
        said = reply.text.strip()
        if not said.isdecimal() or len(said) > 3:
            return Step(observation="A number, please.")
        guess = int(said)
        if guess == self.task.secret:
            return Step(reward=1.0, terminated=True)
        return Step(observation="Higher." if guess < self.task.secret else "Lower.")


environment = Environment(resource=Guess, description="Guess a number.", max_turns=10)
