"""The bank's tools for credit cards that an agent unlocks: disputes, replacements, credits, limits, closing.

Names, conditions and effects are those of the authors' program; the words are our own.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from gym_runtime import Text
from msgspec import Meta

from gym_resources.tau2.banking_ledger import (
    TODAY,
    Ledger,
    digest,
    dispute_id,
    holdings,
    listed,
    money,
    positive,
)
from gym_resources.tau2.refusal import error, tool
from gym_resources.tau2.shared_records import Record

Day = Annotated[str, Meta(description="MM/DD/YYYY")]
Dollars = Annotated[float, Meta(description="in US dollars")]
WholeDollars = Annotated[int, Meta(description="in whole US dollars")]
ACCOUNT = "credit card account"


class CreditCards:
    """The tools."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    @tool
    def update_transaction_rewards_3847(
        self,
        transaction_id: str,
        new_rewards_earned: Annotated[str, Meta(description="such as '6300 points'")],
    ) -> Record:
        """Correct what a credit card transaction has earned."""
        self.ledger.known("credit_card_transaction_history", transaction_id, "transaction")
        transaction = self.ledger.change("credit_card_transaction_history", transaction_id)
        transaction["rewards_earned"] = new_rewards_earned
        return transaction

    @tool
    def file_credit_card_transaction_dispute_4829(
        self,
        transaction_id: str,
        card_action: Annotated[
            Literal["keep_active", "cancel_and_reissue"],
            Meta(description="what becomes of the card; it is noted only, and orders no replacement"),
        ],
        card_last_4_digits: str,
        full_name: str,
        user_id: str,
        phone: str,
        email: str,
        address: str,
        contacted_merchant: bool,
        purchase_date: Day,
        issue_noticed_date: Day,
        dispute_reason: Literal[
            "unauthorized_fraudulent_charge",
            "duplicate_charge",
            "incorrect_amount",
            "goods_services_not_received",
            "goods_services_not_as_described",
            "canceled_subscription_still_charging",
            "refund_never_processed",
        ],
        resolution_requested: Literal["full_refund", "partial_refund"],
        eligible_for_provisional_credit: bool,
        partial_refund_amount: Annotated[
            float | None, Meta(description="in US dollars, for a partial refund")
        ] = None,
    ) -> Record:
        """Dispute a credit card transaction."""
        if resolution_requested == "partial_refund" and partial_refund_amount is None:
            raise error("a partial refund needs partial_refund_amount")
        key = dispute_id(user_id, transaction_id)
        dispute = {
            "dispute_id": key,
            "transaction_id": transaction_id,
            "user_id": user_id,
            "card_action": card_action,
            "card_last_4_digits": card_last_4_digits,
            "full_name": full_name,
            "phone": phone,
            "email": email,
            "address": address,
            "contacted_merchant": contacted_merchant,
            "purchase_date": purchase_date,
            "issue_noticed_date": issue_noticed_date,
            "dispute_reason": dispute_reason,
            "resolution_requested": resolution_requested,
            "partial_refund_amount": partial_refund_amount,
            "eligible_for_provisional_credit": eligible_for_provisional_credit,
            "provisional_credit_given": eligible_for_provisional_credit,
            "submitted_at": TODAY,
            "status": "SUBMITTED",
        }
        return self.ledger.file("transaction_disputes", key, dispute, "dispute")

    @tool
    def get_user_dispute_history_7291(self, user_id: str) -> list[Record] | Text:
        """Show a customer's disputes about credit card transactions."""
        return listed(self.ledger.where("transaction_disputes", "user_id", user_id), "disputes")

    @tool
    def order_replacement_credit_card_7291(
        self,
        credit_card_account_id: str,
        user_id: str,
        shipping_address: str,
        reason: Literal["fraud_suspected", "lost", "stolen", "damaged", "expired", "other"],
        expedited_shipping: bool = False,
    ) -> Record:
        """Order a replacement for a credit card; the old card is cancelled at once."""
        self.ledger.known("credit_card_accounts", credit_card_account_id, ACCOUNT)
        key = f"ccord_{digest(f'credit_card_order:{credit_card_account_id}:{user_id}:{reason}', 12)}"
        order = {
            "order_id": key,
            "credit_card_account_id": credit_card_account_id,
            "user_id": user_id,
            "shipping_address": shipping_address,
            "reason": reason,
            "expedited_shipping": expedited_shipping,
            "order_date": TODAY,
            "status": "ORDERED",
            "old_card_cancelled": True,
        }
        self.ledger.file("credit_card_orders", key, order, "order")
        account = self.ledger.change("credit_card_accounts", credit_card_account_id)
        account |= {"status": "CLOSED", "closed_date": TODAY}
        return order

    @tool
    def get_pending_replacement_orders_5765(self, credit_card_account_id: str) -> list[Record] | Text:
        """Show the orders of replacements for a credit card."""
        orders = self.ledger.where("credit_card_orders", "credit_card_account_id", credit_card_account_id)
        return listed(orders, "orders")

    @tool
    def log_credit_card_closure_reason_4521(
        self,
        credit_card_account_id: str,
        user_id: str,
        closure_reason: Literal[
            "annual_fee",
            "not_using_card",
            "found_better_card",
            "unhappy_with_rewards",
            "simplifying_finances",
            "negative_experience",
            "other",
        ],
    ) -> Record:
        """Note why a customer wants to close a credit card account."""
        key = f"clsr_{digest(f'closure_reason:{credit_card_account_id}:{user_id}', 12)}"
        noted = {
            "record_id": key,
            "credit_card_account_id": credit_card_account_id,
            "user_id": user_id,
            "closure_reason": closure_reason,
            "logged_at": TODAY,
            "status": "LOGGED",
        }
        self.ledger.add("credit_card_closure_reasons", key, noted)
        return noted

    @tool
    def get_closure_reason_history_8293(self, credit_card_account_id: str) -> list[Record] | Text:
        """Show why a credit card account was to be closed before."""
        noted = self.ledger.where(
            "credit_card_closure_reasons", "credit_card_account_id", credit_card_account_id
        )
        return listed(noted, "reasons")

    @tool
    def close_credit_card_account_7834(self, credit_card_account_id: str, user_id: str) -> Record:
        """Close a credit card account for good."""
        self.ledger.known("credit_card_accounts", credit_card_account_id, ACCOUNT)
        account = self.ledger.change("credit_card_accounts", credit_card_account_id)
        account |= {"status": "CLOSED", "closed_date": TODAY, "closed_by": user_id}
        return account

    @tool
    def apply_statement_credit_8472(
        self,
        user_id: str,
        credit_card_account_id: str,
        amount: Dollars,
        reason: Literal[
            "goodwill_adjustment",
            "promotional_credit",
            "annual_fee_reversal",
            "late_fee_reversal",
            "interest_charge_reversal",
            "dispute_resolution",
            "price_match",
            "retention_offer",
            "error_correction",
            "other",
        ],
    ) -> Record:
        """Credit an amount to the statement of a credit card."""
        positive(amount, "the amount")
        self.ledger.known("credit_card_accounts", credit_card_account_id, ACCOUNT)
        seed = f"transaction:{user_id}:STATEMENT_CREDIT:{reason}:{amount:.2f}:Statement Credit"
        key = f"txn_{digest(seed, 12)}"
        credit = {
            "transaction_id": key,
            "user_id": user_id,
            "credit_card_account_id": credit_card_account_id,
            "credit_card_type": "N/A",
            "merchant_name": "Rho-Bank Statement Credit",
            "transaction_amount": f"-${amount:.2f}",
            "transaction_date": TODAY,
            "category": "Statement Credit",
            "status": "COMPLETED",
            "rewards_earned": "0 points",
            "credit_reason": reason,
        }
        return self.ledger.file("credit_card_transaction_history", key, credit, "transaction")

    @tool
    def apply_credit_card_account_flag_6147(
        self,
        credit_card_account_id: str,
        user_id: str,
        flag_type: Literal["annual_fee_waived", "promotional_apr", "rewards_bonus", "other"],
        expiration_date: Day,
        reason: Literal["retention_offer", "loyalty_benefit", "promotional", "error_correction", "other"],
    ) -> Record:
        """Set a flag on a credit card account until a date, such as one that waives the annual fee."""
        self.ledger.known("credit_card_accounts", credit_card_account_id, ACCOUNT)
        seed = f"account_flag:{credit_card_account_id}:{flag_type}:{expiration_date}"
        key = f"ccflag_{digest(seed, 12)}"
        flag = {
            "flag_id": key,
            "credit_card_account_id": credit_card_account_id,
            "user_id": user_id,
            "flag_type": flag_type,
            "effective_date": TODAY,
            "expiration_date": expiration_date,
            "reason": reason,
            "applied_at": TODAY,
            "status": "ACTIVE",
        }
        return self.ledger.file("credit_card_account_flags", key, flag, "flag")

    @tool
    def pay_credit_card_from_checking_9182(
        self, user_id: str, checking_account_id: str, credit_card_account_id: str, amount: Dollars
    ) -> dict[str, str]:
        """Pay what a credit card owes, or a part of it, from the customer's checking account."""
        positive(amount, "the payment")
        checking = self.ledger.owned("accounts", checking_account_id, user_id, "account")
        if checking.get("class") != "checking":
            raise error(f"account {checking_account_id} is no checking account")
        left = holdings(checking) - amount
        if left < 0:
            raise error(f"insufficient funds: the balance is ${holdings(checking):.2f}")
        card = self.ledger.owned("credit_card_accounts", credit_card_account_id, user_id, ACCOUNT)
        owed = money(card.get("current_balance", 0)) - amount
        if owed < 0:
            raise error(f"the payment is more than what is owed, ${owed + amount:.2f}")
        self.ledger.change("accounts", checking_account_id)["current_holdings"] = f"{left:.2f}"
        self.ledger.change("credit_card_accounts", credit_card_account_id)["current_balance"] = f"${owed:.2f}"
        return {checking_account_id: f"${left:.2f}", credit_card_account_id: f"${owed:.2f}"}

    @tool
    def get_payment_history_6183(self, credit_card_account_id: str, months: int) -> dict[str, Any] | Text:
        """Show the last payments of a credit card account, and how many of them were on time in a row."""
        positive(months, "'months'")
        found = self.ledger.where("payment_history", "credit_card_account_id", credit_card_account_id)
        latest = sorted(found, key=lambda one: one.get("payment_date") or "", reverse=True)[:months]
        late = (number for number, one in enumerate(latest) if one.get("status") != "ON_TIME")
        if not latest:
            return Text("No payments found.")
        return {"consecutive_on_time": next(late, len(latest)), "payments": latest}

    @tool
    def submit_credit_limit_increase_request_7392(
        self, credit_card_account_id: str, user_id: str, requested_increase_amount: WholeDollars
    ) -> Record:
        """Ask for a higher limit of a credit card."""
        positive(requested_increase_amount, "the increase")
        self.ledger.owned("credit_card_accounts", credit_card_account_id, user_id, ACCOUNT)
        key = _request_id(credit_card_account_id, user_id, requested_increase_amount)
        asked = {
            "request_id": key,
            "credit_card_account_id": credit_card_account_id,
            "user_id": user_id,
            "requested_increase_amount": requested_increase_amount,
            "submitted_at": TODAY,
            "status": "PENDING",
        }
        return self.ledger.file("credit_limit_increase_requests", key, asked, "request")

    @tool
    def get_credit_limit_increase_history_4829(self, credit_card_account_id: str) -> list[Record] | Text:
        """Show the requests for a higher limit of a credit card."""
        found = self.ledger.where(
            "credit_limit_increase_requests", "credit_card_account_id", credit_card_account_id
        )
        return listed(found, "requests")

    @tool
    def approve_credit_limit_increase_5847(
        self,
        credit_card_account_id: str,
        user_id: str,
        new_credit_limit: Annotated[float, Meta(description="the whole limit in US dollars")],
    ) -> Record:
        """Grant a higher limit of a credit card whose holder is entitled to it."""
        account = self.ledger.owned("credit_card_accounts", credit_card_account_id, user_id, ACCOUNT)
        disputes = self.ledger.where("transaction_disputes", "user_id", user_id)
        orders = self.ledger.where("credit_card_orders", "credit_card_account_id", credit_card_account_id)
        if (
            any(one.get("status") in ("SUBMITTED", "UNDER_REVIEW", "PENDING") for one in disputes)
            or any(one.get("status") in ("PENDING", "PROCESSING", "SHIPPED") for one in orders)
            or str(account.get("account_status", "")).upper()
            in ("PAST_DUE", "DELINQUENT", "COLLECTIONS", "CLOSED")
        ):
            raise error("the increase cannot be granted now")
        before, new = money(account.get("credit_limit", 0)), new_credit_limit
        if not math.isfinite(new):
            raise error("the limit has no end")
        self.ledger.change("credit_card_accounts", credit_card_account_id)["credit_limit"] = f"${new:.2f}"
        key = _request_id(credit_card_account_id, user_id, new - before)
        granted = {
            "request_id": key,
            "credit_card_account_id": credit_card_account_id,
            "user_id": user_id,
            "previous_limit": f"${before:.2f}",
            "new_limit": f"${new:.2f}",
            "increase_amount": f"${new - before:.2f}",
            "decision_date": TODAY,
            "status": "APPROVED",
        }
        self.ledger.add("credit_limit_increase_requests", key, granted)
        return granted

    @tool
    def deny_credit_limit_increase_5848(
        self,
        credit_card_account_id: str,
        user_id: str,
        denial_reason: Literal[
            "insufficient_account_age",
            "cooldown_period_active",
            "pending_disputes",
            "pending_replacement_card",
            "past_due_balance",
            "high_utilization",
            "insufficient_payment_history",
            "requested_amount_exceeds_limit",
            "other",
        ],
    ) -> Record:
        """Refuse a request for a higher limit of a credit card."""
        self.ledger.known("credit_card_accounts", credit_card_account_id, ACCOUNT)
        key = _request_id(credit_card_account_id, user_id, 0.0)
        denied = {
            "request_id": key,
            "credit_card_account_id": credit_card_account_id,
            "user_id": user_id,
            "denial_reason": denial_reason,
            "decision_date": TODAY,
            "status": "DENIED",
        }
        self.ledger.add("credit_limit_increase_requests", key, denied)
        return denied


def _request_id(account_id: str, user_id: str, increase: float) -> str:
    return f"cli_{digest(f'cli_request:{account_id}:{user_id}:{increase:.2f}', 12)}"
