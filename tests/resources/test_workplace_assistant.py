"""The office assistant: every tool and what it refuses, and the rule that compares outcomes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gym_resources.workplace.data import examples, generate
from gym_resources.workplace.desk import ACTIONS
from gym_resources.workplace.tables import DATA, Tables, addresses, records
from gym_resources.workplace_assistant import Workplace, WorkplaceTask, environment
from gym_runtime import Reply, Verdict
from gym_runtime.errors import TaskError
from gym_runtime.resource import Resource
from gym_runtime.tools import SERVER_ERROR
from hypothesis import given, settings
from hypothesis import strategies as st

EXAMPLES = Path(examples.TARGET)
NEMO = Path(__file__).parents[3] / "shared/data/nemo_gym_examples/workplace_assistant/example.jsonl"
NEMO_ROWS = NEMO.read_text("utf-8").splitlines() if NEMO.is_file() else []
RAVI = "ravi.joshi@brightmoor.example"
NO_SUCH = "99999999"

Call = tuple[str, dict[str, Any] | str]


@cache
def resource() -> Resource:
    return environment.build()


def row(ground_truth: Iterable[Call] = ()) -> bytes:
    truth = [{"name": name, "arguments": _text(arguments)} for name, arguments in ground_truth]
    return json.dumps({"responses_create_params": {"input": []}, "ground_truth": truth}).encode()


def _text(arguments: dict[str, Any] | str) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def opened() -> Workplace:
    session = asyncio.run(resource().open(row()))
    assert isinstance(session, Workplace)
    return session


def answer(session: Workplace, name: str, arguments: dict[str, Any] | str) -> str:
    return asyncio.run(resource().call_tool(session, name, _text(arguments)))


def call(session: Workplace, name: str, /, **arguments: Any) -> Any:
    """What a tool's answer holds under ``output``, its only field."""
    decoded = json.loads(answer(session, name, arguments))
    assert list(decoded) == ["output"]
    return decoded["output"]


def judge(predicted: Iterable[Call], ground_truth: Iterable[Call]) -> Verdict:
    calls = [
        {"type": "function_call", "call_id": f"c{number}", "name": name, "arguments": _text(arguments)}
        for number, (name, arguments) in enumerate(predicted)
    ]

    async def verdict() -> Verdict:
        session = await resource().open(row(ground_truth))
        return await resource().verify(session, Reply.of(*calls, "Done.").raw)

    return asyncio.run(verdict())


def score(predicted: Iterable[Call], ground_truth: Iterable[Call]) -> float:
    return judge(predicted, ground_truth).reward


@pytest.fixture
def office() -> Workplace:
    return opened()


CRM = "customer_relationship_manager"
PM = "project_management"
EVENT = {
    "event_name": "Tea",
    "participant_email": RAVI,
    "event_start": "2023-12-01 09:00:00",
    "duration": "30",
}
TASK = {
    "task_name": "Tidy up",
    "assigned_to_email": RAVI,
    "list_name": "Backlog",
    "due_date": "2023-12-24",
    "board": "Design",
}
CUSTOMER = {"customer_name": "Ada Brook", "assigned_to_email": RAVI, "status": "Lead"}
PLOT = {
    "time_min": "2023-11-01",
    "time_max": "2023-11-30",
    "value_to_plot": "user_engaged",
    "plot_type": "bar",
}

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


def test_all_27_tools_have_a_description_and_plain_types() -> None:
    definitions = [tool.definition() for tool in resource().tools.values()]
    assert len(definitions) == 27
    assert all(definition["description"] for definition in definitions)
    assert all(definition["parameters"]["required"] == [] for definition in definitions)


def test_only_actions_can_change_a_table() -> None:
    lookups = {
        name for name in resource().tools if any(word in name for word in ("_get_", "_search_", "_find_"))
    }
    counts = {name for name in resource().tools if name.endswith("_count")}
    assert set(resource().tools) - lookups - counts == ACTIONS


# ------------------------------------------------------------------------------ one application after another


def test_directory_finds_parts_of_names_in_any_case(office: Workplace) -> None:
    assert call(office, "company_directory_find_email_address", name="RAVI") == [RAVI]
    assert call(office, "company_directory_find_email_address", name="no-such-name") == []
    assert len(call(office, "company_directory_find_email_address", name="@")) == len(addresses())


