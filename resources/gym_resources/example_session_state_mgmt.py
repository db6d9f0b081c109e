"""A counter that a model changes with tools: a minimal session with state.

The counter starts at the row's ``initial_count``; the reward is 1 if it ends at ``expected_count``. The text
of its messages does not matter. Tools and rewards are those of NeMo Gym's environment of this name.
Source: the rule of NeMo Gym's ``example_session_state_mgmt``; the rows are our own.
"""

from __future__ import annotations

from gym_runtime import Environment, Reply, Session, Task, Verdict, tool


class CounterTask(Task):
    initial_count: int
    expected_count: int


class Counter(Session[CounterTask]):
    async def open(self) -> None:
        self.count = self.task.initial_count

    @tool
    def increment_counter(self, count: int) -> dict[str, bool]:
        """Add to the counter."""
        self.count += count
        return {"success": True}

    @tool
    def get_counter_value(self) -> dict[str, int]:
        """Get the counter's current value."""
        return {"count": self.count}

    async def verify(self, reply: Reply) -> Verdict:
        return Verdict(float(self.count == self.task.expected_count))


environment = Environment(
    resource=Counter,
    description="Bring a counter to an expected value with tools that change and read it.",
    domain="agent",
    data_license="Apache-2.0 (own rows)",
)
