"""The shop: orders of products that come in variants, with the tools and rules of tau2-bench.

What the tools allow is less than what the policy does: keeping to the policy is the model's part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

from gym_runtime import Text

from gym_resources.tau2.customer_service import Service
from gym_resources.tau2.refusal import error, tool
from gym_resources.tau2.shared_records import Record
from gym_resources.tau2.task import ServiceTask


class RetailTask(ServiceTask, kw_only=True):
    served = "retail"


class Retail(Service[RetailTask]):
    @tool
    def find_user_id_by_email(self, email: str) -> Text:
        """Find a user by e-mail address."""
        return self._user(lambda user: user["email"].casefold() == email.strip().casefold())

    @tool
    def find_user_id_by_name_zip(self, first_name: str, last_name: str, zip: str) -> Text:  # noqa: A002
        """Find a user by first name, last name and zip code, where the e-mail address is not known."""
        wanted = (first_name.strip().casefold(), last_name.strip().casefold(), zip.strip())
        return self._user(
            lambda user: (
                (
                    user["name"]["first_name"].casefold(),
                    user["name"]["last_name"].casefold(),
                    user["address"]["zip"],
                )
                == wanted
            )
        )

    @tool
    def get_user_details(self, user_id: str) -> Record:
        """Show a user, such as 'sara_doe_496', with payment methods and the numbers of orders."""
        return self.find("users", user_id, "user")

    @tool
    def get_order_details(self, order_id: str) -> Record:
        """Show an order; its number begins with '#', such as '#W0000000'."""
        return self.find("orders", order_id, "order")

    @tool
    def get_product_details(self, product_id: str) -> Record:
        """Show a product with its variants; its number is not that of an item."""
        return self.find("products", product_id, "product")

    @tool
    def get_item_details(self, item_id: str) -> Record:
        """Show one variant of a product; its number is not that of the product."""
        for product in self.records.all("products"):
            if item_id in product["variants"]:
                return product["variants"][item_id]
        raise error(f"item {item_id[:100]!r} not found")

    @tool
    def list_all_product_types(self) -> dict[str, str]:
        """List the names of all products with their numbers."""
        names = {product["name"]: product["product_id"] for product in self.records.all("products")}
        return dict(sorted(names.items()))

    @tool
    def cancel_pending_order(
        self, order_id: str, reason: Literal["no longer needed", "ordered by mistake"]
    ) -> Record:
        """Cancel a pending order and pay back what was paid; ask the user to confirm it first."""
        order = self._order(order_id, "pending")
        for payment in order["payment_history"]:
            self._method(order, payment["payment_method_id"])
        for payment in list(order["payment_history"]):
            self._pay(order, payment["payment_method_id"], -payment["amount"])
            order["payment_history"].append(
                _payment("refund", payment["amount"], payment["payment_method_id"])
            )
        order |= {"status": "cancelled", "cancel_reason": reason}
        return order

    @tool
    def modify_pending_order_address(
        self,
        order_id: str,
        address1: str,
        address2: str,
        city: str,
        state: str,
        country: str,
        zip: str,  # noqa: A002
    ) -> Record:
        """Set the address of a pending order; ask the user to confirm it first."""
        order = self._order(order_id)
        order["address"] = _address(address1, address2, city, state, country, zip)
        return order

    @tool
    def modify_pending_order_items(
        self, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
    ) -> Record:
        """Exchange items of a pending order for other variants, once; ask the user to confirm it first."""
        order = self._order(order_id, "pending")
        exchanged = self._exchange(order, item_ids, new_item_ids)
        if any(item["item_id"] == variant["item_id"] for item, variant in exchanged):
            raise error("an item cannot be exchanged for itself")
        difference = _difference(exchanged)
        self._check(order, payment_method_id, difference)
        kind = "payment" if difference > 0 else "refund"
        order["payment_history"].append(_payment(kind, abs(difference), payment_method_id))
        self._pay(order, payment_method_id, difference)
        for item, variant in exchanged:
            item |= {name: variant[name] for name in ("item_id", "price", "options")}
        order["status"] = "pending (item modified)"
        return order

    @tool
    def modify_pending_order_payment(self, order_id: str, payment_method_id: str) -> Record:
        """Have a pending order paid in another way; ask the user to confirm it first."""
        order = self._order(order_id)
        history = order["payment_history"]
        self._method(order, payment_method_id)
        if len(history) != 1 or history[0]["transaction_type"] != "payment":
            raise error("the order does not have exactly one payment")
        before, amount = history[0]["payment_method_id"], history[0]["amount"]
        if before == payment_method_id:
            raise error("the order is paid in this way already")
        self._method(order, before)
        self._check(order, payment_method_id, amount)
        history += [_payment("payment", amount, payment_method_id), _payment("refund", amount, before)]
        self._pay(order, payment_method_id, amount)
        self._pay(order, before, -amount)
        return order

    @tool
    def modify_user_address(
        self,
        user_id: str,
        address1: str,
        address2: str,
        city: str,
        state: str,
        country: str,
        zip: str,  # noqa: A002
    ) -> Record:
        """Set the default address of a user; ask the user to confirm it first."""
        self.find("users", user_id, "user")
        user = self.records.change("users", user_id)
        user["address"] = _address(address1, address2, city, state, country, zip)
        return user

    @tool
    def exchange_delivered_order_items(
        self, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
    ) -> Record:
        """Exchange items of a delivered order for other variants, once; ask the user to confirm it first."""
        order = self._order(order_id, "delivered")
        difference = _difference(self._exchange(order, item_ids, new_item_ids))
        self._check(order, payment_method_id, difference)
        order |= {
            "status": "exchange requested",
            "exchange_items": sorted(item_ids),
            "exchange_new_items": sorted(new_item_ids),
            "exchange_payment_method_id": payment_method_id,
            "exchange_price_difference": difference,
        }
        return order

    @tool
    def return_delivered_order_items(
        self, order_id: str, item_ids: list[str], payment_method_id: str
    ) -> Record:
        """Take back items of a delivered order, once; ask the user to confirm it first."""
        order = self._order(order_id, "delivered")
        method = self._method(order, payment_method_id)
        original = order["payment_history"][0]["payment_method_id"]
        if method["source"] != "gift_card" and payment_method_id != original:
            raise error("the refund goes to the original payment method or to a gift card")
        _contains(order, item_ids)
        order |= {
            "status": "return requested",
            "return_items": sorted(item_ids),
            "return_payment_method_id": payment_method_id,
        }
        return order

    def _user(self, is_wanted: Callable[[Record], bool]) -> Text:
        for user in self.records.all("users"):
            if is_wanted(user):
                return Text(user["user_id"])
        raise error("user not found")

    def _order(self, order_id: str, status: str = "") -> Record:
        """An order to change: with this status, or with any that is pending."""
        found = self.find("orders", order_id, "order")["status"]
        if (found != status) if status else ("pending" not in found):
            raise error(f"order {order_id} is not {status or 'pending'}: it is {found}")
        return self.records.change("orders", order_id)

    def _method(self, order: Record, payment_method_id: str) -> Record:
        found = self.find("users", order["user_id"], "user")["payment_methods"].get(payment_method_id)
        if found is None:
            raise error(f"the user has no payment method {payment_method_id[:100]!r}")
        return found

    def _check(self, order: Record, payment_method_id: str, amount: float) -> None:
        method = self._method(order, payment_method_id)
        if method["source"] == "gift_card" and method["balance"] < amount:
            raise error(f"gift card {payment_method_id} does not cover {amount}")

    def _pay(self, order: Record, payment_method_id: str, amount: float) -> None:
        """Take an amount from a gift card, or put it back; other methods are settled elsewhere."""
        if self._method(order, payment_method_id)["source"] == "gift_card":
            user = self.records.change("users", order["user_id"])
            card = user["payment_methods"][payment_method_id]
            card["balance"] = round(card["balance"] - amount, 2)

    def _exchange(
        self, order: Record, item_ids: Sequence[str], new_item_ids: Sequence[str]
    ) -> list[tuple[Record, Record]]:
        """The order's items, each with the variant that it is exchanged for."""
        if len(item_ids) != len(new_item_ids):
            raise error("there must be one new item for each item")
        _contains(order, item_ids)
        left = list(order["items"])
        exchanged: list[tuple[Record, Record]] = []
        for item_id, new_item_id in zip(item_ids, new_item_ids, strict=True):
            item = next(item for item in left if item["item_id"] == item_id)
            left = [other for other in left if other is not item]
            variant = self.find("products", item["product_id"], "product")["variants"].get(new_item_id)
            if variant is None or not variant["available"]:
                raise error(f"item {new_item_id[:100]!r} is not an available variant of the same product")
            exchanged.append((item, variant))
        return exchanged


def _contains(order: Record, item_ids: Sequence[str]) -> None:
    missing = Counter(item_ids) - Counter(item["item_id"] for item in order["items"])
    if missing:
        raise error(f"the order does not have these items: {', '.join(one[:100] for one in missing)}"[:1000])


def _difference(exchanged: Sequence[tuple[Record, Record]]) -> float:
    """What the new items cost more."""
    return round(sum(variant["price"] - item["price"] for item, variant in exchanged), 2)


def _payment(kind: str, amount: float, payment_method_id: str) -> Record:
    return {"transaction_type": kind, "amount": amount, "payment_method_id": payment_method_id}


def _address(address1: str, address2: str, city: str, state: str, country: str, zip_code: str) -> Record:
    return {
        "address1": address1,
        "address2": address2,
        "city": city,
        "country": country,
        "state": state,
        "zip": zip_code,
    }
