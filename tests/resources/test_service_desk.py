"""The service desk: its rules, what decides the reward, its rows; and a whole conversation."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gym_agents.dialogue import Agent
from gym_resources.desk.cases import KINDS, generate
from gym_resources.desk.shop import Customer, Order, Shop
from gym_runtime.environment import catalogue
from gym_runtime.environment.replaying import session_of
from gym_runtime.environment.verdict import make_response
from gym_runtime.errors import TaskError
from gym_testing.small_system import Engine, answer, function_call, small_system
from resources.judging import call, outputs, row
from tables import table

pytestmark = pytest.mark.anyio

NAME = "service_desk"
SHOP = {
    "customers": [
        {"customer_id": "C1", "name": "Ada Brandt", "postcode": "12345"},
        {"customer_id": "C2", "name": "Bo Lindqvist", "postcode": "54321"},
    ],
    "orders": [
        {
            "order_id": "1",
            "customer_id": "C1",
            "status": "pending",
            "address": "A 1",
            "items": ["TEE-S", "MUG-R"],
        },
        {
            "order_id": "2",
            "customer_id": "C1",
            "status": "delivered",
            "address": "A 1",
            "items": ["LAMP-W", "LAMP-W"],
            "tracking": "TRK-1",
        },
        {"order_id": "3", "customer_id": "C2", "status": "sent", "address": "B 2", "items": ["BAG-20"]},
    ],
}
ADA: tuple[str, dict[str, str]] = ("find_customer", {"name": "ada brandt ", "postcode": "12345"})


def task(**fields: Any) -> bytes:
    return row(**{"shop": SHOP, "simulated_user": {"goal": "g"}, **fields})


@table(
    ("name", "arguments", "said"),
    [
        ("change_address", {"order_id": "#1", "address": "B 3"}, "done"),
        ("change_address", {"order_id": "1", "address": " "}, "address is empty"),
        ("change_address", {"order_id": "1", "address": "B " * 500_000}, "longer than 300 characters"),
        ("change_address", {"order_id": "2", "address": "B 3"}, "order 2 is delivered"),
        ("cancel_order", {"order_id": "1"}, "done"),
        ("cancel_order", {"order_id": "2"}, "only pending orders can be changed"),
        ("cancel_order", {"order_id": "3"}, "identify the customer"),
        ("cancel_order", {"order_id": "4"}, "there is no order 4"),
        ("exchange_item", {"order_id": "1", "sku": "TEE-S", "new_sku": "TEE-M"}, "done"),
        ("exchange_item", {"order_id": "1", "sku": "TEE-S", "new_sku": "MUG-R"}, "same product"),
        ("exchange_item", {"order_id": "1", "sku": "TEE-S", "new_sku": "TEE-XL"}, "same product"),
        ("exchange_item", {"order_id": "1", "sku": "BAG-20", "new_sku": "BAG-30"}, "has no item BAG-20"),
        ("return_item", {"order_id": "2", "sku": "LAMP-W"}, "done"),
        ("return_item", {"order_id": "2", "sku": "MUG-R"}, "has no item MUG-R"),
        ("return_item", {"order_id": "1", "sku": "TEE-S"}, "order 1 is pending"),
        ("get_order", {"order_id": "2"}, '"paid":"96.50"'),
        ("get_order", {"order_id": "3"}, "identify the customer"),
        ("list_options", {"name": "Trail shoe"}, '"in_stock":false'),
        ("find_customer", {"name": "Bo Lindqvist", "postcode": "12345"}, "there is no customer"),
    ],
)
async def test_the_tools_hold_the_rules(name: str, arguments: dict[str, str], said: str) -> None:
    assert said in (await outputs(NAME, task(), [ADA, (name, arguments)]))[-1]


async def test_an_item_is_taken_back_as_often_as_it_was_bought() -> None:
    back = ("return_item", {"order_id": "2", "sku": "LAMP-W"})
    assert ["done" in said for said in await outputs(NAME, task(), [ADA, back, back, back])][1:] == [
        True,
        True,
        False,
    ]


async def verdict(calls: list[tuple[str, dict[str, str]]], *said: str, **fields: Any) -> dict[str, float]:
    resource = catalogue.environment(NAME).resource
    async with session_of(resource, task(**fields)) as session:
        for name, arguments in calls:
            await resource.call_tool(session, name, json.dumps(arguments))
        items = [call(name, arguments) for name, arguments in calls]
        found = await resource.verify(session, make_response(*items, *said))
    return {"reward": found.reward, **found.components}


MOVE = {"order_id": "1", "address": "High Street 7, Norton"}


@table(
    ("calls", "said", "reward"),
    [
        ([("change_address", MOVE)], ["It is done, TRK-1."], 1.0),
        ([("change_address", {**MOVE, "address": "7 high street Norton"})], ["It's done.", "trk-1"], 1.0),
        ([("change_address", {**MOVE, "address": "x"}), ("change_address", MOVE)], ["TRK-1"], 1.0),
        ([("change_address", MOVE)], ["It is done."], 0.0),
        ([("change_address", MOVE), ("cancel_order", {"order_id": "1"})], ["TRK-1"], 0.0),
        ([("change_address", {**MOVE, "address": "High Street 8, Norton"})], ["TRK-1"], 0.0),
        ([], ["It is done, TRK-1."], 0.0),
    ],
)
async def test_the_state_at_the_end_and_what_was_said_decide(
    calls: list[tuple[str, dict[str, str]]], said: list[str], reward: float
) -> None:
    expected = [{"name": "change_address", "arguments": MOVE}]
    found = await verdict([ADA, *calls], *said, expected_calls=expected, tell=["TRK-1"])
    assert found["reward"] == reward


async def test_where_nothing_is_to_be_changed_something_must_be_said() -> None:
    assert await verdict([], "I cannot do that.") == {"reward": 1.0, "state": 1.0, "told": 1.0}
    assert (await verdict([], " "))["reward"] == 0.0
    assert (await verdict([ADA, ("cancel_order", {"order_id": "1"})], "Done."))["reward"] == 0.0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"expected_calls": [{"name": "get_order", "arguments": {"order_id": "1"}}]},
            "Invalid enum value 'get_order'",
        ),
        ({"expected_calls": [{"name": "cancel_order", "arguments": {"order_id": "2"}}]}, "is delivered"),
        ({"expected_calls": [{"name": "cancel_order", "arguments": {"order": "1"}}]}, "unexpected keyword"),
        ({"shop": {**SHOP, "customers": []}}, "who does not exist"),
        ({"shop": {**SHOP, "orders": [{**SHOP["orders"][0], "items": ["PEN"]}]}}, "'PEN'"),
    ],
)
def test_a_row_that_cannot_be_won_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        catalogue.environment(NAME).resource.task(task(**fields))


def test_the_rows_are_those_of_the_generator_and_it_makes_every_kind_of_case() -> None:
    rows, file = list(generate(3 * len(KINDS), 0)), catalogue.environment(NAME).examples
    assert rows == [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    assert rows[:5] == list(generate(5, 0)) != list(generate(5, 1))
    assert len({json.dumps(one["shop"]) for one in rows}) == len(rows)
    for one in rows:
        catalogue.environment(NAME).resource.task(json.dumps(one).encode())


def test_a_shop_is_itself_whatever_the_order_of_an_addresss_words() -> None:
    def shop(address: str, *items: str) -> Shop:
        order = Order("1", "C1", "pending", address, [*items])
        return Shop([Customer("C1", "Ada", "1")], [order])

    assert shop("Mill Lane 3", "A", "B").is_like(shop("3, mill  lane", "B", "A"))
    assert not shop("Mill Lane 3", "A").is_like(shop("Mill Lane 33", "A"))
    assert not shop("Mill Lane 3", "A").is_like(shop("Mill Lane 3", "A", "A"))


@pytest.mark.slow
async def test_a_conversation_with_a_customer_from_end_to_end() -> None:
    line = next(line for line in generate(8, 3) if line["expected_calls"])
    speaker = line["shop"]["customers"][0]
    change = line["expected_calls"][0]
    found = function_call("find_customer", json.dumps({k: speaker[k] for k in ("name", "postcode")}))
    policy = Engine(
        answer("Who are you?"),
        answer(found),
        answer(function_call(change["name"], json.dumps(change["arguments"]))),
        answer("That is done."),
    )
    customer = Engine(answer("Help me."), answer("I am."), answer("###STOP###"))
    async with small_system() as system:
        await system.add_resource(catalogue.environment(NAME))
        await system.add_agent({"dialogue": Agent()})
        await system.add_model(policy)
        await system.add_model(customer, name="user-1", pool="user")
        (record,) = [record async for record in system.client.rollouts([line], environment=NAME)]
    assert (record.reward, record.turns, record.roles["user"].calls) == (1.0, 4, 3)
