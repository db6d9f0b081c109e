"""The bank's tools for debit cards that an agent unlocks: orders, activation, blocks, PINs, limits, disputes.

Names, conditions and effects are those of the authors' program; the words are our own.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from gym_runtime import Text
from msgspec import Meta

from gym_resources.tau2.banking_ledger import (
    TODAY,
    Ledger,
    age_days,
    digest,
    dispute_id,
    listed,
    positive,
)
from gym_resources.tau2.refusal import error, tool
from gym_resources.tau2.shared_records import Record

Day = Annotated[str, Meta(description="MM/DD/YYYY")]
Dollars = Annotated[float, Meta(description="in US dollars")]
LastFour = Annotated[str, Meta(description="the last 4 digits of the card's number")]
Pin = Annotated[str, Meta(description="4 digits that the customer chooses")]
DELIVERY = {"STANDARD": "7-10 business days", "EXPEDITED": "3-5 business days", "RUSH": "1-2 business days"}
DESIGNS = ("CLASSIC", "PREMIUM", "CUSTOM")
CLOSING = ("lost", "stolen", "fraud_suspected", "damaged", "no_longer_needed", "account_closing")
EXPIRY = "11/30/2029"
"""The end of the month four years after `TODAY`."""

ACTIVATION = {
    "activate_debit_card_8291": ("new_account", "first_card"),
    "activate_debit_card_8292": ("lost", "stolen", "fraud"),
    "activate_debit_card_8293": ("expired", "damaged", "upgrade", "bank_reissue"),
}
"""For which reasons of issue each tool activates a card."""

CASH_LIMITS = {
    "blue account": 500,
    "green account": 600,
    "light blue account": 400,
    "green fee-free account": 500,
    "evergreen account": 750,
    "bluest account": 1500,
    "dark green account": 300,
    "gold years account": 600,
    "purple account": 1000,
}
"""What can be drawn in a day where the card does not say it, in dollars, by the account's level."""

FRAUD = ("unauthorized_transaction", "card_present_fraud", "card_not_present_fraud")
_ASCENDING = "0123456789"


