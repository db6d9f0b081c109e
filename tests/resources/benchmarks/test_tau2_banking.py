"""tau2-bench's bank: its tools, those that stand in documents, the documents, and what decides the reward."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gym_resources.tau2 import banking_published
from gym_resources.tau2.banking import Bank, BankingTask
from gym_resources.tau2.banking_desk import unlockable
from gym_resources.tau2.banking_ledger import TODAY, digest
from gym_resources.tau2.banking_library import MODES, Document, Index, Library, Limits
from gym_resources.tau2.criteria import FAILURES
from gym_runtime.environment import catalogue
from gym_runtime.environment.replaying import session_of
from gym_runtime.environment.roles import Scripted, ScriptedAnswers
from gym_runtime.environment.verdict import Verdict, make_response
from gym_runtime.errors import AssetMissing, TaskError
from resources.judging import call

pytestmark = pytest.mark.anyio
NAME = "tau2_banking"
Fields = dict[str, Any]
ORDER: Fields = {
    "account_id": "chk_72",
    "user_id": "u72",
    "delivery_option": "rush",
    "delivery_fee": 20,
    "card_design": "Classic",
    "design_fee": 0,
    "shipping_address": "9 Ferry Street",
}
CARD: Fields = {
    "card_id": "dbc_72",
    "last_4_digits": "9026",
    "expiration_date": "11/29",
    "cvv": "710",
    "pin": "2580",
}
CREDIT: Fields = {"account_id": "chk_71", "amount": 2.5, "credit_type": "fee_refund"}
MOVE: Fields = {"source_account_id": "chk_71", "destination_account_id": "sav_71", "amount": 40}
PAY: Fields = {
    "user_id": "u72",
    "checking_account_id": "chk_72",
    "credit_card_account_id": "cc_72",
    "amount": "412.80",
}
LIMIT: Fields = {"credit_card_account_id": "cc_72", "user_id": "u72"}
DISPUTE: Fields = {
    "transaction_id": "txn_5",
    "card_action": "keep_active",
    "card_last_4_digits": "1111",
    "full_name": "Emeka Obi",
    "user_id": "u72",
    "phone": "1",
    "email": "e",
    "address": "a",
    "contacted_merchant": "true",
    "purchase_date": "11/06/2025",
    "issue_noticed_date": "11/07/2025",
    "dispute_reason": "duplicate_charge",
    "resolution_requested": "full_refund",
    "eligible_for_provisional_credit": False,
}
DEBIT: Fields = {
    "transaction_id": "btxn_3",
    "account_id": "chk_71",
    "card_id": "dbc_71",
    "user_id": "u71",
    "dispute_category": "card_not_present_fraud",
    "transaction_date": "11/09/2025",
    "discovery_date": "11/10/2025",
    "disputed_amount": 31.2,
    "transaction_type": "online_purchase",
    "card_in_possession": True,
    "pin_compromised": "no",
    "contacted_merchant": False,
    "police_report_filed": False,
    "written_statement_provided": True,
    "provisional_credit_eligible": True,
    "customer_max_liability_amount": 50,
    "card_action": "keep_active",
}


def example(number: int, **criteria: Any) -> Fields:
    row = json.loads(catalogue.environment(NAME).examples.read_text("utf-8").splitlines()[number - 1])
    row["task"]["evaluation_criteria"] |= criteria
    return row


def task(row: Fields) -> BankingTask:
    found = catalogue.environment(NAME).resource.task(json.dumps(row).encode())
    assert isinstance(found, BankingTask)
    return found


def bank(row: Fields | None = None) -> Bank:
    found = task(row or example(1, actions=[]))
    return Bank(found, found.library())


async def use(on: Bank, name: str, arguments: Fields) -> str:
    """The answer of a tool that is unlocked and called."""
    await on.call("assistant", "unlock_discoverable_agent_tool", json.dumps({"agent_tool_name": name}))
    through = {"agent_tool_name": name, "arguments": json.dumps(arguments)}
    return await on.call("assistant", "call_discoverable_agent_tool", json.dumps(through))


def stored(on: Bank, table: str) -> list[Fields]:
    """What is new or changed in a table."""
    return [record for (where, _), record in on.state.items() if where == table]


@pytest.mark.parametrize(
    ("name", "arguments", "table", "fields"),
    [
        ("apply_checking_account_credit_5829", CREDIT, "accounts", {"current_holdings": "$642.50"}),
        (
            "apply_checking_account_credit_5829",
            CREDIT,
            "bank_account_transaction_history",
            {"amount": 2.5, "type": "fee_refund", "date": TODAY},
        ),
        (
            "apply_savings_account_credit_6831",
            {"account_id": "sav_71", "amount": 1, "credit_type": "goodwill_credit"},
            "accounts",
            {"current_holdings": "1.00"},
        ),
        ("transfer_funds_between_bank_accounts_7291", MOVE, "accounts", {"current_holdings": "$600.00"}),
        (
            "open_bank_account_4821",
            {"user_id": "u71", "account_type": "savings", "account_class": "Gold Account"},
            "accounts",
            {"account_class": "Gold Account", "current_holdings": "0.00", "status": "OPEN"},
        ),
        (
            "close_bank_account_7392",
            {"account_id": "sav_71"},
            "accounts",
            {"status": "CLOSED", "early_closure_fee_waived": False},
        ),
        ("order_debit_card_5739", ORDER, "debit_card_orders", {"delivery_option": "RUSH", "total_fee": 20.0}),
        ("order_debit_card_5739", ORDER, "accounts", {"current_holdings": "1290.50"}),
        (
            "order_debit_card_5739",
            ORDER,
            "debit_cards",
            {"status": "PENDING", "issue_reason": "first_card", "expiration_date": "11/30/2029"},
        ),
        ("activate_debit_card_8293", CARD, "debit_cards", {"status": "ACTIVE", "activated_date": TODAY}),
        (
            "close_debit_card_4721",
            {"card_id": "dbc_71", "reason": "LOST"},
            "debit_cards",
            {"status": "CLOSED", "closure_reason": "lost"},
        ),
        ("freeze_debit_card_3892", {"card_id": "dbc_71"}, "debit_cards", {"status": "FROZEN"}),
        (
            "reset_debit_card_pin_6284",
            {"card_id": "dbc_71", "last_4_digits": "4417", "new_pin": "8052"},
            "debit_cards",
            {"pin_locked": False, "pin_attempts_remaining": 3},
        ),
        (
            "change_debit_card_pin_6285",
            {"card_id": "dbc_71", "current_pin": "1234", "new_pin": "8052"},
            "debit_cards",
            {"pin_last_changed": TODAY},
        ),
        (
            "set_debit_card_recurring_block_7382",
            {"card_id": "dbc_71", "block_recurring": True},
            "debit_cards",
            {"recurring_blocked": True},
        ),
        (
            "request_temporary_debit_card_limit_increase_8374",
            {"card_id": "dbc_71", "limit_type": "atm", "new_limit": 750.0},
            "debit_cards",
            {"daily_atm_limit": 750, "original_atm_limit": 500},
        ),
        (
            "file_debit_card_transaction_dispute_6281",
            DEBIT,
            "debit_card_disputes",
            {"is_fraud_category": True, "provisional_credit_amount": 31.2, "status": "OPEN"},
        ),
        (
            "file_credit_card_transaction_dispute_4829",
            DISPUTE,
            "transaction_disputes",
            {"contacted_merchant": True, "partial_refund_amount": None, "status": "SUBMITTED"},
        ),
        (
            "update_transaction_rewards_3847",
            {"transaction_id": "txn_5", "new_rewards_earned": "480 points"},
            "credit_card_transaction_history",
            {"rewards_earned": "480 points"},
        ),
        (
            "order_replacement_credit_card_7291",
            {**LIMIT, "shipping_address": "a", "reason": "lost"},
            "credit_card_accounts",
            {"status": "CLOSED", "closed_date": TODAY},
        ),
        (
            "log_credit_card_closure_reason_4521",
            {**LIMIT, "closure_reason": "annual_fee"},
            "credit_card_closure_reasons",
            {"closure_reason": "annual_fee", "status": "LOGGED"},
        ),
        ("close_credit_card_account_7834", LIMIT, "credit_card_accounts", {"closed_by": "u72"}),
        (
            "apply_statement_credit_8472",
            {**LIMIT, "amount": 25, "reason": "retention_offer"},
            "credit_card_transaction_history",
            {"transaction_amount": "-$25.00", "credit_reason": "retention_offer"},
        ),
        (
            "apply_credit_card_account_flag_6147",
            {**LIMIT, "flag_type": "annual_fee_waived", "expiration_date": "11/14/2026", "reason": "other"},
            "credit_card_account_flags",
            {"effective_date": TODAY, "status": "ACTIVE"},
        ),
        ("pay_credit_card_from_checking_9182", PAY, "accounts", {"current_holdings": "897.70"}),
        ("pay_credit_card_from_checking_9182", PAY, "credit_card_accounts", {"current_balance": "$0.00"}),
        (
            "submit_credit_limit_increase_request_7392",
            {**LIMIT, "requested_increase_amount": 2500.0},
            "credit_limit_increase_requests",
            {"requested_increase_amount": 2500, "status": "PENDING"},
        ),
        (
            "approve_credit_limit_increase_5847",
            {**LIMIT, "new_credit_limit": 5500},
            "credit_limit_increase_requests",
            {"previous_limit": "$3000.00", "increase_amount": "$2500.00", "status": "APPROVED"},
        ),
        (
            "deny_credit_limit_increase_5848",
            {**LIMIT, "denial_reason": "high_utilization"},
            "credit_limit_increase_requests",
            {"denial_reason": "high_utilization", "status": "DENIED"},
        ),
    ],
)
async def test_what_unlocked_tools_change(name: str, arguments: Fields, table: str, fields: Fields) -> None:
    on = bank()
    assert not (await use(on, name, arguments)).startswith(("Refused", *FAILURES))
    assert any(fields.items() <= record.items() for record in stored(on, table)), stored(on, table)
    assert stored(on, "agent_discoverable_tools") == [{"tool_name": name, "status": "CALLED"}]


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("apply_checking_account_credit_5829", {**CREDIT, "account_id": "sav_71"}, "is no checking account"),
        ("apply_checking_account_credit_5829", {**CREDIT, "amount": -1}, "must be above 0"),
        ("apply_checking_account_credit_5829", {**CREDIT, "amount": "nan"}, "must be above 0"),
        ("apply_checking_account_credit_5829", {**CREDIT, "credit_type": "gift"}, "validation_error"),
        ("transfer_funds_between_bank_accounts_7291", {**MOVE, "amount": 641}, "insufficient funds"),
        (
            "transfer_funds_between_bank_accounts_7291",
            {**MOVE, "destination_account_id": "chk_71"},
            "the same",
        ),
        (
            "open_bank_account_4821",
            {"user_id": "u71", "account_type": "business_savings", "account_class": "x"},
            "requirements",
        ),
        ("close_bank_account_7392", {"account_id": "chk_71"}, "must be $0.00"),
        ("get_atm_deposit_images_8473", {"transaction_id": "btxn_1"}, "is no deposit"),
        ("order_debit_card_5739", {**ORDER, "account_id": "chk_71", "user_id": "u71"}, "has an active card"),
        ("order_debit_card_5739", {**ORDER, "user_id": "u71"}, "does not belong"),
        ("order_debit_card_5739", {**ORDER, "delivery_fee": 2000}, "insufficient funds"),
        ("activate_debit_card_8291", CARD, "activate_debit_card_8293 activates it"),
        ("activate_debit_card_8293", {**CARD, "pin": "4321"}, "must not be a sequence"),
        ("activate_debit_card_8293", {**CARD, "pin": "7777"}, "must not be a sequence"),
        ("activate_debit_card_8293", {**CARD, "cvv": "71"}, "exactly 3 digits"),
        ("activate_debit_card_8293", {**CARD, "last_4_digits": "0000"}, "not those of the card"),
        ("unfreeze_debit_card_3893", {"card_id": "dbc_71"}, "is ACTIVE, not FROZEN"),
        (
            "clear_debit_card_fraud_alert_4892",
            {"card_id": "dbc_71", "reason": "velocity_clear"},
            "not blocked",
        ),
        (
            "request_temporary_debit_card_limit_increase_8374",
            {"card_id": "dbc_71", "limit_type": "atm", "new_limit": 751},
            "above $500 and at most $750",
        ),
        (
            "request_temporary_debit_card_limit_increase_8374",
            {"card_id": "dbc_71", "limit_type": "purchase", "new_limit": 10},
            "no limit for purchase",
        ),
        (
            "file_credit_card_transaction_dispute_4829",
            {**DISPUTE, "resolution_requested": "partial_refund"},
            "needs partial_refund_amount",
        ),
        ("pay_credit_card_from_checking_9182", {**PAY, "amount": 412.81}, "more than what is owed"),
        (
            "submit_credit_limit_increase_request_7392",
            {**LIMIT, "requested_increase_amount": 0.5},
            "Expected `int`",
        ),
        ("close_credit_card_account_7834", {**LIMIT, "credit_card_account_id": "x" * 10**6}, "not found"),
    ],
)
async def test_what_the_bank_refuses_changes_nothing_but_is_noted(
    name: str, arguments: Fields, said: str
) -> None:
    on = bank()
    answer = await use(on, name, arguments)
    assert said in answer
    assert not answer.startswith(FAILURES)
    noted = (
        []
        if name.startswith("get_")
        else [("agent_discoverable_tools", {"tool_name": name, "status": "CALLED"})]
    )
    assert [(table, record) for (table, _), record in on.state.items()] == noted


async def test_activation_retires_the_other_cards() -> None:
    row = example(1, actions=[])
    row["database"]["debit_cards"]["dbc_72"] |= {"account_id": "chk_71", "issue_reason": "stolen"}
    on = bank(row)
    assert "ACTIVE" in await use(on, "activate_debit_card_8292", CARD)
    statuses = {card["card_id"]: card["status"] for card in stored(on, "debit_cards")}
    assert statuses == {"dbc_72": "ACTIVE", "dbc_71": "DEACTIVATED"}


async def test_an_early_closure_costs_its_fee() -> None:
    row = example(1, actions=[])
    account = row["database"]["accounts"]["chk_71"]
    account |= {"date_opened": "10/01/2025", "current_holdings": "$25.00"}
    assert "CLOSED" in await use(bank(row), "close_bank_account_7392", {"account_id": "chk_71"})
    account["current_holdings"] = "0"
    assert "cannot be closed" in await use(bank(row), "close_bank_account_7392", {"account_id": "chk_71"})
    waived = {"account_id": "chk_71", "waive_early_closure_fee": True}
    assert "CLOSED" in await use(bank(row), "close_bank_account_7392", waived)


async def test_a_balance_with_a_dollar_sign_orders_no_card() -> None:
    """As in the authors' program, where a credit leaves such a balance."""
    on = bank()
    await use(on, "apply_checking_account_credit_5829", {**CREDIT, "account_id": "chk_72"})
    assert "it holds $0.00" in await use(on, "order_debit_card_5739", ORDER)


