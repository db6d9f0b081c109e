"""What each tool answers to a request that it cannot fulfil."""

from __future__ import annotations

import pytest
from gym_resources.workplace_assistant import Workplace
from resources.workplace.office import (
    CRM,
    CUSTOMER,
    EVENT,
    PLOT,
    PM,
    TASK,
    call,
    fresh,
    opened,
)
from tables import table

MINUTES = "Duration must be a positive number of minutes."
START = "Event start not valid. Please write it as YYYY-MM-DD HH:MM:SS."
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
calendar_update_event event_id=1 field=duration new_value=30 -> Event ID not valid: it has 8 digits.
calendar_update_event event_id=0000000x field=duration new_value=30 -> Event ID not valid: it has 8 digits.
calendar_delete_event event_id=1 -> Event ID not valid: it has 8 digits.
calendar_update_event event_id=00000001 field=duration new_value=0 -> {MINUTES}
calendar_update_event event_id=00000001 field=duration new_value=1.5 -> {MINUTES}
calendar_update_event event_id=00000001 field=event_start new_value=soon -> {START}
email_forward_email email_id=99999999 recipient=ravi -> Invalid recipient email address.
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
{PM}_update_task task_id=00000001 field=size new_value=1 -> Field not valid.
{CRM}_search_customers -> No search parameters provided. Please provide at least one parameter.
{CRM}_update_customer field=notes -> Customer ID, field, or new value not provided.
{CRM}_update_customer customer_id=99999999 field=notes new_value=x -> Customer not found.
{CRM}_delete_customer -> Customer ID not provided.
{CRM}_delete_customer customer_id=99999999 -> Customer not found.
"""


@table("line", REFUSALS.strip().splitlines())
def test_a_refusal_says_why_and_changes_nothing(line: str) -> None:
    request, expected = line.split(" -> ")
    name, *arguments = request.split(" ")
    office = opened()
    assert call(office, name, **dict(argument.split("=") for argument in arguments)) == expected
    assert office.tables.differing(fresh()) == []


@table(
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
    assert office.tables.differing(fresh()) == []


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
    if application == PM:
        assert call(office, f"{application}_{create}", **{**fields, field: "lost"}) == said
    assert office.tables.differing(fresh()) == []


def test_any_column_can_be_updated_and_no_other(office: Workplace) -> None:
    change = {"customer_id": "00000001", "field": "size", "new_value": "9"}
    said = call(office, f"{CRM}_update_customer", **change)
    assert said.startswith("Field not valid. Please choose from: 'assigned_to_email', 'customer_email', ")
    change = {"customer_id": "00000001", "field": "customer_id", "new_value": "00000002"}
    assert call(office, f"{CRM}_update_customer", **change) == "Customer updated successfully."
    assert call(office, f"{CRM}_update_customer", **change) == "Customer not found."
    change = {"task_id": "00000001", "field": "task_id", "new_value": "x"}
    assert call(office, f"{PM}_update_task", **change) == "Task updated successfully."
    assert call(office, f"{PM}_create_task", **TASK).startswith(f"Error executing tool '{PM}_create_task'")


@pytest.mark.parametrize(
    ("field", "value"), [("duration", "soon"), ("duration", "-5"), ("event_start", "next week")]
)
def test_an_event_has_a_time_and_a_duration(office: Workplace, field: str, value: str) -> None:
    assert "must be" in (said := call(office, "calendar_create_event", **{**EVENT, field: value})) or (
        "not valid" in said
    )
    assert office.tables.differing(fresh()) == []


def test_an_assignee_has_a_task_already(office: Workplace) -> None:
    """Being in the directory is not enough."""
    newcomer = {**TASK, "assigned_to_email": "new.comer@brightmoor.example"}
    assert call(office, f"{PM}_create_task", **newcomer).startswith("Assignee email not valid.")
    busy = call(office, f"{PM}_search_tasks", assigned_to_email=TASK["assigned_to_email"])
    for task in busy:
        call(office, f"{PM}_delete_task", task_id=task["task_id"])
    assert call(office, f"{PM}_create_task", **TASK).startswith("Assignee email not valid.")


def test_a_new_customers_status_and_product_are_not_checked(office: Workplace) -> None:
    odd = {**CUSTOMER, "status": "hot", "product_interest": "Tea"}
    assert call(office, f"{CRM}_add_customer", **odd) == "00000200"


def test_only_some_values_can_be_plotted(office: Workplace) -> None:
    assert call(office, "analytics_create_plot", **{**PLOT, "value_to_plot": "profit"}) == (
        "Value to plot must be one of 'total_visits', 'session_duration_seconds', 'user_engaged', "
        "'visits_direct', 'visits_referral', 'visits_search_engine', 'visits_social_media'."
    )
