"""A table to book: a second model plays the guest, who gets the hour that suits or none.

Change the task's fields, the tools and the rule, and write your rows beside it;
`gym-runtime test` says what is missing. Who the guest is stands in a row's
`simulated_user`, which only the second model is shown.
"""

from __future__ import annotations

from gym_runtime import Environment, Reply, Session, Task, ToolError, Verdict, tool


class TableTask(Task):
    free: list[int]
    wanted: int


class Restaurant(Session[TableTask]):
    async def open(self) -> None:
        self.offered: list[int] = []
        self.booked: list[int] = []

    @tool
    def free_hours(self) -> list[int]:
        """The hours at which a table is free."""
        self.offered = [hour for hour in self.task.free if hour not in self.booked]
        return self.offered

    @tool
    def book(self, hour: int) -> str:
        """Book the table at one of the free hours, after asking for them."""
        if hour not in self.offered:
            raise ToolError(f"{hour} is not free; ask for the free hours first.")
        self.offered.remove(hour)
        self.booked.append(hour)
        return "booked"

    async def verify(self, reply: Reply) -> Verdict:
        return Verdict(float(self.booked == [self.task.wanted]))


environment = Environment(
    resource=Restaurant,
    roles=("user",),
    agent="dialogue",
    max_turns=10,
    description="Book a table for a guest who calls.",
    domain="agent",
)
