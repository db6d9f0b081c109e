"""The telephone company: customers, lines, plans and bills, with the tools and rules of tau2-bench.

What the tools allow is less than what the policy does: keeping to the policy is the model's part.
"""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

from gym_runtime import Text

from gym_resources.tau2.phone import PaymentRequest, Phone
from gym_resources.tau2.refusal import error, tool
from gym_resources.tau2.shared_records import Record, Records

TODAY = date(2025, 2, 25)
MONTH_END = "2025-02-28"
TABLES = {"L": "lines", "D": "devices", "B": "bills", "C": "customers", "P": "plans"}


class Provider:
    """The tools of the agent."""

    def __init__(self, records: Records) -> None:
        self.records = records

    @tool
    def get_customer_by_phone(self, phone_number: str) -> Record:
        """Find the customer whose own number, or one of whose lines, has a phone number."""
        for customer in self.records.all("customers"):
            numbers = [self._find("lines", line)["phone_number"] for line in customer["line_ids"]]
            if phone_number in (customer["phone_number"], *numbers):
                return customer
        raise error(f"there is no customer with the phone number {phone_number[:100]!r}")

    @tool
    def get_customer_by_id(self, customer_id: str) -> Record:
        """Show a customer."""
        return self._find("customers", customer_id)

    @tool
    def get_customer_by_name(self, full_name: str, dob: str) -> list[Record]:
        """Find the customers with a full name and a date of birth (YYYY-MM-DD)."""
        return [
            customer
            for customer in self.records.all("customers")
            if (customer["full_name"].casefold(), customer["date_of_birth"]) == (full_name.casefold(), dob)
        ]

    @tool
    def get_details_by_id(self, id: str) -> Record:  # noqa: A002
        """Show a customer, line, device, bill or plan by its id."""
        table = TABLES.get(id[:1])
        if table is None:
            raise error(f"an id begins with one of {', '.join(TABLES)}")
        return self._find(table, id)

    @tool
    def suspend_line(self, customer_id: str, line_id: str, reason: str) -> Record:
        """Suspend an active line, for six months at most; it costs 5 dollars a month."""
        if self._line(customer_id, line_id)["status"] != "Active":
            raise error("the line is not active")
        line = self.records.change("lines", line_id)
        line |= {"status": "Suspended", "suspension_start_date": str(TODAY)}
        return {"message": "The line is suspended; it costs $5 a month.", "line": line}

    @tool
    def resume_line(self, customer_id: str, line_id: str) -> Record:
        """Activate a line that is suspended or not activated yet."""
        if self._line(customer_id, line_id)["status"] not in ("Suspended", "Pending Activation"):
            raise error("the line is not suspended")
        line = self.records.change("lines", line_id)
        line |= {"status": "Active", "suspension_start_date": None}
        return {"message": "The line is active again.", "line": line}

    @tool
    def get_bills_for_customer(self, customer_id: str, limit: int = 12) -> list[Record]:
        """List a customer's bills, the latest first."""
        bills = [self._find("bills", bill) for bill in self._find("customers", customer_id)["bill_ids"]]
        return sorted(bills, key=lambda bill: bill["issue_date"], reverse=True)[: max(0, limit)]

    @tool
    def send_payment_request(self, customer_id: str, bill_id: str) -> Text:
        """Ask a customer to pay a bill, one at a time; check the bill's status first."""
        customer = self._find("customers", customer_id)
        if self.awaiting_payment(customer):
            raise error("another bill of the customer awaits payment")
        if bill_id not in customer["bill_ids"]:
            raise error(f"the customer has no bill {bill_id[:100]!r}")
        self.records.change("bills", bill_id)["status"] = "Awaiting Payment"
        return Text(f"The customer was asked to pay bill {bill_id}.")

    @tool
    def get_data_usage(self, customer_id: str, line_id: str) -> Record:
        """Show the data that a line has used in this month, its limit, and what was added."""
        line = self._line(customer_id, line_id)
        return {
            "line_id": line_id,
            "data_used_gb": line["data_used_gb"],
            "data_limit_gb": self._find("plans", line["plan_id"])["data_limit_gb"],
            "data_refueling_gb": line["data_refueling_gb"],
            "cycle_end_date": MONTH_END,
        }

    @tool
    def enable_roaming(self, customer_id: str, line_id: str) -> Text:
        """Switch international roaming of a line on."""
        return self._roam(customer_id, line_id, True)

    @tool
    def disable_roaming(self, customer_id: str, line_id: str) -> Text:
        """Switch international roaming of a line off."""
        return self._roam(customer_id, line_id, False)

    @tool
    def refuel_data(self, customer_id: str, line_id: str, gb_amount: float) -> Record:
        """Add data to a line for this month, in gigabytes; the plan's price goes to the next bill."""
        line = self._line(customer_id, line_id)
        if not gb_amount > 0:
            raise error("the amount is not positive")
        charge = gb_amount * self._find("plans", line["plan_id"])["data_refueling_price_per_gb"]
        line = self.records.change("lines", line_id)
        line["data_refueling_gb"] += gb_amount
        self._charge(customer_id, charge, f"{gb_amount} GB of data for line {line_id}")
        return {"new_data_refueling_gb": line["data_refueling_gb"], "charge": charge}

    @tool
    def transfer_to_human_agents(self, summary: str) -> Text:
        """Hand the customer over to a human agent: asked for one, or if policy and tools do not help."""
        return Text("Transfer successful")

    def awaiting_payment(self, customer: Record) -> list[Record]:
        """The customer's bills that are to be paid now."""
        bills = [self._find("bills", bill) for bill in customer["bill_ids"]]
        return [bill for bill in bills if bill["status"] == "Awaiting Payment"]

    def tell(self, phone: Phone) -> None:
        """Have what the company knows take effect on the customer's side, and the other way round."""
        around = phone.surroundings
        line = next(
            (one for one in self.records.all("lines") if one["phone_number"] == around.phone_number), None
        )
        if line is None:
            return
        around.line_active = line["status"] == "Active"
        around.roaming_allowed = line["roaming_enabled"]
        limit = self._find("plans", line["plan_id"])["data_limit_gb"] + line["data_refueling_gb"]
        around.mobile_data_usage_exceeded = line["data_used_gb"] >= limit
        if around.payment_request and around.payment_request.paid:
            self.records.change("bills", around.payment_request.bill_id)["status"] = "Paid"
            around.payment_request = None
        if around.payment_request is None:
            customer = self.get_customer_by_phone(line["phone_number"])
            for bill in self.awaiting_payment(customer)[:1]:
                around.payment_request = PaymentRequest(bill["bill_id"], bill["total_due"])

    def _find(self, table: str, key: str) -> Record:
        found = self.records.find(table, key)
        if found is None:
            raise error(f"there is no {key[:100]!r} among the {table}")
        return found

    def _line(self, customer_id: str, line_id: str) -> Record:
        if line_id not in self._find("customers", customer_id)["line_ids"]:
            raise error(f"the customer has no line {line_id[:100]!r}")
        return self._find("lines", line_id)

    def _roam(self, customer_id: str, line_id: str, enabled: bool) -> Text:
        if self._line(customer_id, line_id)["roaming_enabled"] == enabled:
            return Text(f"Roaming is {'enabled' if enabled else 'disabled'} already.")
        self.records.change("lines", line_id)["roaming_enabled"] = enabled
        return Text(f"Roaming is {'enabled' if enabled else 'disabled'} now.")

    def _charge(self, customer_id: str, amount: float, description: str) -> None:
        """Put an amount on the customer's draft of a bill, or on a new one for the next month."""
        customer = self._find("customers", customer_id)
        drafts = (bill for bill in customer["bill_ids"] if self._find("bills", bill)["status"] == "Draft")
        bill_id = next(drafts, None)
        if bill_id is None:
            bill_id = f"B{customer_id}_next"
            start = (TODAY.replace(day=1) + timedelta(days=32)).replace(day=1)
            self._bill(customer_id, bill_id, start, "Draft")
        bill = self.records.change("bills", bill_id)
        bill["line_items"].append(_item(description, amount))
        bill["total_due"] += amount

    def _bill(self, customer_id: str, bill_id: str, start: date, status: str) -> Record:
        """A new bill for the month that begins then."""
        end = (start + timedelta(days=32)).replace(day=1) - timedelta(days=1)
        record = {
            "bill_id": bill_id,
            "customer_id": customer_id,
            "period_start": str(start),
            "period_end": str(end),
            "issue_date": str(start),
            "total_due": 0.0,
            "due_date": str(start + timedelta(days=14)),
            "line_items": list[Any](),
            "status": status,
        }
        self.records.add("bills", bill_id, record)
        self.records.change("customers", customer_id)["bill_ids"].append(bill_id)
        return record


