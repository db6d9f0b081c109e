"""What each tool answers to a request that it cannot fulfil."""

from __future__ import annotations

import pytest
from gym_resources.workplace.tables import Tables
from gym_resources.workplace_assistant import Workplace
from resources.workplace.office import (
    CRM,
    CUSTOMER,
    EVENT,
    PLOT,
    PM,
    TASK,
    call,
    opened,
)

# A tool, its arguments, and what it answers to them; row 00000001 is in every table, 99999999 in none.
REFUSALS = f"""
company_directory_find_email_address -> Name not provided.
email_get_email_information_by_id field=body -> Email ID not provided.
email_get_email_information_by_id email_id=00000001 -> Field not provided.
email_get_email_information_by_id email_id=99999999 field=body -> Email not found.
email_get_email_information_by_id email_id=00000001 field=size -> Field not found.
email_search_emails query=no-such-word -> No emails found.
email_send_email recipient=a@b.example body=Hi -> Recipient, subject, or body not provided.
email_send_email recipient=ravi subject=Hi body=Hi -> Invalid recipient email address.
email_delete_email -> Email ID not provided.
email_delete_email email_id=99999999 -> Email not found.
email_forward_email email_id=00000001 -> Email ID or recipient not provided.
email_forward_email email_id=99999999 recipient=a@b.example -> Email not found.
email_forward_email email_id=00000001 recipient=ravi -> Invalid recipient email address.
email_reply_email email_id=00000001 -> Email ID or body not provided.
email_reply_email email_id=99999999 body=Hi -> Email not found.
calendar_get_event_information_by_id -> Event ID not provided.
calendar_get_event_information_by_id event_id=00000001 -> Field not provided.
calendar_get_event_information_by_id event_id=99999999 field=duration -> Event not found.
calendar_get_event_information_by_id event_id=00000001 field=room -> Field not found.
calendar_search_events query=no-such-word -> No events found.
calendar_delete_event -> Event ID not provided.
calendar_delete_event event_id=99999999 -> Event not found.
calendar_update_event event_id=00000001 -> Event ID, field, or new value not provided.
calendar_update_event event_id=99999999 field=duration new_value=30 -> Event not found.
calendar_update_event event_id=00000001 field=event_id new_value=30 -> Field not found.
analytics_get_visitor_information_by_id -> Visitor ID not provided.
analytics_get_visitor_information_by_id visitor_id=1 -> Visitor not found.
{PM}_get_task_information_by_id -> Task ID not provided.
{PM}_get_task_information_by_id task_id=00000001 -> Field not provided.
{PM}_get_task_information_by_id task_id=99999999 field=board -> Task not found.
{PM}_get_task_information_by_id task_id=00000001 field=size -> Field not found.
{PM}_search_tasks -> No search parameters provided.
{PM}_delete_task -> Task ID not provided.
{PM}_delete_task task_id=99999999 -> Task not found.
{PM}_update_task task_id=00000001 -> Task ID, field, or new value not provided.
{PM}_update_task task_id=99999999 field=board new_value=Design -> Task not found.
{PM}_update_task task_id=00000001 field=task_id new_value=1 -> Field not valid.
{CRM}_search_customers -> No search parameters provided. Please provide at least one parameter.
{CRM}_update_customer field=notes -> Customer ID, field, or new value not provided.
{CRM}_update_customer customer_id=99999999 field=notes new_value=x -> Customer not found.
{CRM}_delete_customer -> Customer ID not provided.
{CRM}_delete_customer customer_id=99999999 -> Customer not found.
"""


@pytest.mark.parametrize("line", REFUSALS.strip().splitlines())
def test_a_refusal_says_why_and_changes_nothing(line: str) -> None:
    request, expected = line.split(" -> ")
    name, *arguments = request.split(" ")
    office = opened()
    assert call(office, name, **dict(argument.split("=") for argument in arguments)) == expected
    assert office.tables.differing(Tables()) == []


@pytest.mark.parametrize(
    ("name", "fields", "missing", "expected"),
    [
        ("calendar_create_event", EVENT, "event_name", "Event name not provided."),
        ("calendar_create_event", EVENT, "participant_email", "Participant email not provided."),
        ("calendar_create_event", EVENT, "event_start", "Event start not provided."),
        ("calendar_create_event", EVENT, "duration", "Event duration not provided."),
        ("analytics_create_plot", PLOT, "time_min", "Start date not provided."),
        ("analytics_create_plot", PLOT, "time_max", "End date not provided."),
        ("analytics_create_plot", PLOT, "plot_type", "Plot type must be one of "),
        (f"{PM}_create_task", TASK, "board", "Missing task details."),
        (f"{CRM}_add_customer", CUSTOMER, "status", "Please provide all required fields: customer_name, "),
    ],
)
def test_nothing_is_made_without_what_it_needs(
    name: str, fields: dict[str, str], missing: str, expected: str
) -> None:
    office = opened()
    assert call(office, name, **{**fields, missing: None}).startswith(expected)
    assert call(office, name, **{**fields, missing: ""}).startswith(expected)
    assert office.tables.differing(Tables()) == []


LISTS = "'Backlog', 'In Progress', 'In Review', 'Completed'"
BOARDS = "'Back end', 'Front end', 'Design'"
STATUSES = "'Qualified', 'Won', 'Lost', 'Lead', 'Proposal'"
PRODUCTS = "'Software', 'Hardware', 'Services', 'Consulting', 'Training'"


@pytest.mark.parametrize(
    ("update", "key", "create", "fields", "field", "expected"),
    [
        ("update_task", "task_id", "create_task", TASK, "list_name", f"List not valid. {{}}: {LISTS}."),
        ("update_task", "task_id", "create_task", TASK, "board", f"Board not valid. {{}}: {BOARDS}."),
        (
            "update_task",
            "task_id",
            "create_task",
            TASK,
            "assigned_to_email",
            "Assignee email not valid. {} the list of team members.",
        ),
        (
            "update_customer",
            "customer_id",
            "add_customer",
            CUSTOMER,
            "status",
            f"Status not valid. {{}}: {STATUSES}.",
        ),
        (
            "update_customer",
            "customer_id",
            "add_customer",
            CUSTOMER,
            "product_interest",
            f"Product interest not valid. {{}}: {PRODUCTS}.",
        ),
    ],
)
def test_values_outside_a_list_are_refused(
    update: str, key: str, create: str, fields: dict[str, str], field: str, expected: str
) -> None:
    application = PM if key == "task_id" else CRM
    office = opened()
    said = expected.format("Please choose from")
    wrong = {key: "00000001", "field": field, "new_value": "lost"}
    assert call(office, f"{application}_{update}", **wrong) == said
    assert call(office, f"{application}_{create}", **{**fields, field: "lost"}) == said
    assert office.tables.differing(Tables()) == []


def test_ids_cannot_be_updated(office: Workplace) -> None:
    said = call(
        office, f"{CRM}_update_customer", customer_id="00000001", field="customer_id", new_value="00000002"
    )
    assert said == (
        "Field not valid. Please choose from: 'customer_name', 'assigned_to_email', 'customer_email', "
        "'customer_phone', 'last_contact_date', 'product_interest', 'status', 'notes', 'follow_up_by'."
    )


def test_only_some_values_can_be_plotted(office: Workplace) -> None:
    assert call(office, "analytics_create_plot", **{**PLOT, "value_to_plot": "profit"}) == (
        "Value to plot must be one of 'total_visits', 'session_duration_seconds', 'user_engaged', "
        "'visits_direct', 'visits_referral', 'visits_search_engine', 'visits_social_media'."
    )