async def test_transactions_are_shown_newest_first() -> None:
    shown = json.loads(await use(bank(), "get_bank_account_transactions_9173", {"account_id": "chk_71"}))
    assert [one["transaction_id"] for one in shown] == ["btxn_3", "btxn_1", "btxn_2"]


def test_ids_are_those_of_the_published_database() -> None:
    assert digest("debit_card:chk_cec8333d41_green:cec8333d41:03/20/2022", 12) == "31839d9c1891"
    assert digest("account:jm60a8b9c2:checking:Green Account") == "58d57780cc15e32d"


READ = "get_all_user_accounts_by_user_id_3847"
EXPECTED = [
    {"name": "call_discoverable_agent_tool", "arguments": {"agent_tool_name": READ, "arguments": "{}"}}
]


@pytest.mark.parametrize(("actions", "count"), [([], 0), (EXPECTED, 1)])
async def test_a_reading_call_is_noted_where_the_task_expects_it(actions: list[Fields], count: int) -> None:
    on = bank(example(1, actions=actions))
    assert "chk_71" in await use(on, READ, {"user_id": "u71"})
    assert len(on.state) == count


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("unlock_discoverable_agent_tool", {"agent_tool_name": "x" * 10**6}, "Refused: there is no tool"),
        (
            "call_discoverable_agent_tool",
            {"agent_tool_name": READ, "arguments": "{}"},
            "unlock it with unlock_discoverable_agent_tool",
        ),
        ("give_discoverable_user_tool", {"discoverable_tool_name": READ}, "for customers"),
        (
            "give_discoverable_user_tool",
            {"discoverable_tool_name": "deposit_check_3847", "arguments": '{"x": 1}'},
            "no argument 'x'",
        ),
        ("change_user_email", {"user_id": "u9", "new_email": "x"}, "Refused: there is no such user"),
        ("get_user_information_by_name", {"customer_name": "hanna brandt"}, "No users found."),
        ("get_user_information_by_id", {"user_id": '", "name": "'}, "No users found."),
        ("transfer_to_human_agents", {"summary": "", "reason": "boredom"}, "validation_error"),
        ("get_current_time", {"zone": "EST"}, "Error: get_current_time has no argument 'zone'"),
        (READ, {"user_id": "u71"}, "Error: there is no such tool"),
    ],
)
async def test_calls_that_are_refused_leave_nothing(name: str, arguments: Fields, said: str) -> None:
    on = bank()
    assert said in await on.call("assistant", name, json.dumps(arguments))
    assert on.state == {}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("{", "no JSON object"),
        ("[" * 100_000, "no JSON object"),
        ('["u71"]', "no JSON object"),
        ("{}", "needs the argument 'user_id'"),
        ('{"user_id": "u71", "limit": 3}', "has no argument 'limit'"),
        ('{"user_id": ' + "9" * 5000 + "}", "no JSON object"),
        ('{"user_id": {"a": [1]}}', "validation_error"),
    ],
)
async def test_hostile_arguments_of_an_unlocked_tool(arguments: str, said: str) -> None:
    on = bank()
    await on.call("assistant", "unlock_discoverable_agent_tool", json.dumps({"agent_tool_name": READ}))
    through = {"agent_tool_name": READ, "arguments": arguments}
    began = time.process_time()
    answer = await on.call("assistant", "call_discoverable_agent_tool", json.dumps(through))
    assert said in answer
    assert time.process_time() - began < 0.25
    assert not answer.startswith(FAILURES)