def test_one_field_of_an_email_by_its_id(office: Workplace) -> None:
    found = call(office, "email_get_email_information_by_id", email_id="00000001", field="inbox/outbox")
    assert found == {"inbox/outbox": "inbox"}


def test_email_search_matches_every_word_newest_first(office: Workplace) -> None:
    found = call(office, "email_search_emails", query="OFFICE move update", page_size=400)["emails"]
    expected = [email for email in records("emails") if _mentions(email, "office", "move", "update")]
    assert [email["email_id"] for email in found] == [
        email["email_id"]
        for email in sorted(expected, key=lambda email: email["sent_datetime"], reverse=True)
    ]
    assert found


def _mentions(email: dict[str, str], *words: str) -> bool:
    text = "\n".join((email["subject"], email["body"], email["sender/recipient"])).lower()
    return all(word in text for word in words)


def test_email_dates_are_inclusive(office: Workplace) -> None:
    found = call(office, "email_search_emails", date_min="2023-11-29", date_max="2023-11-29")
    assert {email["sent_datetime"][:10] for email in found["emails"]} == {"2023-11-29"}
    everything = call(office, "email_search_emails")["pagination"]["total_emails"]
    before = call(office, "email_search_emails", date_max="2023-11-28")["pagination"]["total_emails"]
    after = call(office, "email_search_emails", date_min="2023-11-30")["pagination"]["total_emails"]
    assert before + found["pagination"]["total_emails"] + after == everything == len(records("emails"))


def test_sent_email_stands_in_the_outbox_at_the_present(office: Workplace) -> None:
    sent = call(office, "email_send_email", recipient=RAVI.upper(), subject="Tea", body="At four?")
    assert sent == "Email sent successfully."
    assert call(office, "email_search_emails", query="tea at four?")["emails"] == [
        {
            "email_id": "00000320",
            "inbox/outbox": "outbox",
            "sender/recipient": RAVI,
            "subject": "Tea",
            "sent_datetime": "2023-11-30 23:59:00",
            "body": "At four?",
        }
    ]


def test_reply_and_forward_keep_the_subject(office: Workplace) -> None:
    original = records("emails")[1]
    assert (
        call(office, "email_reply_email", email_id="00000001", body="Yes.") == "Email replied successfully."
    )
    forwarded = call(office, "email_forward_email", email_id="00000001", recipient=RAVI)
    assert forwarded == "Email forwarded successfully."
    reply, forward = (office.tables.email.get(number) for number in ("00000320", "00000321"))
    assert reply is not None
    assert forward is not None
    assert reply["sender/recipient"] == original["sender/recipient"]
    assert (reply["subject"], reply["body"]) == (original["subject"], "Yes.")
    assert forward["sender/recipient"] == RAVI
    assert (forward["subject"], forward["body"]) == (f"FW: {original['subject']}", original["body"])


def test_deleted_rows_are_gone(office: Workplace) -> None:
    assert call(office, "email_delete_email", email_id="00000001") == "Email deleted successfully."
    assert call(office, "email_delete_email", email_id="00000001") == "Email not found."
    assert call(office, "calendar_delete_event", event_id="00000001") == "Event deleted successfully."
    assert call(office, f"{PM}_delete_task", task_id="00000001") == "Task deleted successfully."
    assert call(office, f"{CRM}_delete_customer", customer_id="00000001") == "Customer deleted successfully."
    fresh = opened()
    assert len(list(fresh.tables.email)) == len(list(office.tables.email)) + 1


def test_event_from_creation_to_update(office: Workplace) -> None:
    event = call(office, "calendar_create_event", **{**EVENT, "participant_email": RAVI.upper()})
    assert event == "00000240"
    changed = call(office, "calendar_update_event", event_id=event, field="event_name", new_value="Coffee")
    assert changed == "Event updated successfully."
    found = call(office, "calendar_search_events", query="coffee ravi")
    assert found["events"] == [{"event_id": event, **EVENT, "event_name": "Coffee"}]


