"""The operator's controls: their arguments, what is refused as unsafe, and what a step is worth."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
from gym_runtime.errors import UNREADABLE
from msgspec import Meta

from gym_resources.radio_cells.radio_network import (
    BLOCKS,
    CAPACITY_MBPS,
    Cell,
    Network,
    Policy,
    absorbed,
)

REFUSED, VIOLATED = -0.25, -1.0
Place = Annotated[int, Meta(ge=0, le=3)]
Mcs = Annotated[int, Meta(ge=0, le=27)]
Weight = Annotated[float, Meta(ge=0, le=10)]
FiveQi = Annotated[str, Meta(pattern=r"^[1-9][0-9]{0,2}$")]
Dwell = Literal[0, 40, 64, 80, 100, 128, 160, 256, 320, 480, 512, 640, 1024, 1280, 2560, 5120]
ALPHAS = (0.0, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


class Refused(Exception):
    """A well-formed call that the network does not carry out; the reason is its text."""


class Control(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call that changes one cell."""

    cell_id: Place

    def check(self, cell: Cell) -> None:
        """Refuse what is unsafe.

        Raises:
            Refused: it is.
        """

    def apply(self, cell: Cell) -> None:
        """Set it; setting it again changes nothing."""


class SetScheduler(Control, frozen=True):
    policy: Policy

    def apply(self, cell: Cell) -> None:
        cell.policy = self.policy


class SetCap(Control, frozen=True):
    target: Literal["ue"]
    target_id: Annotated[int, Meta(ge=0, le=23)]
    max_prb: Annotated[int, Meta(ge=0, le=BLOCKS)]

    def check(self, cell: Cell) -> None:
        ids = [ue.ue_id for ue in cell.ues]
        if self.target_id not in ids:
            raise Refused(f"cell {self.cell_id} has no UE {self.target_id}")
        least = math.ceil(BLOCKS / len(ids))
        if self.max_prb < least:
            raise Refused(f"a cap below {least} PRBs would shed traffic")
        rates = [max(0.02, (ue.mcs + 1) / 28 * (1 - ue.bler)) for ue in cell.ues]
        wanted = [ue.offered_mbps / (CAPACITY_MBPS * rate) for ue, rate in zip(cell.ues, rates, strict=True)]
        if not absorbed([ue.share for ue in cell.ues], wanted, ids.index(self.target_id), self.max_prb):
            raise Refused("the other UEs of the cell cannot use what the cap frees")

    def apply(self, cell: Cell) -> None:
        cell.caps[self.target_id] = self.max_prb


class SetMcs(Control, frozen=True):
    mcs_min: Mcs
    mcs_max: Mcs
    target_bler: Annotated[float, Meta(ge=0, le=0.5)]

    def check(self, cell: Cell) -> None:
        if self.mcs_max < self.mcs_min:
            raise Refused("mcs_max is below mcs_min")

    def apply(self, cell: Cell) -> None:
        cell.mcs_min, cell.mcs_max, cell.target_bler = self.mcs_min, self.mcs_max, self.target_bler


class SetWeights(Control, frozen=True):
    weights: Annotated[dict[FiveQi, Weight], Meta(min_length=1, max_length=127)]

    def check(self, cell: Cell) -> None:
        if any(int(name) > 127 for name in self.weights):
            raise Refused("a 5QI is at most 127")

    def apply(self, cell: Cell) -> None:
        cell.weights.update({int(name): weight for name, weight in self.weights.items()})


class SetAdmission(Control, frozen=True):
    accept_threshold_pct: Annotated[float, Meta(ge=0, le=100)]
    slice_reservation: Annotated[dict[str, Any], Meta(max_length=0)]

    def check(self, cell: Cell) -> None:
        if self.accept_threshold_pct < 100:
            raise Refused("admission below 100 % would shed traffic, which is not modelled")


class SetHandover(Control, frozen=True):
    a3_offset_db: Annotated[float, Meta(ge=-24, le=24)]
    ttt_ms: Dwell

    def apply(self, cell: Cell) -> None:
        cell.a3_db, cell.ttt_ms = self.a3_offset_db, self.ttt_ms


class SetPower(Control, frozen=True):
    p0_dbm: Annotated[float, Meta(ge=-126, le=23)]
    alpha: float

    def __post_init__(self) -> None:
        if self.alpha not in ALPHAS:
            raise ValueError("'alpha' is not one of the values of 3GPP")

    def apply(self, cell: Cell) -> None:
        cell.p0_dbm, cell.alpha = self.p0_dbm, self.alpha


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


