"""For tests of the dashboard: a tool that asks a service outside, a judge, and each fourth row fails."""

from __future__ import annotations

from gym_data.web import Fetcher, Service, WebRequest
from gym_runtime import Environment, Reply, Session, Task, Verdict, tool

SERVICE = Service(name="counting")


class Counted(Task):
    number: int


class Counter(Session[Counted]):
    @tool
    async def increment_counter(self, count: int) -> dict[str, int]:
        """Add to the counter."""
        await Fetcher().ask(SERVICE, WebRequest(url=f"{SERVICE.base_url}/health"))
        return {"count": count}

    async def verify(self, reply: Reply) -> Verdict:
        if self.task.number % 4 == 0:
            raise ValueError("this row cannot be judged")
        await self.models.judge.ask("Is it right?")
        return Verdict(float(self.task.number % 2))


environment = Environment(resource=Counter, description="Counts.", domain="other", roles=("judge",))