@pytest.mark.parametrize(
    ("time_min", "time_max", "found"),
    [
        ("2030-01-01 09:59:00", None, True),
        ("2030-01-01 10:00:00", None, True),  # it ends at that time
        ("2030-01-01 10:01:00", None, False),
        ("2030-01-01", "2030-01-01 09:00:00", True),
        ("2030-01-01", "2030-01-01 08:59:59", False),
        ("2030-01-01T09:30:00", "2030-01-01T09:40:00", True),
    ],
)
def test_event_times_bound_its_end_and_its_start(
    office: Workplace, time_min: str, time_max: str | None, found: bool
) -> None:
    start = {"event_start": "2030-01-01 09:00:00", "duration": "60"}
    call(office, "calendar_create_event", **{**EVENT, **start})
    events = call(office, "calendar_search_events", time_min=time_min, time_max=time_max)
    assert (events != "No events found.") is found


def test_event_with_a_senseless_duration_ends_where_it_starts(office: Workplace) -> None:
    for duration in ("an hour", "inf", "1e300", "nan"):
        call(office, "calendar_create_event", **{**EVENT, "duration": duration, "event_start": "2031-01-01"})
    assert call(office, "calendar_search_events", time_min="2031-01-02") == "No events found."


def test_events_come_in_the_order_of_their_start(office: Workplace) -> None:
    starts = [e["event_start"] for e in call(office, "calendar_search_events", page_size=50)["events"]]
    assert starts == sorted(starts)
    assert len(starts) == 50


def test_analytics_add_up_per_day(office: Workplace) -> None:
    span = {"time_min": "2023-11-01", "time_max": "2023-11-30"}
    visits = [visit for visit in records("analytics") if visit["date_of_visit"] >= "2023-11-01"]
    total = call(office, "analytics_total_visits_count", **span)
    assert sum(total.values()) == len(visits)
    engaged = call(office, "analytics_engaged_users_count", **span)
    assert sum(engaged.values()) == sum(visit["user_engaged"] == "True" for visit in visits)
    sources = [
        call(office, "analytics_traffic_source_count", **span, traffic_source=source)
        for source in ("direct", "Referral", "search engine", "social media")
    ]
    assert {date: sum(counts[date] for counts in sources) for date in total} == total
    assert call(office, "analytics_traffic_source_count", **span) == total
    average = call(office, "analytics_get_average_session_duration", **span)
    seconds = sum(int(visit["session_duration_seconds"]) for visit in visits)
    assert sum(average[date] * total[date] for date in total) == pytest.approx(seconds)
    assert sum(call(office, "analytics_total_visits_count").values()) == len(records("analytics"))


def test_visits_of_a_visitor(office: Workplace) -> None:
    visitor = records("analytics")[0]["visitor_id"]
    found = call(office, "analytics_get_visitor_information_by_id", visitor_id=visitor)
    assert found == [visit for visit in records("analytics") if visit["visitor_id"] == visitor]


def test_plot_is_a_file_named_after_what_it_shows(office: Workplace) -> None:
    path = "plots/2023-11-01_2023-11-30_user_engaged_bar.png"
    assert call(office, "analytics_create_plot", **PLOT) == path
    assert [row.fields["file_path"] for row in office.tables.plots] == [path]


def test_task_from_creation_to_update(office: Workplace) -> None:
    task = call(office, f"{PM}_create_task", **{**TASK, "assigned_to_email": RAVI.upper()})
    assert task == "00000240"
    changed = {"task_id": task, "field": "list_name", "new_value": "In Review"}
    assert call(office, f"{PM}_update_task", **changed) == "Task updated successfully."
    found = call(office, f"{PM}_get_task_information_by_id", task_id=task, field="list_name")
    assert found == {"list_name": "In Review"}
    assert call(office, f"{PM}_search_tasks", task_name="TIDY", list_name="review", board="design") == [
        {"task_id": task, **TASK, "list_name": "In Review"}
    ]
    assert call(office, f"{PM}_search_tasks", task_name="no-such-task") == []


def test_customer_from_creation_to_update(office: Workplace) -> None:
    customer = call(office, f"{CRM}_add_customer", **CUSTOMER, customer_email="Ada@Brook.example")
    assert customer == "00000200"
    for field, value in (("assigned_to_email", "KOFI.MENSAH@brightmoor.example"), ("status", "Won")):
        change = {"customer_id": customer, "field": field, "new_value": value}
        assert call(office, f"{CRM}_update_customer", **change) == "Customer updated successfully."
    found = call(office, f"{CRM}_search_customers", customer_name="ada brook", status="won")["customers"]
    assert found == [
        {
            "customer_id": customer,
            "assigned_to_email": "kofi.mensah@brightmoor.example",
            "customer_name": "Ada Brook",
            "customer_email": "ada@brook.example",
            "customer_phone": "",
            "last_contact_date": "",
            "product_interest": "",
            "status": "Won",
            "follow_up_by": "",
            "notes": "",
        }
    ]


