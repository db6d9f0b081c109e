"""tau2-bench's bank: what the tools do that are unlocked or given, and what the customer does alone."""

from __future__ import annotations

import json

import pytest
from gym_resources.tau2.banking import Bank
from gym_resources.tau2.banking_ledger import TODAY
from gym_resources.tau2.criteria import FAILURES
from resources.benchmarks.banking_rows import Fields, bank, example, stored, use
from tables import table

pytestmark = pytest.mark.anyio
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


@table(
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


@table(
    ("name", "arguments", "said"),
    [
        ("apply_checking_account_credit_5829", {**CREDIT, "account_id": "sav_71"}, "is no checking account"),
        ("apply_checking_account_credit_5829", {**CREDIT, "amount": -1}, "must be above 0"),
        ("apply_checking_account_credit_5829", {**CREDIT, "amount": "nan"}, "finite number"),
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


async def test_a_number_may_be_written_in_two_ways() -> None:
    on = bank()
    for amount in (25, 25.0):
        await given(on, "deposit_check_3847", {"account_id": "sav_71", "check_amount": amount})
    assert len(stored(on, "user_discoverable_tool_calls")) == 1


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
