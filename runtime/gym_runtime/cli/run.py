"""``run``: its options. What it does is in `gym_runtime.cli.whole_run`, which its help does not import."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from gym_runtime.cli.options import (
    AT_LEAST_ONE,
    BROKER,
    BUDGET_GROUP,
    DEFAULT_CONCURRENCY,
    FLAT,
    MODEL,
    NOT_NEGATIVE,
    POSITIVE,
    ROLES,
    ROLLOUTS,
    ROWS,
    SYSTEM,
    WATCH,
    AsJson,
    Broker,
    FailOnFailures,
    FailuresAsZero,
    Hosted,
    Input,
    Model,
    Output,
    Roles,
    RolloutsAsked,
    Rows,
    StateDir,
    Watch,
    WeakSandbox,
    shown_name,
)
from gym_runtime.errors import UsageError
from gym_runtime.plugins import plugins
from gym_runtime.plurals import counted

if TYPE_CHECKING:
    from gym_runtime.files.run_metrics import Metrics

if TYPE_CHECKING:
    TrackerName = str
else:
    # From the entry points, so that a plugin's tracker is a choice, too.
    TrackerName = Literal[tuple(sorted(plugins("trackers")))]
RESULTS = Path("results")
PER = 1_000_000
"""Prices are of so many tokens."""


@dataclass(frozen=True, kw_only=True)
class BudgetOptions:
    """The limits of a run. It stops when its finished rollouts reach one; rollouts in progress are extra.

    Attributes:
        max_tokens_total: The most tokens, read and written, of all parts of the run together.
        max_cost: The most that all parts of the run together may cost, in the currency of the prices.
        price_in: The price of a million tokens that the model reads.
        price_out: The price of a million tokens that the model writes.

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
        return self.price(*metrics.tokens)

    def price(self, tokens_in: int, tokens_out: int) -> float | None:
        """What so many tokens, read and written, cost; None without prices."""
        if not self._priced:
            return None
        return (tokens_in * (self.price_in or 0.0) + tokens_out * (self.price_out or 0.0)) / PER

    def reached(self, metrics: Metrics) -> str:
        """Which limit the finished rollouts have reached, and what they used; empty if none."""
        tokens, cost = sum(metrics.tokens), self.cost(metrics)
        if self.max_tokens_total is not None and tokens >= self.max_tokens_total:
            return f"--max-tokens-total {self.max_tokens_total:,} is reached: {counted(tokens, 'token')} used"
        if self.max_cost is not None and cost is not None and cost >= self.max_cost:
            return f"--max-cost {self.max_cost:g} is reached: {cost:.6g} is spent"
        return ""


Budget = Annotated[BudgetOptions, Parameter(name="*", group=BUDGET_GROUP)]
BUDGET = BudgetOptions()


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of ``run``.

    Attributes:
        input: Dataset rows, JSONL, or - for standard input; by default the environments' example rows. With
            several environments, each row names its own in agent_ref.
        output: The rollouts; further files are put beside it. By default results/NAME.jsonl.
        images: How the files store images, such as screenshots of tools: inline in each row; as files in
            NAME_images beside the output, each once; or none of them.
        resume: Continue an interrupted run.
        extend: With --resume: more --repeats, a higher --limit, or rows added at the end of the input.
            Finished rollouts are kept.
        retry_failed: With --resume: run all failed rollouts again, including those that failed for good.
        overwrite: Replace the files of an earlier run.
        dry_run: Check the rows, and say how many rollouts they make, about how many tokens these take and,
            with prices, what they cost. Nothing is started or written.
        keep_going: Do not stop when the engine returns only errors.
        track: An experiment tracker, which gets aggregates and a few rollouts as examples every few seconds
            and at the end. TensorBoard's files are put beside the output, in NAME_tensorboard; other trackers
            are configured by their own variables, such as WANDB_MODE and MLFLOW_TRACKING_URI.
        concurrency: Rollouts in flight, over all agent workers.
        workers: Processes of each kind.
        hosted: Let agent workers host the environments and models that may share their process, which takes
            less processor time; by default every worker has its own process.
        config: Take the broker and the model from a system's file ('gym-runtime start --help'). Options
            given here override it.
    """

    input: Input = None
    output: Output = None
    images: Literal["inline", "files", "none"] = "inline"
    resume: bool = False
    extend: bool = False
    retry_failed: bool = False
    overwrite: bool = False
    dry_run: bool = False
    fail_on_failures: FailOnFailures = False
    keep_going: bool = False
    track: TrackerName | None = None
    watch: Watch = WATCH
    json: AsJson = False
    failures_as_zero: FailuresAsZero = False
    rows: Rows = ROWS
    rollouts: RolloutsAsked = ROLLOUTS
    budget: Budget = BUDGET
    model: Model = MODEL
    roles: Roles = ROLES
    broker: Broker = BROKER
    concurrency: Annotated[int, SYSTEM, AT_LEAST_ONE] = DEFAULT_CONCURRENCY
    workers: Annotated[int, SYSTEM, AT_LEAST_ONE] = 1
    hosted: Hosted = False
    state_dir: StateDir = ""
    allow_weak_sandbox: WeakSandbox = False
    config: Annotated[Path | None, SYSTEM] = None

    def output_path(self, names: Sequence[str]) -> Path:
        """Where the rollouts go: as said, else ``results/`` and the environments' or the input's name."""
        if self.output is not None:
            return self.output
        stem = "-".join(map(shown_name, names)) or (self.input.stem if self.input else "run")
        return RESULTS / f"{stem}.jsonl"


RUN = RunOptions()


def run(*names: str, options: Annotated[RunOptions, FLAT] = RUN) -> int:
    """Run rollouts in one or several environments: everything in one command.

    Starts a broker and workers, publishes the rows, collects the verified rollouts, and reports.

    Args:
        names: Environments by name, module path or guest scheme (openenv:URL), with spaces or commas between.
    """
    from gym_runtime.cli.whole_run import WholeRun
    from gym_runtime.environment import catalogue

    return WholeRun(catalogue.several(names), options).run()
