"""What a run may use up, and what it has used: tokens, and money where prices are given."""

from __future__ import annotations

from gym_runtime.cli.options.run_options import BudgetOptions
from gym_runtime.errors import UsageError
from gym_runtime.files.run_metrics import Metrics

PER = 1_000_000
"""Prices are of so many tokens."""


class Budget:
    """The limits of a run.

    Raises:
        UsageError: a limit on the cost without a price.
    """

    def __init__(self, options: BudgetOptions) -> None:
        self._options = options
        self._priced = options.price_in is not None or options.price_out is not None
        if options.max_cost is not None and not self._priced:
            raise UsageError("--max-cost needs prices of a million tokens: --price-in, --price-out")

    def cost(self, metrics: Metrics) -> float | None:
        """What the finished rollouts cost; None without prices."""
        if not self._priced:
            return None
        tokens_in, tokens_out = metrics.tokens
        return (
            tokens_in * (self._options.price_in or 0.0) + tokens_out * (self._options.price_out or 0.0)
        ) / PER

    def reached(self, metrics: Metrics) -> str:
        """Which limit the finished rollouts have reached, and what they used; empty if none."""
        limit, most = self._options.max_tokens_total, self._options.max_cost
        tokens, cost = sum(metrics.tokens), self.cost(metrics)
        if limit is not None and tokens >= limit:
            return f"--max-tokens-total {limit:,} is reached: {tokens:,} tokens are used"
        if most is not None and cost is not None and cost >= most:
            return f"--max-cost {most:g} is reached: {cost:.6g} is spent"
        return ""
