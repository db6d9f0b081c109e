"""The telephone: tools that depend on its state, the match of milestones, and rows that are refused."""

from __future__ import annotations

import json
import time
import tracemalloc
from typing import Any

import anyio.lowlevel
import pytest
from gym_agents.dialogue import Agent
from gym_resources.phone_sandbox.look_ups import holidays
from gym_resources.phone_sandbox.milestones import Constraint, Milestone, Moment, matched, problem
from gym_resources.toolsandbox import tools
from gym_runtime.environment import catalogue
from gym_runtime.environment.verdict import Verdict
from gym_runtime.errors import TaskError
from gym_runtime.messages.outcomes import Completed
from gym_testing.small_system import Engine, answer, function_call, rollout_spec, small_system
from resources.judging import call, judge, outputs, row
from tables import table

pytestmark = pytest.mark.anyio
NAME = "toolsandbox"
DATE = ["year", "month", "day", "hour", "minute", "second"]
OFF: tuple[str, dict[str, object]] = ("set_low_battery_mode_status", {"on": True})
XXX = {"amount": 1, "from_currency_code": "XXX", "to_currency_code": "EUR"}
WARM = {"amount": 25, "from_unit": "degrees Celsius", "to_unit": "fahrenheit"}
SMOOT = {"amount": 1, "from_unit": "smoot", "to_unit": "mile"}
OWN = {"person_id": "p1", "name": "Rosa", "phone_number": "+1555", "relationship": "self", "is_self": True}
ADA = {
    "person_id": "p2",
    "name": "Ada Brandt",
    "phone_number": "+1777",
    "relationship": "boss",
    "is_self": False,
}
SAID = [{"constraints": [{"table": "said", "target": [{"content": "done"}]}]}]


def example(number: int) -> dict[str, Any]:
    return json.loads(catalogue.environment(NAME).examples.read_text("utf-8").splitlines()[number - 1])


def task(**fields: Any) -> bytes:
    offered = [tool.definition() for tool in tools().values()]
    base = {"responses_create_params": {"input": "go", "tools": offered}, "simulated_user": {"goal": "g"}}
    return row(**{"milestones": SAID, "device": {"contacts": [OWN, ADA]}, **base, **fields})


async def play(number: int, *items: Any, **fields: Any) -> Verdict:
    return await judge(NAME, json.dumps(example(number) | fields).encode(), *items)


@table(
    ("calls", "said"),
    [
        ([("set_wifi_status", {"on": True})], "already enabled"),
        ([OFF, ("set_wifi_status", {"on": True})], "in low battery mode"),
        ([OFF, ("get_cellular_service_status", {})], "false"),
        ([OFF, ("get_current_location", {})], "PermissionError"),
        ([("set_wifi_status", {"on": False}), ("search_stock", {"query": "A"})], "wifi is not enabled"),
        (
            [
                ("set_cellular_service_status", {"on": False}),
                ("send_message_with_phone_number", {"phone_number": "+1777", "content": "x"}),
            ],
            "cellular service is not enabled",
        ),
        ([("send_message_with_phone_number", {"phone_number": "Ada", "content": "x"})], "no phone number"),
        ([("send_message_with_phone_number", {"phone_number": "+1777", "content": "x"})], "message-1"),
        ([("add_contact", {"name": "N", "phone_number": "+1888", "is_self": True})], "for the user already"),
        ([("add_contact", {"name": "N", "phone_number": "+1888"})], "contact-3"),
        ([("modify_contact", {"person_id": "p2"})], "nothing to change"),
        ([("modify_contact", {"person_id": "p9", "name": "N"})], "NoDataError"),
        ([("remove_contact", {"person_id": "p2"}), ("search_contacts", {"name": "ada"})], "[]"),
        ([("search_contacts", {"name": "ada brand"})], "+1777"),
        ([("search_contacts", {})], "nothing to search for"),
        ([("search_messages", {"content": "x" * 1_000_000})], "validation_error"),
        ([("shift_timestamp", {"timestamp": 0, "weeks": 1, "days": -1})], "518400"),
        ([("shift_timestamp", {"timestamp": 1e300})], "validation_error"),
        ([("datetime_info_to_timestamp", dict.fromkeys(DATE, 99))], "ValueError"),
        ([("timestamp_to_datetime_info", {"timestamp": 1718614800})], '"isoweekday":1'),
        ([("timestamp_diff", {"timestamp_0": 0, "timestamp_1": 90000})], '{"days":1,"seconds":3600}'),
        ([("unit_conversion", {"amount": 3, "from_unit": "Miles", "to_unit": "kilometers"})], "4.828032"),
        ([("unit_conversion", WARM)], "77"),
        ([("unit_conversion", {"amount": 1, "from_unit": "mile", "to_unit": "hour"})], "cannot be converted"),
        ([("unit_conversion", SMOOT)], "'smoot' is not a known"),
        ([("search_holiday", {"holiday_name": "Thanksgiving", "year": 2024})], "1732752000"),
        ([("convert_currency", XXX)], "ValueError"),
        ([("search_weather_around_lat_lon", {"latitude": 1})], "give both"),
        ([("drop_tables", {})], "Not Found"),
    ],
)  # fmt: skip
async def test_what_a_tool_answers_depends_on_the_state(calls: list[tuple[str, object]], said: str) -> None:
    assert said in (await outputs(NAME, task(), calls))[-1]


