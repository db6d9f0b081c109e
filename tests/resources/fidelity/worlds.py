"""Rules of the environments with a state: the office and the game."""

from __future__ import annotations

import json
from typing import Any

from resources.fidelity.rules import Item, Rule, Worth, made, printed

Case = tuple[Item | list[Item], Worth]
Call = tuple[str, dict[str, Any]]


def office(says: str, truth: list[Call], *cases: tuple[list[Call], float]) -> Rule:
    task = {
        "office": "brightmoor",
        "ground_truth": [{"name": name, "arguments": json.dumps(given)} for name, given in truth],
    }
    replies: list[Case] = [([made(*call) for call in calls], worth) for calls, worth in cases]
    return Rule(environment="workplace_assistant", says=says, task=task, cases=replies)


def customer(**changes: Any) -> Call:
    fields = {
        "customer_name": "Ada Brook",
        "assigned_to_email": "ravi.joshi@brightmoor.example",
        "status": "Lead",
    }
    return "customer_relationship_manager_add_customer", {**fields, **changes}


def task(**changes: Any) -> Call:
    fields = {
        "task_name": "Sweep",
        "assigned_to_email": "dmitri.volkov@brightmoor.example",
        "list_name": "Backlog",
        "due_date": "2023-12-24",
        "board": "Design",
    }
    return "project_management_create_task", {**fields, **changes}


def event(**changes: Any) -> Call:
    fields = {
        "event_name": "Tea",
        "participant_email": "ravi.joshi@brightmoor.example",
        "event_start": "2023-12-01 09:00:00",
        "duration": "30",
    }
    return "calendar_create_event", {**fields, **changes}


def mail(body: str = "At four.") -> Call:
    return "email_send_email", {"recipient": "ann@elsewhere.example", "subject": "Tea", "body": body}


def gone(kind: str, noun: str, key: str = "00000002") -> Call:
    return f"{kind}_delete_{noun}", {f"{noun}_id": key}


def updated(kind: str, noun: str, field: str, value: str, key: str = "00000002") -> Call:
    return f"{kind}_update_{noun}", {f"{noun}_id": key, "field": field, "new_value": value}


