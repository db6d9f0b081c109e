"""The domains of tau2-bench: what the tools do, and what decides the reward."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from gym_agents.dialogue import Agent
from gym_runtime.environment import catalogue
from gym_runtime.environment.replaying import session_of
from gym_runtime.environment.roles import ScriptedAnswers
from gym_runtime.environment.verdict import Verdict, make_response
from gym_runtime.errors import GymError, ModelUnavailable, TaskError
from gym_testing.small_system import Engine, answer, function_call, small_system
from resources.judging import call, outputs
from tables import table

pytestmark = pytest.mark.anyio
Call = tuple[str, dict[str, Any]]


def example(name: str, number: int, **criteria: Any) -> dict[str, Any]:
    """One of our example rows, with other criteria."""
    row = json.loads(catalogue.environment(name).examples.read_text("utf-8").splitlines()[number - 1])
    row["task"]["evaluation_criteria"] |= criteria
    return row


def actions(*calls: Call) -> list[dict[str, Any]]:
    return [{"action_id": str(n), "name": name, "arguments": given} for n, (name, given) in enumerate(calls)]


def leg(number: str, date: str = "2024-05-20") -> dict[str, str]:
    return {"flight_number": number, "date": date}


IVO = {"first_name": "Ivo", "last_name": "Marsh", "dob": "1990-10-30"}
BOOK: dict[str, Any] = {
    "user_id": "nora_lind_1001",
    "origin": "BOS",
    "destination": "ORD",
    "flight_type": "one_way",
    "cabin": "economy",
    "flights": [leg("HAT301")],
    "passengers": [IVO],
    "payment_methods": [{"payment_id": "gift_card_12", "amount": 120}],
    "total_baggages": 0,
    "nonfree_baggages": 0,
    "insurance": "no",
}
CHANGE = {
    "reservation_id": "QK7T2A",
    "cabin": "economy",
    "flights": [leg("HAT301")],
    "payment_id": "gift_card_12",
}
BAGS = {"reservation_id": "QK7T2A", "total_baggages": 3, "nonfree_baggages": 2, "payment_id": "gift_card_12"}


@table(
    ("name", "arguments", "said"),
    [
        ("book_reservation", BOOK, '"reservation_id":"HATHAT"'),
        ("book_reservation", {**BOOK, "insurance": "yes"}, "add up to 120, but the price is 150"),
        ("book_reservation", {**BOOK, "passengers": [IVO] * 3}, "add up to 120, but the price is 360"),
        ("book_reservation", {**BOOK, "flights": [leg("HAT301", "2024-05-21")] * 2}, "the price is 260"),
        ("book_reservation", {**BOOK, "flights": [leg("HAT302", "2024-05-14")]}, "is not available"),
        ("book_reservation", {**BOOK, "payment_methods": [{"payment_id": "x", "amount": 1}]}, "no payment"),
        (
            "book_reservation",
            {**BOOK, "payment_methods": [{"payment_id": "gift_card_12", "amount": 60}] * 2},
            "can be used once",
        ),
        ("book_reservation", {**BOOK, "passengers": [IVO] * 51}, "validation_error"),
        ("cancel_reservation", {"reservation_id": "QK7T2A"}, '"amount":-210'),
        ("update_reservation_flights", CHANGE, '"amount":-90'),
        ("update_reservation_flights", {**CHANGE, "cabin": "business"}, '"amount":90'),
        ("update_reservation_flights", {**CHANGE, "flights": []}, '"amount":-210'),
        ("update_reservation_baggages", BAGS, '"amount":100'),
        ("update_reservation_baggages", {**BAGS, "nonfree_baggages": 9}, "does not cover 450"),
        (
            "update_reservation_passengers",
            {"reservation_id": "QK7T2A", "passengers": []},
            "cannot be changed",
        ),
        ("send_certificate", {"user_id": "ivo_marsh_1002", "amount": 50}, "certificate_3221322"),
        ("get_flight_status", {"flight_number": "HAT303", "date": "2024-05-15"}, "delayed"),
        ("get_flight_status", {"flight_number": "HAT303", "date": "2030-01-01"}, "does not go on"),
        (
            "search_direct_flight",
            {"origin": "BOS", "destination": "DEN", "date": "2024-05-20"},
            '"business":500',
        ),
        (
            "search_onestop_flight",
            {"origin": "BOS", "destination": "DEN", "date": "2024-05-20"},
            '"flight_number":"HAT302"',
        ),
        ("calculate", {"expression": "(210 - 1.5) * 2"}, "417.0"),
        ("calculate", {"expression": "9**9**9"}, "Error: only numbers"),
        ("calculate", {"expression": "1/0"}, "Error: the expression has no value"),
        ("calculate", {"expression": "(" * 500_000}, "Error: the expression is longer than 200"),
        ("get_user_details", {"user_id": "x" * 10**6}, "not found"),
        (
            "cancel_reservation",
            {"reservation_id": "QK7T2A", "reason": "ill"},
            "Error: cancel_reservation has no argument 'reason'",
        ),
    ],
)
async def test_the_airlines_tools(name: str, arguments: dict[str, Any], said: str) -> None:
    row = json.dumps(example("tau2_airline", 1)).encode()
    assert said in (await outputs("tau2_airline", row, [(name, arguments)]))[0]


ITEMS = {
    "order_id": "#W3001",
    "item_ids": ["8101", "8201"],
    "new_item_ids": ["8102", "8203"],
    "payment_method_id": "gift_card_31",
}
BACK = {"order_id": "#W3002", "item_ids": ["8202", "8202"], "payment_method_id": "paypal_32"}


@table(
    ("name", "arguments", "said"),
    [
        ("modify_pending_order_items", ITEMS, '"price":42.5'),
        ("modify_pending_order_items", ITEMS, '"price":86.0'),
        ("modify_pending_order_items", {**ITEMS, "new_item_ids": ["8102", "8201"]}, "for itself"),
        (
            "modify_pending_order_items",
            {**ITEMS, "new_item_ids": ["8103", "8203"]},
            "not an available variant",
        ),
        ("modify_pending_order_items", {**ITEMS, "new_item_ids": ["8102"]}, "one new item for each"),
        ("modify_pending_order_items", {**ITEMS, "item_ids": ["8101", "8101"]}, "does not have these items"),
        ("modify_pending_order_items", {**ITEMS, "order_id": "#W3003"}, "is not pending: it is processed"),
        (
            "modify_pending_order_payment",
            {"order_id": "#W3001", "payment_method_id": "paypal_32"},
            '"payment_method_id":"paypal_32"',
        ),
        (
            "modify_pending_order_payment",
            {"order_id": "#W3001", "payment_method_id": "gift_card_31"},
            "in this way already",
        ),
        ("return_delivered_order_items", BACK, '"return_items":["8202","8202"]'),
        ("return_delivered_order_items", {**BACK, "item_ids": ["8202"] * 3}, "does not have these items"),
        ("exchange_delivered_order_items", {**ITEMS, "order_id": "#W3002"}, "does not have these items"),
        ("cancel_pending_order", {"order_id": "#W3001", "reason": "no longer needed"}, '"refund"'),
        ("cancel_pending_order", {"order_id": "#W3001", "reason": "weather"}, "validation_error"),
        ("get_item_details", {"item_id": "8103"}, '"available":false'),
        ("get_item_details", {"item_id": "7001"}, "not found"),
        ("list_all_product_types", {}, '{"Kettle":"7001","Rain Jacket":"7002"}'),
        ("find_user_id_by_email", {"email": "Tess.Holm@example.com"}, "tess_holm_2001"),
        ("find_user_id_by_name_zip", {"first_name": "Tess", "last_name": "Holm", "zip": "1"}, "not found"),
    ],
)
async def test_the_shops_tools(name: str, arguments: dict[str, Any], said: str) -> None:
    row = json.dumps(example("tau2_retail", 1)).encode()
    assert said in (await outputs("tau2_retail", row, [(name, arguments)]))[0]


async def verdict(
    row: dict[str, Any], calls: list[Call], *said: str, judge: tuple[Any, ...] = (), stop: str = ""
) -> tuple[Verdict, int]:
    """The verdict on a conversation, and how many questions the judge was asked."""
    resource = catalogue.environment(f"tau2_{row['config']['domain']}").resource
    scripted = ScriptedAnswers({"judge": judge} if judge else {})
    async with session_of(resource, json.dumps(row).encode(), scripted.models(resource.roles)) as session:
        items: list[dict[str, Any]] = []
        for number, (name, arguments) in enumerate(calls):
            answered = await resource.call_tool(session, name, json.dumps(arguments))
            items.append(call(name, arguments, f"c{number}"))
            items.append({"type": "function_call_output", "call_id": f"c{number}", "output": answered})
        response = json.loads(make_response(*items, *said))
        response["metadata"] = {"stop_reason": stop} if stop else None
        found = await resource.verify(session, json.dumps(response).encode())
    assert isinstance(found, Verdict)
    return found, len(scripted.asked)


CANCEL: Call = ("cancel_reservation", {"reservation_id": "QK7T2A"})


@table(
    ("calls", "said", "stop", "reward"),
    [
        ([CANCEL], "You get $1,210 back.", "", 1.0),
        ([CANCEL], "You get 1210 back.", "###TRANSFER###", 1.0),
        ([("get_user_details", {"user_id": "nora_lind_1001"}), CANCEL], "1210", "", 1.0),
        ([CANCEL], "You get it back.", "", 0.0),
        ([], "1210", "", 0.0),
        ([CANCEL, CANCEL], "1210", "", 0.0),
        ([CANCEL], "1210", "max_turns", 0.0),
        ([CANCEL, *[("get_user_details", {"user_id": "x"})] * 9], "1210", "", 1.0),
        ([CANCEL, *[("get_user_details", {"user_id": "x"})] * 10], "1210", "", 0.0),
    ],
)
async def test_the_state_and_what_was_said_decide(
    calls: list[Call], said: str, stop: str, reward: float
) -> None:
    row = example("tau2_airline", 1, actions=actions(CANCEL), communicate_info=["1210"])
    found, _ = await verdict(row, calls, said, stop=stop)
    assert found.reward == reward


async def test_calls_are_compared_where_the_task_says_so() -> None:
    look = ("get_reservation_details", {"reservation_id": "QK7T2A"})
    row = example("tau2_airline", 1, actions=actions(look), reward_basis=["ACTION"])
    assert (await verdict(row, [look], "Hello."))[0].reward == 1.0
    assert (await verdict(row, [(look[0], {"reservation_id": "RM4Z9B"})], "Hello."))[0].reward == 0.0


async def test_what_must_not_happen_is_worth_nothing_without_a_word() -> None:
    row = example("tau2_airline", 1, actions=[], communicate_info=[])
    assert (await verdict(row, [], "I cannot do that."))[0].reward == 1.0
    assert (await verdict(row, []))[0].reward == 0.0


@pytest.mark.parametrize(
    ("answers", "calls", "reward", "asked"),
    [
        (("[[holds]]", "It does. [[holds]]"), [], 1.0, 2),
        (("[[holds]]", "[[does not hold]]"), [], 0.0, 2),
        (("Well.", "[[holds]]"), [], 0.0, 2),
        (("[[holds]]", "[[holds]]"), [CANCEL], 0.0, 0),
    ],
)
async def test_a_judge_checks_the_statements(
    answers: tuple[str, ...], calls: list[Call], reward: float, asked: int
) -> None:
    row = example("tau2_airline", 2, nl_assertions=["It refuses.", "It is polite."])
    found, questions = await verdict(row, calls, "No, sorry.", judge=answers)
    assert (found.reward, questions) == (reward, asked)


async def test_a_judge_is_needed_where_it_counts_and_its_failure_is_no_reward() -> None:
    row = example("tau2_airline", 2)
    with pytest.raises(GymError, match="--set use_judge=false"):
        await verdict(row, [], "No.")
    with pytest.raises(GymError):
        await verdict(row, [], "No.", judge=(ModelUnavailable("gone"),))
    assert (await verdict({**row, "use_judge": False}, [], "No."))[0].reward == 1.0


SCENE = {"env_type": "user", "func_name": "turn_data_off", "arguments": {}}


@table(
    ("change", "message"),
    [
        ({"config": {"domain": "banking"}}, "Invalid enum value 'banking'"),
        ({"config": {"domain": "retail"}}, "is 'retail', not 'airline'"),
        ({"task": {"initial_state": {"initialization_data": {"agent_data": {"x": 1}}}}}, "not supported"),
        ({"task": {"initial_state": {"initialization_actions": [SCENE]}}}, "mean nothing in airline"),
        ({"task": {"evaluation_criteria": {"actions": actions(("fly", {}))}}}, "no tool 'fly'"),
        ({"task": {"evaluation_criteria": {"env_assertions": [SCENE]}}}, "mean nothing in airline"),
    ],
)
async def test_rows_that_cannot_be_judged_are_refused(change: dict[str, Any], message: str) -> None:
    resource = catalogue.environment("tau2_airline").resource
    row = json.dumps({**example("tau2_airline", 1), **change}).encode()
    with pytest.raises(TaskError, match=message):
        async with session_of(resource, row):
            pass


@pytest.mark.slow
async def test_a_whole_conversation() -> None:
    row = example("tau2_airline", 1)
    policy = Engine(
        answer("Shall I cancel it?"),
        answer(function_call("cancel_reservation", '{"reservation_id": "QK7T2A"}')),
        answer("Done, you get 210 dollars."),
    )
    customer = Engine(answer("Cancel my flight."), answer("Yes."), answer("###STOP###"))
    async with small_system() as system:
        await system.add_resource(catalogue.environment("tau2_airline"))
        await system.add_agent({"dialogue": Agent()})
        await system.add_model(policy)
        await system.add_model(customer, name="user-1", pool="user")
        (record,) = [
            record async for record in system.client.rollouts([row], environment="tau2_airline", repeats=1)
        ]
    assert (record.reward, record.turns) == (1.0, 3)
    assert msgspec.json.decode(record.row)["response"]["metadata"] == {"stop_reason": "###STOP###"}