def test_holidays_of_a_year() -> None:
    found = {name: day.isoformat() for name, day in holidays(2024).items()}
    assert found["memorial day"] == "2024-05-27"
    assert found["labor day"] == "2024-09-02"
    assert found["martin luther king"] == "2024-01-15"


async def test_a_tool_that_the_row_does_not_offer_is_not_there() -> None:
    verdict = await play(2, call("add_contact", {"name": "X", "phone_number": "+1"}), "x")
    assert verdict.fields["milestone_similarities"][0] == 0.0


MESSAGE = ("send_message_with_phone_number", {"phone_number": "+15550111", "content": "I am late."})
ON = call("set_cellular_service_status", {"on": True})
FIND = call("search_contacts", {"name": "Henrik"})
TOLD = "Your message to Henrik Aho was sent: I am late."


@table(
    ("items", "scores"),
    [
        ([FIND, ON, call(*MESSAGE), TOLD], [1, 1, 1, 1]),
        ([ON, FIND, call(*MESSAGE), TOLD], [1, 1, 1, 1]),
        ([TOLD, FIND, ON, call(*MESSAGE)], [1, 1, 1, 0]),  # told before it was done
        ([FIND, ON, call(*MESSAGE), call(*MESSAGE), TOLD], [1, 1, 1, 1]),  # the first of two is reached
        ([ON, call(*MESSAGE), FIND, TOLD], [1, 1, 1, 0]),  # still sent, and told too early
        ([FIND, call(*MESSAGE), TOLD], [1, 0, 0, 0]),
    ],
)
async def test_milestones_are_reached_in_their_order(items: list[Any], scores: list[float]) -> None:
    verdict = await play(1, *items)
    assert verdict.fields["milestone_similarities"] == pytest.approx(scores)
    assert verdict.reward == pytest.approx(sum(scores) / 4)


async def test_a_minefield_takes_everything() -> None:
    acted = call(
        "send_message_with_phone_number", {"phone_number": "+15550122", "content": "Dinner is at eight!"}
    )
    words = ["I cannot find your brother in your contacts. What is his phone number?"]
    end = "Without a phone number I cannot send the message."
    assert (await play(3, *words, end)).reward == 1.0
    verdict = await play(3, *words, end, acted)
    assert (verdict.reward, verdict.fields["minefield_hit"]) == (0.0, True)


async def test_text_near_the_wanted_one_counts_in_part() -> None:
    verdict = await play(1, FIND, ON, call(*MESSAGE), "Sent to Henrik.")
    assert 0.0 < verdict.fields["milestone_similarities"][3] < 0.5


@pytest.mark.parametrize("measure", ["addition", "removal", "update", "guardrail"])
def test_measures_compare_with_the_reference(measure: Any) -> None:
    one, two, changed = {"id": 1, "content": "a"}, {"id": 2, "content": "b"}, {"id": 1, "content": "c"}
    tables = {
        "addition": ([one], [one, two], two),
        "removal": ([one, two], [two], one),
        "update": ([one, two], [changed, two], changed),
        "guardrail": ([one], [one], None),
    }
    before, after, target = tables[measure]
    wanted = Constraint(table="messages", measure=measure, target=[target] if target else [])
    assert wanted.alike(Moment({"messages": after}), Moment({"messages": before})) == 1.0
    assert (
        wanted.alike(Moment({"messages": [{"id": 9, "content": "z"}]}), Moment({"messages": before})) == 0.0
    )