class DebitCards:
    """The tools."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    @tool
    def order_debit_card_5739(
        self,
        account_id: str,
        user_id: str,
        delivery_option: Annotated[str, Meta(description="STANDARD, EXPEDITED or RUSH")],
        delivery_fee: Dollars,
        card_design: Annotated[str, Meta(description="CLASSIC, PREMIUM or CUSTOM")],
        design_fee: Dollars,
        shipping_address: str,
        excess_replacement_fee: Annotated[
            float | None, Meta(description="in US dollars, beyond the number of free replacements")
        ] = None,
    ) -> dict[str, Any]:
        """Order a debit card for a checking account, which pays the fees; the card has to be activated."""
        delivery, design, excess = delivery_option.upper(), card_design.upper(), excess_replacement_fee or 0.0
        if delivery not in DELIVERY or design not in DESIGNS:
            raise error(f"a delivery is one of {', '.join(DELIVERY)}, a design one of {', '.join(DESIGNS)}")
        account = self.ledger.owned("accounts", account_id, user_id, "account")
        if account.get("class") != "checking" or account.get("status") != "OPEN":
            raise error(f"account {account_id} is not an open checking account")
        balance, fee = _plain_balance(account), delivery_fee + design_fee + excess
        if balance < 25:
            raise error(f"the account must hold at least $25; it holds ${balance:.2f}")
        orders = self.ledger.where("debit_card_orders", "account_id", account_id)
        if any(order.get("status") == "PENDING" for order in orders):
            raise error(f"a card is on its way to account {account_id}")
        cards = self.ledger.where("debit_cards", "account_id", account_id)
        if any(card.get("status") == "ACTIVE" for card in cards):
            raise error(f"account {account_id} has an active card")
        if fee > 0 and not fee <= balance:
            raise error(f"insufficient funds: the fees are ${fee:.2f}, the balance is ${balance:.2f}")
        order_id = f"dcord_{digest(f'debit_card_order:{account_id}:{user_id}:{delivery}', 12)}"
        order = {
            "order_id": order_id,
            "account_id": account_id,
            "user_id": user_id,
            "delivery_option": delivery,
            "card_design": design,
            "shipping_address": shipping_address,
            "delivery_fee": delivery_fee,
            "design_fee": design_fee,
            "excess_replacement_fee": excess,
            "total_fee": fee,
            "order_date": TODAY,
            "expected_delivery": DELIVERY[delivery],
            "status": "PENDING",
        }
        self.ledger.file("debit_card_orders", order_id, order, "order")
        if fee > 0:
            self._charge(account_id, balance - fee, order)
        card_id = f"dbc_{digest(f'debit_card:{account_id}:{user_id}:{TODAY}', 12)}"
        self.ledger.add("debit_cards", card_id, self._card(card_id, order, cards))
        return {**order, "card_id": card_id, "card_status": "PENDING", "new_balance": f"${balance - fee:.2f}"}

    @tool
    def activate_debit_card_8291(
        self, card_id: str, last_4_digits: LastFour, expiration_date: str, cvv: str, pin: Pin
    ) -> Record:
        """Activate a customer's new card, issued for 'new_account' or 'first_card'."""
        return self._activate("activate_debit_card_8291", card_id, last_4_digits, expiration_date, cvv, pin)

    @tool
    def activate_debit_card_8292(
        self, card_id: str, last_4_digits: LastFour, expiration_date: str, cvv: str, pin: Pin
    ) -> Record:
        """Activate a card that replaces another one, issued for 'lost', 'stolen' or 'fraud'."""
        return self._activate("activate_debit_card_8292", card_id, last_4_digits, expiration_date, cvv, pin)

    @tool
    def activate_debit_card_8293(
        self, card_id: str, last_4_digits: LastFour, expiration_date: str, cvv: str, pin: Pin
    ) -> Record:
        """Activate a reissued card, issued for 'expired', 'damaged', 'upgrade' or 'bank_reissue'."""
        return self._activate("activate_debit_card_8293", card_id, last_4_digits, expiration_date, cvv, pin)

    @tool
    def close_debit_card_4721(
        self, card_id: str, reason: Annotated[str, Meta(description=f"one of {', '.join(CLOSING)}")]
    ) -> Record:
        """Close a debit card that is active or pending, for good."""
        why = reason.lower()
        if why not in CLOSING:
            raise error(f"a reason is one of {', '.join(CLOSING)}")
        self._card_in(card_id, "ACTIVE", "PENDING")
        return self._set(card_id, status="CLOSED", closed_date=TODAY, closure_reason=why)

    @tool
    def freeze_debit_card_3892(self, card_id: str) -> Record:
        """Freeze an active debit card for a while; new purchases and recurring payments are declined."""
        self._card_in(card_id, "ACTIVE")
        return self._set(card_id, status="FROZEN", frozen_date=TODAY)

    @tool
    def unfreeze_debit_card_3893(self, card_id: str) -> Record:
        """Make a frozen debit card active again."""
        self._linked_is_open(self._card_in(card_id, "FROZEN"))
        return self._set(card_id, status="ACTIVE", unfrozen_date=TODAY)

    @tool
    def clear_debit_card_fraud_alert_4892(
        self, card_id: str, reason: Literal["customer_verified", "velocity_clear"]
    ) -> Record:
        """Clear a fraud alert when the customer is verified, or a block for many payments in a short time."""
        card = self.ledger.known("debit_cards", card_id, "debit card")
        if reason == "velocity_clear":
            if not card.get("velocity_blocked"):
                raise error(f"debit card {card_id} is not blocked for its velocity")
            return self._set(card_id, velocity_blocked=False, velocity_cleared_date=TODAY)
        if not card.get("fraud_alert_active"):
            raise error(f"debit card {card_id} has no fraud alert")
        if card.get("alert_source") == "bank_initiated":
            raise error(
                "BANK_INITIATED_ALERT: the bank's own detection raised this alert, and the security team "
                "alone clears it: transfer the customer with transfer_to_human_agents"
            )
        return self._set(card_id, fraud_alert_active=False, alert_source=None, fraud_alert_cleared_date=TODAY)

    @tool
    def set_debit_card_recurring_block_7382(self, card_id: str, block_recurring: bool) -> Record:
        """Decline all recurring payments of an active debit card from now on, or allow them again."""
        card = self.ledger.known("debit_cards", card_id, "debit card")
        if str(card.get("status", "")).upper() != "ACTIVE":
            raise error(f"debit card {card_id} is not active: it is {card.get('status')}")
        return self._set(card_id, recurring_blocked=block_recurring)

    @tool
    def reset_debit_card_pin_6284(self, card_id: str, last_4_digits: LastFour, new_pin: Pin) -> Record:
        """Set a new PIN for a customer who has forgotten it, and unlock the card."""
        _digits(last_4_digits, 4, "last_4_digits")
        _strong(new_pin)
        if self.ledger.known("debit_cards", card_id, "debit card").get("last_4_digits") != last_4_digits:
            raise error("the last 4 digits are not those of the card")
        self._card_in(card_id, "ACTIVE")
        return self._set(card_id, pin_last_changed=TODAY, pin_locked=False, pin_attempts_remaining=3)

    @tool
    def change_debit_card_pin_6285(self, card_id: str, current_pin: str, new_pin: Pin) -> Record:
        """Change the PIN for a customer who knows the present one."""
        _digits(current_pin, 4, "current_pin")
        _strong(new_pin)
        if current_pin == new_pin:
            raise error("the new PIN is the present one")
        self._card_in(card_id, "ACTIVE")
        return self._set(card_id, pin_last_changed=TODAY)

    @tool
    def get_debit_cards_by_account_id_7823(self, account_id: str) -> list[Record] | Text:
        """Show the debit cards of a checking account, the newest first."""
        account = self.ledger.known("accounts", account_id, "account")
        if str(account.get("class", "")).lower() not in ("checking", "business_checking"):
            raise error(f"account {account_id} is no checking account, and has no debit cards")
        shown: list[Record] = []
        for card in self.ledger.where("debit_cards", "account_id", account_id):
            issued = card.get("date_issued") or card.get("issue_date") or card.get("created_date")
            shown.append({**card, "date_issued": issued})
        return listed(sorted(shown, key=lambda card: card["date_issued"] or "", reverse=True), "debit cards")

    @tool
    def request_temporary_debit_card_limit_increase_8374(
        self, card_id: str, limit_type: Literal["atm", "purchase"], new_limit: int
    ) -> Record:
        """Raise an active card's daily limit for cash or for purchases, for 24 hours and by half at most."""
        positive(new_limit, "the new limit")
        account = self.ledger.records.find(
            "accounts", self._card_in(card_id, "ACTIVE").get("account_id") or ""
        )
        if account is None or account.get("status") != "OPEN":
            raise error(f"the account of debit card {card_id} is not open")
        age = age_days(account)
        if age is not None and age < 60:
            raise error(f"the account must be open for 60 days; it has been for {age}")
        field = f"daily_{limit_type}_limit"
        present = self.ledger.known("debit_cards", card_id, "debit card").get(field)
        level = str(account.get("level", "")).lower()
        if present is None and limit_type == "atm":
            if "light green" in level:
                raise error("the limit of a Light Green account, $150 a day, is fixed for safety")
            present = CASH_LIMITS.get(level)
        if present is None:
            raise error(f"there is no limit for {limit_type} that could be raised, by the account's policy")
        if not present < new_limit <= int(present * 1.5):
            raise error(f"the new limit must be above ${present} and at most ${int(present * 1.5)}")
        return self._set(
            card_id,
            **{
                field: new_limit,
                f"temporary_{limit_type}_limit_increase": True,
                f"original_{limit_type}_limit": present,
                f"temporary_{limit_type}_limit_expires": TODAY,
            },
        )

    @tool
    def file_debit_card_transaction_dispute_6281(
        self,
        transaction_id: str,
        account_id: str,
        card_id: str,
        user_id: str,
        dispute_category: Literal[
            "unauthorized_transaction",
            "atm_cash_discrepancy",
            "atm_deposit_not_credited",
            "duplicate_charge",
            "incorrect_amount",
            "goods_services_not_received",
            "recurring_charge_after_cancellation",
            "card_present_fraud",
            "card_not_present_fraud",
        ],
        transaction_date: Day,
        discovery_date: Day,
        disputed_amount: Dollars,
        transaction_type: Literal[
            "pin_purchase",
            "signature_purchase",
            "online_purchase",
            "atm_withdrawal",
            "atm_deposit",
            "recurring_payment",
            "person_to_person",
        ],
        card_in_possession: bool,
        pin_compromised: Literal["yes_shared", "yes_observed", "no", "unknown"],
        contacted_merchant: bool,
        police_report_filed: bool,
        written_statement_provided: bool,
        provisional_credit_eligible: bool,
        customer_max_liability_amount: Annotated[
            float, Meta(description="in US dollars, by the rules of Regulation E; -1 without a limit")
        ],
        card_action: Literal["keep_active", "freeze_pending_investigation", "close_and_reissue"],
    ) -> Record:
        """Dispute a transaction of a debit card under Regulation E; the card itself is not changed by it."""
        positive(disputed_amount, "the disputed amount")
        key = dispute_id(user_id, transaction_id)
        dispute = {
            "dispute_id": key,
            "transaction_id": transaction_id,
            "account_id": account_id,
            "card_id": card_id,
            "user_id": user_id,
            "dispute_category": dispute_category,
            "transaction_date": transaction_date,
            "discovery_date": discovery_date,
            "disputed_amount": disputed_amount,
            "transaction_type": transaction_type,
            "card_in_possession": card_in_possession,
            "pin_compromised": pin_compromised,
            "contacted_merchant": contacted_merchant,
            "police_report_filed": police_report_filed,
            "written_statement_provided": written_statement_provided,
            "provisional_credit_eligible": provisional_credit_eligible,
            "provisional_credit_issued": provisional_credit_eligible,
            "provisional_credit_amount": disputed_amount if provisional_credit_eligible else None,
            "customer_max_liability_amount": customer_max_liability_amount,
            "card_action": card_action,
            "is_fraud_category": dispute_category in FRAUD,
            "pin_shared_voluntarily": pin_compromised == "yes_shared",
            "submitted_at": TODAY,
            "status": "OPEN",
        }
        return self.ledger.file("debit_card_disputes", key, dispute, "dispute")

    @tool
    def get_debit_dispute_status_7483(self, user_id: str) -> list[Record] | Text:
        """Show a customer's disputes about debit cards."""
        return listed(self.ledger.where("debit_card_disputes", "user_id", user_id), "disputes")

    def _card_in(self, card_id: str, *statuses: str) -> Record:
        """A card to read that has one of these statuses."""
        card = self.ledger.known("debit_cards", card_id, "debit card")
        if card.get("status") not in statuses:
            raise error(f"debit card {card_id} is {card.get('status')}, not {' or '.join(statuses)}")
        return card

    def _set(self, card_id: str, **fields: Any) -> Record:
        card = self.ledger.change("debit_cards", card_id)
        card |= fields
        return card

    def _linked_is_open(self, card: Record) -> None:
        account = self.ledger.records.find("accounts", card.get("account_id") or "")
        if account is not None and account.get("status") != "OPEN":
            raise error(f"the card's account {card['account_id']} is not open")

    def _activate(self, name: str, card_id: str, last_four: str, expires: str, cvv: str, pin: str) -> Record:
        """The date is asked for, but not compared, as in the authors' program; nor is the CVV."""
        if not expires:
            raise error("the expiration date is missing")
        _strong(pin)
        _digits(cvv, 3, "cvv")
        _digits(last_four, 4, "last_4_digits")
        issued_for = self.ledger.known("debit_cards", card_id, "debit card").get(
            "issue_reason", "new_account"
        )
        if issued_for not in ACTIVATION[name]:
            right = next(
                (tool for tool, reasons in ACTIVATION.items() if issued_for in reasons), "another tool"
            )
            raise error(f"the card was issued for '{issued_for}', so {right} activates it")
        card = self._card_in(card_id, "PENDING")
        if card.get("last_4_digits") != last_four:
            raise error("the last 4 digits are not those of the card")
        self._linked_is_open(card)
        why = {
            "activate_debit_card_8291": "New card activated",
            "activate_debit_card_8292": f"Replacement card activated ({issued_for})",
            "activate_debit_card_8293": f"Reissued card activated ({issued_for})",
        }[name]
        retired: dict[str, Any] = {"status": "DEACTIVATED", "deactivated_date": TODAY}
        if name == "activate_debit_card_8293":
            retired = {"status": "GRACE_PERIOD", "grace_period_ends": TODAY}
        for other in self.ledger.where("debit_cards", "account_id", card.get("account_id")):
            key = other.get("card_id")
            if key and key != card_id and other.get("status") == "ACTIVE":
                self._set(key, **retired, deactivation_reason=why)
        return self._set(card_id, status="ACTIVE", activated_date=TODAY)

    def _charge(self, account_id: str, left: float, order: Record) -> None:
        self.ledger.change("accounts", account_id)["current_holdings"] = f"{left:.2f}"
        parts = {
            "Delivery": order["delivery_fee"],
            "Design": order["design_fee"],
            "Excess Replacement": order["excess_replacement_fee"],
        }
        named = ", ".join(f"{name} ${fee:.2f}" for name, fee in parts.items() if fee > 0)
        transaction_id = f"btxn_dcfee_{order['order_id'][-8:]}"
        charge = {
            "transaction_id": transaction_id,
            "account_id": account_id,
            "date": TODAY,
            "description": f"DEBIT CARD ORDER FEE - {named}",
            "amount": -order["total_fee"],
            "type": "debit_card_fee",
            "status": "posted",
        }
        self.ledger.add("bank_account_transaction_history", transaction_id, charge)

    def _card(self, card_id: str, order: Record, present: list[Record]) -> Record:
        """The card that was ordered."""
        closed = [card for card in present if card.get("status") == "CLOSED"]
        why = str(closed[0].get("closure_reason")) if closed else ""
        known = {"lost": "lost", "stolen": "stolen", "fraud": "fraud", "fraud_suspected": "fraud"}
        user = self.ledger.records.find("users", order["user_id"]) or {}
        seed = f"card_details:{card_id}"
        return {
            "card_id": card_id,
            "account_id": order["account_id"],
            "user_id": order["user_id"],
            "cardholder_name": user.get("name", "CARDHOLDER").upper(),
            "last_4_digits": _decimals(digest(f"{seed}:last4", 8), 4),
            "cvv": _decimals(digest(f"{seed}:cvv", 6), 3),
            "status": "PENDING",
            "issue_date": TODAY,
            "expiration_date": EXPIRY,
            "card_design": order["card_design"],
            "issue_reason": known.get(why, "first_card") if present else "new_account",
        }


def _plain_balance(account: Record) -> float:
    """A balance that is a plain number; one with a dollar sign counts as 0 here, as for the authors."""
    try:
        return float(str(account.get("current_holdings", "0")).replace(",", ""))
    except ValueError:
        return 0.0


def _decimals(text: str, count: int) -> str:
    return "".join(char for char in text if char.isdigit())[:count].zfill(count)


def _digits(text: str, count: int, name: str) -> None:
    if not text.isdigit() or len(text) != count:
        raise error(f"'{name}' must be exactly {count} digits")


def _strong(pin: str) -> None:
    _digits(pin, 4, "PIN")
    if pin in _ASCENDING or pin[::-1] in _ASCENDING or len(set(pin)) == 1:
        raise error("a PIN must not be a sequence, such as 1234, nor one digit four times")
