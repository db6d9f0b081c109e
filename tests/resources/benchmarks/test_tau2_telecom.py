"""tau2-bench's telephone company: the telephone, the company's tools, and customers who have tools too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gym_agents.step_loop import Agent
from gym_resources.tau2 import published
from gym_resources.tau2.handset_scene import HandsetScene
from gym_resources.tau2.phone import Phone
from gym_resources.tau2.two_sided import tools
from gym_runtime.environment import catalogue, examples
from gym_runtime.environment.replaying import session_of
from gym_runtime.environment.roles import Scripted, ScriptedAnswers
from gym_runtime.environment.verdict import Verdict, make_response
from gym_runtime.errors import GymError, ModelUnavailable, TaskError
from gym_runtime.messages.outcomes import Failed
from gym_testing.small_system import Engine, answer, function_call, small_system
from resources.judging import call
from tables import table

pytestmark = pytest.mark.anyio
NAME = "tau2_telecom"
Call = tuple[str, dict[str, Any]]


def example(number: int, **criteria: Any) -> dict[str, Any]:
    row = json.loads(catalogue.environment(NAME).examples.read_text("utf-8").splitlines()[number - 1])
    row["task"]["evaluation_criteria"] |= criteria
    return row


def uses(name: str, **arguments: Any) -> dict[str, Any]:
    """The customer calls a tool."""
    return {"output": [call(name, arguments, "u")]}


FAST = (220.0, "Excellent")
"""With the signal of a new telephone; after a search it has the surroundings'."""
BAD = {"env_type": "user", "func_name": "f", "arguments": {}}


@table(
    ("calls", "data", "speed", "mms"),
    [
        ([], True, FAST, True),
        ([("toggle_airplane_mode", {})], False, None, False),
        ([("toggle_airplane_mode", {}), ("toggle_airplane_mode", {})], True, (275.0, "Excellent"), True),
        ([("unseat_sim_card", {})], False, None, False),
        ([("unseat_sim_card", {}), ("reseat_sim_card", {})], True, (275.0, "Excellent"), True),
        ([("lock_sim_card", {"mode": "pin"}), ("reseat_sim_card", {})], False, None, False),
        ([("break_apn_settings", {})], False, None, False),
        ([("break_apn_settings", {}), ("reset_apn_settings", {})], False, None, False),
        (
            [("break_apn_settings", {}), ("reset_apn_settings", {}), ("reboot_device", {})],
            True,
            (275.0, "Excellent"),
            True,
        ),
        ([("set_network_mode_preference", {"mode": "2g_only"})], True, (0.05, "Very Poor"), False),
        ([("set_network_mode_preference", {"mode": "3g_only"})], True, (1.5, "Poor"), True),
        ([("set_network_mode_preference", {"mode": "4g_only"})], True, (44.0, "Good"), True),
        ([("break_vpn", {})], True, (22.0, "Fair"), True),
        ([("break_vpn", {}), ("toggle_data_saver_mode", {})], True, (4.4, "Poor"), True),
        ([("break_vpn", {}), ("disconnect_vpn", {}), ("connect_vpn", {})], True, FAST, True),
        ([("toggle_data", {})], False, None, False),
        ([("set_user_location", {"abroad": True}), ("toggle_roaming", {})], False, None, False),
        ([("break_apn_mms_setting", {})], True, FAST, False),
        ([("set_wifi_calling", {"enabled": True, "mms_over_wifi": True})], True, FAST, False),
        (
            [("remove_app_permission", {"app_name": "messaging", "permission": "SMS"})],
            True,
            FAST,
            False,
        ),
        (
            [("grant_app_permission", {"app_name": "x", "permission": "__class__"})],
            True,
            FAST,
            True,
        ),
    ],
)
async def test_what_the_telephone_can_do(
    calls: list[Call], data: bool, speed: tuple[float, str] | None, mms: bool
) -> None:
    handset = HandsetScene(Phone())
    for name, arguments in calls:
        await tools(HandsetScene)[name].call(handset, json.dumps(arguments))
    assert (handset.phone.has_data, handset.phone.speed, handset.phone.can_send_mms) == (data, speed, mms)


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("get_customer_by_phone", {"phone_number": "555-010-0001"}, '"customer_id":"C1"'),
        ("get_customer_by_phone", {"phone_number": "1"}, "there is no customer"),
        ("get_customer_by_name", {"full_name": "greta solum", "dob": "1990-03-02"}, '"customer_id":"C1"'),
        ("get_details_by_id", {"id": "P1"}, '"data_limit_gb":4.0'),
        ("get_details_by_id", {"id": "X1"}, "begins with one of"),
        ("get_data_usage", {"customer_id": "C1", "line_id": "L1"}, '"data_used_gb":1.5'),
        ("get_data_usage", {"customer_id": "C1", "line_id": "L2"}, "has no line"),
        ("suspend_line", {"customer_id": "C1", "line_id": "L1", "reason": "lost"}, '"status":"Suspended"'),
        ("resume_line", {"customer_id": "C1", "line_id": "L1"}, "not suspended"),
        ("refuel_data", {"customer_id": "C1", "line_id": "L1", "gb_amount": 2}, '"charge":6.0'),
        ("refuel_data", {"customer_id": "C1", "line_id": "L1", "gb_amount": -1}, "not positive"),
        ("send_payment_request", {"customer_id": "C1", "bill_id": "B9"}, "has no bill"),
        ("disable_roaming", {"customer_id": "C1", "line_id": "L1"}, "already"),
        ("toggle_data", {}, "Error: there is no such tool"),
        ("set_data_usage", {"customer_id": "C1", "line_id": "L1", "data_used_gb": 0}, "no such tool"),
    ],
)
async def test_the_companys_tools(name: str, arguments: dict[str, Any], said: str) -> None:
    resource = catalogue.environment(NAME).resource
    models = ScriptedAnswers({"user": ["Hello."]}).models(resource.roles)
    async with session_of(resource, json.dumps(example(1)).encode(), models) as session:
        step = await resource.step(session, make_response(call(name, arguments)))
    assert said in msgspec.json.decode(step.items[0])["output"]


