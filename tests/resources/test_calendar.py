from __future__ import annotations

import json
import time
from typing import Any

import pytest
from gym_resources.calendar import failure as failure_of
from gym_resources.extract.times_of_day import minutes
from gym_runtime.environment import catalogue
from gym_runtime.errors import TaskError
from resources.judging import call, judge, nemo_gym_rows, output, row
from tables import table

pytestmark = pytest.mark.anyio


def expected(event_id: int, duration: int, constraint: str | None) -> dict[str, Any]:
    return {
        "event_id": event_id,
        "duration": duration,
        "constraint": constraint,
        "min_time": "10:00",
        "max_time": "16:00",
    }


def calendar(*events: tuple[int, str, int]) -> str:
    return json.dumps(
        [{"event_id": i, "event_name": "x", "start_time": s, "duration": d} for i, s, d in events]
    )


async def failure(state: list[dict[str, Any]], text: str) -> str | None:
    task = row(exp_cal_state={str(event["event_id"]): event for event in state})
    verdict = await judge("calendar", task, text)
    assert verdict.reward == float(verdict.fields["failure"] is None)
    return verdict.fields["failure"]


@table(
    ("constraint", "start", "problem"),
    [
        (None, "10:00", None),
        ("", "10:00", None),
        (None, "15:00", None),
        (None, "09:59", "constraint"),
        (None, "15:01", "constraint"),
        ("before 1:45pm", "12:45", None),
        ("before 1:45pm", "12:46", "constraint"),
        ("before 1:45pm", "09:00", "constraint"),
        ("after 2pm", "14:00", None),
        ("after 2pm", "13:59", "constraint"),
        ("after 2pm", "15:30", "constraint"),
        ("at 12:15pm", "12:15", None),
        ("at 12:15pm", "12:16", "constraint"),
        ("At 12:15 PM", "12:15", None),
        ("between 10am and 11:45am", "10:45", None),
        ("between 10am and 11:45am", "10:46", "constraint"),
        ("between 2:30pm and 4pm", "14:29", "constraint"),
        (None, "9:00", "constraint"),
        (None, "2pm", None),
        (None, "2:00pm", None),
        (None, " 2:00 pm ", None),
        (None, " 14:00 ", None),
        (None, "9am", "constraint"),
        (None, "2PM", "start_time"),
        (None, "14", "start_time"),
        (None, "14:00pm", "start_time"),
        ("on Monday", "11:00", None),
        ("beforehand", "11:00", None),
        (" \n", "11:00", None),
        (None, "10:00:00", "start_time"),
        (None, "10:60", "start_time"),
        (None, "", "start_time"),
    ],
)
async def test_an_event_keeps_to_its_times(constraint: str | None, start: str, problem: str | None) -> None:
    assert await failure([expected(0, 60, constraint)], calendar((0, start, 60))) == problem


@table(
    ("text", "problem"),
    [
        (calendar((0, "10:00", 60), (1, "11:00", 30)), None),
        (calendar((1, "11:00", 30), (0, "10:00", 60)), None),
        ("Here:\n```json\n" + calendar((0, "10:00", 60), (1, "11:00", 30)) + "\n```\nFine?", None),
        ('[{"event_id": "0", "start_time": "10:00", "duration": 60.0},'
         ' {"event_id": "1", "start_time": "11:00", "duration": 30}]', None),
        (calendar((0, "10:00", 60), (1, "10:59", 30)), "overlap"),
        (calendar((0, "10:00", 60), (1, "10:00", 30)), "overlap"),
        (calendar((0, "10:00", 60), (1, "11:00", 45)), "duration"),
        (calendar((0, "10:00", 60)), "events"),
        (calendar((0, "10:00", 60), (0, "11:00", 60)), "events"),
        # Of events with one id the last counts, and copies do not overlap.
        (calendar((0, "10:00", 15), (1, "11:00", 30), (0, "10:00", 60)), "overlap"),
        (calendar((0, "13:00", 15), (1, "11:00", 30), (0, "10:00", 60)), None),
        (calendar((0, "10:00", 60), (1, "11:00", 30), (0, "13:00", 15)), "duration"),
        (calendar((0, "10:00", 60), (1, "11:00", 30), (0, "10:00", 60)), None),
        (calendar((0, "10:00", 60), (1, "11:00", 30), (0, "10:00:", 60)), "start_time"),
        # The first pair of brackets with an object and no bracket in it, whatever else is in it.
        ("[1] [{] [x {y} z]" + calendar((0, "10:00", 60), (1, "11:00", 30)), "no calendar"),
        ("[1] [{] {} [}{]" + calendar((0, "10:00", 60), (1, "11:00", 30)), None),
        ("[[[" + calendar((0, "10:00", 60), (1, "11:00", 30)), None),
        ('[{"event_id": 0, "start_time": "10:00", "duration": 60, "guests": []},'
         ' {"event_id": 1, "start_time": "11:00", "duration": 30}]', None),
        (calendar((0, "10:00", 60), (1, "11:00", 30)).replace('"x"', '"x]"'), None),
        ("[1]: " + calendar((0, "10:00", 60), (1, "11:00", 30)).replace('"x"', '"[x]"') + " [b]", None),
        ('[{"x": "]"}' * 2, "no calendar"),
        (calendar((0, "10:00", 60), (1, "11:00", 30)).replace("}]", "},]"), "no calendar"),
        (calendar((0, "10:00", 60), (1, "11:00", 30)).replace('"x"', "NaN"), "no calendar"),
        (" \n", "no calendar"),
        (calendar((0, "10:00", 60), (2, "11:00", 30)), "events"),
        (calendar((0, "10:00", 60), (1, "11:00", 30), (2, "12:00", 30)), "events"),
        (calendar((0, "10:00", 60)) + calendar((0, "10:00", 60), (1, "11:00", 30)), "events"),
        ('[{"event_id": 0, ...}]' + calendar((0, "10:00", 60), (1, "11:00", 30)), "no calendar"),
        (calendar((0, "10:00", 60), (1, "11:00", 30))[:-1], "no calendar"),
        ('[{"event_id": 0, "start_time": 10, "duration": 60}]', "no calendar"),
        ("[]", "no calendar"),
        ("", "no text"),
        ("<think>" + calendar((0, "10:00", 60), (1, "11:00", 30)), "thinking"),
    ],
)  # fmt: skip
async def test_the_first_calendar_shows_every_event_once(text: str, problem: str | None) -> None:
    assert await failure([expected(0, 60, None), expected(1, 30, None)], text) == problem


