"""A run's budget and its use so far: tokens, and money if prices are given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from gym_runtime.cli.options import AT_LEAST_ONE, BUDGET_GROUP, NOT_NEGATIVE, POSITIVE
from gym_runtime.errors import UsageError

if TYPE_CHECKING:
    from gym_runtime.files.run_metrics import Metrics

PER = 1_000_000
"""Prices are of so many tokens."""


@dataclass(frozen=True, kw_only=True)
class BudgetOptions:
    """What a run may use up. It stops when its finished rollouts have; those in progress come on top.

    Attributes:
        max_tokens_total: Tokens, read and written, of all parts of the run together.
        max_cost: In the currency of the prices, of all parts of the run together.
        price_in: Of a million tokens that the model reads.
        price_out: Of a million tokens that the model writes.

    Raises:
        UsageError: a limit on the cost without a price.
    """

    max_tokens_total: Annotated[int | None, AT_LEAST_ONE] = None
    max_cost: Annotated[float | None, POSITIVE] = None
    price_in: Annotated[float | None, NOT_NEGATIVE] = None
    price_out: Annotated[float | None, NOT_NEGATIVE] = None

    def __post_init__(self) -> None:
        if self.max_cost is not None and not self._priced:
            raise UsageError("--max-cost needs prices of a million tokens: --price-in, --price-out")

    @property
    def _priced(self) -> bool:
        return self.price_in is not None or self.price_out is not None

    def cost(self, metrics: Metrics) -> float | None:
        """What the finished rollouts cost; None without prices."""
        if not self._priced:
            return None
        tokens_in, tokens_out = metrics.tokens
        return (tokens_in * (self.price_in or 0.0) + tokens_out * (self.price_out or 0.0)) / PER

    def reached(self, metrics: Metrics) -> str:
        """Which limit the finished rollouts have reached, and what they used; empty if none."""
        tokens, cost = sum(metrics.tokens), self.cost(metrics)
        if self.max_tokens_total is not None and tokens >= self.max_tokens_total:
            return f"--max-tokens-total {self.max_tokens_total:,} is reached: {tokens:,} tokens are used"
        if self.max_cost is not None and cost is not None and cost >= self.max_cost:
            return f"--max-cost {self.max_cost:g} is reached: {cost:.6g} is spent"
        return ""


Budget = Annotated[BudgetOptions, Parameter(name="*", group=BUDGET_GROUP)]
BUDGET = BudgetOptions()
