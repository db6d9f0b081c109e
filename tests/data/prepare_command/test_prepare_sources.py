"""`prepare`: blends, metrics, sources, the hub, prompts and names."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from data.prepare_command.prepared import APPLES_REF, Prepare, Write, read, row
from stubs.stub_hub import StubHub


def test_environments_are_blended_by_weight_and_seed(prepare: Prepare, write: Write) -> None:
    write("apples.jsonl", [row(number) for number in range(40)])
    write("pears.jsonl", [row(number) for number in range(100)])
    both = ["apples_env", "pears_env", "-i", "apples_env=apples.jsonl", "-i", "pears_env=pears.jsonl"]

    def names(path: str) -> list[str]:
        return [one["agent_ref"]["name"] for one in read(path)]

    assert prepare(*both, "-o", "all")[0] == 0
    assert Counter(names("all/train.jsonl")) == {"apples_env": 40, "pears_env": 100}
    weights = ["--weight", "apples_env=3", "--weight", "pears_env=1"]
    assert prepare(*both, *weights, "-o", "weighted")[0] == 0
    assert Counter(names("weighted/train.jsonl")) == {"apples_env": 40, "pears_env": 13}
    assert prepare(*both, *weights, "--size", "100", "--repeats", "pears_env=2", "-o", "sized")[0] == 0
    sized = read("sized/train.jsonl")
    assert Counter(names("sized/train.jsonl")) == {"apples_env": 75, "pears_env": 50}
    pears = [one["number"] for one in sized if one["agent_ref"]["name"] == "pears_env"]
    assert pears[::2] == pears[1::2] == sorted(pears[::2])
    assert prepare(*both, "--seed", "0", "-o", "again")[0] == 0
    assert Path("again/train.jsonl").read_bytes() == Path("all/train.jsonl").read_bytes()
    assert prepare(*both, "--seed", "1", "-o", "other")[0] == 0
    assert Path("other/train.jsonl").read_bytes() != Path("all/train.jsonl").read_bytes()


def test_data_that_is_not_what_its_metrics_say_is_refused(prepare: Prepare, write: Write) -> None:
    write("in.jsonl", [row(1), row(2)])
    assert prepare("apples_env", "-i", "in.jsonl", "-o", "out")[0] == 0
    before = Path("out/train.jsonl").read_bytes()
    assert prepare("apples_env", "-i", "in.jsonl", "-o", "out")[0] == 0
    write("in.jsonl", [row(1), row(3)])
    status, said = prepare("apples_env", "-i", "in.jsonl", "-o", "out")
    assert status == 2
    assert "'number.Average' was 1.5 and is 2" in said
    assert Path("out/train.jsonl").read_bytes() == before
    conflict = Path("out/apples_env_train_metrics_conflict.json")
    assert json.loads(conflict.read_text())["number"]["Average"] == 2.0
    Path("out/apples_env_train_metrics.json").unlink()
    Path("out/apples_env_train_prepare.jsonl").unlink()
    status, said = prepare("apples_env", "-i", "in.jsonl", "-o", "out")
    assert status == 2
    assert "'number.Average' was 1.5 and is 2" in said
    assert Path("out/train.jsonl").read_bytes() == before
    assert json.loads(Path("out/train_metrics_conflict.json").read_text())["number"]["Average"] == 2.0
    assert prepare("apples_env", "-i", "in.jsonl", "-o", "out", "--overwrite-metrics-conflicts")[0] == 0
    assert [one["number"] for one in read("out/train.jsonl")] == [1, 3]
    assert not list(Path().glob("**/*_conflict.json"))


def test_a_source_has_files_of_its_own_beside_it(prepare: Prepare, write: Write) -> None:
    write("in.jsonl", [row(1), row(2), row(3)])
    asked = ["apples_env", "-i", "in.jsonl", "--size", "2", "--repeats", "apples_env=2"]
    status, said = prepare(*asked, "--json")
    assert (status, json.loads(said)[0]["sources"]) == (0, {"apples_env": "in_prepare.jsonl"})
    assert read("in_prepare.jsonl") == [{**row(number), "agent_ref": APPLES_REF} for number in (1, 2, 3)]
    assert len(read("data/apples_env/train.jsonl")) == 4
    metrics = json.loads(Path("in_metrics.json").read_text())
    description = {
        "name": "apples_env", "type": "train", "jsonl_fpath": "in.jsonl", "num_repeats": 2, "source": None,
        "license": None,
    }  # fmt: skip
    assert list(metrics.items())[:6] == list(description.items())
    assert metrics["Number of examples"] == 3
    assert metrics["number"]["Max"] == 3
    # What describes it is no part of the promise: NeMo Gym, or another folder, may have said it otherwise.
    metrics.update(jsonl_fpath="/elsewhere.jsonl", license="MIT", huggingface_identifier=None, num_repeats=1)
    Path("in_metrics.json").write_text(json.dumps(metrics))
    assert prepare("apples_env", "-i", "in.jsonl", "-o", "other")[0] == 0
    metrics["number"]["Max"] = 7
    Path("in_metrics.json").write_text(json.dumps(metrics))
    before = {path: path.stat().st_mtime_ns for path in Path().glob("in*")}
    status, said = prepare("apples_env", "-i", "in.jsonl", "-o", "third")
    assert (status, "the data is not what in_metrics.json says" in said) == (2, True)
    assert {path: path.stat().st_mtime_ns for path in Path().glob("in*")} == before
    assert [path.name for path in Path("third").iterdir()] == ["apples_env_train_metrics_conflict.json"]


def test_a_source_that_contradicts_its_metrics_stops_everything(prepare: Prepare, write: Write) -> None:
    for name in ("apples", "pears"):
        write(f"{name}.jsonl", [row(1)])
    Path("pears_metrics.json").write_text('{"name": "pears", "Number of examples": 2}')
    both = ["apples_env", "pears_env", "-i", "apples_env=apples.jsonl", "-i", "pears_env=pears.jsonl"]
    status, said = prepare(*both)
    assert status == 2
    assert "the data is not what pears_metrics.json says" in said
    assert "'Number of examples' was 2 and is 1" in said
    assert not Path("data").exists()
    assert not list(Path().glob("*_prepare.jsonl"))
    assert json.loads(Path("pears_metrics_conflict.json").read_text())["Number of examples"] == 1


def test_a_source_that_is_no_file_of_ones_own_has_its_files_in_the_output(
    prepare: Prepare, write: Write, hub: StubHub
) -> None:
    rows = b"".join(json.dumps(row(number)).encode() + b"\n" for number in (1, 2))
    hub.commit("someone/apples_env-2", {"train.jsonl": rows})
    assert prepare("apples_env:second", "-o", "hub")[0] == 0
    assert read("hub/apples_env_second_train_prepare.jsonl") == read("hub/train.jsonl")
    metrics = json.loads(Path("hub/apples_env_second_train_metrics.json").read_text())
    assert metrics["source"] == {
        "type": "huggingface", "repo_id": "someone/apples_env-2", "artifact_fpath": "train.jsonl",
    }  # fmt: skip
    assert (metrics["license"], metrics["jsonl_fpath"]) == ("MIT", None)
    assert prepare("apples_env", "--split", "example", "-o", "examples")[0] == 0
    assert len(read("examples/apples_env_example_prepare.jsonl")) == 5
    assert prepare("apples_env", "--source", "generate", "--size", "2", "-o", "made")[0] == 0
    assert len(read("made/apples_env_train_prepare.jsonl")) == 2
    Path("p.yaml").write_text("user: Say {number}.\n")
    write("in.jsonl", [{"number": 1}])
    assert prepare("apples_env", "-i", "in.jsonl", "--prompt", "p.yaml", "-o", "filled")[0] == 0
    [filled] = read("filled/apples_env_train_prepare.jsonl")
    assert filled["responses_create_params"]["input"][0]["content"] == "Say 1."
    assert not list(Path().glob("*_prepare.jsonl"))
    assert not [path.name for path in Path().glob("*_metrics.json")]


def test_no_file_is_replaced_that_is_read_or_did_not_come_from_here(prepare: Prepare, write: Write) -> None:
    write("in.jsonl", [row(1)])
    write("in_prepare.jsonl", [row(2)])
    status, said = prepare("apples_env", "-i", "in.jsonl")
    assert (status, "in_prepare.jsonl exists and was not prepared here" in said) == (2, True)
    Path("in_metrics.json").write_text("{}")
    both = ["apples_env", "pears_env", "-i", "apples_env=in.jsonl", "-i", "pears_env=in_prepare.jsonl"]
    status, said = prepare(*both)
    assert (status, "in_prepare.jsonl would be read and written" in said) == (2, True)
    assert read("in_prepare.jsonl") == [row(2)]


def test_rows_come_from_the_hub_and_stay_at_their_commit(
    prepare: Prepare,
    hub: StubHub,
) -> None:
    def lines(*numbers: int) -> bytes:
        return b"".join(json.dumps(row(number)).encode() + b"\n" for number in numbers)

    first = hub.commit(
        "someone/apples_env", {"train.jsonl": lines(1, 2), "validation.jsonl": lines(3)}
    )  # fmt: skip
    hub.commit("someone/apples_env-2", {"train.jsonl": lines(8)})
    both = ["apples_env", "--split", "train", "--split", "validation", "-o", "out", "--json"]
    status, said = prepare(*both)
    assert (status, [one["rows"] for one in json.loads(said)]) == (0, [2, 1])
    assert [one["number"] for one in read("out/validation.jsonl")] == [3]
    sources = json.loads(Path("out/sources.json").read_text())
    assert sources["train"] == [
        {
            "environment": "apples_env", "repo_id": "someone/apples_env", "file": "train.jsonl",
            "revision": "main", "commit": first, "license": "MIT",
        }
    ]  # fmt: skip
    hub.commit("someone/apples_env", {"train.jsonl": lines(5), "validation.jsonl": lines(6)})
    assert prepare(*both)[0] == 0
    assert [one["number"] for one in read("out/train.jsonl")] == [1, 2]
    assert prepare("apples_env", "-o", "fresh")[0] == 0
    assert [one["number"] for one in read("fresh/train.jsonl")] == [5]
    assert prepare("apples_env:second", "-o", "second")[0] == 0
    assert [one["number"] for one in read("second/train.jsonl")] == [8]


def test_environments_generate_rows(prepare: Prepare) -> None:
    generate = ["apples_env", "--source", "generate", "--size", "4"]
    assert prepare(*generate, "--seed", "7", "--set", "start=100", "-o", "out")[0] == 0
    assert [one["number"] for one in read("out/train.jsonl")] == [107, 108, 109, 110]


def test_a_prompt_makes_the_input(prepare: Prepare, write: Write) -> None:
    write("in.jsonl", [{"number": 1, "what": "one"}, {"number": 2, "waht": "two"}])
    Path("p.yaml").write_text("user: Say {what}.\n")
    status, said = prepare("apples_env", "-i", "in.jsonl", "--prompt", "p.yaml", "-o", "out")
    assert (status, said) == (
        2, "gym-runtime: in.jsonl:2: the prompt needs 'what'; did you mean 'waht'?\n",
    )  # fmt: skip
    write("in.jsonl", [{"number": 1, "what": "one"}])
    assert prepare("apples_env", "-i", "in.jsonl", "--prompt", "p.yaml", "-o", "out")[0] == 0
    made = read("out/train.jsonl")[0]
    assert made["responses_create_params"] == {"input": [{"role": "user", "content": "Say one."}]}
    assert (made["number"], made["what"]) == (1, "one")


def test_a_name_that_a_row_has_for_its_environment_is_kept(prepare: Prepare, write: Write) -> None:
    ref = {"type": "responses_api_agents", "name": "mcqa_simple_agent", "more": 1}
    options = {"options": [{"A": "x"}, {"B": "y"}], "expected_answer": "A"}
    write("in.jsonl", [{**row(1), **options, "agent_ref": ref}])
    assert prepare("mcqa", "-i", "in.jsonl", "-o", "out")[0] == 0
    assert read("out/train.jsonl")[0]["agent_ref"] == {**APPLES_REF, "name": "mcqa_simple_agent"}


MISTAKES = {
    "": "say which",
    "mqca": "did you mean 'mcqa'?",
    "apples_env apples_env": "named twice",
    "apples_env --split test": "train, validation, example",
    "apples_env -i missing.jsonl": "there is no file missing.jsonl",
    "apples_env pears_env -i missing.jsonl": "--input NAME=missing.jsonl",
    "apples_env -i in.jsonl --split train --split validation": "one after the other",
    "apples_env pears_env --weight apples_env=1": "'pears_env' has no --weight",
    "apples_env --weight pears_env=1": "is not one of",
    "apples_env --weight apples_env=much": "is not a number",
    "apples_env --weight apples_env": "NAME=VALUE",
    "apples_env -i in.jsonl --weight apples_env=0": "must be above 0",
    "apples_env --repeats apples_env=0": "at least 1",
    "apples_env:third": "it has 'second'",
    "apples_env --source file": "--input FILE",
    "apples_env --source generate": "--size N",
    "apples_env --source generate --size 2 --set strat=1": "did you mean 'start'?",
    "apples_env -i in.jsonl --set start=1": "prepare it alone, with --source generate",
    "mcqa --source generate --size 2": "cannot generate",
    "arc_agi": "--input FILE",
    "calendar:v3": "it has 'v2'",
    "apples_env -i in.jsonl --prompt missing.yaml": "missing.yaml",
    "apples_env -i out/train.jsonl -o out": "read and written",
    "apples_env -i in.jsonl -o out": "was not prepared here",
    "apples_env -i in.jsonl -o in.jsonl": "cannot create in.jsonl: File exists; choose another -o",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_one_line_and_status_2(line: str, prepare: Prepare, write: Write) -> None:
    write("in.jsonl", [row(1)])
    Path("out").mkdir()
    write("out/train.jsonl", [row(1)])
    status, said = prepare(*line.split())
    assert status == 2
    assert MISTAKES[line] in said
    assert said.count("\n") == 1
    assert [path.name for path in Path("out").iterdir()] == ["train.jsonl"]