async def test_nothing_to_show_is_right_whatever_is_said_but_for_thinking_and_silence() -> None:
    assert await failure([], "Gladly!") is None
    assert await failure([], " ") is None
    assert await failure([], "") == "no text"
    assert await failure([], "<think>Gladly!") == "thinking"


def message(*parts: dict[str, str]) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [*parts]}


GOOD = calendar((0, "10:00", 60))
SHOWN = {"type": "output_text", "text": GOOD}


@table(
    ("items", "problem"),
    [
        (["<think>", GOOD], None),
        ([GOOD, "Done."], "no calendar"),
        ([GOOD, call("look", {})], "no text"),
        ([GOOD, call("look", {}), output(GOOD)], "no text"),
        ([GOOD, {"type": "reasoning", "summary": []}], "no text"),
        ([message(SHOWN, {"type": "output_text", "text": "<think>"})], None),
        ([message({"type": "output_text", "text": ""}, SHOWN)], "no text"),
        ([message({"type": "refusal", "refusal": "No."}, SHOWN)], "no text"),
        ([message()], "no text"),
        ([], "no text"),
    ],
)
async def test_only_the_first_part_of_the_last_item_is_read(items: list[Any], problem: str | None) -> None:
    verdict = await judge("calendar", row(exp_cal_state={"0": expected(0, 60, None)}), *items)
    assert (verdict.reward, verdict.fields["failure"]) == (float(problem is None), problem)
    nothing = await judge("calendar", row(exp_cal_state={}), *items)
    assert nothing.reward == float(problem != "no text")


def test_thousands_of_events_are_compared_at_once() -> None:
    many = calendar(*((0, f"{n % 24}:{n % 60:02}", n) for n in range(15_000)), (0, "10:00", 60))
    task = catalogue.environment("calendar").resource.task(row(exp_cal_state={"0": expected(0, 60, None)}))
    start_s = time.thread_time()
    assert failure_of(task, many) == "overlap"  # type: ignore[arg-type]
    assert time.thread_time() - start_s < 1


@table(
    ("clock", "wanted"),
    [("12am", 0), ("12:05am", 5), ("11am", 660), ("12pm", 720), ("1:45pm", 825), ("16:00", 960),
     ("0pm", None), ("13pm", None), ("10:75", None), ("25:00", None), ("noon", None)],
)  # fmt: skip
async def test_times_of_the_day(clock: str, wanted: int | None) -> None:
    assert minutes(clock) == wanted


@pytest.mark.parametrize(
    "constraint", ["at noon", "between 10am", "before 1pm and 2pm", "after", "Between and 2pm"]
)
async def test_a_constraint_that_cannot_be_read_is_refused(constraint: str) -> None:
    task = row(exp_cal_state={"0": expected(0, 60, constraint)})
    with pytest.raises(TaskError, match=r"has too many times, or too few|is not a time of the day"):
        catalogue.environment("calendar").resource.task(task)


async def test_both_configurations_are_this_environment() -> None:
    for name in ("calendar", "calendar_simple_agent", "calendar_v2", "calendar_v2_simple_agent"):
        assert catalogue.resolve_agent_ref(name) == "calendar"


async def test_rows_in_nemo_gyms_format_can_be_won() -> None:
    for line in nemo_gym_rows("calendar"):
        task = json.loads(line)
        assert (await judge("calendar", line, solve(task["exp_cal_state"]))).reward == 1.0
        assert (await judge("calendar", line, "[]")).reward == 0.0


def solve(state: dict[str, Any]) -> str:
    """A calendar found by trying every quarter of an hour, event by event."""
    events = catalogue.environment("calendar").resource.task(row(exp_cal_state=state)).exp_cal_state.values()  # type: ignore[attr-defined]

    def place(left: list[Any], taken: list[tuple[int, str, int]]) -> list[tuple[int, str, int]] | None:
        if not left:
            return taken
        earliest, latest, fixed = left[0].window()
        for start in range(earliest, latest - left[0].duration + 1, 15):
            clash = any(
                start < minutes(at) + length and minutes(at) < start + left[0].duration  # type: ignore[operator]
                for _, at, length in taken
            )
            if fixed in (None, start) and not clash:
                at = f"{start // 60:02}:{start % 60:02}"
                found = place(left[1:], [*taken, (left[0].event_id, at, left[0].duration)])
                if found:
                    return found
        return None

    placed = place(sorted(events, key=lambda event: event.window()[2] is None), [])
    assert placed
    return calendar(*placed)