def _item(description: str, amount: float) -> Record:
    kind = "Credit" if amount < 0 else "Charge"
    return {"description": description, "amount": amount, "date": str(TODAY), "item_type": kind}


class ProviderScene(Provider):
    """The functions that a task's ``initialization_actions`` and ``env_assertions`` name, as tools."""

    @tool
    def set_data_usage(self, customer_id: str, line_id: str, data_used_gb: float) -> None:
        """How much data a line has used."""
        self._line(customer_id, line_id)
        self.records.change("lines", line_id)["data_used_gb"] = data_used_gb

    @tool
    def suspend_line_for_overdue_bill(
        self, customer_id: str, line_id: str, new_bill_id: str, contract_ended: bool
    ) -> None:
        """Suspend a line, since last month's bill was not paid."""
        line = self._line(customer_id, line_id)
        if line["status"] != "Active":
            raise error("the line is not active")
        last = TODAY.replace(day=1) - timedelta(days=1)
        bill = self._bill(customer_id, new_bill_id, last.replace(day=1), "Overdue")
        bill["total_due"] = self._find("plans", line["plan_id"])["price_per_month"]
        bill["line_items"].append(_item(f"Charge for line {line_id}", bill["total_due"]))
        line = self.records.change("lines", line_id)
        line |= {"status": "Suspended", "suspension_start_date": str(TODAY)}
        if contract_ended:
            line["contract_end_date"] = str(last)

    @tool
    def assert_data_refueling_amount(self, customer_id: str, line_id: str, expected_amount: float) -> bool:
        """Whether so much data was added."""
        return abs(self._line(customer_id, line_id)["data_refueling_gb"] - expected_amount) < 1e-6

    @tool
    def assert_line_status(self, customer_id: str, line_id: str, expected_status: str) -> bool:
        """Whether a line's status is so."""
        return self._line(customer_id, line_id)["status"] == expected_status

    @tool
    def assert_overdue_bill_exists(self, customer_id: str, overdue_bill_id: str) -> bool:
        """Whether a customer has an overdue bill."""
        bill = self.records.find("bills", overdue_bill_id)
        mine = overdue_bill_id in self._find("customers", customer_id)["bill_ids"]
        return mine and bill is not None and bill["status"] == "Overdue"

    @tool
    def assert_no_overdue_bill(self, overdue_bill_id: str) -> bool:
        """Whether a bill is paid, or is not there."""
        bill = self.records.find("bills", overdue_bill_id)
        return bill is None or bill["status"] == "Paid"