def test_every_tool_that_can_be_unlocked_is_described() -> None:
    assert len(unlockable()) == 43
    for name, (_, found) in unlockable().items():
        definition = found.definition()
        assert definition["name"] == name
        assert definition["description"].endswith(".")


async def given(on: Bank, name: str, arguments: Fields) -> str:
    await on.call("assistant", "give_discoverable_user_tool", json.dumps({"discoverable_tool_name": name}))
    through = {"discoverable_tool_name": name, "arguments": json.dumps(arguments)}
    return await on.call("user", "call_discoverable_user_tool", json.dumps(through))


@pytest.mark.parametrize(
    ("name", "arguments", "said", "table"),
    [
        ("deposit_check_3847", {"account_id": "sav_71", "check_amount": 25}, '"$25.00"', "accounts"),
        ("get_referral_link", {"user_id": "u71", "card_name": "Gold Rewards Card"}, "refer/", "referrals"),
        (
            "submit_cash_back_dispute_0589",
            {"user_id": "u72", "transaction_id": "txn_5"},
            "SUBMITTED",
            "cash_back_disputes",
        ),
        ("get_card_last_4_digits", {"credit_card_account_id": "cc_72"}, "", ""),
    ],
)
async def test_a_customer_uses_what_the_agent_gave(
    name: str, arguments: Fields, said: str, table: str
) -> None:
    on = bank()
    through = json.dumps({"discoverable_tool_name": name, "arguments": json.dumps(arguments)})
    assert "has not given" in await on.call("user", "call_discoverable_user_tool", through)
    assert on.state == {}
    assert said in await given(on, name, arguments)
    assert {"user_discoverable_tools", "user_discoverable_tool_calls", *filter(None, [table])} == {
        one for one, _ in on.state
    }


