"""What the bank's customers can do: the tools of the simulated customer, and those that the agent gives it.

Names, conditions and effects are those of the authors' program; the words are our own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from typing import Annotated, Any, Literal

from gym_runtime import Text
from gym_runtime.environment import collect_tools
from msgspec import Meta

from gym_resources.tau2.banking_calls import Arguments, answered, named, refused
from gym_resources.tau2.banking_ledger import TODAY, Ledger, digest, dispute_id, holdings, listed, positive
from gym_resources.tau2.refusal import error, tool
from gym_resources.tau2.shared_records import Record

Dollars = Annotated[float, Meta(description="in US dollars")]
REWARDS: dict[str, tuple[float, dict[str, float]]] = {
    "Bronze Rewards Card": (1.0, {}),
    "Silver Rewards Card": (1.0, {"Travel": 4.0, "Software": 4.0}),
    "Gold Rewards Card": (2.5, {}),
    "Platinum Rewards Card": (10.0, {}),
    "Business Bronze Rewards Card": (1.0, {}),
    "Business Silver Rewards Card": (1.0, {"Travel": 10.0, "Software": 10.0}),
    "Green Rewards Card": (1.0, {"Sustainable": 3.0}),
    "Business Gold Rewards Card": (1.0, {"Operations": 2.5}),
    "Business Platinum Rewards Card": (1.5, {"Travel": 4.0, "Software": 4.0, "Media": 4.0}),
    "Silver Zoom Card": (1.0, {"Transportation": 3.0}),
    "Diamond Elite Card": (5.0, {}),
    "EcoCard": (1.0, {"Green": 5.0}),
    "Crypto-Cash Back": (2.0, {}),
}
"""By card: the points for a dollar, and those in some categories."""

CardType = Literal[
    "Bronze Rewards Card",
    "Business Bronze Rewards Card",
    "Business Gold Rewards Card",
    "Business Platinum Rewards Card",
    "Business Silver Rewards Card",
    "Crypto-Cash Back",
    "Diamond Elite Card",
    "EcoCard",
    "Gold Rewards Card",
    "Green Rewards Card",
    "Platinum Rewards Card",
    "Silver Rewards Card",
    "Silver Zoom Card",
]


class Actions:
    """The tools that a customer can use when the agent has given them."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    @tool
    def submit_cash_back_dispute_0589(self, user_id: str, transaction_id: str) -> Record | Text:
        """Dispute the cash back of a transaction."""
        key = dispute_id(user_id, transaction_id)
        dispute = {
            "dispute_id": key,
            "user_id": user_id,
            "transaction_id": transaction_id,
            "submitted_at": TODAY,
            "status": "SUBMITTED",
        }
        settings = self.ledger.records.find("task_config", "dispute_settings") or {}
        if settings.get("auto_resolve_disputes"):
            dispute |= {"status": "RESOLVED", "resolution": "APPROVED"}
        if not self.ledger.add("cash_back_disputes", key, dispute):
            return Text("This transaction has been disputed before.")
        return dispute

    @tool
    def get_referral_link(
        self, user_id: str, card_name: Annotated[str, Meta(description="such as 'Gold Rewards Card'")]
    ) -> Record | Text:
        """Get a link with which you refer somebody to a credit card."""
        key = digest(f"referral_link:{user_id}:{card_name}")
        if not self.ledger.add("referrals", key, _referral(key, user_id, card_name)):
            return Text("You have a link for this card already.")
        return {"referral_id": key, "link": f"https://rhobank.com/refer/{key}"}

    @tool
    def get_card_last_4_digits(self, credit_card_account_id: str) -> Text:
        """Read the last 4 digits of one of your credit cards."""
        self.ledger.known("credit_card_accounts", credit_card_account_id, "credit card account")
        digits = [
            char
            for char in sha256(f"card_last4:{credit_card_account_id}".encode()).hexdigest()
            if char.isdigit()
        ]
        return Text("".join(digits[:4]).ljust(4, "0"))

    @tool
    def deposit_check_3847(self, account_id: str, check_amount: Dollars) -> dict[str, str]:
        """Deposit a check into an account with the bank's app."""
        positive(check_amount, "the amount")
        account = self.ledger.known("accounts", account_id, "account")
        if account.get("status") not in ("ACTIVE", "OPEN"):
            raise error(f"account {account_id} is not active")
        new = f"${holdings(account) + check_amount:.2f}"
        self.ledger.change("accounts", account_id)["current_holdings"] = new
        return {"account_id": account_id, "new_balance": new}


