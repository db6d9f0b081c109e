"""The metrics of a system, and the cumulative figures of a worker or of a run's client since it began.

One constant has each metric's name, labels, unit and buckets.

Names follow OpenTelemetry: ``gen_ai.*`` where its conventions for generative models have one, ``gym.*``
otherwise. `prometheus_name` makes the name that Prometheus sees. No label holds the id of a run, a task or a
rollout, and none holds text that a model wrote, so the number of series stays small.

`Figures` are in the heartbeat with which a member answers ``alive.<kind>.<worker>``; when a run is over, its
figures stay in its `gym_runtime.messages.stored_records.RunInfo`.

Source: https://github.com/open-telemetry/semantic-conventions-genai for the names and bounds of ``gen_ai.*``;
https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/ for Prometheus.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Literal

import msgspec

from gym_runtime.statistics import bounded

Kind = Literal["counter", "gauge", "histogram"]

SHORT_S = tuple(0.01 * 2**power for power in range(14))
"""Prescribed for ``gen_ai.client.operation.duration``: 10 ms to 82 s."""
LONG_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
TOKENS = tuple(float(4**power) for power in range(14))
"""Prescribed for ``gen_ai.client.token.usage``: 1 to 67 million."""
REWARDS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.999, 1.0)

ENVIRONMENT = "gym.environment"
OUTCOME = "gym.outcome"
ERROR = "error.type"
STAGE = "gym.stage"
ROLE = "gym.role"
HOP = "gym.hop"
KIND = "gym.worker.kind"
POOL = "gym.pool"
AGENT = "gym.agent"
STATE = "gym.state"
OPERATION = "gym.operation"
SERVICE = "gym.service"
HOW = "gym.answer"
DIRECTION = "network.io.direction"
TOKEN_TYPE = "gen_ai.token.type"
USE = "gym.use"
MODEL = ("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model")


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One metric.

    Attributes:
        unit: as OpenTelemetry writes it: ``s``, ``By``, ``1``, or a word in braces.
        bounds: the upper bounds of a histogram's buckets, each included; above the last one is a bucket more.
    """

    name: str
    kind: Kind
    unit: str
    about: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()


_UNITS = {"s": "_seconds", "By": "_bytes"}


def prometheus_name(metric: Metric) -> str:
    """The name under which Prometheus has it.

    >>> prometheus_name(ROLLOUTS), prometheus_name(ROLLOUT_DURATION)
    ('gym_rollouts_total', 'gym_rollout_duration_seconds')
    """
    end = "_total" if metric.kind == "counter" else ""
    return metric.name.replace(".", "_") + _UNITS.get(metric.unit, "") + end


def _counter(name: str, unit: str, about: str, *labels: str) -> Metric:
    return Metric(name=name, kind="counter", unit=unit, about=about, labels=labels)


def _gauge(name: str, unit: str, about: str, *labels: str) -> Metric:
    return Metric(name=name, kind="gauge", unit=unit, about=about, labels=labels)


def _histogram(name: str, unit: str, about: str, bounds: tuple[float, ...], *labels: str) -> Metric:
    return Metric(name=name, kind="histogram", unit=unit, about=about, labels=labels, bounds=bounds)


# -- rollouts, counted where each result is received once ------------------------------------------------

