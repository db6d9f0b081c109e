"""The service desk of a small shop, in conversation with a simulated customer.

The customer, played by a model in the role ``user`` (agent ``dialogue``), wants something of an order. The
model finds the customer by name and postcode, looks at the orders and changes them with tools, within the
rules that the tools enforce. The reward is 1 if at the end the shop is as ``expected_calls`` leave it, every
text of ``tell`` was said to the customer, and anything was said at all. So the state decides, whatever way
led to it, and the reward can be trained on.

``generate`` makes any number of rows: addresses, cancellations, exchanges, returns, questions, wishes that
the rules do not allow, and two wishes at once.
Source: the shape of the task is that of tau-bench (arXiv 2406.12045); shop, rules and rows are our own.
"""

from __future__ import annotations

from typing import Any

import msgspec
from gym_runtime import Environment, Reply, Session, Task, ToolError, Verdict, tool

from gym_resources.desk import cases
from gym_resources.desk.shop import PRODUCTS, Change, Order, Shop, paid


class DeskTask(Task):
    """A customer's case.

    Attributes:
        shop: its customers and orders at the beginning.
        simulated_user: who the customer is and what it wants; the agent ``dialogue`` reads it.
        expected_calls: the calls that change the shop as it should be changed; none if nothing is to be done.
        tell: what the model must say to the customer, word for word.
    """

    shop: Shop
    simulated_user: dict[str, Any]
    expected_calls: list[Change] = []  # noqa: RUF012 - a msgspec field, copied for each
    tell: list[str] = []  # noqa: RUF012

    def __post_init__(self) -> None:
        problem = self.shop.problem()
        if problem:
            raise ValueError(f"'shop': {problem}")
        self.expected()

    def expected(self) -> Shop:
        """The shop as it should be at the end.

        Raises:
            ValueError: an expected call cannot be made.
        """
        shop = self.shop.copy()
        for change in self.expected_calls:
            shop.apply(change)
        return shop


class Desk(Session[DeskTask]):
    async def open(self) -> None:
        self.shop = self.task.shop.copy()
        self.customers: set[str] = set()

    @tool
    def find_customer(self, name: str, postcode: str) -> dict[str, Any]:
        """Identify a customer by full name and postcode; shows the numbers of their orders."""
        for customer in self.shop.customers:
            if (customer.name.casefold(), customer.postcode) == (name.strip().casefold(), postcode.strip()):
                self.customers.add(customer.customer_id)
                orders = [o.order_id for o in self.shop.orders if o.customer_id == customer.customer_id]
                return {"customer_id": customer.customer_id, "orders": orders}
        raise ToolError("there is no customer of this name and postcode")

    @tool
    def get_order(self, order_id: str) -> dict[str, Any]:
        """Show an order: its status, address, items, what was paid, and the tracking number."""
        order = self._order(order_id)
        items = [msgspec.to_builtins(PRODUCTS[sku]) for sku in order.items]
        return {**msgspec.to_builtins(order), "items": items, "paid": f"{paid(order):.2f}"}

    @tool
    def list_options(self, name: str) -> list[dict[str, Any]]:
        """List the options of a product with their sku, price, and whether they are in stock."""
        wanted = name.strip().casefold()
        return [msgspec.to_builtins(product) for product in PRODUCTS.values() if product.name == wanted]

    @tool
    def change_address(self, order_id: str, address: str) -> str:
        """Have a pending order delivered to another address."""
        self.shop.change_address(self._order(order_id).order_id, address)
        return "done"

    @tool
    def cancel_order(self, order_id: str) -> str:
        """Cancel a pending order; what was paid is paid back."""
        self.shop.cancel_order(self._order(order_id).order_id)
        return "done"

    @tool
    def exchange_item(self, order_id: str, sku: str, new_sku: str) -> str:
        """Exchange an item of a pending order for another option of the same product that is in stock."""
        self.shop.exchange_item(self._order(order_id).order_id, sku, new_sku)
        return "done"

    @tool
    def return_item(self, order_id: str, sku: str) -> str:
        """Take back an item of a delivered order; what was paid for it is paid back."""
        self.shop.return_item(self._order(order_id).order_id, sku)
        return "done"

    async def verify(self, reply: Reply) -> Verdict:
        said = "\n".join(message.text for message in reply.messages).casefold()
        right = self.shop.is_like(self.task.expected())
        told = all(text.casefold() in said for text in self.task.tell)
        reward = float(right and told and bool(said.strip()))
        return Verdict(reward, components={"state": float(right), "told": float(told)})

    def _order(self, order_id: str) -> Order:
        order = self.shop.order(order_id)
        if order.customer_id not in self.customers:
            raise ToolError("identify the customer of this order first: find_customer")
        return order


environment = Environment(
    resource=Desk,
    description="Serve customers of a shop in conversation, with tools; a model plays the customer.",
    domain="agent",
    agent="dialogue",
    max_turns=30,
    roles=("user",),
    data_license="Apache-2.0",
    generate=cases.generate,
)