CONTROLS: dict[str, type[Control] | type[Nothing]] = {
    "set_scheduler_policy": SetScheduler,
    "set_prb_cap": SetCap,
    "set_mcs_bounds": SetMcs,
    "set_qos_weights": SetWeights,
    "set_admission_policy": SetAdmission,
    "set_handover_trigger": SetHandover,
    "set_ul_power_control": SetPower,
    "noop": Nothing,
}
Call = Control | Nothing


def read(name: str, arguments: str) -> Call | None:
    """A call as a control; None if it is not one of them, or its arguments are wrong."""
    kind = CONTROLS.get(name)
    try:
        return None if kind is None else msgspec.json.decode(arguments or "{}", type=kind)
    except UNREADABLE:
        return None


def carry_out(network: Network, call: Call | None) -> tuple[float, str]:
    """Let a step pass, with a control if there is one: its reward, and why the control was refused, if so."""
    before, refused = measures(network), ""
    if isinstance(call, Control):
        try:
            if call.cell_id >= len(network.cells):
                raise Refused(f"there is no cell {call.cell_id}")
            call.check(network.cells[call.cell_id])
            call.apply(network.cells[call.cell_id])
        except Refused as error:
            refused = str(error)
    network.advance()
    return worth(before, measures(network)) + REFUSED * bool(refused), refused


def measures(network: Network) -> dict[str, float]:
    """What counts, over all cells: each 0 to 1."""
    ues = [ue for cell in network.cells for ue in cell.ues]
    cells = len(network.cells)
    return {
        "violations": sum(ue.violated for ue in ues) / len(ues),
        "throughput": sum(ue.delivered_mbps for ue in ues) / (CAPACITY_MBPS * cells),
        "fairness": sum(cell.fairness for cell in network.cells) / cells,
        "exhaustion": sum(max(0.0, (cell.used - 0.9) / 0.1) for cell in network.cells) / cells,
        "collisions": sum(cell.collisions for cell in network.cells) / cells,
        "buffers": sum(min(1.0, ue.buffer_mb / 20) for ue in ues) / len(ues),
    }


def worth(before: dict[str, float], after: dict[str, float]) -> float:
    """What a step is worth: what became better or worse, and what is still bad."""
    change = {name: after[name] - before[name] for name in after}
    better = 0.5 * change["throughput"] + 0.25 * change["fairness"] - change["violations"]
    bad = 0.2 * after["violations"] + 0.1 * (after["exhaustion"] + after["collisions"])
    return better - bad - 0.05 * (1 - after["fairness"] + after["buffers"])


def candidates(network: Network) -> Iterator[tuple[str, dict[str, Any]]]:
    """A grid of calls for a network, for the reference."""
    yield "noop", {}
    for cell in network.cells:
        at = {"cell_id": cell.cell_id}
        yield from (("set_scheduler_policy", {**at, "policy": one}) for one in ("PF", "RR", "MaxCI"))
        hog = max(cell.ues, key=lambda ue: ue.share)
        for blocks in (math.ceil(BLOCKS / len(cell.ues)), 100, 140):
            yield "set_prb_cap", {**at, "target": "ue", "target_id": hog.ue_id, "max_prb": blocks}
        for most, bler in ((27, 0.0), (20, 0.1), (14, 0.1), (10, 0.1)):
            yield "set_mcs_bounds", {**at, "mcs_min": 0, "mcs_max": most, "target_bler": bler}
        for voice, video in ((4.0, 1.0), (4.0, 3.0), (1.0, 4.0)):
            yield "set_qos_weights", {**at, "weights": {"1": voice, "2": video, "9": 1.0}}
        yield "set_handover_trigger", {**at, "a3_offset_db": 6.0, "ttt_ms": 1024}
        yield "set_handover_trigger", {**at, "a3_offset_db": 10.0, "ttt_ms": 1280}
        yield "set_ul_power_control", {**at, "p0_dbm": -104.0, "alpha": 1.0}


def reference(network: Network, steps: int) -> tuple[float, list[tuple[str, dict[str, Any]]]]:
    """The return of the calls that are best two steps ahead, and these calls."""
    total, calls = 0.0, list[tuple[str, dict[str, Any]]]()
    for _ in range(steps):
        best = (-math.inf, ("noop", dict[str, Any]()))
        for name, arguments in candidates(network):
            tried = network.copy()
            gain, _ = carry_out(tried, read(name, msgspec.json.encode(arguments).decode()))
            gain += carry_out(tried, None)[0]
            if gain > best[0] + 1e-9:
                best = (gain, (name, arguments))
        name, arguments = best[1]
        total += carry_out(network, read(name, msgspec.json.encode(arguments).decode()))[0]
        calls.append((name, arguments))
    return total, calls
