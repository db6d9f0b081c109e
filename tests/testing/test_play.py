"""A person is the model."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import anyio
import pytest
from gym_runtime.environment import catalogue, examples
from gym_runtime.errors import UsageError
from gym_testing.commands.play import play
from resources.guests.harbor_folders import task

NAME = "example_single_tool_call"
CALL = '/get_weather {"city": "Lisbon"}\n'


def typed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_what_a_person_did_is_judged_and_recorded_as_a_gold(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    gold = tmp_path / "gold.jsonl"
    typed(monkeypatch, f"/nope\n/get_weather [\n{CALL}It is\\\n cold.\n")
    assert play(NAME, record=gold) == 0
    said = capsys.readouterr().out
    assert "/get_weather {city}  Get the weather of a city." in said
    assert "there is no tool nope; there are: get_weather" in said
    assert "the arguments are a JSON object" in said
    assert "weather_description" in said
    assert "reward 1  completed" in said
    assert json.loads(gold.read_text())["gold"] == [
        {"call": "get_weather", "city": "Lisbon"},
        "It is\n cold.",
    ]


@pytest.mark.slow
def test_a_guest_is_played_by_a_row_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("GYM_CACHE", str(tmp_path / "cache"))
    task(tmp_path / "count")
    typed(monkeypatch, '/bash {"command": "echo 3 >out.txt"}\nDone.\n')
    assert play(f"harbor:{tmp_path / 'count'}?image=none") == 0
    said = capsys.readouterr().out
    assert "Count the lines of data.txt" in said
    assert "reward 1  completed" in said
    with pytest.raises(UsageError, match="has no rows of its own: --input FILE"):
        play("mcp:bash?verify=mcqa")


def test_a_stored_rollout_is_played_on_from_a_turn(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    environment = catalogue.environment(NAME)
    example = examples.read(environment)[0]
    response = json.loads(anyio.run(examples.play, environment.resource, example))
    marks = {"_ng_task_index": 0, "_ng_rollout_index": 0, "_gym": {"environment": NAME}}
    row = {**json.loads(example.row), "response": response, **marks}
    row["responses_create_params"]["input"][-1]["content"] = "Lisbon\x1b]52;c;eA==\x07?"
    stored = tmp_path / "stored.jsonl"
    stored.write_text(json.dumps(row) + "\n")
    typed(monkeypatch, "Wear a coat.\n")
    assert play(f"{stored}:0@1") == 0
    said = capsys.readouterr().out
    # The call is not typed again, and a terminal obeys nothing of a row.
    assert "calls get_weather" in said
    assert "\x1b]52" not in said
    assert "\\x1b]52;c" in said

    typed(monkeypatch, "")
    assert play(f"{stored}:0@1") == 1
    assert "failed: the person left" in capsys.readouterr().out
    stored.write_text(json.dumps({**row, "_gym": {}, "agent_ref": {"name": "no/such"}}) + "\n")
    with pytest.raises(UsageError, match="no/such"):
        play(f"{stored}:0@1")
    with pytest.raises(UsageError, match="has no row 99"):
        play(NAME, row=99)
    for what in (str(stored), f"{stored}:0"):
        with pytest.raises(UsageError, match="give FILE:TASK@TURN"):
            play(what)
    with pytest.raises(UsageError, match=r"there is no file gone\.jsonl"):
        play("gone.jsonl:0@1")


def test_what_is_typed_need_not_be_utf_8(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = io.TextIOWrapper(io.BytesIO("東\udcff京\n".encode("utf-8", "surrogateescape")))
    typed.reconfigure(errors="surrogateescape")
    monkeypatch.setattr("sys.stdin", typed)
    assert play("string_match") == 0
    assert "reward 0" in capsys.readouterr().out


def test_rows_and_the_file_of_golds_are_checked_before_anything_is_played(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    with pytest.raises(UsageError, match=r"there is no file .*rows\.jsonl"):
        play(NAME, input=rows)
    rows.write_text('\n\n{"responses_create_params": {"input": 5}}\n')
    with pytest.raises(UsageError, match=r"rows\.jsonl:3: "):
        play(NAME, input=rows, row=3)
    with pytest.raises(UsageError, match="has no rows of its own: --input FILE"):
        play("nemo-gym:http://127.0.0.1:1/mcqa")
    with pytest.raises(UsageError, match=r"there is no folder .*nowhere"):
        play(NAME, record=tmp_path / "nowhere" / "golds.jsonl")
    with pytest.raises(UsageError, match="choose another --record"):
        play(NAME, record=tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="choose another --record"):
        play(NAME, record=tmp_path / "pipe")
    other = {"responses_create_params": {"input": "x"}, "expected_answer": "y"}
    rows.write_text(json.dumps({**other, "agent_ref": {"name": "string_match"}}))
    with pytest.raises(UsageError, match=f"the row is of 'string_match', not of '{NAME}'"):
        play(NAME, input=rows)


def test_only_what_scores_is_recorded_and_replaces_an_earlier_gold(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    gold = tmp_path / "gold.jsonl"
    typed(monkeypatch, "")
    assert play(NAME, record=gold) == 1
    assert "failed: the person left" in capsys.readouterr().out
    typed(monkeypatch, "I cannot tell.\n")
    with pytest.raises(UsageError, match="what you did scores 0 instead of 1"):
        play("string_match", record=gold)
    assert not gold.exists()
    for said in ("Cold.\n", "Very cold.\n"):
        typed(monkeypatch, CALL + said)
        assert play(NAME, record=gold) == 0
    (line,) = gold.read_text().splitlines()
    assert json.loads(line)["gold"][-1] == "Very cold."
