"""Which recorded call a new one is, by what it asks."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
from gym_faces.recordings import PastCall, PastCalls, tools_digest
from gym_faces.recordings.past_calls import plain
from gym_runtime.errors import JournalMismatch
from gym_runtime.messages import NULL
from msgspec import Raw
from tables import table

SHELL = tools_digest(Raw(b'[{"type":"function","name":"bash"}]'))


def raw(value: Any) -> Raw:
    return Raw(msgspec.json.encode(value))


def user(text: str) -> Raw:
    return raw({"role": "user", "content": text})


def output(text: str, call_id: str = "c1") -> Raw:
    return raw({"type": "function_call_output", "call_id": call_id, "output": text})


def calls(*recorded: PastCall) -> PastCalls:
    return PastCalls([raw(one) for one in recorded])


ROOT = PastCall(name="a", added=[user("do it")], tools=SHELL, instructions='"Be 1."')
NEXT = PastCall(name="b", after="a", added=[output("at 10:00:01")], tools=SHELL)


@table(
    ("some", "other"),
    [
        ("session 0b9f4c1e-1c2d-4e5f-8a9b-001122334455", "session 1b9f4c1e-1c2d-4e5f-8a9b-00112233445f"),
        ("Today's date is 2026-11-24.", "Today's date is 2026-11-25."),
        ("Wed Nov 25 18:58:02 UTC 2026", "Thu Nov 26 08:58:02 UTC 2026"),
        ("-rw-r--r-- 1 root 5 Nov 25 18:53 a", "-rw-r--r-- 1 root 5 Nov 25 19:01 a"),
        ("2026-11-25T10:00:00.123Z", "2026-11-26T11:01:07.5Z"),
        ("Chunk ID: 0af3b2\nWall time: 0.0069 seconds", "Chunk ID: ffe012\nWall time: 1.2 seconds"),
        ("OS Version: Linux 6.18.3-generic", "OS Version: Linux 6.12.0"),
        ("[main 1c2d3e4] message", "[main a2d3e4f] message"),
        (
            "commit 0a1b2c3d4e5f60718293a4b5c6d7e8f901234567",
            "commit 1a1b2c3d4e5f60718293a4b5c6d7e8f901234567",
        ),
        ("pid=77, PPID: 3", "pid=1077, PPID: 41"),
        ("in /tmp/tmp.Xy12/a", "in /tmp/tmp.Ab34/a"),
        (
            "http://127.0.0.1:40001/rollouts/run.0.0~" + 32 * "a",
            "http://127.0.0.1:9/rollouts/run.0.0~" + 32 * "b",
        ),
    ],
)
def test_what_differs_between_any_two_runs_is_left_out(some: str, other: str) -> None:
    assert plain(some) == plain(other)


@pytest.mark.parametrize(
    ("some", "other"),
    [("3 tests failed", "4 tests failed"), ("cat a.py", "cat b.py"), ("deadline", "deadlines"), ("42", "43")],
)
def test_what_is_said_stays(some: str, other: str) -> None:
    assert plain(some) != plain(other)


def test_the_same_call_and_one_that_has_drifted() -> None:
    past = calls(ROOT, NEXT)
    first = past.find("", [user("do it")], SHELL, raw("Be 1."))
    assert first is not None
    assert (first.place, first.drifted) == (0, False)
    assert past.put_back(raw("Be 1.")) == raw("Be 1.")
    second = past.find("a", [output("another text")], SHELL, raw("Be 1."))
    assert second is not None
    assert (second.place, second.call.added, second.drifted) == (1, [output("at 10:00:01")], True)
    assert past.over
    past.require_caught_up()


def test_only_the_time_differs() -> None:
    past = calls(ROOT, NEXT)
    found = past.find("a", [output("at 23:59:59")], SHELL, raw("Be 1."))
    assert found is not None
    assert not found.drifted


def test_other_instructions_are_put_back() -> None:
    past = calls(ROOT)
    found = past.find("", [user("do it")], SHELL, raw("Be 2."))
    assert found is not None
    assert found.drifted
    assert past.put_back(raw("Be 2.")) == raw("Be 1.")
    assert past.put_back(NULL) == NULL


def test_what_the_system_says_between_turns_may_be_missing_or_more() -> None:
    reminder = raw({"role": "system", "content": "It has run for 3 s."})
    past = calls(ROOT, NEXT)
    assert past.find("", [user("do it"), reminder], SHELL, raw("Be 1.")) is not None
    found = past.find("a", [output("at 10:00:02"), reminder, reminder], SHELL, raw("Be 1."))
    assert found is not None
    assert (found.drifted, found.call.added) == (True, NEXT.added)


def test_an_item_more_is_another_call() -> None:
    with pytest.raises(JournalMismatch, match=r"asks .*do it.* it asked 'nothing more'"):
        calls(ROOT).find("", [user("do it"), user("do it")], SHELL, raw("Be 1."))


def test_after_the_last_one_a_call_is_new() -> None:
    past = calls(ROOT, NEXT)
    assert past.find("b", [output("x")], SHELL, NULL) is None


def test_with_other_tools_it_is_a_question_beside() -> None:
    past = calls(ROOT, NEXT)
    assert past.find("", [user("a title?")], "", NULL) is None
    with pytest.raises(JournalMismatch, match=r"asks .*a title.*it asked .*do it"):
        past.find("", [user("a title?")], SHELL, NULL)


def test_each_is_found_once() -> None:
    past = calls(ROOT, msgspec.structs.replace(ROOT, name="again"))
    found = [past.find("", [user("do it")], SHELL, raw("Be 1.")) for _ in range(3)]
    assert [one and one.place for one in found] == [0, 1, None]


def test_outputs_of_tools_that_ran_at_once_may_come_in_any_order() -> None:
    two = PastCall(name="a", added=[output("x", "c1"), output("y", "c2")])
    found = calls(two).find("", [output("y", "c2"), output("x", "c1")], "", NULL)
    assert found is not None
    assert found.call.added == two.added


def test_an_end_before_the_recorded_one() -> None:
    past = calls(ROOT, NEXT, PastCall(name="t", added=[user("a title?")]))
    past.find("", [user("do it")], SHELL, raw("Be 1."))
    with pytest.raises(JournalMismatch, match="asked on"):
        past.require_caught_up()
    past.find("a", [output("x")], SHELL, NULL)
    past.require_caught_up()  # without the title: it is not part of the longest conversation


@pytest.mark.parametrize("note", [b"null", b"[]", b'{"name":1}'])
def test_notes_of_another_agent(note: bytes) -> None:
    with pytest.raises(JournalMismatch, match="another agent's"):
        PastCalls([Raw(note)])


@table("piece", ["a", " ", "Mon", "Jan ", "pid ", "Linux ", "1", "/tmp/", "0a", "wall time", "-"])
def test_a_megabyte_of_anything_is_read_at_once(piece: str) -> None:
    text = piece * (2**20 // len(piece))
    began = time.process_time()
    plain(text)
    assert time.process_time() - began < 0.05
