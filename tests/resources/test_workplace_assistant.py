"""The office assistant's rule, on tables and as properties; its data, and its rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gym_resources.workplace.data import examples, generate
from gym_resources.workplace.desk import ACTIONS
from gym_resources.workplace.tables import DATA, Tables, records
from gym_resources.workplace_assistant import WorkplaceTask, environment
from gym_runtime.environment.tools import SERVER_ERROR
from gym_runtime.errors import TaskError
from hypothesis import given, settings
from hypothesis import strategies as st
from resources.workplace.office import (
    CRM,
    CUSTOMER,
    EVENT,
    NO_SUCH,
    PLOT,
    PM,
    RAVI,
    TASK,
    Call,
    answer,
    judge,
    opened,
    resource,
    row,
    score,
)

EXAMPLES = Path(examples.TARGET)
NEMO = Path(__file__).parents[3] / "shared/data/nemo_gym_examples/workplace_assistant/example.jsonl"
NEMO_ROWS = NEMO.read_text("utf-8").splitlines() if NEMO.is_file() else []

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
                ("calendar_delete_event", {"event_id": "00000300"}),
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


IDS = st.sampled_from(["00000000", "00000001", "00000300", "00000500", NO_SUCH])
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


@pytest.mark.slow
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
    for position in range(len(truth)):
        assert score(truth[:position] + truth[position + 1 :], truth) == 0.0


LEAD = next(record for record in records("customers") if record["status"] == "Lead")
UPDATE = f"{CRM}_update_customer"
DONE, NO_CUSTOMER = "Customer updated successfully.", "Customer not found."
FIND = (f"{CRM}_search_customers", {"status": "Proposal"})
FOUND = {"customers": [{"customer_id": "00000007"}], "pagination": {}}


def to_lead(customer: str) -> Call:
    return UPDATE, {"customer_id": customer, "field": "status", "new_value": "Lead"}


HERE, THERE = to_lead("00000007"), to_lead(LEAD["customer_id"])  # the second is a lead already, here
ASSIGN = (
    f"{PM}_update_task",
    {"task_id": "00000299", "field": "assigned_to_email", "new_value": "a@b.example"},
)
REPLY = ("email_reply_email", {"email_id": "00000499", "body": "Yes."})


@pytest.mark.parametrize(
    ("predicted", "truth", "answers", "reward"),
    [
        ([THERE], [THERE], [], 1.0),
        ([], [THERE], [], 0.0),
        ([HERE], [HERE, THERE], [], 0.0),
        ([FIND, HERE], [HERE], [FOUND, DONE], 1.0),
        ([FIND, HERE, THERE], [HERE], [FOUND, DONE, DONE], 0.0),  # that it changes nothing here, says nothing
        ([FIND, THERE, HERE], [HERE], [FOUND, NO_CUSTOMER, DONE], 1.0),
        ([FIND, THERE], [HERE], [FOUND, NO_CUSTOMER], 0.0),
        ([ASSIGN], [ASSIGN], ["Task updated successfully."], 1.0),
        ([], [ASSIGN], [], 0.0),
        ([REPLY], [REPLY], ["Email replied successfully."], 1.0),
        (
            [FIND, ("calendar_create_event", EVENT), ("calendar_delete_event", {"event_id": "00000300"})],
            [],
            [FOUND, "00000300", "Event deleted successfully."],
            1.0,
        ),
    ],
)
def test_rows_of_another_office_are_judged_by_what_is_known_of_it(
    predicted: list[Call], truth: list[Call], answers: list[object], reward: float
) -> None:
    assert score(predicted, truth, answers) == reward


def test_recordings_of_this_office_are_judged_by_its_data() -> None:
    office = opened()
    calls: list[Call] = [FIND, THERE, HERE]
    answers = [json.loads(answer(office, *made))["output"] for made in calls]
    assert score(calls, [HERE], answers) == 1.0  # the update that changes nothing is none
