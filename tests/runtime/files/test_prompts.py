"""Prompt templates: filled from a row's fields, and from nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gym_runtime.errors import UsageError
from gym_runtime.files import read_prompt
from gym_runtime.files.dataset import open_dataset
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


def dataset(
    path: Path, rows: list[dict[str, Any]], environment: str, prompt: str = ""
) -> list[dict[str, Any]]:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with open_dataset(path, environment=environment, prompt=prompt) as found:
        return [json.loads(row.line) for row in found.read()]


def asked(row: dict[str, Any]) -> Any:
    return row["responses_create_params"]["input"][-1]["content"]


NEMO_GYM_ROWS = {
    "math500": {"question": "Add {1}.", "expected_answer": "2"},
    "gpqa": {
        "question": "Which?",
        "options": [{"A": "this"}, {"B": "that"}],
        "expected_answer": "B",
        "responses_create_params": {"temperature": 0.5},
    },
}


def test_rows_of_a_benchmark_without_an_input_get_its_prompt(tmp_path: Path) -> None:
    [row] = dataset(tmp_path / "a.jsonl", [NEMO_GYM_ROWS["math500"]], "math500")
    assert asked(row).endswith("nothing else, into \\boxed{}.\n\nAdd {1}.")
    [row] = dataset(tmp_path / "b.jsonl", [NEMO_GYM_ROWS["gpqa"]], "gpqa")
    assert asked(row).endswith("\n\nWhich?\n\nA) this\nB) that")
    assert row["responses_create_params"]["temperature"] == 0.5
    with pytest.raises(UsageError, match=r"b\.jsonl:1: the prompt needs 'problem'"):
        dataset(tmp_path / "b.jsonl", [{"expected_answer": "2"}], "math500")
    with pytest.raises(UsageError, match="'responses_create_params' is missing"):
        dataset(tmp_path / "b.jsonl", [{"expected_answer": "2"}], "math_with_judge")


def test_a_run_takes_another_prompt_by_name_or_file(tmp_path: Path) -> None:
    rows = [
        NEMO_GYM_ROWS["gpqa"],
        {**NEMO_GYM_ROWS["gpqa"], "responses_create_params": {"input": "Old.", "top_p": 0.9}},
    ]
    new, old = dataset(tmp_path / "a.jsonl", rows, "gpqa", "nemo-gym")
    assert asked(new) == asked(old)
    assert "(e.g. 'Answer: A')." in asked(new)
    assert old["responses_create_params"]["top_p"] == 0.9
    (tmp_path / "p.toml").write_text('user = "So: {question}"\n')
    assert asked(dataset(tmp_path / "a.jsonl", rows, "gpqa", str(tmp_path / "p.toml"))[1]) == "So: Which?"
    with pytest.raises(
        UsageError, match=r"--prompt nemo: 'gpqa' has no such prompt; it has nemo-gym, or name a"
    ):
        dataset(tmp_path / "a.jsonl", rows, "gpqa", "nemo")
    with pytest.raises(UsageError, match=r"--prompt nemo-gym: 'mcqa' has no such prompt; name a file"):
        dataset(tmp_path / "a.jsonl", rows, "mcqa", "nemo-gym")


def test_another_prompt_keeps_the_images_of_a_row(tmp_path: Path) -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "auto"}
    given = [{"role": "user", "content": [{"type": "input_text", "text": "Old."}, image]}]
    row = {"question": "What?", "expected_answer": "A", "responses_create_params": {"input": given}}
    (tmp_path / "p.toml").write_text('user = "{question}"\n')
    [row] = dataset(tmp_path / "a.jsonl", [row], "hle", str(tmp_path / "p.toml"))
    assert asked(row) == [{"type": "input_text", "text": "What?"}, image]
