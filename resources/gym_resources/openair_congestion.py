"""Radio cells of 5G under congestion: read the telemetry, and set one control a step.

Each turn the model reads what the cells and their terminals (UEs) measure and answers with exactly one call:
a scheduler, a cap on a UE, bounds of the MCS, weights by class of service, admission, the handover trigger,
uplink power, or ``noop``. Settings last; setting the same again changes nothing. A call that would shed
traffic, or names a cell or UE that is not there, is refused, which costs 0.25. An answer without a call,
with several, or with a wrong one is a ``noop`` that costs 1. The episode ends after the row's ``max_steps``.

A step is worth what became better (fewer UEs below what their class promises, throughput, Jain's fairness),
less what is still bad (such UEs, exhausted blocks, collisions of random access, unfairness, full buffers).
The reward is the sum. Where a row has ``reference_return``, it is instead how far the sum is from doing
nothing (0) to that reference (1), at least -1 and at most 1; steps that were not played count as ``noop``.

``seed``, ``regime_mix`` (five kinds of congestion) and ``difficulty`` decide the cells; the model is told
none of them. Rows, tools and what is refused are those of NeMo Gym's environment of this name. Its cells and
weights are not published apart from its code: ours (`gym_resources.radio_cells`) are our own, so returns of
the two cannot be compared. Not here: ``dataset_replay``, which plays recordings back whatever the model
does. Source: the documentation of github.com/NVIDIA-NeMo/Gym's ``openair_congestion`` (Apache-2.0); our own
rows are generated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
from gym_runtime import Environment, Episode, Reply, Step, Task, Verdict
from msgspec import Meta

from gym_resources.radio_cells import cell_rows
from gym_resources.radio_cells.cell_controls import VIOLATED, carry_out, measures, read
from gym_resources.radio_cells.radio_network import REGIMES, Network, Regime, made

Share = Annotated[float, Meta(ge=0, le=1)]
PROTOCOL = "the answer was not exactly one valid call; nothing was set"


class CongestionTask(Task):
    """An episode.

    Attributes:
        scenario_id: a regime, where there is no ``regime_mix``.
        reference_return: what the reference reaches; the reward is then a share of it.
    """

    seed: int = 0
    regime_mix: dict[Regime, Share] = {}  # noqa: RUF012 - a msgspec field, copied for each
    scenario_id: str = ""
    difficulty: Share = 0.5
    max_steps: Annotated[int, Meta(ge=1, le=200)] = 16
    tier: Literal["replay"] = "replay"
    reference_return: float | None = None

    def __post_init__(self) -> None:
        if not self.regime_mix and self.scenario_id not in ("", *REGIMES):
            raise ValueError(f"'scenario_id': there is no regime {self.scenario_id[:100]!r}")
        if self.regime_mix and not sum(self.regime_mix.values()):
            raise ValueError("'regime_mix' has nothing but zeros")
        if self.reference_return is not None and self.reference_return <= self.idle():
            raise ValueError("'reference_return' is not more than doing nothing is worth")

    def network(self) -> Network:
        """The cells at the start."""
        mix = self.regime_mix or {msgspec.convert(self.scenario_id or REGIMES[0], Regime): 1.0}
        return made(self.seed, mix, self.difficulty)

    def idle(self) -> float:
        """What doing nothing is worth."""
        network = self.network()
        return sum(carry_out(network, None)[0] for _ in range(self.max_steps))


class Congestion(Episode[CongestionTask]):
    async def open(self) -> None:
        self.network = self.task.network()
        self.played, self.returned = 0, 0.0
        if not self.task.responses_create_params.tools:
            self.offered_tools = cell_rows.TOOLS

    async def reset(self) -> str:
        return cell_rows.telemetry(self.network)

    async def step(self, reply: Reply) -> Step:
        calls = reply.function_calls
        call = read(calls[0].name, calls[0].arguments) if len(calls) == 1 else None
        reward, refused = carry_out(self.network, call)
        if call is None:
            reward, refused = reward + VIOLATED, PROTOCOL
        self.played, self.returned = self.played + 1, self.returned + reward
        said = f"Refused: {refused}." if refused else "Set."
        ended = self.played >= self.task.max_steps
        return Step(
            observation=None if ended else cell_rows.telemetry(self.network, reward, refused),
            tool_outputs=dict.fromkeys((one.call_id for one in calls), said),
            reward=reward,
            terminated=ended,
            info={"steps": self.played, **measures(self.network)},
        )

    async def verify(self, reply: Reply) -> Verdict:
        fields = {**self.last_info, "episode_return": self.returned}
        if self.task.reference_return is None:
            return Verdict(self.returned, fields=fields)
        left = self.network.copy()
        rest = sum(carry_out(left, None)[0] for _ in range(self.task.max_steps - self.played))
        idle = self.task.idle()
        share = (self.returned + rest - idle) / (self.task.reference_return - idle)
        return Verdict(min(1.0, max(-1.0, share)), fields=fields)


def generate(size: int, seed: int, *, max_steps: int = 16) -> Iterator[dict[str, Any]]:
    """Rows with a reference, each of a regime in turn."""
    return cell_rows.rows(size, seed, max_steps)


environment = Environment(
    resource=Congestion,
    description="Relieve congested 5G cells: read telemetry, set one control a step.",
    domain="agent",
    max_turns=200,
    data_license="Apache-2.0",
    generate=generate,
)