def test_a_later_reference_counts_from_its_moment() -> None:
    added = [Constraint(table="messages", measure="addition", target=[{"id": 2}], reference=0)]
    milestones = [
        Milestone(constraints=[Constraint(table="settings", target=[{"wifi": True}])]),
        Milestone(constraints=added),
    ]
    states = [(False, []), (False, [1]), (True, [1]), (True, [1, 2])]
    moments = [Moment({"settings": [{"wifi": w}], "messages": [{"id": i} for i in ids]}) for w, ids in states]
    assert matched(milestones, moments) == [1.0, 1.0]
    assert "does not stand before" in problem([milestones[1]])


@pytest.mark.slow
async def test_letters_that_repeat_do_not_hold_the_worker() -> None:
    contacts = [{**ADA, "person_id": f"c{number}", "name": "a" * 199 + "b"} for number in range(300)]
    unmoved = [{"constraints": [{"table": "contacts", "measure": "guardrail"}]}]
    held = task(device={"contacts": contacts}, minefields=[{"constraints": unmoved[0]["constraints"] * 2}])
    find = call("search_contacts", {"name": "a" * 200})
    longest_s, over = 0.0, False

    async def watch() -> None:
        nonlocal longest_s
        while not over:
            start_s = time.thread_time()
            await anyio.lowlevel.checkpoint()
            longest_s = max(longest_s, time.thread_time() - start_s)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        await anyio.lowlevel.checkpoint()
        await judge(NAME, held, find, find, "x")
        over = True
    assert longest_s < 0.2


async def test_a_long_and_hostile_conversation_is_judged_in_time() -> None:
    said = [f"Your message to Henrik {'Aho ' * number}was sent: I am late. " * 200 for number in range(30)]
    started_s = time.process_time()
    verdict = await play(
        1, *said, call("search_contacts", "[" * 1_000_000), call("search_contacts", '{"name":1e999}')
    )
    assert time.process_time() - started_s < 3.0
    assert verdict.reward < 0.5


@pytest.mark.slow
async def test_thousands_of_calls_on_a_full_telephone_fit_into_memory() -> None:
    full = [
        call("add_reminder", {"content": str(number), "reminder_timestamp": number}) for number in range(300)
    ]
    tracemalloc.start()
    try:
        await judge(NAME, task(), *full, *[call("get_wifi_status", {})] * 1000, "Done.")
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 60_000_000  # a copy of all reminders for each call took 100 MB


@table(
    "fields",
    [
        {"milestones": []},
        {"milestones": None},
        {"milestones": [{"constraints": []}]},
        {"milestones": [{"constraints": [{"table": "said", "target": [{"content": "x"}]}], "after": [0]}]},
        {"minefields": [{"constraints": [{"table": "said", "reference": 0}]}]},
        {"tool_names": {"x": "drop_tables"}},
        {"responses_create_params": {"input": "go", "tools": [{"type": "function", "name": "x"}]}},
        {"task_idx": 3, "milestones": None, "simulated_user": None},
    ],
)
def test_rows_that_cannot_be_judged_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(TaskError):
        catalogue.environment(NAME).resource.task(task(**fields))


async def test_a_whole_errand_runs_with_a_simulated_user() -> None:
    environment = catalogue.environment(NAME)
    row = example(4)
    engine = Engine(
        answer("Shall I move the reminder to call the dentist?"),
        answer(
            function_call(
                "notes_1", json.dumps({"reminder_id": "reminder-7", "reminder_timestamp": 1719219600.0})
            )
        ),
        answer("Your reminder to call the dentist is now on 24 June 2024 at 9:00."),
    )
    user = Engine(answer("Yes, please."), answer("###STOP###"))
    async with small_system() as system:
        await system.add_agent({"dialogue": Agent()})
        await system.add_model(engine)
        await system.add_model(user, name="user-1", pool="user")
        await system.add_resource(environment)
        spec = rollout_spec(
            json.dumps(row).encode(), agent="dialogue", environment=NAME, roles={"user": "user"}
        )
        await system.enqueue(spec)
        (record,) = await system.records(1)
    assert record.outcome == Completed(), record.outcome
    assert json.loads(bytes(record.row))["reward"] == 1.0
