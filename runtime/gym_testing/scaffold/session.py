"""A shop: a tool tells prices, and the answer's last word is what the basket costs.

Change the task's fields, the tools and the rule, and write your rows beside it;
`gym-runtime test` says what is missing.
"""

from __future__ import annotations

from gym_runtime import Environment, Reply, Session, Task, ToolError, Verdict, tool


class ShopTask(Task):
    prices: dict[str, int]
    basket: list[str]
    total: int


class Shop(Session[ShopTask]):
    async def open(self) -> None:
        self.asked: set[str] = set()

    @tool
    def price_of(self, item: str) -> dict[str, int]:
        """Ask what an item costs."""
        if item not in self.task.prices:
            raise ToolError(f"There is no {item} here.")
        self.asked.add(item)
        return {"price": self.task.prices[item]}

    async def verify(self, reply: Reply) -> Verdict:
        said = reply.text.rstrip(".").split()[-1:]
        right = said == [str(self.task.total)] and self.asked >= set(self.task.basket)
        return Verdict(float(right))  # a total without the prices is a guess


environment = Environment(
    resource=Shop,
    description="Find out what a basket costs.",
    domain="agent",
)
