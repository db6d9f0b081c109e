"""Writes the example rows, ``workplace_assistant.jsonl``: ``python example_rows.py``.

Run it after a change to the data or to a tool's signature. The ids that a ground truth names are looked
up in the tables here, as the model has to.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from gym_resources.workplace.office import DATA
from gym_resources.workplace_assistant import environment

TARGET = DATA.parent.parent / "workplace_assistant.jsonl"
PRESENT = (
    "It is Thursday, 2023-11-30, 23:59:00; answer as of this date and time. "
    "Meetings must not start before 9:00 or end after 18:00."
)

Call = tuple[str, dict[str, str]]
Fields = dict[str, str]


@cache
def records(name: str) -> list[Fields]:
    """The rows of ``<name>.csv``, unchanged."""
    with (DATA / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _ids(table: str, key: str, fits: Callable[[Fields], bool]) -> list[str]:
    return [record[key] for record in records(table) if fits(record)]


def _address(name: str) -> str:
    return next(
        r["email_address"] for r in records("company_directory") if r["email_address"].startswith(name)
    )


def _directory(name: str) -> Call:
    return "company_directory_find_email_address", {"name": name}


def email() -> tuple[str, list[Call], list[Call]]:
    sent_by_tessa = [
        record
        for record in records("emails")
        if record["inbox/outbox"] == "inbox"
        and record["sender/recipient"] == _address("tessa")
        and "the new laptops" in record["subject"]
    ]
    last = max(sent_by_tessa, key=lambda record: record["sent_datetime"])["email_id"]
    return (
        "Forward Tessa's latest email about the new laptops to Ravi, then delete it from my mailbox.",
        [_directory("ravi"), ("email_search_emails", {"query": "tessa the new laptops"})],
        [
            ("email_forward_email", {"email_id": last, "recipient": _address("ravi")}),
            ("email_delete_email", {"email_id": last}),
        ],
    )


def calendar() -> tuple[str, list[Call], list[Call]]:
    tomorrow = {"time_min": "2023-12-01 00:00:00", "time_max": "2023-12-01 23:59:59"}
    cancelled = _ids(
        "calendar_events",
        "event_id",
        lambda event: (
            event["event_start"].startswith("2023-12-01") and event["event_name"] == "Roadmap session"
        ),
    )
    meeting = {
        "event_name": "Trade fair stand",
        "participant_email": _address("tariq"),
        "event_start": "2023-12-04 14:00:00",
        "duration": "30",
    }
    return (
        "Cancel tomorrow's roadmap sessions, and book half an hour with Tariq next Monday at 14:00. "
        "Call it 'Trade fair stand'.",
        [("calendar_search_events", {"query": "roadmap session", **tomorrow}), _directory("tariq")],
        [
            *[("calendar_delete_event", {"event_id": event}) for event in cancelled],
            ("calendar_create_event", meeting),
        ],
    )


def analytics() -> tuple[str, list[Call], list[Call]]:
    november = {"time_min": "2023-11-01", "time_max": "2023-11-30"}
    visits = [record for record in records("analytics") if record["date_of_visit"] >= "2023-11-01"]
    sources = [visit["traffic_source"] for visit in visits]
    more = (
        "search_engine" if sources.count("search engine") > sources.count("social media") else "social_media"
    )
    return (
        "Did we get more visits from search engines or from social media this month? "
        "Make a bar chart of the visits from whichever is ahead, and a line chart of all visits, both for "
        "the whole of November. Start with the bar chart.",
        [
            ("analytics_traffic_source_count", {**november, "traffic_source": "search engine"}),
            ("analytics_traffic_source_count", {**november, "traffic_source": "social media"}),
        ],
        [
            ("analytics_create_plot", {**november, "value_to_plot": f"visits_{more}", "plot_type": "bar"}),
            ("analytics_create_plot", {**november, "value_to_plot": "total_visits", "plot_type": "line"}),
        ],
    )


def project_management() -> tuple[str, list[Call], list[Call]]:
    hiroto = _address("hiroto")
    due = _ids(
        "project_tasks",
        "task_id",
        lambda task: (
            task["assigned_to_email"] == hiroto
            and task["list_name"] == "In Review"
            and task["due_date"] <= "2023-11-30"
        ),
    )
    message = {"recipient": hiroto, "subject": "Reviews", "body": "Your reviews are done."}
    return (
        "Move those of Hiroto's tasks in review that were due today or earlier to Completed. "
        "Then send him an email with the subject 'Reviews' that says 'Your reviews are done.'",
        [
            (
                "project_management_search_tasks",
                {"assigned_to_email": "hiroto", "list_name": "In Review"},
            )
        ],
        [
            *[
                (
                    "project_management_update_task",
                    {"task_id": task, "field": "list_name", "new_value": "Completed"},
                )
                for task in due
            ],
            ("email_send_email", message),
        ],
    )


def customer_relationship_manager() -> tuple[str, list[Call], list[Call]]:
    wanted = {"assigned_to_email": "kofi", "product_interest": "Training", "status": "Lead"}
    leads = _ids(
        "customers",
        "customer_id",
        lambda customer: all(value in customer[name] for name, value in wanted.items()),
    )
    return (
        "Leila is taking over all of Kofi's leads that are interested in training. Reassign them in the crm.",
        [("customer_relationship_manager_search_customers", wanted), _directory("leila")],
        [
            (
                "customer_relationship_manager_update_customer",
                {"customer_id": lead, "field": "assigned_to_email", "new_value": _address("leila")},
            )
            for lead in leads
        ],
    )


def _arguments(call: Call) -> dict[str, str]:
    name, arguments = call
    return {"name": name, "arguments": msgspec.json.encode(arguments).decode()}


def _row(
    number: int, application: Callable[[], tuple[str, list[Call], list[Call]]], tools: list[dict[str, Any]]
) -> dict[str, Any]:
    request, lookups, actions = application()
    return {
        "id": number,
        "responses_create_params": {
            "input": [{"role": "system", "content": PRESENT}, {"role": "user", "content": request}],
            "tools": tools,
            "parallel_tool_calls": False,
            "temperature": 1.0,
        },
        "ground_truth": [_arguments(call) for call in actions],
        "category": f"workplace_assistant_{application.__name__}",
        "environment_name": "workplace_assistant",
        "office": "brightmoor",
        "gold": [
            *[
                {"type": "function_call", "call_id": f"call_{turn}", **_arguments(call)}
                for turn, call in enumerate([*lookups, *actions])
            ],
            "Done.",
        ],
    }


def main(target: Path = TARGET) -> None:
    """Write the rows."""
    tools = [tool.definition() for tool in environment.build().tools.values()]
    applications = (email, calendar, analytics, project_management, customer_relationship_manager)
    rows = [_row(number, application, tools) for number, application in enumerate(applications)]
    target.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))


if __name__ == "__main__":
    main()
