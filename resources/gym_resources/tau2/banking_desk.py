"""What the bank's agent can do: its own tools, the documents, and tools that it unlocks by their names.

A tool that the documents name is described when it is unlocked, and called through another one. The calls of
those that change something are noted, and those that only read where the task expects them; what is noted is
part of the state that is compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal

import gym_runtime
from gym_runtime import Text
from gym_runtime.environment import collect_tools
from msgspec import Meta

from gym_resources.tau2.banking_accounts import Accounts
from gym_resources.tau2.banking_calls import Arguments, answered, described, named, refused
from gym_resources.tau2.banking_credit_cards import CreditCards
from gym_resources.tau2.banking_customer import actions
from gym_resources.tau2.banking_debit_cards import DebitCards
from gym_resources.tau2.banking_ledger import NOW, Ledger, digest, listed
from gym_resources.tau2.banking_library import Library, Passage
from gym_resources.tau2.refusal import exact, tool
from gym_resources.tau2.shared_records import Record

TransferReason = Literal[
    "fraud_or_security_concern",
    "account_closure_request",
    "deceased_account_holder",
    "legal_or_regulatory_matter",
    "account_ownership_dispute",
    "complex_billing_dispute",
    "abusive_customer_behavior",
    "third_party_inquiry",
    "technical_system_error",
    "unconfirmed_external_communication",
    "customer_demands_after_unavailable_offer_refusal",
    "kb_search_unsuccessful_customer_requests_transfer",
    "specialized_department_required",
    "accessibility_or_special_needs",
    "customer_frustrated_demands_human",
    "supervisor_request_service_complaint",
    "customer_requests_human_no_specific_reason",
    "request_completed_customer_wants_human_followup",
    "other",
]


class Transfers:
    """The steps before some transfers to a human agent; they change nothing."""

    def __init__(self, ledger: Ledger) -> None:
        del ledger

    @tool
    def initial_transfer_to_human_agent_0218(self) -> Text:
        """Begin a transfer to a human agent, where the rules ask for this step."""
        return Text("The transfer has begun. Tell the customer that all lines are busy.")

    @tool
    def initial_transfer_to_human_agent_1822(self) -> Text:
        """Begin a transfer to a human agent, where the rules ask for this step."""
        return Text(
            "It is too early for a human agent; do not say so. Ask about simple cases that may be behind "
            "the customer's problem, and try to help."
        )

    @tool
    def emergency_credit_bureau_incident_transfer_1114(self) -> Text:
        """Mark a case of the incident of 11/14 with the credit bureaus for the team that corrects reports."""
        return Text("The case is marked. Go on with transfer_to_human_agents at once.")


class Desk:
    """The tools of the agent.

    Args:
        expected: the names of unlocked tools that the task expects to be called.
    """

    def __init__(self, ledger: Ledger, library: Library, expected: frozenset[str]) -> None:
        self.ledger, self.library, self.expected = ledger, library, expected
        self.unlocked: set[str] = set()

    @tool
    def transfer_to_human_agents(self, summary: str, reason: TransferReason = "other") -> Text:
        """Hand the customer over to a human agent, for the reason that the bank's documents name."""
        return Text("Transfer successful")

    @tool
    def get_current_time(self) -> Text:
        """Tell the time."""
        return Text(NOW)

    @tool
    def get_user_information_by_id(self, user_id: str) -> list[Record] | Text:
        """Show a customer's name, date of birth, e-mail address, phone number and address."""
        return listed(self.ledger.where("users", "user_id", user_id), "users")

    @tool
    def get_user_information_by_name(self, customer_name: str) -> list[Record] | Text:
        """Show the customers of a name, which must be written exactly."""
        return listed(self.ledger.where("users", "name", customer_name), "users")

    @tool
    def get_user_information_by_email(self, email: str) -> list[Record] | Text:
        """Show the customers with an e-mail address."""
        return listed(self.ledger.where("users", "email", email), "users")

    @tool
    def change_user_email(self, user_id: str, new_email: str) -> Record | Text:
        """Set the e-mail address of a customer."""
        if self.ledger.records.find("users", user_id) is None:
            return refused("there is no such user")
        user = self.ledger.change("users", user_id)
        user["email"] = new_email
        return user

    @tool
    def get_referrals_by_user(self, user_id: str) -> list[Record] | Text:
        """Show whom a customer has referred to the bank."""
        return listed(self.ledger.where("referrals", "referrer_id", user_id), "referrals")

    @tool
    def get_credit_card_transactions_by_user(self, user_id: str) -> list[Record] | Text:
        """Show the credit card transactions of a customer."""
        found = self.ledger.where("credit_card_transaction_history", "user_id", user_id)
        return listed(found, "transactions")

    @tool
    def get_credit_card_accounts_by_user(self, user_id: str) -> list[Record] | Text:
        """Show the credit card accounts of a customer."""
        return listed(self.ledger.where("credit_card_accounts", "user_id", user_id), "accounts")

    @tool
    def log_verification(
        self,
        name: str,
        user_id: str,
        address: str,
        email: str,
        phone_number: str,
        date_of_birth: Annotated[str, Meta(description="MM/DD/YYYY")],
        time_verified: Annotated[str, Meta(description="as get_current_time tells it")],
    ) -> Text:
        """Note that a customer is verified: two of date of birth, e-mail, phone and address agree."""
        stamp = time_verified.replace(" ", "_").replace(":", "").replace("-", "")
        noted = {
            "name": name,
            "user_id": user_id,
            "address": address,
            "email": email,
            "phone_number": phone_number,
            "date_of_birth": date_of_birth,
            "time_verified": time_verified,
        }
        added = self.ledger.add("verification_history", f"{user_id}_{stamp}", noted)
        return Text("The verification is noted.") if added else refused("it is noted already")

    @tool
    def give_discoverable_user_tool(
        self, discoverable_tool_name: str, arguments: Arguments = "{}"
    ) -> Record | Text:
        """Give the customer a tool that the bank's documents name for what customers do themselves."""
        known = actions().get(discoverable_tool_name)
        if known is None:
            return refused(f"there is no tool {discoverable_tool_name[:100]!r} for customers")
        given = named(known, arguments, complete=False)
        if isinstance(given, Text):
            return given
        record = {"tool_name": discoverable_tool_name, "status": "GIVEN"}
        key = digest(f"user_discoverable_tool:{discoverable_tool_name}")
        self.ledger.add("user_discoverable_tools", key, record)
        return {"given": described(known), "how": "the customer calls call_discoverable_user_tool"}

    @tool
    def unlock_discoverable_agent_tool(self, agent_tool_name: str) -> Record | Text:
        """Unlock a tool that the bank's documents name, and read what it does and takes."""
        found = unlockable().get(agent_tool_name)
        if found is None:
            return refused(f"there is no tool {agent_tool_name[:100]!r}")
        self.unlocked.add(agent_tool_name)
        return {"unlocked": described(found[1]), "how": "call it with call_discoverable_agent_tool"}

    @tool
    async def call_discoverable_agent_tool(self, agent_tool_name: str, arguments: Arguments = "{}") -> Text:
        """Call a tool that was unlocked."""
        found = unlockable().get(agent_tool_name)
        if found is None or agent_tool_name not in self.unlocked:
            why = (
                "there is no such tool" if found is None else "unlock it with unlock_discoverable_agent_tool"
            )
            return refused(f"{agent_tool_name[:100]!r}: {why}")
        side, inner = found
        given = named(inner, arguments)
        if isinstance(given, Text):
            return given
        said = await inner.call(side(self.ledger), arguments)
        if is_write(agent_tool_name) or agent_tool_name in self.expected:
            record = {"tool_name": agent_tool_name, "status": "CALLED"}
            key = digest(f"agent_discoverable_tool:{agent_tool_name}")
            self.ledger.add("agent_discoverable_tools", key, record)
        return answered(said)

    @tool
    def list_discoverable_agent_tools(self) -> list[Record] | Text:
        """List the unlocked tools that were called."""
        return listed(list(self.ledger.records.all("agent_discoverable_tools")), "calls")

    @gym_runtime.tool(name="KB_search", adapt=exact)
    def search(self, query: str) -> list[Passage] | Text:
        """Search the bank's documents by words; the best ones are shown in full."""
        return self.library.search(query) or Text("No documents found.")

    @tool
    async def grep(
        self, pattern: Annotated[str, Meta(description="a regular expression, such as 'fee|charge'")]
    ) -> list[Passage] | Text:
        """Search the bank's documents by a regular expression; those with most matches are shown in full."""
        return await self.library.grep(pattern) or Text("No matches found.")

    @tool
    async def shell(
        self, command: Annotated[str, Meta(description="such as 'cat INDEX.md' or 'grep -ril fee .'")]
    ) -> Text:
        """Run a command in a folder that has the bank's documents as files; nothing that it writes stays."""
        return Text(await self.library.shell(command))


def is_write(name: str) -> bool:
    """Whether an unlocked tool changes something."""
    return not name.startswith("get_") and unlockable()[name][0] is not Transfers


@cache
def unlockable() -> Mapping[str, tuple[type, Any]]:
    """The tools that an agent can unlock, with the class of each."""
    sides = (Accounts, DebitCards, CreditCards, Transfers)
    return {name: (side, found) for side in sides for name, found in collect_tools(side).items()}
