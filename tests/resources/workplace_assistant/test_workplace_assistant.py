"""The outcome of an office decides; tables, examples, bad rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from gym_resources.workplace.data import example_rows, generate
from gym_resources.workplace.office import DATA
from gym_resources.workplace.shared_parts import ACTIONS
from gym_resources.workplace_assistant import environment
from gym_runtime.environment.tools import SERVER_ERROR
from gym_runtime.errors import TaskError
from hypothesis import given, settings
from hypothesis import strategies as st
from resources.workplace.office import (
    CRM,
    CUSTOMER,
    EVENT,
    PLOT,
    PM,
    RAVI,
    TASK,
    Call,
    answer,
    fresh,
    judge,
    opened,
    resource,
    row,
    score,
)
from resources.workplace_assistant.offices import DROP, REMOVE, SEND, calls
from tables import table

EXAMPLES = Path(example_rows.TARGET)


DELETE = ("email_delete_email", {"email_id": "00000003"})


MOVE = (f"{PM}_update_task", {"task_id": "00000001", "field": "list_name", "new_value": "Backlog"})


LOOK = ("email_search_emails", {"query": "tea"})


ADD = (f"{CRM}_add_customer", CUSTOMER)


NEW = (f"{PM}_create_task", TASK)


MAIL = example_rows.records("emails")[1]


REPLY_TO = ("email_reply_email", {"email_id": MAIL["email_id"], "body": "Yes."})


SEND_RE = (
    "email_send_email",
    {"recipient": MAIL["sender/recipient"], "subject": f"RE: {MAIL['subject']}", "body": "Yes."},
)


def changed(original: Call, **changes: str | None) -> Call:
    name, arguments = original
    assert isinstance(arguments, dict)
    return name, {**arguments, **changes}


@table(
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
        ([DELETE, SEND], [SEND, DELETE], 0.0),  # sending numbers all mails anew
        ([DELETE, SEND], [DELETE, SEND], 1.0),
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
                ("calendar_delete_event", {"event_id": "00000300"}),
                ("calendar_create_event", EVENT),
            ],
            [("calendar_create_event", EVENT)],
            1.0,
        ),
        (
            [("calendar_delete_event", {"event_id": "00000003"}), ("calendar_create_event", EVENT)],
            [("calendar_create_event", EVENT), ("calendar_delete_event", {"event_id": "00000003"})],
            1.0,  # a new event leaves the others' numbers alone
        ),
        ([REMOVE, ADD], [ADD, REMOVE], 0.0),
        ([DROP, NEW], [NEW, DROP], 0.0),
        ([DELETE, MOVE], [MOVE, DELETE], 1.0),
        ([changed(ADD, notes=None)], [changed(ADD, notes=None)], 1.0),
        ([changed(ADD, notes=None)], [ADD], 0.0),  # without notes they are "", not null
        ([changed(ADD, notes="")], [ADD], 1.0),
        ([changed(ADD, customer_email=None)], [ADD], 1.0),
        ([changed(ADD, customer_email="")], [ADD], 0.0),
        ([changed(NEW, assigned_to_email=None)], [], 1.0),
        ([changed(NEW, color="red")], [], 1.0),
        ([REPLY_TO], [SEND_RE], 1.0),
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
    mine, theirs = fresh(), fresh()
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


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(calls(), max_size=6))
def test_every_call_is_answered_and_replay_rebuilds_the_state(made: list[Call]) -> None:
    first, second = opened(), opened()
    answers = [answer(first, name, arguments) for name, arguments in made]
    assert all(list(json.loads(text)) == ["output"] for text in answers)
    assert [answer(second, name, arguments) for name, arguments in made] == answers
    assert first.tables.differing(second.tables) == []
    assert score(made, made) == 1.0
    untouched = not first.tables.differing(fresh())
    assert score(made, []) == float(untouched)


@pytest.mark.slow
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
    assert office.tables.differing(fresh()) == []


def test_tables_are_what_the_script_makes(tmp_path: Path) -> None:
    generate.main(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        path.name: path.read_bytes() for path in DATA.glob("*.csv")
    }


def test_example_rows_are_what_the_script_makes(tmp_path: Path) -> None:
    example_rows.main(tmp_path / "rows.jsonl")
    assert (tmp_path / "rows.jsonl").read_bytes() == EXAMPLES.read_bytes(), (
        "a tool or a table has changed: run resources/gym_resources/workplace/data/example_rows.py"
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


def test_new_ids_follow_the_highest_text() -> None:
    office = opened()
    for number in ("500", "501"):
        answer(office, *SEND)
        assert office.tables.email.get(number) is not None
    for number, made in (("00000300", NEW), ("00000301", NEW), ("00000200", ADD)):
        assert json.loads(answer(office, *made)) == {"output": number}
    answer(office, f"{PM}_delete_task", {"task_id": "00000301"})
    assert json.loads(answer(office, *NEW)) == {"output": "00000301"}
    answer(office, f"{PM}_update_task", {"task_id": "00000007", "field": "task_id", "new_value": "9"})
    assert json.loads(answer(office, *NEW)) == {"output": "00000010"}
