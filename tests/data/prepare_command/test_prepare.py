"""`prepare`: a file becomes data; mistakes write nothing."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from data.prepare_command.prepared import APPLES_REF, Prepare, Write, read, row
from gym_runtime.files.dataset import open_dataset


def test_a_file_becomes_data_with_agent_ref_and_metrics(prepare: Prepare, write: Write) -> None:
    write("in.jsonl", [row(1, uuid="a"), "", row(2, uuid="b")])
    status, said = prepare("apples_env", "--input", "in.jsonl", "-o", "out")
    assert (status, said.splitlines()[0]) == (0, "train      2 rows (2 apples_env)")
    assert read("out/train.jsonl") == [
        {**row(1, uuid="a"), "agent_ref": APPLES_REF}, {**row(2, uuid="b"), "agent_ref": APPLES_REF},
    ]  # fmt: skip
    metrics = json.loads(Path("out/train_metrics.json").read_text())
    assert metrics["Number of examples"] == 2
    assert metrics["uuid"] == {"unique_count": 2, "total_count": 2}
    assert sorted(path.name for path in Path("out").iterdir()) == [
        "apples_env_train_metrics.json", "apples_env_train_prepare.jsonl",
        "sources.json", "train.jsonl", "train_metrics.json",
    ]  # fmt: skip
    assert [path.name for path in Path().glob("in*")] == ["in.jsonl"]


def test_a_failure_leaves_no_folder(prepare: Prepare, write: Write) -> None:
    write("in.jsonl", [{"number": "x"}])
    Path("there").mkdir()
    assert prepare("apples_env", "--input", "in.jsonl", "-o", "some/where")[0] == 2
    assert prepare("apples_env", "--input", "in.jsonl", "-o", "there")[0] == 2
    assert not Path("some").exists()
    assert Path("there").is_dir()


def test_help_names_the_files_of_a_source(prepare: Prepare) -> None:
    assert "x_prepare.jsonl" in prepare("--help")[1]


def test_what_was_prepared_is_what_run_reads(prepare: Prepare) -> None:
    assert prepare("apples_env", "--split", "example", "-o", "out")[0] == 0
    assert all("gold" not in one for one in read("out/example.jsonl"))
    with open_dataset("out/example.jsonl") as dataset:
        assert dataset.environments == {"apples_env": 5}


def test_rows_of_no_environment_are_left_out_where_that_is_asked_for(prepare: Prepare, write: Write) -> None:
    write("in.jsonl", [row(1), row(2, agent_ref={"name": "alien_agent"}), row(3)])
    assert prepare("apples_env", "-i", "in.jsonl", "-o", "out", "--skip-unknown")[0] == 0
    assert [one["number"] for one in read("out/train.jsonl")] == [1, 3]


def test_rows_of_no_environment_belong_to_the_one_that_is_named_as_in_a_run(
    prepare: Prepare, write: Write
) -> None:
    write("in.jsonl", [row(1), row(2, agent_ref={"name": "alien_agent"}), row(3)])
    assert prepare("apples_env", "-i", "in.jsonl", "-o", "out")[0] == 0
    rows = read("out/train.jsonl")
    assert [(one["number"], one["agent_ref"]["name"]) for one in rows] == [
        (number, "apples_env") for number in (1, 2, 3)
    ]
    with open_dataset("out/train.jsonl") as dataset:
        assert dataset.environments == {"apples_env": 3}


def test_what_a_killed_prepare_left_is_removed_by_the_next_one(prepare: Prepare, write: Write) -> None:
    write("in.jsonl", [row(1)])
    Path("out").mkdir()
    left = [Path("out/.train.jsonl.0123abcd.tmp"), Path("out/.apples_env_train_prepare.jsonl.0123abcd.tmp")]
    others = [Path("out/.train.jsonl.mine.tmp"), Path("out/.other.jsonl.0123abcd.tmp")]
    for file in (*left, *others):
        file.write_text("half")
    assert prepare("apples_env", "-i", "in.jsonl", "-o", "out")[0] == 0
    assert [file.exists() for file in (*left, *others)] == [False, False, True, True]


def test_an_empty_output_is_not_this_folder(prepare: Prepare, write: Write) -> None:
    write("in.jsonl", [row(1)])
    before = sorted(Path().iterdir())
    status, said = prepare("apples_env", "-i", "in.jsonl", "--output", "")
    assert status == 2
    assert said == "gym-runtime: invalid value for --output: it is empty; name a path\n"
    assert sorted(Path().iterdir()) == before


def test_every_bad_row_is_named_and_nothing_is_written(prepare: Prepare, write: Write) -> None:
    write("apples.jsonl", [row(1), {"number": 2}, row(3), '{"number":', {**row(4), "number": "many"}])
    write("pears.jsonl", [row(1, agent_ref={"name": "apples_env"})])
    status, said = prepare(
        "apples_env", "pears_env", "-i", "apples_env=apples.jsonl", "-i", "pears_env=pears.jsonl", "-o", "out"
    )
    assert status == 2
    lines = said.splitlines()
    assert lines[0].startswith("gym-runtime: apples.jsonl:2: 'responses_create_params' is missing")
    assert lines[1].startswith("apples.jsonl:4: ")
    assert lines[2].startswith("apples.jsonl:5:")
    assert lines[3] == "pears.jsonl:1: the row is of 'apples_env', not of 'pears_env'"
    assert len(lines) == 4
    assert not Path("out").exists()


def test_a_number_that_no_double_holds_is_named_by_its_line(prepare: Prepare, write: Write) -> None:
    write("in.jsonl", [row(1), '{"responses_create_params": {"input": "x"}, "number": 2, "more": 1e999}'])
    status, said = prepare("apples_env", "-i", "in.jsonl", "-o", "out")
    assert status == 2
    assert said.startswith("gym-runtime: in.jsonl:2: Number out of range")
    assert said.count("\n") == 1


def test_rows_come_on_standard_input(prepare: Prepare, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(row(1)).encode())))
    assert prepare("apples_env", "-i", "-", "-o", "out")[0] == 0
    assert [one["number"] for one in read("out/train.jsonl")] == [1]


@pytest.mark.parametrize("metrics", ["out/train_metrics.json", "out/apples_env_train_metrics.json"])
def test_what_could_not_be_written_whole_is_prepared_again(
    metrics: str, prepare: Prepare, write: Write
) -> None:
    write("in.jsonl", [row(1)])
    Path(metrics).mkdir(parents=True)
    asked = ["apples_env", "-i", "in.jsonl", "-o", "out"]
    assert prepare(*asked)[1].endswith("pass --overwrite-metrics-conflicts to replace them\n")
    assert prepare(*asked, "--overwrite-metrics-conflicts")[0] != 0
    Path(metrics).rmdir()
    assert prepare(*asked)[0] == 0


def test_sigterm_leaves_no_draft(environment_folder: Path, write: Write, tmp_path: Path) -> None:
    write("in.jsonl", [row(1)])
    os.mkfifo("endless.jsonl")
    (tmp_path / "temporary").mkdir()
    command = [sys.executable, "-m", "gym_runtime.cli.main", "prepare", "apples_env", "-i", "endless.jsonl"]
    environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    with (
        subprocess.Popen([*command, "-o", "out"], env=environment) as prepares,
        open("endless.jsonl", "wb"),  # opens when the command reads it
    ):
        prepares.send_signal(signal.SIGTERM)
        assert prepares.wait() == 130
    assert not Path("out").exists()
    assert not list((tmp_path / "temporary").iterdir())