CRM, BOARD = "customer_relationship_manager", "project_management"
OFFICE = [
    office(
        "add_customer checks neither status nor product",
        [customer(status="Whatever", product_interest="Pears")],
        ([customer(status="Whatever", product_interest="Pears")], 1.0),
        ([], 0.0),
    ),
    office(
        "fields of a new customer that are missing are null, only the notes are an empty text",
        [customer()],
        ([customer(notes="", customer_phone=None)], 1.0),
        ([customer(notes=None)], 0.0),
        ([customer(customer_phone="")], 0.0),
    ),
    office(
        "update_customer accepts any column, the id too",
        [updated(CRM, "customer", "customer_id", "00009999")],
        ([updated(CRM, "customer", "customer_id", "00009999")], 1.0),
        ([], 0.0),
        ([updated(CRM, "customer", "shoe_size", "43")], 0.0),
    ),
    office(
        "update_task accepts any column, the id too",
        [updated(BOARD, "task", "task_id", "00009999")],
        ([updated(BOARD, "task", "task_id", "00009999")], 1.0),
        ([], 0.0),
    ),
    office(
        "create_task and update_task want an assignee who has a task, not an entry of the directory",
        [],
        ([task(assigned_to_email="ravi.joshi@brightmoor.example")], 1.0),
        ([updated(BOARD, "task", "assigned_to_email", "ravi.joshi@brightmoor.example")], 1.0),
        ([task()], 0.0),
    ),
    office(
        "create_event wants a time to start at and a positive whole number of minutes",
        [],
        *(([event(event_start=start)], 1.0) for start in ("tomorrow", "2023-13-01 09:00:00")),
        *(([event(duration=duration)], 1.0) for duration in ("0", "-5", "1.5", "long")),
        ([event(event_start="2023-12-01")], 0.0),
        ([event(duration=45)], 0.0),
    ),
    office(
        "update_event checks the same",
        [],
        ([updated("calendar", "event", "event_start", "soon")], 1.0),
        ([updated("calendar", "event", "duration", "0")], 1.0),
        ([updated("calendar", "event", "duration", "7")], 0.0),
    ),
    office(
        "ids of events have eight digits",
        [],
        ([gone("calendar", "event", "2")], 1.0),
        ([updated("calendar", "event", "duration", "7", key="2")], 1.0),
        ([gone("calendar", "event", "00000002")], 0.0),
    ),
    office(
        "null arguments are passed on as null: a task without an assignee changes nothing",
        [],
        ([task(assigned_to_email=None)], 1.0),
        ([event(duration=None)], 1.0),
    ),
    office(
        "a call with an unknown argument fails",
        [],
        ([(*mail()[:1], {**mail()[1], "urgent": True})], 1.0),
        ([customer(shoe_size=43)], 1.0),
    ),
    office(
        "inserting a mail renumbers the mails, so its place among deletions matters",
        [mail(), gone("email", "email")],
        ([mail(), gone("email", "email")], 1.0),
        ([gone("email", "email"), mail()], 0.0),
    ),
    office(
        "inserting a task renumbers the tasks",
        [gone(BOARD, "task"), task()],
        ([gone(BOARD, "task"), task()], 1.0),
        ([task(), gone(BOARD, "task")], 0.0),
    ),
    office(
        "inserting a customer renumbers the customers",
        [gone(CRM, "customer"), customer()],
        ([gone(CRM, "customer"), customer()], 1.0),
        ([customer(), gone(CRM, "customer")], 0.0),
    ),
    office(
        "inserting an event renumbers nothing",
        [gone("calendar", "event"), event()],
        ([event(), gone("calendar", "event")], 1.0),
    ),
    office(
        "a new task's id is the highest text plus 1, in eight digits",
        [updated(BOARD, "task", "task_id", "9"), task(), gone(BOARD, "task", "00000010")],
        ([updated(BOARD, "task", "task_id", "9"), task(), gone(BOARD, "task", "00000010")], 1.0),
        ([updated(BOARD, "task", "task_id", "9"), task()], 0.0),
    ),
]
SENT = [
    Rule(
        environment="workplace_assistant",
        says="what tools answered in the recording plays no part",
        task={
            "office": "brightmoor",
            "ground_truth": [{"name": mail()[0], "arguments": json.dumps(mail()[1])}],
        },
        cases=[
            ([made(*mail()), printed("Error: no such mail")], 1.0),
            ([printed("Email sent successfully.")], 0.0),
        ],
    )
]


def blackjack(says: str, *cases: Case, seed: int) -> Rule:
    return Rule(environment="blackjack", says=says, task={"verifier_metadata": {"seed": seed}}, cases=cases)


def move(text: str) -> str:
    return f"I <action>{text}</action>"


def asked() -> dict[str, Any]:
    """What the dealer says between two moves, in a recording."""
    return {"type": "message", "role": "user", "content": "Hit or stand?"}


GAMES = [
    # The player holds 3 and 7, the dealer 10 and 7; the next cards are 10 and 5.
    blackjack(
        "the first tag counts, in any case",
        ([move("HIT") + move("stand"), asked(), move("Stand")], 1.0),
        ([move("stand") + move("hit")], -1.0),
        ([move("hit"), asked(), move("hit")], -1.0),
        seed=21,
    ),
    blackjack(
        "no tag means stand",
        ("Hit me!", -1.0),
        ("", -1.0),
        ([move("wait")], -1.0),
        ([move("hit"), asked(), "Enough."], 1.0),
        seed=21,
    ),
    blackjack("an unfinished game is worth what it has earned, 0", ([move("hit")], 0.0), ([], 0.0), seed=21),
]
RULES = [*OFFICE, *SENT, *GAMES]
