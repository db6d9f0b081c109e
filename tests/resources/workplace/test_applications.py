"""The applications of the office, one after another, on requests that are in order."""

from __future__ import annotations

import pytest
from gym_resources.workplace.data.example_rows import records
from gym_resources.workplace_assistant import Workplace
from resources.workplace.office import CRM, CUSTOMER, EVENT, PLOT, PM, RAVI, TASK, call, opened


def test_directory_finds_parts_of_names_in_any_case(office: Workplace) -> None:
    assert call(office, "company_directory_find_email_address", name="RAVI") == [RAVI]
    assert call(office, "company_directory_find_email_address", name="no-such-name") == []
    assert len(call(office, "company_directory_find_email_address", name="@")) == len(
        records("company_directory")
    )


def test_one_field_of_an_email_by_its_id(office: Workplace) -> None:
    found = call(office, "email_get_email_information_by_id", email_id="00000001", field="inbox/outbox")
    assert found == {"inbox/outbox": records("emails")[1]["inbox/outbox"]}


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
            "email_id": "500",
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
    reply, forward = (office.tables.email.get(number) for number in ("500", "501"))
    assert reply is not None
    assert forward is not None
    assert reply["sender/recipient"] == original["sender/recipient"]
    assert (reply["subject"], reply["body"]) == (f"RE: {original['subject']}", "Yes.")
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
    assert event == "00000300"
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
    task = call(
        office, f"{PM}_create_task", **{**TASK, "assigned_to_email": TASK["assigned_to_email"].upper()}
    )
    assert task == "00000300"
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
            "customer_phone": None,
            "last_contact_date": None,
            "product_interest": None,
            "status": "Won",
            "follow_up_by": None,
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