class Customer:
    """The tools of the customer."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    @tool
    def apply_for_credit_card(
        self,
        card_type: CardType,
        customer_name: str,
        annual_income: Dollars,
        rho_bank_subscription: bool = False,
    ) -> Text:
        """Apply for a credit card with your full legal name."""
        seed = f"credit_card:{card_type}:{customer_name}:{annual_income:.2f}:{rho_bank_subscription}"
        application = {
            "application_id": digest(seed),
            "card_type": card_type,
            "customer_name": customer_name,
            "annual_income": annual_income,
            "rho_bank_subscription": rho_bank_subscription,
            "status": "PENDING",
            "date": TODAY,
        }
        self.ledger.file("credit_card_applications", digest(seed), application, "application")
        return Text("You have applied. The bank decides within 5 to 7 business days, and writes to you.")

    @tool
    def submit_referral(self, user_id: str, account_type: str) -> Record:
        """Refer somebody to an account of a type, as the user whose id you give."""
        key = digest(f"referral:{user_id}:{account_type}")
        return self.ledger.file("referrals", key, _referral(key, user_id, account_type), "referral")

    @tool
    async def call_discoverable_user_tool(
        self, discoverable_tool_name: str, arguments: Arguments = "{}"
    ) -> Text:
        """Use a tool that the agent has given you."""
        known = actions().get(discoverable_tool_name)
        if known is None:
            return refused(f"there is no tool {discoverable_tool_name[:100]!r}")
        given = named(known, arguments)
        if isinstance(given, Text):
            return given
        if not self.ledger.where("user_discoverable_tools", "tool_name", discoverable_tool_name):
            return refused("the agent has not given you this tool")
        # 25 and 25.0 are the same call.
        seed = json.dumps(json.loads(arguments, parse_int=float), sort_keys=True)
        call = {
            "tool_name": discoverable_tool_name,
            "arguments": given,
            "called_at": TODAY,
            "status": "CALLED",
        }
        self.ledger.add("user_discoverable_tool_calls", digest(f"{discoverable_tool_name}:{seed}"), call)
        return answered(await known.call(Actions(self.ledger), arguments))

    @tool
    def list_discoverable_user_tools(self) -> list[Record] | Text:
        """List the tools that the agent has given you."""
        return listed(list(self.ledger.records.all("user_discoverable_tools")), "tools")

    @tool
    def request_human_agent_transfer(self) -> Text:
        """Ask for a human agent instead of this one."""
        number = 1 + sum(1 for _ in self.ledger.records.all("human_transfer_requests"))
        request = {
            "request_id": f"transfer_request_{number}",
            "request_number": number,
            "requested_at": TODAY,
            "status": "PENDING",
        }
        self.ledger.add("human_transfer_requests", f"transfer_request_{number}", request)
        return Text(f"You have asked {number} times.")

    @tool
    def submit_transaction(
        self,
        user_id: str,
        credit_card_type: CardType,
        merchant_name: str,
        amount: Dollars,
        category: Annotated[str, Meta(description="such as Groceries, Dining, Travel or Software")],
    ) -> Record:
        """Pay with a credit card."""
        if not math.isfinite(amount):
            raise error("the amount has no end")
        usual, special = REWARDS[credit_card_type]
        seed = f"transaction:{user_id}:{credit_card_type}:{merchant_name}:{amount:.2f}:{category}"
        key = f"txn_{digest(seed, 12)}"
        paid = {
            "transaction_id": key,
            "user_id": user_id,
            "credit_card_type": credit_card_type,
            "merchant_name": merchant_name,
            "transaction_amount": f"${amount:.2f}",
            "transaction_date": TODAY,
            "category": category,
            "status": "COMPLETED",
            "rewards_earned": f"{int(amount * special.get(category, usual))} points",
        }
        return self.ledger.file("credit_card_transaction_history", key, paid, "transaction")


def _referral(key: str, user_id: str, account_type: str) -> Record:
    return {
        "referral_id": key,
        "referrer_id": user_id,
        "referred_account_type": account_type,
        "referral_status": "NO_PROGRESS",
        "date": TODAY,
    }


@cache
def actions() -> Mapping[str, Any]:
    """The tools that an agent can give, by their names."""
    return collect_tools(Actions)