ROLLOUTS = _counter(
    "gym.rollouts",
    "{rollout}",
    "Rollouts with a result. The error's type and the stage are those of a failure.",
    *(ENVIRONMENT, OUTCOME, ERROR, STAGE),
)
ROLLOUT_REWARD = _histogram(
    "gym.rollout.reward", "1", "Rewards of rollouts that were judged.", REWARDS, ENVIRONMENT
)
ROLLOUT_DURATION = _histogram(
    "gym.rollout.duration", "s", "How long the attempts took that settled rollouts.", LONG_S, ENVIRONMENT
)
ROLLOUT_TURNS = _counter("gym.rollout.turns", "{turn}", "Model calls of rollouts with a result.", ENVIRONMENT)
ROLLOUT_TOOL_CALLS = _counter(
    "gym.rollout.tool_calls", "{call}", "Tool calls of rollouts with a result.", ENVIRONMENT
)
ROLLOUT_TOKENS = _counter(
    "gym.rollout.tokens", "{token}", "Tokens of rollouts with a result.", ENVIRONMENT, TOKEN_TYPE
)
SAMPLED_TOKENS = _counter(
    "gym.sampled.tokens",
    "{token}",
    "Tokens that the policy sampled in groups that have ended, by what became of them: useful, flat, zero, "
    "failed, stopped, refused.",
    *(ENVIRONMENT, USE),
)
ROLLOUT_ROWS = _counter("gym.rollout.rows", "By", "Size of the result rows.", ENVIRONMENT)
ALARMS = _counter(
    "gym.reward.alarms", "{alarm}", "Alarms: second looks no longer confirm the rewards.", ENVIRONMENT
)
ROLE_CALLS = _counter("gym.role.calls", "{call}", "What models in roles were asked.", ENVIRONMENT, ROLE)
ROLE_TOKENS = _counter(
    "gym.role.tokens", "{token}", "Tokens of models in roles.", ENVIRONMENT, ROLE, TOKEN_TYPE
)
ROLE_TIME = _counter("gym.role.time", "s", "How long models in roles were waited for.", ENVIRONMENT, ROLE)

# -- what workers count -----------------------------------------------------------------------------------

QUEUE_WAIT = _histogram(
    "gym.queue.wait", "s", "How long tasks waited in the queue until an agent took them.", LONG_S, ENVIRONMENT
)
HOP_DURATION = _histogram(
    "gym.hop.duration",
    "s",
    "How long rollouts waited for the model, their tools and the verification, retries included.",
    SHORT_S,
    *(HOP, ENVIRONMENT),
)
RETRIES = _counter(
    "gym.retries", "{retry}", "Attempts (agent) and calls of engines (model) that were repeated.", KIND, ERROR
)
RESAMPLED = _counter(
    "gym.tokens.resampled",
    "{token}",
    "Sampled tokens that a later prompt of their conversation has not, where they stood.",
    *(ENVIRONMENT, POOL),
)
OUTSIDE = _counter(
    "gym.outside.requests",
    "{request}",
    "What environments asked services outside, and pages: answered, cached, limited (by a quota), failed.",
    *(SERVICE, HOW),
)
REFUSED = _counter("gym.requests.refused", "{request}", "Requests to full workers.", KIND)
RESOURCE_DURATION = _histogram(
    "gym.resource.duration",
    "s",
    "How long environments worked on calls.",
    SHORT_S,
    *(ENVIRONMENT, OPERATION, ERROR),
)
ENGINE_DURATION = _histogram(
    "gen_ai.client.operation.duration", "s", "How long calls of engines took.", SHORT_S, *MODEL, ERROR
)
ENGINE_TOKENS = _histogram(
    "gen_ai.client.token.usage", "{token}", "Tokens of each call of an engine.", TOKENS, *MODEL, TOKEN_TYPE
)
NETWORK = _counter("gym.network.io", "By", "What workers sent to and got from the broker.", KIND, DIRECTION)
CPU_TIME = _counter("gym.worker.cpu.time", "s", "Processor time of the workers' processes.", KIND)

# -- what is so at the moment -------------------------------------------------------------------------------

MEMORY = _gauge("gym.worker.memory", "By", "Resident memory of the workers' processes.", KIND)
WORKERS = _gauge("gym.workers", "{worker}", "Workers that are alive.", KIND, POOL, STATE)
CAPACITY = _gauge("gym.worker.capacity", "{call}", "Rollouts or calls that fit.", KIND, POOL)
IN_USE = _gauge("gym.worker.in_use", "{call}", "Rollouts, calls or sessions in progress.", KIND, POOL)
STALLED = _gauge(
    "gym.requests.stalled", "{request}", "Requests that wait for much longer than any answer took."
)
REFUSED_STORES = _gauge(
    "gym.broker.refused", "{worker}", "Workers that wait for the broker to store what they have."
)
QUEUE = _gauge("gym.queue.tasks", "{task}", "Tasks that wait, or are in flight.", AGENT, STATE)
ACTIVE_RUNS = _gauge(
    "gym.runs.active", "{run}", "Runs of which results are to come: not over, not paused, not all made."
)

