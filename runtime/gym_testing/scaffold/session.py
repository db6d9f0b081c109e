"""A shop: prices are asked for with a tool, and the answer's last word must be what the basket costs.

Change the task's fields, the tools and the rule, write your rows beside it; `gym-runtime test` says what is
missing.
"""

from __future__ import annotations

from gym_runtime import Environment, Reply, Session, Task, ToolError, Verdict, tool


class ShopTask(Task):
    prices: dict[str, int]
    total: int


class Shop(Session[ShopTask]):
    @tool
    def price_of(self, item: str) -> dict[str, int]:
        """Ask what an item costs."""
        if item not in self.task.prices:
            raise ToolError(f"There is no {item} here.")
        return {"price": self.task.prices[item]}

    async def verify(self, reply: Reply) -> Verdict:
        return Verdict(float(reply.text.rstrip(".").split()[-1:] == [str(self.task.total)]))


environment = Environment(resource=Shop, description="Find out what a basket costs.", domain="agent")