async def test_a_customers_call_is_noted_before_it_is_refused_as_for_the_authors() -> None:
    on = bank()
    assert "above 0" in await given(on, "deposit_check_3847", {"account_id": "sav_71", "check_amount": -1})
    assert stored(on, "user_discoverable_tool_calls")


@pytest.mark.parametrize(
    ("name", "arguments", "table", "fields"),
    [
        (
            "apply_for_credit_card",
            {"card_type": "EcoCard", "customer_name": "A", "annual_income": 100000},
            "credit_card_applications",
            {"annual_income": 100000.0, "rho_bank_subscription": False, "status": "PENDING"},
        ),
        (
            "submit_referral",
            {"user_id": "u71", "account_type": "Blue Account"},
            "referrals",
            {"referral_status": "NO_PROGRESS"},
        ),
        ("request_human_agent_transfer", {}, "human_transfer_requests", {"request_number": 1}),
        (
            "submit_transaction",
            {
                "user_id": "u71",
                "credit_card_type": "Silver Rewards Card",
                "merchant_name": "M",
                "amount": 10.5,
                "category": "Travel",
            },
            "credit_card_transaction_history",
            {"rewards_earned": "42 points", "transaction_amount": "$10.50"},
        ),
    ],
)
async def test_what_a_customer_does_alone(name: str, arguments: Fields, table: str, fields: Fields) -> None:
    on = bank()
    answer = await on.call("user", name, json.dumps(arguments))
    assert not answer.startswith(FAILURES)
    assert [fields.items() <= record.items() for record in stored(on, table)] == [True]


