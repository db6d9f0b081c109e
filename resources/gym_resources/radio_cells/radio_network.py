"""Radio cells whose terminals want more than they get, step by step of five seconds.

A cell has 273 resource blocks and 60 Mbps at the best channel. What a terminal gets follows from its share
of the blocks and from its channel: the index of modulation and coding (MCS) that the scheduler picks, against
the one that the channel bears, decides which part of the blocks arrives. The model is our own: coarse,
without random numbers after the start, and no claim about a real network.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

BLOCKS, CAPACITY_MBPS, STEP_S = 273, 60.0, 5.0
VOICE, VIDEO, BEST_EFFORT = 1, 2, 9
P0_DBM, ALPHA, A3_DB, TTT_MS = -90.0, 0.8, 3.0, 256
Regime = Literal["prb_exhaustion", "bursty", "interference", "prach_storm", "qos_competition"]
REGIMES: tuple[Regime, ...] = Regime.__args__
Policy = Literal["PF", "RR", "MaxCI"]


class Terminal(msgspec.Struct):
    """A terminal (UE): what it wants and gets, in Mbps, its channel, and what waits for it, in MB."""

    ue_id: int
    five_qi: int
    wanted_mbps: float
    channel_db: float
    offered_mbps: float = 0.0
    delivered_mbps: float = 0.0
    sinr_db: float = 0.0
    mcs: int = 0
    bler: float = 0.0
    buffer_mb: float = 0.0
    share: float = 0.0

    @property
    def violated(self) -> bool:
        """Whether it gets less than its class of service promises."""
        promised = 0.95 if self.five_qi == VOICE else 0.8
        return self.delivered_mbps < promised * self.offered_mbps - 1e-9


class Cell(msgspec.Struct):
    """A cell with the operator's settings."""

    cell_id: int
    ues: list[Terminal]
    policy: Policy = "PF"
    caps: dict[int, int] = {}
    mcs_min: int = 0
    mcs_max: int = 27
    target_bler: float = 0.1
    weights: dict[int, float] = {}
    a3_db: float = A3_DB
    ttt_ms: int = TTT_MS
    p0_dbm: float = P0_DBM
    alpha: float = ALPHA
    collisions: float = 0.0

    @property
    def used(self) -> float:
        """The share of its blocks that is in use."""
        return sum(ue.share for ue in self.ues)

    @property
    def fairness(self) -> float:
        """Jain's index of what the terminals get of what they want."""
        parts = [ue.delivered_mbps / max(ue.offered_mbps, 1e-9) for ue in self.ues]
        squares = sum(part * part for part in parts)
        return sum(parts) ** 2 / (len(parts) * squares) if squares else 1.0


class Network(msgspec.Struct):
    """Cells at one time.

    Attributes:
        mix: how much of each regime there is, 0 to 1.
        difficulty: 0 to 1; how much more is wanted than there is.
    """

    cells: list[Cell]
    mix: dict[Regime, float]
    difficulty: float
    step: int = 0

    def advance(self) -> None:
        """Let a step pass under the settings as they are."""
        self.step += 1
        for cell in self.cells:
            _pass(self, cell)

    def copy(self) -> Network:
        return msgspec.convert(msgspec.to_builtins(self, str_keys=True), Network, strict=False)


def made(seed: int, mix: Mapping[Regime, float], difficulty: float) -> Network:
    """The network at the start: the same for the same arguments."""
    draw = random.Random(f"{seed} {sorted(mix.items())} {difficulty}")
    total = sum(mix.values())
    shares: dict[Regime, float] = {name: share / total for name, share in mix.items()}
    cells: list[Cell] = []
    for cell_id in range(draw.randint(2, 3)):
        load = CAPACITY_MBPS * (
            0.45 + 0.35 * difficulty + 0.4 * difficulty * shares.get("prb_exhaustion", 0.0)
        )
        parts = [draw.uniform(0.5, 1.5) for _ in range(draw.randint(4, 6))]
        if shares.get("prb_exhaustion"):
            parts[0] *= 1 + 4 * shares["prb_exhaustion"]
        ues = [
            Terminal(
                ue_id=number,
                five_qi=VOICE if number == 1 else VIDEO if number == 2 else BEST_EFFORT,
                wanted_mbps=round(load * part / sum(parts), 3),
                channel_db=round(draw.uniform(9, 24), 2),
            )
            for number, part in enumerate(parts)
        ]
        cells.append(Cell(cell_id=cell_id, ues=ues))
    network = Network(cells=cells, mix=shares, difficulty=difficulty)
    network.advance()
    network.step = 0
    return network


