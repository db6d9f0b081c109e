"""Some of its rows cancel: a task that they await, the task that runs them, or all tasks of their worker."""

import asyncio
from itertools import repeat

import anyio
from gym_runtime import Environment, Reply, Session, Task, Verdict, tool


async def leak(way: str) -> None:
    loop = asyncio.get_running_loop()
    if way == "task":
        task = loop.create_task(anyio.sleep(60))
        task.cancel()
        await task
    for task in [asyncio.current_task()] if way == "self" else asyncio.all_tasks():
        assert task is not None
        task.cancel()
    for _ in repeat(None) if way == "deaf" else [None]:
        try:
            await anyio.sleep(60)
        except asyncio.CancelledError:
            if way != "deaf":
                raise


class LeakTask(Task):
    at: str = ""
    way: str = ""


class Leaking(Session[LeakTask]):
    async def open(self) -> None:
        await self._pass_by("open")

    @tool
    async def work(self) -> str:
        """Work."""
        await self._pass_by("tool")
        return "worked"

    async def verify(self, reply: Reply) -> Verdict:
        await self._pass_by("verify")
        return Verdict(1.0)

    async def _pass_by(self, place: str) -> None:
        if self.task.at == place:
            await leak(self.task.way)


environment = Environment(resource=Leaking, description="Leaks cancellations.")
