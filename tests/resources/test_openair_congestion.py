"""Radio cells: what the controls do, what is refused, what a step and an episode are worth."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from gym_resources.openair_congestion import environment, generate
from gym_resources.radio_cells.cell_controls import REFUSED, VIOLATED, carry_out, measures, read
from gym_resources.radio_cells.radio_network import CAPACITY_MBPS, REGIMES, Network, Regime, made
from gym_runtime.environment import catalogue
from gym_runtime.environment.replaying import session_of
from gym_runtime.environment.verdict import Verdict, make_response
from gym_runtime.errors import TaskError
from resources.judging import call, row
from tables import table

pytestmark = pytest.mark.anyio
NAME = "openair_congestion"
NOOP = call("noop", {})


def network(regime: Regime, seed: int = 3, difficulty: float = 0.6) -> Network:
    return made(seed, {regime: 1.0}, difficulty)


def returned(regime: Regime, *calls: tuple[str, dict[str, Any]], steps: int = 8) -> float:
    """The return of an episode that begins with these calls in each cell and goes on with noop."""
    net = network(regime)
    every = [(name, {"cell_id": cell.cell_id, **given}) for name, given in calls for cell in net.cells]
    total = sum(carry_out(net, read(name, json.dumps(given)))[0] for name, given in every)
    return total + sum(carry_out(net, None)[0] for _ in range(steps - len(every)))


@pytest.mark.parametrize(
    ("regime", "control"),
    [
        ("prach_storm", ("set_handover_trigger", {"a3_offset_db": 9.0, "ttt_ms": 1024})),
        ("interference", ("set_ul_power_control", {"p0_dbm": -104.0, "alpha": 1.0})),
        ("interference", ("set_mcs_bounds", {"mcs_min": 0, "mcs_max": 14, "target_bler": 0.1})),
        ("qos_competition", ("set_qos_weights", {"weights": {"1": 4.0, "2": 3.0}})),
    ],
)
def test_the_control_of_a_regime_relieves_it(regime: Regime, control: tuple[str, dict[str, Any]]) -> None:
    assert returned(regime, control) > returned(regime) + 0.05


@pytest.mark.parametrize("regime", REGIMES)
def test_no_cell_delivers_more_than_it_has_or_than_is_wanted(regime: Regime) -> None:
    net = network(regime, difficulty=1.0)
    for step in range(20):
        carry_out(
            net,
            read(
                "set_scheduler_policy", json.dumps({"cell_id": 0, "policy": ("RR", "MaxCI", "PF")[step % 3]})
            ),
        )
        for cell in net.cells:
            assert cell.used <= 1 + 1e-4
            assert sum(ue.delivered_mbps for ue in cell.ues) <= CAPACITY_MBPS
            assert all(0 <= ue.delivered_mbps <= ue.offered_mbps for ue in cell.ues)
        assert all(0 <= value <= 1 + 1e-4 for value in measures(net).values())


def test_the_same_calls_lead_to_the_same_state_and_setting_twice_changes_nothing() -> None:
    one, other = network("bursty"), network("bursty")
    scheduler = read("set_scheduler_policy", '{"cell_id": 0, "policy": "MaxCI"}')
    carry_out(one, scheduler), carry_out(other, scheduler)
    carry_out(one, scheduler), carry_out(other, None)
    assert one == other
    assert one.copy() == one


@table(
    ("name", "arguments", "said"),
    [
        ("set_scheduler_policy", {"cell_id": 3, "policy": "RR"}, "there is no cell 3"),
        ("set_prb_cap", {"cell_id": 0, "target": "ue", "target_id": 20, "max_prb": 200}, "has no UE 20"),
        ("set_prb_cap", {"cell_id": 0, "target": "ue", "target_id": 0, "max_prb": 3}, "would shed traffic"),
        ("set_mcs_bounds", {"cell_id": 0, "mcs_min": 9, "mcs_max": 3, "target_bler": 0.1}, "below mcs_min"),
        (
            "set_admission_policy",
            {"cell_id": 0, "accept_threshold_pct": 50, "slice_reservation": {}},
            "shed traffic",
        ),
        ("set_qos_weights", {"cell_id": 0, "weights": {"400": 1}}, "at most 127"),
    ],
)
def test_what_is_unsafe_is_refused_and_costs(name: str, arguments: dict[str, Any], said: str) -> None:
    net, same = network("prb_exhaustion"), network("prb_exhaustion")
    reward, refused = carry_out(net, read(name, json.dumps(arguments)))
    assert said in refused
    assert reward == pytest.approx(carry_out(same, None)[0] + REFUSED)
    assert net == same, "nothing was set"


@table(
    ("name", "arguments"),
    [
        ("set_everything", "{}"),
        ("noop", '{"x": 1}'),
        ("noop", "["),
        ("set_scheduler_policy", '{"cell_id": 0, "policy": "FIFO"}'),
        ("set_scheduler_policy", '{"cell_id": 9, "policy": "RR"}'),
        ("set_handover_trigger", '{"cell_id": 0, "a3_offset_db": 3, "ttt_ms": 7}'),
        ("set_ul_power_control", '{"cell_id": 0, "p0_dbm": -90, "alpha": 0.55}'),
        ("set_ul_power_control", '{"cell_id": 0, "p0_dbm": NaN, "alpha": 0.5}'),
        (
            "set_admission_policy",
            '{"cell_id": 0, "accept_threshold_pct": 100, "slice_reservation": {"a": 1}}',
        ),
        ("set_qos_weights", '{"cell_id": 0, "weights": {}}'),
        ("set_qos_weights", '{"cell_id": 0, "weights": {"0": 1}}'),
        ("set_qos_weights", "[" * 1_000_000),
    ],
)
def test_a_wrong_call_is_no_control(name: str, arguments: str) -> None:
    assert read(name, arguments) is None


async def play(task: bytes, turns: list[Any]) -> tuple[Verdict, list[str]]:
    resource = catalogue.environment(NAME).resource
    said: list[str] = []
    async with session_of(resource, task) as session:
        await resource.reset(session)
        response = make_response("x")
        for turn in turns:
            response = make_response(*(turn if isinstance(turn, list) else [turn]))
            step = await resource.step(session, response)
            said.append(b"".join(map(bytes, step.items)).decode())
            if step.terminated:
                break
        return await resource.verify(session, response), said


async def test_an_answer_that_is_not_one_call_is_a_noop_with_a_surcharge() -> None:
    task = row(seed=3, scenario_id="prach_storm", max_steps=3)
    quiet, _ = await play(task, [NOOP] * 3)
    for wrong in ("I wait.", [NOOP, NOOP], call("set_everything", {})):
        verdict, said = await play(task, [NOOP, wrong, NOOP, NOOP])
        assert verdict.reward == pytest.approx(quiet.reward + VIOLATED)
        assert "not exactly one valid call" in said[1]
        assert len(said) == 3, "the episode goes on to its end, and no further"


async def test_with_a_reference_the_reward_is_a_share_of_it() -> None:
    (made_row,) = generate(1, 5, max_steps=4)
    gold = made_row.pop("gold")
    task = json.dumps(made_row).encode()
    calls = [
        call(one["call"], {name: value for name, value in one.items() if name != "call"}) for one in gold
    ]
    assert (await play(task, calls))[0].reward == pytest.approx(1.0)
    assert (await play(task, [NOOP] * 4))[0].reward == pytest.approx(0.0)
    assert (await play(task, [NOOP]))[0].reward == pytest.approx(0.0), "what was not played is noop"
    assert (await play(task, ["x"] * 4))[0].reward == -1.0


async def test_the_model_is_not_told_what_congests_the_cells() -> None:
    resource = catalogue.environment(NAME).resource
    async with session_of(resource, row(seed=1, scenario_id="bursty", difficulty=0.77)) as session:
        shown = b"".join(map(bytes, await resource.reset(session))).decode()
    assert "5QI" in shown
    assert not any(secret in shown for secret in ("bursty", "0.77", "regime"))


@table(
    "fields",
    [
        {"scenario_id": "rain"},
        {"regime_mix": {"rain": 1}},
        {"regime_mix": {"bursty": 0}},
        {"difficulty": 2},
        {"max_steps": 0},
        {"tier": "live"},
        {"reference_return": -99},
    ],
)
def test_rows_that_are_no_episode_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(TaskError):
        catalogue.environment(NAME).resource.task(row(**fields))


def test_a_step_of_the_largest_network_takes_no_time() -> None:
    net = made(1, dict.fromkeys(REGIMES, 1.0), 1.0)
    started_s = time.process_time()
    for _ in range(100):
        carry_out(net, None)
    assert (time.process_time() - started_s) / 100 < 0.05
    assert environment.generate is generate
