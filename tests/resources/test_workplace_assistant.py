"""The office assistant's rule, on tables and as properties; its data, and its rows."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from gym_resources.workplace.data import examples, generate
from gym_resources.workplace.desk import ACTIONS
from gym_resources.workplace.office import DATA, NEMO_GYM, SHIPPED
from gym_resources.workplace.tables import CHARACTERS_AT_MOST
from gym_resources.workplace_assistant import environment
from gym_runtime import Reply
from gym_runtime.environment.replay import session_of
from gym_runtime.environment.tools import SERVER_ERROR
from gym_runtime.errors import AssetMissing, TaskError
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
    fresh,
    judge,
    opened,
    resource,
    row,
    score,
)

EXAMPLES = Path(examples.TARGET)

SEND = ("email_send_email", {"recipient": RAVI, "subject": "Tea", "body": "At four?"})
DELETE = ("email_delete_email", {"email_id": "00000003"})
MOVE = (f"{PM}_update_task", {"task_id": "00000001", "field": "list_name", "new_value": "Backlog"})
LOOK = ("email_search_emails", {"query": "tea"})
ADD = (f"{CRM}_add_customer", CUSTOMER)
REMOVE = (f"{CRM}_delete_customer", {"customer_id": "00000003"})
NEW = (f"{PM}_create_task", TASK)
DROP = (f"{PM}_delete_task", {"task_id": "00000003"})
MAIL = examples.records("emails")[1]
REPLY_TO = ("email_reply_email", {"email_id": MAIL["email_id"], "body": "Yes."})
SEND_RE = (
    "email_send_email",
    {"recipient": MAIL["sender/recipient"], "subject": f"RE: {MAIL['subject']}", "body": "Yes."},
)


def changed(original: Call, **changes: str | None) -> Call:
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
    untouched = not first.tables.differing(fresh())
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
    assert office.tables.differing(fresh()) == []


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


def test_what_tools_answered_plays_no_part() -> None:
    answered = {"type": "function_call_output", "call_id": "c0", "output": "It went wrong."}
    calls = [{"type": "function_call", "call_id": "c0", "name": SEND[0], "arguments": json.dumps(SEND[1])}]

    async def verdict() -> float:
        session = await resource().open(row([SEND]))
        return (await resource().verify(session, Reply.of(*calls, answered).raw)).reward

    assert anyio.run(verdict) == 1.0


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tables in the form of NeMo Gym's: two of each, and a directory without a header."""
    monkeypatch.setenv("GYM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GYM_WORKPLACE_DATA", raising=False)
    folder = tmp_path / "csv_data"
    for name, file in NEMO_GYM.items():
        lines = (DATA / SHIPPED[name]).read_text("utf-8").splitlines()
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = ["kai.lund@atlas.example"] if name == "addresses" else lines[:3]
        path.write_text("\n".join(kept) + "\n", "utf-8")
    return folder


def of_theirs(truth: list[Call]) -> bytes:
    fields = json.loads(row(truth))
    del fields["office"]
    return json.dumps(fields).encode()


async def outcome(truth: list[Call], calls: list[Call]) -> float:
    made = [
        {"type": "function_call", "call_id": "c", "name": name, "arguments": json.dumps(given)}
        for name, given in calls
    ]
    async with session_of(resource(), of_theirs(truth)) as session:
        return (await resource().verify(session, Reply.of(*made).raw)).reward


@pytest.mark.parametrize("flat", [False, True])
def test_rows_made_on_other_tables_are_judged_by_those(
    theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flat: bool
) -> None:
    folder = theirs
    if flat:
        folder = tmp_path / "flat"
        folder.mkdir()
        for file in NEMO_GYM.values():
            (folder / Path(file).name).write_bytes((theirs / file).read_bytes())
    monkeypatch.setenv("GYM_WORKPLACE_DATA", str(folder))
    first, gone = (f"{CRM}_delete_customer", {"customer_id": "00000001"}), REMOVE
    assert anyio.run(outcome, [first], [first]) == 1.0
    assert anyio.run(outcome, [first], []) == 0.0
    assert anyio.run(outcome, [gone], []) == 1.0  # there is no such customer there

    async def found() -> Any:
        async with session_of(resource(), of_theirs([])) as session:
            name = "company_directory_find_email_address"
            return json.loads(await resource().call_tool(session, name, '{"name": "KAI"}'))

    assert anyio.run(found) == {"output": ["kai.lund@atlas.example"]}


def test_a_row_made_on_other_tables_is_refused_without_them(theirs: Path) -> None:
    said = r"processed/emails\.csv .* gym-runtime prepare --assets workplace_assistant, or set GYM_WORKPLACE"
    assert resource().task(of_theirs([SEND])) is not None
    with pytest.raises(AssetMissing, match=said):
        anyio.run(resource().open, of_theirs([SEND]))


def test_an_office_that_is_not_known_is_refused() -> None:
    with pytest.raises(TaskError, match="office"):
        resource().task(json.dumps({**json.loads(row()), "office": "moon"}).encode())


def test_no_session_grows_without_end() -> None:
    office = opened()
    body = "x" * 1_000_000
    for _ in range(CHARACTERS_AT_MOST // 1_000_000 + 2):
        said = answer(office, "email_send_email", {"recipient": RAVI, "subject": "Tea", "body": body})
    assert "a table holds at most" in said
    for _ in range(20):
        said = answer(office, "email_forward_email", {"email_id": "500", "recipient": RAVI})
    assert "a table holds at most" in said
    start_s = time.process_time()
    words = " ".join(map(str, range(150_000)))
    assert "at most 100 words" in answer(office, "email_search_emails", {"query": words})
    answer(office, "email_search_emails", {"query": "x x x x x x x x"})
    assert time.process_time() - start_s < 1


def test_ten_thousand_calls_let_others_work() -> None:
    """The worker's other sessions get their turn while they are replayed."""
    calls = [
        {
            "type": "function_call",
            "call_id": "c",
            "name": DROP[0],
            "arguments": json.dumps({"task_id": str(n)}),
        }
        for n in range(10_000)
    ]
    longest_s = 0.0

    async def watch() -> None:
        nonlocal longest_s
        while True:
            before_s = time.perf_counter()
            await anyio.lowlevel.checkpoint()
            longest_s = max(longest_s, time.perf_counter() - before_s)

    async def replay() -> None:
        session = await resource().open(row([SEND]))
        reply = Reply.of(*calls)
        assert len(reply.function_calls) == 10_000
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await resource().verify(session, reply.raw)
            tasks.cancel_scope.cancel()

    anyio.run(replay)
    assert longest_s < 0.5