def _pass(network: Network, cell: Cell) -> None:
    mix, hard = network.mix, network.difficulty
    bursts = mix.get("bursty", 0.0) * (0.5 + hard)
    wave = 1 + bursts * max(0.0, math.sin(2 * math.pi * (network.step + 2 * cell.cell_id) / 7))
    others = [other for other in network.cells if other is not cell]
    power = sum(min(1.0, max(0.3, (one.p0_dbm + 110) / 20)) for one in others) / max(1, len(others))
    noise_db = 14 * hard * mix.get("interference", 0.0) * power
    quiet_db = max(0.0, P0_DBM - cell.p0_dbm) * 0.1 * (1 - cell.alpha)
    late_db = 0.15 * max(0.0, cell.a3_db - A3_DB)
    loose = 1 - 0.05 * (cell.a3_db - A3_DB) - 0.0004 * (cell.ttt_ms - TTT_MS)
    cell.collisions = round(mix.get("prach_storm", 0.0) * (0.3 + 0.4 * hard) * min(1.0, max(0.1, loose)), 4)
    reached: list[float] = []
    for ue in cell.ues:
        competing = mix.get("qos_competition", 0.0) * hard * (1.2 if ue.five_qi == BEST_EFFORT else 0.2)
        ue.offered_mbps = round(ue.wanted_mbps * wave * (1 + competing), 3)
        ue.sinr_db = round(ue.channel_db - noise_db - quiet_db - late_db, 2)
        borne = min(27, max(0, round((ue.sinr_db + 6) * 0.9)))
        swing = round(6 * mix.get("interference", 0.0) * hard * math.sin(network.step * 1.7 + ue.ue_id))
        picked = borne + swing - round(max(0.0, 0.1 - cell.target_bler) * 20)
        ue.mcs = min(cell.mcs_max, max(cell.mcs_min, picked, 0), 27)
        ue.bler = round(1 / (1 + math.exp(-1.2 * (ue.mcs - borne - 1.5))), 4)
        reached.append(max(0.02, (ue.mcs + 1) / 28 * (1 - ue.bler)))
    for ue, share, rate in zip(cell.ues, shared(cell, reached), reached, strict=True):
        ue.share = share
        ue.delivered_mbps = round(
            min(ue.offered_mbps, share * CAPACITY_MBPS * rate * (1 - cell.collisions)), 3
        )
        waiting = 0.7 * ue.buffer_mb + (ue.offered_mbps - ue.delivered_mbps) * STEP_S / 8
        ue.buffer_mb = round(min(200.0, waiting), 3)


def shared(cell: Cell, rates: Sequence[float]) -> list[float]:
    """The share of the blocks that each terminal gets; caps hold where the others can use what they free."""
    wanted = [ue.offered_mbps / (CAPACITY_MBPS * rate) for ue, rate in zip(cell.ues, rates, strict=True)]
    weights = [
        cell.weights.get(ue.five_qi, 1.0) * (4 * rate * rate if cell.policy == "MaxCI" else 1.0)
        for ue, rate in zip(cell.ues, rates, strict=True)
    ]
    if cell.policy == "RR":  # the same turns for all, whatever the weights
        weights = [1.0] * len(wanted)
    free = _filled(wanted, weights)
    limits = list(wanted)
    for place, ue in enumerate(cell.ues):
        cap = cell.caps.get(ue.ue_id)
        if cap is not None and absorbed(free, wanted, place, cap):
            limits[place] = min(limits[place], cap / BLOCKS)
    return _filled(limits, weights)


def absorbed(shares: Sequence[float], wanted: Sequence[float], place: int, cap: int) -> bool:
    """Whether the other terminals want all that a cap takes from one."""
    unmet = sum(
        want - share for n, (share, want) in enumerate(zip(shares, wanted, strict=True)) if n != place
    )
    return unmet >= shares[place] - cap / BLOCKS - 1e-9


def _filled(limits: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Shares of 1 by weight, none above its limit; what one leaves goes to the others."""
    shares, left = [0.0] * len(limits), 1.0
    open_places: list[int] = [place for place, weight in enumerate(weights) if weight > 0]
    while open_places and left > 1e-9:
        total = sum(weights[place] for place in open_places)
        full = [p for p in open_places if limits[p] - shares[p] <= left * weights[p] / total + 1e-12]
        if not full:
            for place in open_places:
                shares[place] += left * weights[place] / total
            break
        for place in full:
            left -= limits[place] - shares[place]
            shares[place] = limits[place]
        open_places = [place for place in open_places if place not in full]
    return [round(share, 6) for share in shares]
