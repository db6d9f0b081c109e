"""The shop: products, customers and orders, and the changes that the rules of its desk allow."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Literal

import msgspec
from gym_runtime import ToolError

ADDRESS_CHARACTERS = 300
_WORD = re.compile(r"\w+")

Status = Literal["pending", "sent", "delivered", "cancelled"]


class Product(msgspec.Struct, frozen=True):
    sku: str
    name: str
    option: str
    price: float
    in_stock: bool = True


class Customer(msgspec.Struct, frozen=True):
    customer_id: str
    name: str
    postcode: str


class Order(msgspec.Struct):
    """One order. ``returned`` are those of its items that were taken back, in alphabetical order."""

    order_id: str
    customer_id: str
    status: Status
    address: str
    items: Annotated[list[str], msgspec.Meta(min_length=1)]
    tracking: str = ""
    returned: list[str] = []


PRODUCTS = {
    product.sku: product
    for product in (
        Product("TEE-S", "linen shirt", "S", 34.9),
        Product("TEE-M", "linen shirt", "M", 34.9),
        Product("TEE-L", "linen shirt", "L", 34.9),
        Product("SHOE-41", "trail shoe", "41", 89.5),
        Product("SHOE-42", "trail shoe", "42", 89.5),
        Product("SHOE-43", "trail shoe", "43", 89.5, in_stock=False),
        Product("MUG-R", "enamel mug", "red", 12.0),
        Product("MUG-B", "enamel mug", "blue", 12.0),
        Product("LAMP-W", "desk lamp", "white", 48.25),
        Product("LAMP-K", "desk lamp", "black", 48.25, in_stock=False),
        Product("BAG-20", "backpack", "20 l", 64.0),
        Product("BAG-30", "backpack", "30 l", 72.5),
    )
}


class Change(msgspec.Struct):
    """A call of one of the tools that change the shop."""

    name: Literal["change_address", "cancel_order", "exchange_item", "return_item"]
    arguments: dict[str, str]


class Shop(msgspec.Struct):
    """The state of the shop; each change raises a `ToolError` where the rules do not allow it."""

    customers: list[Customer]
    orders: list[Order]

    def copy(self) -> Shop:
        """A shop like this one, to be changed."""
        return msgspec.convert(msgspec.to_builtins(self), Shop)

    def apply(self, change: Change) -> None:
        """Change the shop.

        Raises:
            ValueError: the rules or the arguments do not allow it.
        """
        try:
            CHANGES[change.name](self, **change.arguments)
        except (ToolError, TypeError) as error:
            raise ValueError(f"'expected_calls': {change.name}: {error}") from error

    def problem(self) -> str:
        """What is wrong with it; empty if nothing is."""
        known = {customer.customer_id for customer in self.customers}
        for order in self.orders:
            if order.customer_id not in known:
                return f"order {order.order_id} is of a customer who does not exist"
            unknown = [sku for sku in order.items if sku not in PRODUCTS]
            if unknown:
                return f"order {order.order_id} has the item {unknown[0]!r}, which does not exist"
        return ""

    def is_like(self, other: Shop) -> bool:
        """Whether the orders are the same; of addresses the words count, in any order and case."""
        return [_plain(order) for order in self.orders] == [_plain(order) for order in other.orders]

    def order(self, order_id: str) -> Order:
        """An order by its number."""
        for order in self.orders:
            if order.order_id == order_id.strip().removeprefix("#"):
                return order
        raise ToolError(f"there is no order {order_id[:20]}")

    def change_address(self, order_id: str, address: str) -> None:
        order = self._pending(order_id)
        if not address.strip() or len(address) > ADDRESS_CHARACTERS:
            raise ToolError(f"the address is empty or longer than {ADDRESS_CHARACTERS} characters")
        order.address = " ".join(address.split())

    def cancel_order(self, order_id: str) -> None:
        self._pending(order_id).status = "cancelled"

    def exchange_item(self, order_id: str, sku: str, new_sku: str) -> None:
        order, new = self._pending(order_id), PRODUCTS.get(new_sku)
        if sku not in order.items:
            raise ToolError(f"order {order.order_id} has no item {sku[:20]}")
        if new is None or new.name != PRODUCTS[sku].name:
            raise ToolError(f"{sku} can be exchanged for another option of the same product only")
        if not new.in_stock:
            raise ToolError(f"{new_sku} is not in stock")
        order.items[order.items.index(sku)] = new_sku

    def return_item(self, order_id: str, sku: str) -> None:
        order = self.order(order_id)
        if order.status != "delivered":
            raise ToolError(f"order {order.order_id} is {order.status}; only delivered items can be returned")
        if order.returned.count(sku) >= order.items.count(sku):
            raise ToolError(f"order {order.order_id} has no item {sku[:20]} that could be returned")
        order.returned = sorted([*order.returned, sku])

    def _pending(self, order_id: str) -> Order:
        order = self.order(order_id)
        if order.status != "pending":
            raise ToolError(f"order {order.order_id} is {order.status}; only pending orders can be changed")
        return order


CHANGES: dict[str, Callable[..., None]] = {
    "change_address": Shop.change_address,
    "cancel_order": Shop.cancel_order,
    "exchange_item": Shop.exchange_item,
    "return_item": Shop.return_item,
}


def _plain(order: Order) -> Order:
    words = sorted(_WORD.findall(order.address.casefold()))
    return msgspec.structs.replace(order, address=" ".join(words), items=sorted(order.items))


def paid(order: Order) -> float:
    """What the items of an order cost together."""
    return round(sum(PRODUCTS[sku].price for sku in order.items), 2)