def test_customer_dates_are_inclusive_and_leave_out_the_undated(office: Workplace) -> None:
    call(office, f"{CRM}_add_customer", **CUSTOMER)
    day = records("customers")[0]["last_contact_date"]
    span = {"last_contact_date_min": day, "last_contact_date_max": day, "page_size": 300}
    found = call(office, f"{CRM}_search_customers", **span)["customers"]
    assert {customer["last_contact_date"] for customer in found} == {day}
    until = call(office, f"{CRM}_search_customers", follow_up_by_max="2030-01-01", page_size=300)["customers"]
    assert len(until) == len(records("customers"))


# ------------------------------------------------------------------------------------------------ any tool


@pytest.mark.parametrize(
    ("name", "kind", "arguments"),
    [
        ("email_search_emails", "emails", {"query": "trade fair"}),
        ("calendar_search_events", "events", {"query": "review"}),
        (f"{CRM}_search_customers", "customers", {"status": "Lead"}),
    ],
)
@pytest.mark.parametrize("size", [1, 4, 300])
def test_pages_cover_everything_once(
    office: Workplace, name: str, kind: str, arguments: dict[str, Any], size: int
) -> None:
    everything = call(office, name, **arguments, page_size=300)
    pages = everything["pagination"][f"total_{kind}"] // size + 2
    found: list[Any] = []
    for page in range(1, pages + 1):
        answered = call(office, name, **arguments, page=page, page_size=size)
        assert answered["pagination"]["page"] == page
        found += answered[kind]
    assert found == everything[kind]
    assert -(-len(found) // size) == answered["pagination"]["total_pages"]
    assert len(call(office, name, **arguments)[kind]) == 5


@pytest.mark.parametrize("wrong", [{"page": 0}, {"page_size": -1}, {"page": 10**30}])
def test_tool_that_raises_answers_with_the_reason(office: Workplace, wrong: dict[str, int]) -> None:
    said = call(office, "email_search_emails", **wrong)
    assert (
        said == "Error executing tool 'email_search_emails': page and page_size must be between 1 and 10000"
    )


def test_bad_date_answers_with_the_reason(office: Workplace) -> None:
    said = call(office, "analytics_total_visits_count", time_min="last week")
    assert said.startswith("Error executing tool 'analytics_total_visits_count': ")


def test_unknown_tool_answers_with_an_error(office: Workplace) -> None:
    assert call(office, "email_burn_email") == (
        "Error executing tool 'email_burn_email': there is no such tool"
    )


def test_null_is_as_good_as_nothing(office: Workplace) -> None:
    name = "email_search_emails"
    assert call(office, name, query="tea", date_min=None, page=None) == call(office, name, query="tea")


def test_wrong_type_is_refused_with_the_reason(office: Workplace) -> None:
    said = answer(office, "calendar_create_event", {**EVENT, "duration": 30})
    assert "$.duration" in said
    assert office.tables.differing(Tables()) == []


def test_sessions_do_not_see_each_other() -> None:
    first, second = opened(), opened()
    call(first, "email_delete_email", email_id="00000001")
    call(second, "email_send_email", recipient=RAVI, subject="Hi", body="Hi")
    assert second.tables.email.get("00000001") is not None
    assert first.tables.email.get("00000320") is None


# ------------------------------------------------------------------------------------------------ the rule

SEND = ("email_send_email", {"recipient": RAVI, "subject": "Tea", "body": "At four?"})
DELETE = ("email_delete_email", {"email_id": "00000003"})
MOVE = (f"{PM}_update_task", {"task_id": "00000001", "field": "list_name", "new_value": "Backlog"})
LOOK = ("email_search_emails", {"query": "tea"})


def changed(original: Call, **changes: str) -> Call:
    name, arguments = original
    assert isinstance(arguments, dict)
    return name, {**arguments, **changes}


@pytest.mark.parametrize(
    ("predicted", "truth", "reward"),
    [
        ([SEND], [SEND], 1.0),
        ([], [SEND], 0.0),
        ([SEND], [], 0.0),
        ([], [], 1.0),
        ([LOOK], [], 1.0),
        ([LOOK, SEND, LOOK], [SEND], 1.0),
        ([SEND, SEND], [SEND], 0.0),
        ([DELETE, DELETE], [DELETE], 1.0),
        ([DELETE, SEND], [SEND, DELETE], 1.0),
        ([SEND, MOVE], [MOVE, SEND], 1.0),
        ([changed(SEND, body="at FOUR?")], [SEND], 1.0),
        ([changed(SEND, body="At five?")], [SEND], 0.0),
        ([changed(SEND, recipient=RAVI.upper())], [SEND], 1.0),
        ([changed(MOVE, new_value="backlog"), MOVE], [MOVE], 1.0),
        ([changed(MOVE, new_value="backlog")], [MOVE], 0.0),
        ([("email_send_email", '{"recipient":'), SEND], [SEND], 1.0),
        ([("email_send_email", '{"recipient": 1}'), SEND], [SEND], 1.0),
        ([("email_send_email", "[]")], [], 1.0),
        ([("no_such_tool", {}), SEND], [SEND], 1.0),
        ([SEND], [("no_such_tool", {}), SEND], 1.0),
        ([], [("email_send_email", "not JSON")], 1.0),
        ([("calendar_create_event", EVENT)], [("calendar_create_event", EVENT)], 1.0),
        (
            [
                ("calendar_create_event", EVENT),
                ("calendar_delete_event", {"event_id": "00000240"}),
                ("calendar_create_event", EVENT),
            ],
            [("calendar_create_event", EVENT)],
            1.0,
        ),
        # What is new is numbered as it is made, so its order matters.
        ([SEND, changed(SEND, body="B")], [changed(SEND, body="B"), SEND], 0.0),
        ([("analytics_create_plot", PLOT)], [("analytics_create_plot", PLOT)], 1.0),
        (
            [("analytics_create_plot", PLOT)],
            [changed(("analytics_create_plot", PLOT), plot_type="line")],
            0.0,
        ),
    ],
)
def test_the_outcome_decides(predicted: list[Call], truth: list[Call], reward: float) -> None:
    assert score(predicted, truth) == reward


@pytest.mark.parametrize(
    ("table", "calls"),
    [
        ("email", [SEND]),
        ("calendar", [("calendar_create_event", EVENT)]),
        ("analytics", [("analytics_create_plot", PLOT)]),
        (PM, [(f"{PM}_create_task", TASK)]),
        (CRM, [(f"{CRM}_add_customer", CUSTOMER)]),
    ],
)
def test_verdict_names_the_tables_that_differ(table: str, calls: list[Call]) -> None:
    assert judge(calls, calls).fields == {"differing_tables": []}
    assert judge([], calls).fields == {"differing_tables": [table]}


@pytest.mark.parametrize("field", ["status", "list_name", "board"])
def test_case_matters_in_three_fields_only(field: str) -> None:
    mine, theirs = Tables(), Tables()
    mine.tasks.update("00000001", field, "WON")
    theirs.tasks.update("00000001", field, "Won")
    assert mine.differing(theirs) == [PM]
    mine.tasks.update("00000001", field, "Won")
    mine.tasks.update("00000001", "task_name", "A NAME")
    theirs.tasks.update("00000001", "task_name", "a name")
    assert mine.differing(theirs) == []


def test_order_of_updates_to_different_rows_does_not_matter() -> None:
    truth = [changed(MOVE, task_id=f"{number:08}") for number in range(4)]
    assert {score(order, truth) for order in permutations(truth)} == {1.0}


# ------------------------------------------------------------------------------------------------ properties

IDS = st.sampled_from(["00000000", "00000001", "00000240", "00000320", NO_SUCH])
TEXTS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["Backlog", "Design", "Lead", "Software", "2023-11-30", "12:00", "Won", RAVI, "notes"]),
)