@pytest.mark.parametrize("way", MODES)
def test_the_agent_has_the_tools_of_the_rows_way(way: str) -> None:
    row = example(1)
    row["config"]["retrieval_config"] = way
    offered = bank(row).offered("assistant")
    assert {name for name in offered if name in ("KB_search", "grep")} == set(MODES[way])
    assert (
        bank({**row, "retrieval": "no_knowledge"}).offered("assistant").keys() & {"KB_search", "grep"}
        == set()
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"config": {"domain": "telecom"}}, "is 'telecom', not 'banking_knowledge'"),
        ({"retrieval": "openai_embeddings_grep"}, "needs a model of embeddings"),
        ({"retrieval": "bm25_reranker"}, "needs a language model that ranks"),
        ({"retrieval": "terminal_use"}, "needs a shell"),
        ({"retrieval": "alltools-qwen"}, "--set retrieval=NAME"),
        ({"retrieval": "telepathy"}, "is unknown; one of no_knowledge"),
    ],
)
def test_ways_that_do_not_run_here_are_refused_with_the_remedy(change: Fields, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        task(example(1) | change)


def test_a_task_may_begin_with_other_data() -> None:
    row = example(1, actions=[])
    row["task"]["initial_state"] = {
        "initialization_data": {
            "agent_data": {
                "accounts": {"data": {"chk_71": {"status": "CLOSED"}}},
                "users": {"data": {"u9": {"user_id": "u9", "name": "New"}}},
            },
            "user_data": None,
        }
    }
    on = bank(row)
    closed = on.records.find("accounts", "chk_71")
    assert closed
    assert (closed["status"], closed["user_id"]) == ("CLOSED", "u71")
    assert on.records.find("users", "u9") == {"user_id": "u9", "name": "New"}
    row["task"]["initial_state"] = {"initialization_data": {"agent_data": {"accounts": [1]}}}
    with pytest.raises(TaskError, match="Expected `object`"):
        task(row)


TEXTS = ["the fee of a card", "the card card", "the weather", "the bank", "a loan"]
SMALL = Library([Document(f"d{n}", f"T{n}", text) for n, text in enumerate(TEXTS)], Limits(top_k=2))


@pytest.mark.parametrize(
    ("query", "found"),
    [("card", ["d1", "d0"]), ("FEE card", ["d0", "d1"]), ("weather", ["d2"]), ("nothing", []), ("", [])],
)
def test_documents_are_found_by_words(query: str, found: list[str]) -> None:
    assert [passage.id for passage in SMALL.search(query)] == found


def test_scores_are_those_of_bm25_as_rank_bm25_counts_them() -> None:
    scores = Index(TEXTS).scores("card the")
    assert {number: round(score, 6) for number, score in scores.items()} == {
        0: 0.365572,
        1: 0.623311,
        2: 0.18172,
        3: 0.18172,
    }


async def test_documents_are_found_by_an_expression() -> None:
    found = await SMALL.grep("CARD|fee")
    assert [(one.id, one.score) for one in found] == [("d0", 2.0), ("d1", 2.0)]
    assert await SMALL.grep("x{9}") == []
    answer = await Bank(task(example(1)), SMALL).call("assistant", "grep", '{"pattern": "("}')
    assert answer == "Error: this is no regular expression"


@pytest.mark.slow
async def test_an_expression_that_backtracks_is_stopped() -> None:
    on = Bank(task(example(1)), Library([Document("d", "T", "a" * 60 + "b")], Limits()))
    assert "took longer" in await on.call("assistant", "grep", '{"pattern": "(a|aa)+$"}')
    assert "longer than 2000" in await on.call("assistant", "KB_search", json.dumps({"query": "a " * 5000}))


def uses(name: str, **arguments: Any) -> Fields:
    """The customer calls a tool."""
    return {"output": [call(name, arguments, "u")]}


async def judged(
    row: Fields, turns: Sequence[Any], *customer: Scripted, judge: Sequence[Scripted] = ()
) -> Verdict:
    """The verdict on a conversation whose customer's part is written."""
    resource = catalogue.environment(NAME).resource
    models = ScriptedAnswers({"user": customer, "judge": judge}).models(resource.roles)
    output: list[Any] = []
    async with session_of(resource, json.dumps(row).encode(), models) as session:
        await resource.reset(session)
        for turn in turns:
            step = await resource.step(session, make_response(turn))
            output += [turn, *(msgspec.json.decode(item) for item in step.items)]
        found = await resource.verify(session, make_response(*output))
    assert isinstance(found, Verdict)
    return found


def gold(number: int) -> tuple[Fields, list[Any], list[Any]]:
    row = example(number)
    played = row.pop("gold")
    return row, played["turns"], played["roles"]["user"]


def replaced(turns: list[Any], old: str, new: str) -> list[Any]:
    return json.loads(json.dumps(turns).replace(old, new))


EXTRA = [
    call("unlock_discoverable_agent_tool", {"agent_tool_name": "get_user_dispute_history_7291"}, "x1"),
    call(
        "call_discoverable_agent_tool",
        {"agent_tool_name": "get_user_dispute_history_7291", "arguments": '{"user_id": "u71"}'},
        "x2",
    ),
]


@pytest.mark.parametrize(
    ("amount", "extra", "reward"),
    [
        ("2.5", [], 1.0),
        (r"\"2.50\"", [], 1.0),
        ("2.4", [], 0.0),
        ("2.5", EXTRA, 1.0),
        ("2.5", [call("give_discoverable_user_tool", {"discoverable_tool_name": "get_referral_link"})], 0.0),
        ("2.5", [call("change_user_email", {"user_id": "u71", "new_email": "x"})], 0.0),
    ],
)
async def test_the_database_decides(amount: str, extra: list[Any], reward: float) -> None:
    row, turns, customer = gold(1)
    played: list[Any] = [
        {**turn, "arguments": turn["arguments"].replace(r"amount\": 2.5", rf"amount\": {amount}")}
        if isinstance(turn, dict)
        else turn
        for turn in turns
    ]
    assert (played == turns) == (amount == "2.5")
    assert (await judged(row, [*played[:-1], *extra, played[-1]], *customer)).reward == reward


async def test_a_customer_calls_only_what_it_knows_of() -> None:
    row, turns, customer = gold(4)
    assert (await judged(row, turns, *customer)).reward == 1.0
    row["task"]["user_tools"] = []
    assert (await judged(row, turns, *customer)).reward == 0.0


async def test_a_judge_and_the_calls_decide_where_the_task_says_so() -> None:
    row, turns, customer = gold(5)
    assert (await judged(row, turns, *customer, judge=["[[holds]]"])).reward == 1.0
    assert (await judged(row, turns, *customer, judge=["[[does not hold]]"])).reward == 0.0
    other = replaced(turns, "account_ownership_dispute", "other")
    assert (await judged(row, other, *customer)).reward == 0.0


def publish(place: Path) -> None:
    """A folder such as the authors'."""
    folder = place / banking_published.PLACE
    (folder / "prompts/components").mkdir(parents=True)
    for name in banking_published.COMPONENTS:
        (folder / f"prompts/components/{name}.md").write_text(f"# {name}")
    (folder / "db.json").write_text('{"users": {"data": {"u1": {"user_id": "u1"}}, "notes": ""}}')
    for name, files in {
        "documents": {
            "b": {"id": "b", "title": "B", "content": "fees"},
            "a": {"id": "a", "title": "A", "content": "x"},
        },
        "tasks": {"task_002": served("task_002", ["b"]), "task_001": served("task_001", ["gone"])},
    }.items():
        (folder / name).mkdir()
        for key, record in files.items():
            (folder / name / f"{key}.json").write_text(json.dumps(record))


def served(key: str, documents: list[str]) -> Fields:
    return {
        "id": key,
        "user_scenario": {"persona": None, "instructions": "You want a card."},
        "initial_state": None,
        "evaluation_criteria": {"actions": [], "reward_basis": ["DB"]},
        "user_tools": ["apply_for_credit_card"],
        "required_documents": documents,
    }


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    publish(tmp_path)
    monkeypatch.setenv("GYM_TAU2", str(tmp_path))
    return tmp_path


def test_published_files_are_read(published: Path) -> None:
    assert banking_published.tables() == {"users": {"u1": {"user_id": "u1"}}}
    assert [one.id for one in banking_published.library(Limits()).search("fees")] == ["b"]
    (row,) = [
        one for one in rows("bm25", "{{component:policy_header}}\n…") if one["id"] == "banking_task_002"
    ]
    found = task({**row, "agent_ref": {"name": "tau2_agent"}})
    assert (found.way, found.tables()) == ("bm25", banking_published.tables())
    found.check_assets()


def rows(way: str, template: str) -> list[Fields]:
    texts = iter([{"text": f"# {name}"}] for name in banking_published.COMPONENTS)
    return list(banking_published.rows(way, iter([{"text": template}]), *map(iter, texts)))


@pytest.mark.parametrize(
    ("way", "template", "policies"),
    [
        ("full_kb", "{{full_knowledge_base}}", ["## A\n\nx\n\n---\n\n## B\n\nfees"] * 2),
        ("golden_retrieval", "{{required_documents}}", ["(No documents provided)", "## B\n\nfees"]),
        (
            "bm25",
            "{{component:policy_header}} {{component:other}}",
            ["# policy_header {{component:other}}"] * 2,
        ),
    ],
)
@pytest.mark.usefixtures("published")
def test_rows_have_the_prompt_of_their_way(way: str, template: str, policies: list[str]) -> None:
    found = rows(way, template)
    assert [row["id"] for row in found] == ["banking_task_001", "banking_task_002"]
    systems = [row["responses_create_params"]["input"][0]["content"] for row in found]
    assert [system.partition("<policy>\n")[2].removesuffix("\n</policy>") for system in systems] == policies
    assert {row["config"]["retrieval_config"] for row in found} == {way}


def test_without_the_files_one_line_says_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GYM_TAU2", str(tmp_path))
    row = example(1)
    del row["documents"]
    with pytest.raises(AssetMissing, match=r"gym-runtime prepare --assets tau2_banking, or set GYM_TAU2"):
        task(row).check_assets()
    row["retrieval"] = "full_kb"
    task(row).check_assets()  # its documents are in the prompt
