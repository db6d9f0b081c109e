"""Rows made on other tables, and sessions that do not grow."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from gym_resources.workplace.office import NEMO_GYM
from gym_resources.workplace.tables import CHARACTERS_AT_MOST
from gym_runtime import Reply
from gym_runtime.environment.replaying import session_of
from gym_runtime.errors import AssetMissing, TaskError
from resources.workplace.office import (
    CRM,
    RAVI,
    Call,
    answer,
    opened,
    resource,
    row,
)
from resources.workplace_assistant.offices import DROP, REMOVE, SEND


def test_what_tools_answered_plays_no_part() -> None:
    answered = {"type": "function_call_output", "call_id": "c0", "output": "It went wrong."}
    calls = [{"type": "function_call", "call_id": "c0", "name": SEND[0], "arguments": json.dumps(SEND[1])}]

    async def verdict() -> float:
        session = await resource().open(row([SEND]))
        return (await resource().verify(session, Reply.of(*calls, answered).raw)).reward

    assert anyio.run(verdict) == 1.0


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


@pytest.mark.slow
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
            before_s = time.thread_time()
            await anyio.lowlevel.checkpoint()
            longest_s = max(longest_s, time.thread_time() - before_s)

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
