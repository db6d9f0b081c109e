"""An environment for tests of the dashboard: it has a tool and a judge, and each fourth row fails."""

from __future__ import annotations

from gym_runtime import Environment, Reply, Session, Task, Verdict, tool


class Counted(Task):
    number: int


class Counter(Session[Counted]):
    @tool
    def increment_counter(self, count: int) -> dict[str, int]:
        """Add to the counter."""
        return {"count": count}

    async def verify(self, reply: Reply) -> Verdict:
        if self.task.number % 4 == 0:
            raise ValueError("this row cannot be judged")
        await self.models.judge.ask("Is it right?")
        return Verdict(float(self.task.number % 2))


environment = Environment(resource=Counter, description="Counts.", domain="test", roles=("judge",))