@st.composite
def calls(draw: st.DrawFn, names: tuple[str, ...] = tuple(resource().tools)) -> Call:
    """A call that is mostly in order."""
    name = draw(st.sampled_from(names))
    arguments: dict[str, Any] = {}
    for parameter in resource().tools[name].definition()["parameters"]["properties"]:
        if parameter.startswith("page"):
            values: st.SearchStrategy[Any] = st.integers(-1, 3)
        elif parameter.endswith("_id"):
            values = IDS
        elif parameter == "field":
            values = st.sampled_from(["status", "board", "list_name", "duration", "notes", "task_id"])
        else:
            values = TEXTS
        if draw(st.integers(0, 9)):
            arguments[parameter] = draw(st.one_of(values, st.none()))
    return name, arguments


@settings(max_examples=60, deadline=None)
@given(st.lists(calls(), max_size=6))
def test_every_call_is_answered_and_replay_rebuilds_the_state(made: list[Call]) -> None:
    first, second = opened(), opened()
    answers = [answer(first, name, arguments) for name, arguments in made]
    assert all(list(json.loads(text)) == ["output"] for text in answers)
    assert [answer(second, name, arguments) for name, arguments in made] == answers
    assert first.tables.differing(second.tables) == []
    assert score(made, made) == 1.0
    untouched = not first.tables.differing(Tables())
    assert score(made, []) == float(untouched)


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(tuple(resource().tools)), text=st.text(max_size=20))
def test_broken_arguments_never_break_a_tool(name: str, text: str) -> None:
    office = opened()
    assert answer(office, name, text) != SERVER_ERROR
    assert score([(name, text)], []) == 1.0


