"""As `poison`, with a session that cannot be rebuilt."""

import os

from gym_runtime import Environment, Reply, Session, Task, Verdict, tool


class PoisonTask(Task):
    poison: bool = False


class Shop(Session[PoisonTask]):
    @tool
    def buy(self) -> str:
        return "bought"

    async def verify(self, reply: Reply) -> Verdict:
        if self.task.poison:
            os._exit(7)
        return Verdict(1.0)


environment = Environment(resource=Shop, description="Is deadly.", replayable=False)
