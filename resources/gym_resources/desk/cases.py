"""Cases that customers bring to the desk, made from a seed: the shop, the customer, and how it should end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import msgspec

from gym_resources.desk.shop import PRODUCTS, Customer, Order, Shop, Status, paid

RULES = """\
You work at the service desk of a small shop, and a customer writes to you. First identify the customer by
full name and postcode. Then help with the customer's orders, using the tools:
- Pending orders can be cancelled, sent to another address, or get another option of the same product that is
  in stock. Orders that were sent or delivered cannot be changed.
- Items of delivered orders can be returned.
- Do only what the customer asks for, and say what you did. What is not allowed you refuse, politely.
One short message at a time; the customer sees your messages only."""
NAMES = (
    "Ada Brandt",
    "Bo Lindqvist",
    "Carla Romano",
    "Deniz Aydin",
    "Eva Novak",
    "Femi Okafor",
    "Greta Vogel",
    "Hugo Martin",
)
STREETS = ("Mill Lane", "Station Road", "Harbour Street", "Church Hill", "Garden Row", "High Street")
TOWNS = ("Ostfield", "Lakeby", "Norton", "Wester Bay", "Kirkholm")
PERSONAS = (
    "friendly and talkative; you tell a little of your day",
    "in a hurry; you write a few words at a time",
    "polite and a little unsure how such things work",
    "annoyed, because you have waited for long; but you calm down when you are helped",
    "precise; you answer exactly what you are asked, and nothing more",
)
OTHERS: tuple[tuple[int, Status], ...] = ((0, "delivered"), (1, "pending"), (2, "sent"))
"""Orders that the case is not about, by the place of their customer."""
Call = tuple[str, dict[str, str]]


class Case(msgspec.Struct):
    """What a customer wants, how it should end, and the messages that the customer must be told."""

    goal: str
    calls: list[Call]
    tell: list[str] = []


class Maker:
    """A shop with the customer who writes, whose orders are made as the case needs them."""

    def __init__(self, random: Random) -> None:
        self.random = random
        names = random.sample(NAMES, 3)
        self.customers = [
            Customer(f"C{random.randrange(100, 1000)}{number}", name, str(random.randrange(10_000, 99_999)))
            for number, name in enumerate(names)
        ]
        self.orders: list[Order] = []

    def address(self) -> str:
        random = self.random
        return f"{random.choice(STREETS)} {random.randrange(1, 90)}, {random.choice(TOWNS)}"

    def order(self, status: Status, items: list[str] | None = None, customer: int = 0) -> Order:
        random = self.random
        number = str(random.randrange(1000, 10_000))
        while any(order.order_id == number for order in self.orders):
            number = str(random.randrange(1000, 10_000))
        tracking = f"TRK-{random.randrange(10_000, 100_000)}" if status in ("sent", "delivered") else ""
        chosen = items or random.sample(sorted(PRODUCTS), random.randrange(1, 4))
        order = Order(
            number, self.customers[customer].customer_id, status, self.address(), chosen, tracking=tracking
        )
        self.orders.append(order)
        return order

    def named(self, order: Order) -> str:
        """How the customer speaks of an order: by its number, or by what is in it."""
        if self.random.random() < 0.5:
            return f"order {order.order_id}"
        things = " and ".join(f"the {PRODUCTS[sku].name} ({PRODUCTS[sku].option})" for sku in order.items)
        return f"your order of {things} (you do not know its number)"


def address(make: Maker) -> Case:
    order, new = make.order("pending"), make.address()
    goal = f"You want {make.named(order)} to be sent to another address: {new}."
    return Case(goal, [("change_address", {"order_id": order.order_id, "address": new})])


def cancellation(make: Maker) -> Case:
    order = make.order("pending")
    goal = f"You want to cancel {make.named(order)}; you have found the same thing elsewhere."
    return Case(goal, [("cancel_order", {"order_id": order.order_id})])


def exchange(make: Maker) -> Case:
    sku, new_sku = make.random.choice((("TEE-S", "TEE-M"), ("SHOE-42", "SHOE-41"), ("BAG-20", "BAG-30")))
    order = make.order("pending", [sku, "MUG-R"])
    goal = (
        f"In {make.named(order)} you want the {PRODUCTS[sku].name} in {PRODUCTS[new_sku].option} "
        f"instead of {PRODUCTS[sku].option}. The rest stays."
    )
    return Case(goal, [("exchange_item", {"order_id": order.order_id, "sku": sku, "new_sku": new_sku})])


def giving_back(make: Maker) -> Case:
    order = make.order("delivered", make.random.sample(sorted(PRODUCTS), 2))
    sku = make.random.choice(order.items)
    one = f"{PRODUCTS[sku].name} ({PRODUCTS[sku].option})"
    goal = f"From {make.named(order)} you want to return the {one}. You keep the rest."
    return Case(goal, [("return_item", {"order_id": order.order_id, "sku": sku})])


def question(make: Maker) -> Case:
    order = make.order("delivered", make.random.sample(sorted(PRODUCTS), 3))
    goal = f"You want to know how much you paid for {make.named(order)} altogether. Nothing is to be changed."
    return Case(goal, [], [f"{paid(order):.2f}"])


def too_late(make: Maker) -> Case:
    order = make.order("sent")
    goal = (
        f"You want to cancel {make.named(order)}. If that cannot be done, ask for its tracking number, "
        "and be content with that."
    )
    return Case(goal, [], [order.tracking])


def sold_out(make: Maker) -> Case:
    order = make.order("pending", ["SHOE-42"])
    wish = f"In {make.named(order)} you want the trail shoe in 43."
    goal = f"{wish} If that size is sold out, you want to cancel the order."
    return Case(goal, [("cancel_order", {"order_id": order.order_id})])


def two_wishes(make: Maker) -> Case:
    first, second = cancellation(make), address(make)
    return Case(f"{first.goal} When that is done: {second.goal}", first.calls + second.calls)


KINDS: tuple[Callable[[Maker], Case], ...] = (
    address,
    cancellation,
    exchange,
    giving_back,
    question,
    too_late,
    sold_out,
    two_wishes,
)


def generate(size: int, seed: int) -> Iterator[dict[str, Any]]:
    """Rows, each kind of case in turn, with a perfect rollout as ``gold``."""
    for number in range(size):
        random = Random(f"{seed}/{number}")
        make = Maker(random)
        case = KINDS[number % len(KINDS)](make)
        for customer, status in OTHERS:
            make.order(status, customer=customer)
        random.shuffle(make.orders)
        yield _row(case, Shop(make.customers, make.orders), random.choice(PERSONAS))


def _row(case: Case, shop: Shop, persona: str) -> dict[str, Any]:
    speaker = shop.customers[0]
    who = f"{speaker.name}, postcode {speaker.postcode}. You are {persona}."
    found = ("find_customer", {"name": speaker.name, "postcode": speaker.postcode})
    return {
        "responses_create_params": {"input": [{"role": "system", "content": RULES}]},
        "shop": msgspec.to_builtins(shop),
        "simulated_user": {"persona": who, "goal": case.goal},
        "expected_calls": [{"name": name, "arguments": arguments} for name, arguments in case.calls],
        "tell": case.tell,
        "gold": [
            [_call(number, *call) for number, call in enumerate((found, *case.calls))],
            " ".join(("That is done.", *case.tell)),
        ],
    }


def _call(number: int, name: str, arguments: dict[str, str]) -> dict[str, Any]:
    text = msgspec.json.encode(arguments).decode()
    return {"type": "function_call", "call_id": f"call_{number}", "name": name, "arguments": text}
