"""The bank's tools for accounts that an agent unlocks: opening, closing, moving and crediting money.

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
    holdings,
    listed,
    money,
    newest_first,
    positive,
)
from gym_resources.tau2.refusal import error, tool
from gym_resources.tau2.shared_records import Record

Dollars = Annotated[float, Meta(description="in US dollars")]
Percent = Annotated[float, Meta(description="an APY in percent, such as 2.775")]
ACTIVE = ("ACTIVE", "OPEN")
NOT_ELIGIBLE = "the requirements for this account are not met"
EARLY_CLOSURE: dict[str, dict[str, tuple[int, int]]] = {
    "checking": {
        "Light Blue Account": (15, 30),
        "Light Green Account": (15, 30),
        "Green Fee-Free Account": (15, 30),
        "Blue Account": (25, 60),
        "Green Account": (25, 60),
        "Evergreen Account": (50, 90),
        "Bluest Account": (100, 180),
    },
    "savings": {
        "Bronze Account": (20, 60),
        "Silver Account": (35, 90),
        "Silver Plus Account": (35, 90),
        "Gold Account": (75, 180),
        "Gold Plus Account": (75, 180),
        "Gold Years Account": (75, 180),
        "Platinum Account": (150, 270),
        "Platinum Plus Account": (150, 270),
        "Diamond Elite Account": (150, 270),
    },
}
"""By class and level: the fee in dollars, and for how many days after the opening it is due."""
CREDITS = {
    "rebate_credit": "REBATE CREDIT - CUSTOMER SERVICE",
    "fee_refund": "FEE REFUND - CUSTOMER SERVICE",
    "interest_correction": "INTEREST CORRECTION - CUSTOMER SERVICE",
    "goodwill_credit": "GOODWILL CREDIT - CUSTOMER SERVICE",
}
SCANS: dict[str, dict[str, Any]] = {
    "btxn_834027370c20": {
        "atm": "Rho-Bank ATM #3921, Cedar Lane Branch, Austin, TX",
        "envelope": "ENV-2025-3921-00923, 3:47 PM CST",
        "checks": [
            {
                "number": "7284",
                "drawn_on": "First Texas Bank",
                "payee": "Derek Yamamoto",
                "amount": 875.0,
                "memo": "October rent refund",
                "date": "11/03/2025",
                "endorsed": "For Deposit Only - Derek Yamamoto",
            }
        ],
        "cash": {"bills": {"$100": 2, "$20": 3}, "amount": 260.0},
        "contents_total": 1135.0,
        "recorded_by_the_machine": 385.0,
        "difference": 750.0,
        "quality": "all images are clear",
    }
}
"""What the envelope of a published deposit holds; no other one of that database was scanned."""


class Accounts:
    """The tools."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    @tool
    def open_bank_account_4821(
        self,
        user_id: str,
        account_type: Literal["checking", "savings", "business_checking", "business_savings"],
        account_class: Annotated[str, Meta(description="the full official name of the class")],
    ) -> Record:
        """Open a bank account for a customer who is entitled to one of this type."""
        mine = self.ledger.where("accounts", "user_id", user_id)
        if account_type == "savings" and not _open_since(mine, ("checking", "personal_checking"), 14):
            raise error(NOT_ELIGIBLE)
        if account_type == "business_checking" and (
            any(account.get("status") == "CLOSED" for account in mine)
            or not _open_since(mine, ("checking", "personal_checking"), None)
        ):
            raise error(NOT_ELIGIBLE)
        if account_type == "business_savings" and (
            any(holdings(account) < 0 for account in mine)
            or not _open_since(mine, ("business_checking",), 30)
        ):
            raise error(NOT_ELIGIBLE)
        account_id = digest(f"account:{user_id}:{account_type}:{account_class}")
        opened = {
            "account_id": account_id,
            "user_id": user_id,
            "account_type": account_type,
            "account_class": account_class,
            "current_holdings": "0.00",
            "status": "OPEN",
            "date_opened": TODAY,
        }
        return self.ledger.file("accounts", account_id, opened, "account")

    @tool
    def close_bank_account_7392(
        self,
        account_id: str,
        reason: str = "Customer requested closure",
        waive_early_closure_fee: bool = False,
    ) -> Record:
        """Close a checking or savings account, whose balance is 0 after the fee for closing it early."""
        account = self.ledger.known("accounts", account_id, "account")
        if account.get("status") == "CLOSED":
            raise error(f"account {account_id} is closed already")
        balance, fee = holdings(account), 0
        due = EARLY_CLOSURE.get(account.get("class", ""), {}).get(account.get("level", ""))
        age = age_days(account)
        if due and age is not None and age < due[1] and not waive_early_closure_fee:
            fee = due[0]
            if balance < fee:
                raise error("the account cannot be closed")
        if balance - fee != 0:
            raise error(f"the balance must be $0.00 before the account is closed; it is ${balance:.2f}")
        account = self.ledger.change("accounts", account_id)
        account |= {
            "status": "CLOSED",
            "date_closed": TODAY,
            "closure_reason": reason,
            "early_closure_fee_waived": waive_early_closure_fee,
        }
        return account

    @tool
    def get_all_user_accounts_by_user_id_3847(self, user_id: str) -> dict[str, list[Record]]:
        """Show all bank accounts and credit card accounts of a customer."""
        return {
            table: self.ledger.where(table, "user_id", user_id)
            for table in ("accounts", "credit_card_accounts")
        }

    @tool
    def get_bank_account_transactions_9173(self, account_id: str) -> list[Record] | Text:
        """Show the transactions of a bank account, the newest first."""
        self.ledger.known("accounts", account_id, "account")
        found = self.ledger.where("bank_account_transaction_history", "account_id", account_id)
        return listed(newest_first(found, "date"), "transactions")

    @tool
    def transfer_funds_between_bank_accounts_7291(
        self, source_account_id: str, destination_account_id: str, amount: Dollars
    ) -> dict[str, str]:
        """Move money from one bank account to another."""
        positive(amount, "the amount")
        if source_account_id == destination_account_id:
            raise error("the two accounts are the same")
        taken = self._active(source_account_id), self._active(destination_account_id)
        left, got = holdings(taken[0]) - amount, holdings(taken[1]) + amount
        if left < 0:
            raise error(f"insufficient funds: the balance is ${holdings(taken[0]):.2f}, not ${amount:.2f}")
        for account_id, new in ((source_account_id, left), (destination_account_id, got)):
            self.ledger.change("accounts", account_id)["current_holdings"] = f"${new:.2f}"
        return {source_account_id: f"${left:.2f}", destination_account_id: f"${got:.2f}"}

    @tool
    def apply_checking_account_credit_5829(
        self, account_id: str, amount: Dollars, credit_type: Literal["rebate_credit", "fee_refund"]
    ) -> Record:
        """Credit a checking account: for a rebate that is missing, or a fee that was wrong."""
        return self._credit("checking", account_id, amount, credit_type)

    @tool
    def apply_savings_account_credit_6831(
        self,
        account_id: str,
        amount: Dollars,
        credit_type: Literal["interest_correction", "fee_refund", "goodwill_credit"],
    ) -> Record:
        """Credit a savings account: for wrong interest, a wrong fee, or as a gesture."""
        return self._credit("savings", account_id, amount, credit_type)

    @tool
    def submit_interest_discrepancy_report_7294(
        self,
        account_id: str,
        user_id: str,
        expected_apy: Percent,
        actual_apy: Percent,
        amount_difference: Dollars,
    ) -> dict[str, Any]:
        """Report to the back office that the interest of a savings account is not what it should be."""
        # It leaves no record: the authors' database has no table for it.
        account = self.ledger.known("accounts", account_id, "account")
        self.ledger.known("users", user_id, "user")
        seed = f"interest_report:{account_id}:{user_id}:{expected_apy}:{actual_apy}:{TODAY}"
        return {
            "report_id": f"IDR_{digest(seed)}",
            "account_level": account.get("level", "Unknown"),
            "apy_difference": round(expected_apy - actual_apy, 4),
            "amount_difference": amount_difference,
            "status": "PENDING_REVIEW",
        }

    @tool
    def get_atm_deposit_images_8473(self, transaction_id: str) -> dict[str, Any] | Text:
        """Show the scan of what was put into one of the bank's machines."""
        found = self.ledger.known("bank_account_transaction_history", transaction_id, "transaction")
        if found.get("type") != "atm_deposit":
            raise error(f"transaction {transaction_id} is no deposit at a machine")
        where = str(found.get("description", "")).upper()
        if "RHO-BANK" not in where and "RHOBANK" not in where:
            raise error(
                "the machine is another bank's: it keeps no images here; ask its network for a chargeback"
            )
        scan = SCANS.get(transaction_id)
        if scan is None:
            recorded = abs(money(found.get("amount")))
            return Text(
                "There are no images: they are older than 90 days, or were not taken. The dispute goes on by "
                f"the customer's statement and the machine's records, which say ${recorded:.2f}."
            )
        return {"transaction_id": transaction_id, "deposit_date": found.get("date"), **scan}

    def _active(self, account_id: str) -> Record:
        """An account that is open, to read."""
        account = self.ledger.known("accounts", account_id, "account")
        if account.get("status") not in ACTIVE:
            raise error(f"account {account_id} is not active")
        return account

    def _credit(
        self, kind: Literal["checking", "savings"], account_id: str, amount: float, credit_type: str
    ) -> Record:
        positive(amount, "the amount")
        account = self.ledger.known("accounts", account_id, "account")
        if (
            str(account.get("class", "")).lower()
            not in {"checking": ("checking",), "savings": ("saving", "savings")}[kind]
        ):
            raise error(f"account {account_id} is no {kind} account")
        new = holdings(self._active(account_id)) + amount
        # Only a checking account's new balance has the sign, as in the authors' program.
        written = f"${new:.2f}" if kind == "checking" else f"{new:.2f}"
        self.ledger.change("accounts", account_id)["current_holdings"] = written
        transaction_id = f"txn_{digest(f'{kind}_credit:{account_id}:{credit_type}:{amount}:{TODAY}')}"
        credit = {
            "transaction_id": transaction_id,
            "account_id": account_id,
            "date": TODAY,
            "description": CREDITS[credit_type],
            "amount": amount,
            "type": credit_type,
            "status": "posted",
        }
        self.ledger.records.add("bank_account_transaction_history", transaction_id, credit)
        return {**credit, "new_balance": f"${new:.2f}"}


def _open_since(accounts: list[Record], kinds: tuple[str, ...], days: int | None) -> bool:
    """Whether one of the accounts is of these kinds and open, for this long if ``days`` are given."""
    return any(
        account.get("account_type", account.get("class", "")) in kinds
        and account.get("status") in ACTIVE
        and (days is None or (age_days(account) or 0) >= days)
        for account in accounts
    )
