"""Prompt templates: filled from a row's fields, and from nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gym_data.prepare.prompts import read_prompt
from gym_runtime.errors import UsageError
from gym_runtime.files.row_reader import BadRow


def fill(path: Path, row: dict[str, Any]) -> dict[str, Any]:
    return json.loads(read_prompt(path).fill(json.dumps(row).encode()))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.yaml", "system: Be {tone}.\nuser: |-\n  {question}\n  {{literal}} {level:.1f}\n"),
        ("p.toml", 'system = "Be {tone}."\nuser = """\n{question}\n{{literal}} {level:.1f}"""\n'),
    ],
)
def test_fields_are_put_into_words(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    row = {
        "responses_create_params": {"temperature": 0.1}, "question": "Why {x}?", "tone": "kind", "level": 2,
        "large": 12345678901234567890123,
    }  # fmt: skip
    assert fill(path, row) == {
        **row,
        "responses_create_params": {
            "input": [
                {"role": "system", "content": "Be kind."},
                {"role": "user", "content": "Why {x}?\n{literal} 2.0"},
            ],
            "temperature": 0.1,
        },
    }
    del row["responses_create_params"]
    assert fill(path, row)["responses_create_params"]["input"][1]["role"] == "user"


def test_an_image_follows_the_users_text(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text('system = "Look."\nuser = "{question}"\nimage = "picture"\n')
    row = fill(path, {"question": "What?", "picture": "data:image/png;base64,AA=="})
    assert row == {
        "question": "What?",
        "responses_create_params": {
            "input": [
                {"role": "system", "content": "Look."},
                {
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "What?"},
                        {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "auto"},
                    ],
                },
            ]
        },
    }
    for without in ({}, {"picture": ""}, {"picture": None}):
        assert (
            fill(path, {"question": "What?", **without})["responses_create_params"]["input"][1]["content"]
            == "What?"
        )
    with pytest.raises(BadRow, match="'picture' is no text"):
        fill(path, {"question": "What?", "picture": [1]})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("user: '{x.__class__}'", "reaches into a value"),
        ("user: '{x[0]}'", "reaches into a value"),
        ("user: ok\nsystem: '{x.y!r}'", "reaches into a value"),
        ("user: '{x:{y.__class__}}'", "has a field within a format"),
        ("user: '{}'", "names no field"),
        ("user: '{0}'", "names no field"),
        ("user: '{x'", "written twice"),
        ("system: hello", "'user'"),
        ("user: x\nusr: y", "unknown field `usr`"),
        ("user: [1]", "Expected `str`"),
        ("just text", "a prompt has 'user'"),
        ("user: 'x", "not YAML"),
        ("!!python/object/apply:os.system ['true']", "not YAML"),
    ],
)
def test_a_template_that_is_none_is_refused(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as refused:
        read_prompt(path)
    assert said in refused.value.message
    assert refused.value.message.startswith(str(path))
    assert "\n" not in refused.value.message


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"responses_create_params": {"input": "hi"}, "question": "?"}, "is there already"),
        ({"questoin": "?"}, "the prompt needs 'question'; did you mean 'questoin'?"),
        ({"question": None, "n": "x"}, "unsupported format string"),
    ],
)
def test_a_row_that_cannot_be_put_into_it_is_bad(row: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text('user = "{question:>4}"')
    with pytest.raises(BadRow) as refused:
        fill(path, row)
    assert said in refused.value.message


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        read_prompt(tmp_path / "p.yaml")