async def judged(row: dict[str, Any], turns: list[Any], *customer: Scripted) -> Verdict:
    """The verdict on a conversation with a customer whose part is written."""
    resource = catalogue.environment(NAME).resource
    models = ScriptedAnswers({"user": customer}).models(resource.roles)
    output: list[Any] = []
    async with session_of(resource, json.dumps(row).encode(), models) as session:
        await resource.reset(session)
        for turn in turns:
            step = await resource.step(session, make_response(turn))
            output += [turn, *(msgspec.json.decode(item) for item in step.items)]
        found = await resource.verify(session, make_response(*output))
    assert isinstance(found, Verdict)
    return found


OFF, STOP = uses("toggle_airplane_mode"), "###STOP###"


@table(
    ("customer", "basis", "reward"),
    [
        (["Help!", OFF, STOP], ["DB", "ENV_ASSERTION"], 1.0),
        (["Help!", uses("check_status_bar"), OFF, STOP], ["DB", "ENV_ASSERTION", "ACTION"], 1.0),
        (["Help!", OFF, "Good bye ###TRANSFER###"], ["ENV_ASSERTION"], 1.0),
        (["Help!", STOP], ["ENV_ASSERTION"], 0.0),
        (["Help!", OFF, "It works."], ["ENV_ASSERTION"], 0.0),  # cut off before the customer ended it
        (["Help!", OFF, uses("toggle_wifi"), STOP], ["ENV_ASSERTION"], 1.0),
        (["Help!", OFF, uses("toggle_wifi"), STOP], ["DB", "ENV_ASSERTION"], 0.0),
        (["Help!", uses("no_such_tool"), OFF, STOP], ["ENV_ASSERTION"], 1.0),
        (["Help!", "", OFF, "", STOP], ["ENV_ASSERTION"], 1.0),
    ],
)
async def test_both_sides_and_the_end_decide(
    customer: list[Scripted], basis: list[str], reward: float
) -> None:
    row = example(1, reward_basis=basis)
    assert (await judged(row, ["Switch it off."], *customer)).reward == reward


@pytest.mark.parametrize(
    "customer",
    [["Help!", "", "", ""], ["Help!", *[uses("check_status_bar")] * 20], ["Help!", ModelUnavailable("gone")]],
)
async def test_a_customer_that_fails_is_no_reward(customer: list[Scripted]) -> None:
    with pytest.raises(GymError):
        await judged(example(1), ["Switch it off."], *customer)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"initial_state": {"initialization_actions": [BAD]}}, "'f' of the task"),
        ({"initial_state": {"initialization_data": {"agent_data": {"x": 1}}}}, "not supported"),
        (
            {"evaluation_criteria": {"actions": [{**BAD, "requestor": "user", "name": "resume_line"}]}},
            "the user has no 'resume_line'",
        ),
    ],
)
async def test_tasks_that_cannot_be_set_up_are_refused(change: dict[str, Any], message: str) -> None:
    row = example(1)
    row["task"] |= change
    with pytest.raises(TaskError, match=message):
        await judged(row, [])


@pytest.mark.slow
async def test_a_whole_conversation_shows_the_agent_what_is_said_and_nothing_else() -> None:
    row = example(2)
    policy = Engine(
        answer("What is your number?"),
        answer(function_call("enable_roaming", '{"customer_id": "C1", "line_id": "L1"}')),
        answer("Please try it."),
    )
    check = answer(function_call("run_speed_test", "{}"))
    customer = Engine(answer("No internet."), answer("555-010-0001."), check, answer(STOP))
    async with small_system() as system:
        await system.add_resource(catalogue.environment(NAME))
        await system.add_agent({"step_loop": Agent()})
        await system.add_model(policy)
        await system.add_model(customer, name="user-1", pool="user")
        (record,) = [record async for record in system.client.rollouts([row], environment=NAME, repeats=1)]
    assert not isinstance(record.outcome, Failed)
    assert (record.reward, record.turns, record.roles["user"].calls) == (1.0, 3, 4)
    assert "run_speed_test" not in json.dumps(msgspec.json.decode(record.row)["response"]["output"])


def test_published_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "telecom").mkdir()
    (tmp_path / "telecom/db.toml").write_text('[[lines]]\nline_id = "L1"\nstatus = "Active"\n')
    (tmp_path / "telecom/user_db.toml").write_text(
        "[device]\nbattery_level = 7\n[device.active_apn_settings]\n"
    )
    monkeypatch.setenv("GYM_TAU2", str(tmp_path))
    assert published.tables("telecom")["lines"] == {"L1": {"line_id": "L1", "status": "Active"}}
    assert published.phone().device.battery_level == 7
    assert published.phone() is not published.phone()


def test_example_rows_may_have_roles_that_call_tools() -> None:
    found = examples.read(catalogue.environment(NAME))
    assert any(isinstance(said, dict) for one in found for said in one.roles["user"])