@settings(max_examples=40, deadline=None)
@given(lookup=calls(names=tuple(set(resource().tools) - ACTIONS)))
def test_lookups_change_nothing(lookup: Call) -> None:
    office = opened()
    answer(office, *lookup)
    assert office.tables.differing(Tables()) == []


# --------------------------------------------------------------------------------------- data and rows


def test_tables_are_what_the_script_makes(tmp_path: Path) -> None:
    generate.main(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        path.name: path.read_bytes() for path in DATA.glob("*.csv")
    }


def test_example_rows_are_what_the_script_makes(tmp_path: Path) -> None:
    examples.main(tmp_path / "rows.jsonl")
    assert (tmp_path / "rows.jsonl").read_bytes() == EXAMPLES.read_bytes(), (
        "a tool or a table has changed: run resources/gym_resources/workplace/data/examples.py"
    )


@pytest.mark.parametrize("line", EXAMPLES.read_text("utf-8").splitlines())
def test_gold_fits_into_the_turns_and_every_call_matters(line: str) -> None:
    example = json.loads(line)
    truth = [(item["name"], item["arguments"]) for item in example["ground_truth"]]
    gold = [(item["name"], item["arguments"]) for item in example["gold"] if isinstance(item, dict)]
    assert len(example["gold"]) <= (environment.max_turns or 0)
    assert score(gold, truth) == 1.0
    for position in range(len(truth)):
        assert score(truth[:position] + truth[position + 1 :], truth) == 0.0


@pytest.mark.parametrize(
    "change",
    [
        lambda row: row.pop("ground_truth"),
        lambda row: row.update(ground_truth=None),
        lambda row: row.update(ground_truth=[{"name": "email_send_email"}]),
        lambda row: row.update(ground_truth=[{"name": "email_send_email", "arguments": {}}]),
    ],
)
def test_bad_rows_are_refused(change: Callable[[dict[str, Any]], Any]) -> None:
    bad = json.loads(row([SEND]))
    change(bad)
    with pytest.raises(TaskError, match="ground_truth"):
        resource().task(json.dumps(bad).encode())


@pytest.mark.skipif(not NEMO_ROWS, reason="NeMo Gym's example rows are not here")
@pytest.mark.parametrize("line", NEMO_ROWS)
def test_nemo_gym_rows_are_taken_as_they_are(line: str) -> None:
    theirs = json.loads(line)
    task = resource().task(line.encode())
    assert isinstance(task, WorkplaceTask)
    assert msgspec.to_builtins(task.ground_truth) == theirs["ground_truth"]
    office = opened()
    offered = theirs["responses_create_params"]["tools"]
    assert [tool["name"] for tool in offered] == list(resource().tools)
    for tool in offered:
        definition = resource().tools[tool["name"]].definition()
        assert list(definition["parameters"]["properties"]) == list(tool["parameters"]["properties"])
        assert "output" in json.loads(answer(office, tool["name"], {}))
    truth = [(item["name"], item["arguments"]) for item in theirs["ground_truth"]]
    assert score(truth, truth) == 1.0