METRICS: tuple[Metric, ...] = tuple(found for found in list(vars().values()) if isinstance(found, Metric))
"""All of them."""

# -- the figures ---------------------------------------------------------------------------------------------


class Count(msgspec.Struct, frozen=True, array_like=True):
    """One counter; ``labels`` are the values of the metric's labels, in its order."""

    name: str
    labels: tuple[str, ...]
    value: float | int


class Distribution(msgspec.Struct, frozen=True, array_like=True):
    """One histogram.

    Attributes:
        buckets: observations in each bucket, not cumulative; buckets at the end that are empty are left out.
        total: the sum of the observations; at most the largest double, because JSON has no infinity.
    """

    name: str
    labels: tuple[str, ...]
    buckets: tuple[int, ...]
    total: float = 0.0

    @property
    def count(self) -> int:
        """How many observations there are."""
        return sum(self.buckets)

    def since(self, before: Distribution) -> Distribution:
        """The observations since an earlier reading of the same histogram."""
        buckets = tuple(a - b for a, b in zip_longest(self.buckets, before.buckets, fillvalue=0))
        return Distribution(self.name, self.labels, buckets, bounded(self.total - before.total))

    def quantile(self, share: float, bounds: Sequence[float]) -> float | None:
        """An estimate of a quantile, linear within a bucket; None if nothing was observed.

        Args:
            share: 0.5 for the median.
            bounds: the metric's. A quantile above the last one is given as the last one.
        """
        place = share * self.count
        if not self.count:
            return None
        passed, low = 0, 0.0
        for size, high in zip(self.buckets, bounds, strict=False):
            if size and passed + size >= place:
                return low + (high - low) * (place - passed) / size
            passed, low = passed + size, high
        return bounds[-1]


class Figures(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Cumulative figures.

    Attributes:
        since_s: when counting began, in seconds since the epoch by the counter's clock.
        cpu_s: processor time of the process, in seconds.
        memory_bytes: its resident memory, now.
    """

    counts: list[Count] = []
    distributions: list[Distribution] = []
    since_s: float = 0.0
    cpu_s: float = 0.0
    memory_bytes: int = 0

    def total(self, metric: Metric, where: Mapping[str, str] | None = None) -> float:
        """A counter's sum over all label values, or over the values that ``where`` names."""
        return sum(
            one.value for one in self.counts if one.name == metric.name and _fits(metric, one.labels, where)
        )

    def distribution(self, metric: Metric, where: Mapping[str, str] | None = None) -> Distribution:
        """A histogram, summed as `total`; its labels are empty."""
        found = Distribution(metric.name, (), ())
        for one in self.distributions:
            if one.name == metric.name and _fits(metric, one.labels, where):
                found = _added(found, one)
        return found


def merged(several: Sequence[Figures]) -> Figures:
    """The sum of figures, label by label."""
    counts: dict[tuple[str, tuple[str, ...]], float] = {}
    distributions: dict[tuple[str, tuple[str, ...]], Distribution] = {}
    for figures in several:
        for count in figures.counts:
            key = (count.name, count.labels)
            counts[key] = counts.get(key, 0) + count.value
        for one in figures.distributions:
            key = (one.name, one.labels)
            distributions[key] = _added(distributions[key], one) if key in distributions else one
    return Figures(
        counts=[Count(name, labels, value) for (name, labels), value in counts.items()],
        distributions=list(distributions.values()),
        cpu_s=sum(figures.cpu_s for figures in several),
        memory_bytes=sum(figures.memory_bytes for figures in several),
    )


def _fits(metric: Metric, labels: tuple[str, ...], where: Mapping[str, str] | None) -> bool:
    values = dict(zip(metric.labels, labels, strict=False))
    return all(values.get(name) == value for name, value in (where or {}).items())


def _added(a: Distribution, b: Distribution) -> Distribution:
    buckets = tuple(map(sum, zip_longest(a.buckets, b.buckets, fillvalue=0)))
    return Distribution(a.name, a.labels, buckets, bounded(a.total + b.total))
