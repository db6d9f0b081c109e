"""What the model is told of the cells, the tools that it is offered, and rows with a reference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gym_resources.radio_cells.cell_controls import ALPHAS, carry_out, reference
from gym_resources.radio_cells.radio_network import BLOCKS, REGIMES, Network, Regime, made

SYSTEM = (
    "You operate radio cells of a 5G network. Each message shows what cells and terminals (UEs) measured "
    "in the last five seconds. Answer each with exactly one call of a tool that relieves the congestion, "
    "or with noop."
)
LEAST_GAIN = 0.15
DWELLS = [0, 40, 64, 80, 100, 128, 160, 256, 320, 480, 512, 640, 1024, 1280, 2560, 5120]
CELL = {"type": "integer", "minimum": 0, "maximum": 3, "description": "The cell's number."}


def _tool(name: str, description: str, **fields: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    return {
        "type": "function",
        "name": name,
        "description": description,
        "parameters": schema,
        "strict": False,
    }


def _between(low: float, high: float, kind: str = "number") -> dict[str, Any]:
    return {"type": kind, "minimum": low, "maximum": high}


TOOLS = [
    _tool(
        "set_scheduler_policy",
        "Choose a cell's scheduler: proportional fair (PF), equal turns (RR), best channels first (MaxCI).",
        cell_id=CELL,
        policy={"type": "string", "enum": ["PF", "RR", "MaxCI"]},
    ),
    _tool(
        "set_prb_cap",
        "Limit the resource blocks that one UE gets, where the others can use what it loses.",
        cell_id=CELL,
        target={"type": "string", "enum": ["ue"]},
        target_id=_between(0, 23, "integer"),
        max_prb=_between(0, BLOCKS, "integer"),
    ),
    _tool(
        "set_mcs_bounds",
        "Limit the MCS that the scheduler picks, and aim at a block error rate (0.1 is usual).",
        cell_id=CELL,
        mcs_min=_between(0, 27, "integer"),
        mcs_max=_between(0, 27, "integer"),
        target_bler=_between(0, 0.5),
    ),
    _tool(
        "set_qos_weights",
        "Weigh the classes of service (5QI, as text) against each other; a larger weight wins more blocks.",
        cell_id=CELL,
        weights={"type": "object", "minProperties": 1, "additionalProperties": _between(0, 10)},
    ),
    _tool(
        "set_admission_policy",
        "Set admission; less than 100 % and reservations are not modelled.",
        cell_id=CELL,
        accept_threshold_pct=_between(0, 100),
        slice_reservation={"type": "object", "maxProperties": 0, "additionalProperties": False},
    ),
    _tool(
        "set_handover_trigger",
        "Set by how many dB and for how many ms a neighbour must be better before a UE is handed over.",
        cell_id=CELL,
        a3_offset_db=_between(-24, 24),
        ttt_ms={"type": "integer", "enum": DWELLS},
    ),
    _tool(
        "set_ul_power_control",
        "Set the uplink power that a cell asks for (p0), and the share of path loss made up for (alpha).",
        cell_id=CELL,
        p0_dbm=_between(-126, 23),
        alpha={"type": "number", "enum": list(ALPHAS)},
    ),
    _tool("noop", "Change nothing in this step."),
]


def telemetry(network: Network, reward: float | None = None, refused: str = "") -> str:
    """What cells and terminals measured, as the model reads it."""
    lines = [f"step {network.step}"]
    if reward is not None:
        lines.append(f"last reward {reward:.3f}" + (f", refused: {refused}" if refused else ""))
    for cell in network.cells:
        violated = sum(ue.violated for ue in cell.ues)
        lines.append(
            f"cell {cell.cell_id}: scheduler {cell.policy}, blocks in use {cell.used:.2f}, "
            f"UEs {len(cell.ues)}, PRACH collisions {cell.collisions:.2f}, "
            f"Jain fairness {cell.fairness:.2f}, SLA violations {violated}"
        )
        lines += [
            f"  UE {ue.ue_id}: 5QI {ue.five_qi}, offered {ue.offered_mbps:.1f} Mbps, "
            f"delivered {ue.delivered_mbps:.1f}, blocks {round(ue.share * BLOCKS)}, "
            f"SINR {ue.sinr_db:.1f} dB, MCS {ue.mcs}, BLER {ue.bler:.2f}, buffer {ue.buffer_mb:.1f} MB"
            + (", SLA violated" if ue.violated else "")
            for ue in cell.ues
        ]
    return "\n".join(lines)


def rows(size: int, seed: int, max_steps: int) -> Iterator[dict[str, Any]]:
    """Rows, with the calls of the reference as ``gold``; each takes about a second.

    Episodes in which the reference gains less than `LEAST_GAIN` over doing nothing are left out.
    """
    found, number = 0, -1
    while found < size:
        number += 1
        mix: dict[Regime, float] = {REGIMES[found % len(REGIMES)]: 1.0}
        difficulty = 0.5 + 0.1 * (number % 4)
        row_seed = seed * 1_000_003 + number
        idle = made(row_seed, mix, difficulty)
        total, calls = reference(idle.copy(), max_steps)
        if total - sum(carry_out(idle, None)[0] for _ in range(max_steps)) < LEAST_GAIN:
            continue
        found += 1
        yield {
            "responses_create_params": {"input": [{"role": "system", "content": SYSTEM}], "tools": TOOLS},
            "seed": row_seed,
            "regime_mix": mix,
            "difficulty": difficulty,
            "max_steps": max_steps,
            "tier": "replay",
            "reference_return": total,
            "gold": [{"call": name, **arguments} for name, arguments in calls],
        }
