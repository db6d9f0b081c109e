"""Nothing foreign is obeyed by a terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from gym_runtime.cli import main, terminal
from gym_runtime.escapes import shown
from rich.table import Table
from rich.text import Text

HOSTILE = "a\x1b]52;c;eA==\x07\x9b2J\u202eb\x7f"
SHOWN = r"a\x1b]52;c;eA==\x07\x9b2J\u202eb\x7f"


def test_what_a_terminal_obeys_is_shown_and_nothing_else_is_changed() -> None:
    assert shown(HOSTILE) == SHOWN
    assert (
        shown("caf\u00e9 \u4e2d\u6587 \U0001f469\u200d\U0001f467\tx\n")
        == "caf\u00e9 \u4e2d\u6587 \U0001f469\u200d\U0001f467\tx\n"
    )


@pytest.mark.parametrize("console", [terminal.output, terminal.errors])
def test_both_consoles_show_it_in_texts_and_tables(
    console: object, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert callable(console)
    table = Table(box=None)
    table.add_column(HOSTILE)
    table.add_row(HOSTILE)
    for one in (HOSTILE, Text(HOSTILE), table):
        console().print(one)
    said = "".join(capsys.readouterr())
    assert not {"\x1b", "\x9b", "\x07", "\u202e", "\x7f"} & set(said)
    assert said.count(r"a\x1b]52") == 4


def test_json_says_the_same_in_its_own_escapes(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    document = {HOSTILE: [HOSTILE, "caf\u00e9 \u4e2d"]}
    terminal.print_json(document)
    said = capfdbinary.readouterr().out.decode()
    assert not {"\x1b", "\x9b", "\x07", "\u202e", "\x7f"} & set(said)
    assert "caf\u00e9 \u4e2d" in said
    assert json.loads(said) == document


def test_a_complaint_that_quotes_a_path_or_a_row_shows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["show", f"{HOSTILE}:1", "--in", str(tmp_path)]) != 0
    said = capsys.readouterr().err
    assert not {"\x1b", "\x9b", "\u202e"} & set(said)
    assert r"\x1b]52" in said


def test_labels_of_a_shown_rollout_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {
        "responses_create_params": {"input": "hi"},
        "response": {"output": []},
        "reward": 1.0,
        "reward_components": {HOSTILE: 1.0},
        "\x1b[2Jextracted_answer": "x",
        "judge_evaluation\x1b[2J": "No.",
    }
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    assert main.run(["show", f"{tmp_path}/rows.jsonl:1"]) == 0
    assert not {"\x1b", "\x9b", "\u202e"} & set(capsys.readouterr().out)


def test_lines_of_the_log_show_it_tracebacks_too() -> None:
    code = (
        "from gym_runtime import logs\n"
        "logs.start(lines=True)\n"
        f"text = {HOSTILE!r}\n"
        "logs.logger().warning(text, subject=text)\n"
        "try:\n    raise ValueError(text)\n"
        "except ValueError:\n    logs.logger().exception('raised')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "GYM_LOG_LEVEL": "", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )
    assert done.stdout == ""
    assert done.stderr.count(r"\x1b]52") >= 3
    assert "\x1b" not in done.stderr
