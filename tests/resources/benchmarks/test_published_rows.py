"""Rows of benchmarks, made of records in their published form; and our example rows."""

from __future__ import annotations

import base64
import csv
import gzip
import json
import pickle
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest
from gym_data.prepare.records import make_rows
from gym_resources.benchmarks import hendrycks_math
from gym_resources.benchmarks.livecodebench import private_tests
from gym_runtime.environment import catalogue
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.errors import UsageError
from gym_runtime.files import PromptTemplate, checked_prompt
from resources.benchmarks.published_families import THEIRS
from resources.benchmarks.published_records import CASES, FUNCTION, PUBLISHED, SERVED, hidden, problem
from tables import table

BENCHMARKS = [
    name for name in catalogue.names("environments") if catalogue.environment(name).definition.benchmark
]


def write(name: str, records: list[dict[str, Any]], path: Path) -> Path:
    """A file of records, in the format that its name says."""
    if name.endswith((".csv", ".tsv")):
        with path.open("w", newline="") as file:
            dialect = "excel" if name.endswith("csv") else "excel-tab"
            writer = csv.DictWriter(file, list(records[0]), dialect=dialect)
            writer.writeheader()
            writer.writerows(records)
    elif name.endswith(".md"):
        path.write_text("".join(record["text"] for record in records))
    elif name.endswith(".zip"):
        with zipfile.ZipFile(path, "w") as archive:
            for record in records:
                archive.writestr(record["file"], record["text"])
    elif name.endswith(".arrow"):
        pyarrow = pytest.importorskip("pyarrow")
        table = pyarrow.Table.from_pylist(records)
        with pyarrow.OSFile(str(path), "wb") as sink, pyarrow.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
    elif name.endswith(".parquet"):
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.Table.from_pylist(records), path)
    elif name.endswith(".jsonl.gz"):
        path.write_bytes(gzip.compress("".join(json.dumps(record) + "\n" for record in records).encode()))
    else:
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def prompt(environment: LoadedEnvironment) -> PromptTemplate | None:
    benchmark = environment.definition.benchmark
    assert benchmark is not None
    if not benchmark.prompt:
        return None
    return checked_prompt("prompt", benchmark.prompt, benchmark.system or None, benchmark.image)


def prepared(name: str, folder: Path, dataset: str = "") -> list[dict[str, Any]]:
    """The rows that are made of the published records, with their input; each is a task."""
    environment, published = catalogue.environment(name), PUBLISHED[name]
    source = next(one for one in environment.definition.datasets if one.name == dataset)
    assert (source.split, bool(source.rows)) == ("benchmark", True)
    files: list[tuple[str, Path]] = []
    others = (other.file for other in source.further_sources)
    for number, file in enumerate((source.file, *source.further_files, *others)):
        records = published(file) if callable(published) else published[file]
        files.append((file, write(file, records, folder / str(number))))
    assert source.rows is not None
    make_rows(source.rows, files, folder / "rows.jsonl")
    template = prompt(environment)
    lines = (folder / "rows.jsonl").read_bytes().splitlines()
    filled = [template.fill(line) if template else line for line in lines]
    for line in filled:
        asked = environment.resource.task(line).responses_create_params.input_items()
        assert asked or name == "scicode"  # its episode asks
    return [json.loads(line) for line in filled]


def test_every_benchmark_is_here() -> None:
    assert {*PUBLISHED, *THEIRS} == set(BENCHMARKS)
    for name in THEIRS:
        assert not catalogue.environment(name).definition.datasets


def test_problems_of_a_competition(tmp_path: Path) -> None:
    for name in ("aime24", "aime25", "aime26"):
        folder = tmp_path / name
        folder.mkdir()
        [row] = prepared(name, folder)
        assert row["expected_answer"] == "25"
        text = row["responses_create_params"]["input"][0]["content"]
        assert text == (
            "Put your final answer within \\boxed{}.\n"
            "The answer is an integer between 0 and 999 inclusive.\n\nFind $n$."
        )


def test_answers_of_tournaments_are_expressions(tmp_path: Path) -> None:
    [row] = prepared("hmmt", tmp_path)
    assert row["expected_answer"] == "(1, \\pi)"
    text = row["responses_create_params"]["input"][0]["content"]
    assert text == "Put your final answer within \\boxed{}.\n\nFind $n$."


def test_wrong_answers_of_word_problems_are_corrected(tmp_path: Path) -> None:
    assert [row["expected_answer"] for row in prepared("gsm8k", tmp_path)] == ["1600", "12"]


def test_answers_in_solutions_are_in_their_last_box(tmp_path: Path) -> None:
    rows = prepared("hendrycks_math", tmp_path)
    assert [row["problem"] for row in rows] == list(hendrycks_math.SUBJECTS)
    assert {(row["expected_answer"], row["level"]) for row in rows} == {("\\frac{1}{2}", "level 2")}
    assert hendrycks_math.answer(r"Thus $\fbox{3}$, or \boxed{4") == "3"
    with pytest.raises(ValueError, match="no boxed answer"):
        hendrycks_math.answer("Thus 3.")


def test_options_are_shuffled_the_same_way_each_time(tmp_path: Path) -> None:
    rows = prepared("gpqa", tmp_path)
    assert prepared("gpqa", tmp_path) == rows
    assert len({row["expected_answer"] for row in rows}) > 1
    for number, row in enumerate(rows):
        options = {letter: text for option in row["options"] for letter, text in option.items()}
        assert sorted(options.values()) == sorted([str(number), "a", "b", "c"])
        assert options[row["expected_answer"]] == str(number)
        text = row["responses_create_params"]["input"][0]["content"]
        assert text.endswith(f"Which number is {number}?\n\n{row['options_text']}")


def test_worked_examples_are_those_of_the_subject(tmp_path: Path) -> None:
    [row] = prepared("mmlu_pro", tmp_path)
    text = row["responses_create_params"]["input"][0]["content"]
    shot = (
        "Question: 1 + 1?\nOptions: A. 1\nB. 2\nAnswer: Let's think step by step. Two. The answer is (B).\n\n"
    )
    assert text.count(shot) == text.count("Two.") == 2
    assert text.endswith("Question: 1 + 1?\nOptions: A. 1\nB. 2\nAnswer: Let's think step by step.")
    assert (row["expected_answer"], row["category"]) == ("B", "math")


def test_problems_of_contests_have_all_tests_and_the_dates_of_the_release(tmp_path: Path) -> None:
    program, function = prepared("livecodebench", tmp_path)
    assert program["verifier_metadata"]["unit_tests"] == {
        "inputs": ["1\n"] * 3,
        "outputs": ["2\n"] * 3,
        "fn_name": None,
    }
    system, user = program["responses_create_params"]["input"]
    assert (system["role"], "### Question:\nAdd one.\n\n### Format: Read" in user["content"]) == (
        "system",
        True,
    )
    assert "```python\nclass Solution: …\n```" in function["responses_create_params"]["input"][1]["content"]
    assert function["verifier_metadata"]["unit_tests"]["fn_name"] == "add"
    v5 = next(one for one in catalogue.environment("livecodebench").definition.datasets if one.name == "v5")
    assert v5.rows is not None
    dates = [
        row["contest_date"] for row in v5.rows(iter([problem("2025-01-31T00:00:00"), problem("2025-02-01")]))
    ]
    assert dates == ["2025-01-31T00:00:00"]


class Opened:
    """What a pickle must not make."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, ("/etc/hostname",))


def test_pickled_tests_look_nothing_up() -> None:
    assert private_tests(json.dumps(CASES)) == private_tests(hidden(CASES)) == CASES
    evil = base64.b64encode(zlib.compress(pickle.dumps(Opened()))).decode()
    with pytest.raises(ValueError, match=r"the tests name \w*io\.open, which is not looked up"):
        private_tests(evil)


def test_functions_come_with_the_tests_that_are_read(tmp_path: Path) -> None:
    [row] = prepared("evalplus", tmp_path)
    text = row["responses_create_params"]["input"][0]["content"]
    assert text.endswith("in a markdown code block:\n```\ndef half(n):\n    ...\n```\n")
    assert row["verifier_metadata"] == {
        "task_id": "HumanEval/999",
        "function": "half",
        "inputs": [[-3], [1]],  # first those of HumanEval
        "outputs": [-1.5, 0.5],
        "base": 1,
        "given": "def half(n):\n    ...\n",
        "tolerance": 0.0,
    }


def test_the_image_of_a_question_follows_its_text(tmp_path: Path) -> None:
    plain, shown = prepared("hle", tmp_path)
    system, user = plain["responses_create_params"]["input"]
    assert "Confidence: {your confidence score" in system["content"]
    assert (user["content"], plain["expected_answer"], plain["category"]) == ("Why?", "So.", "Math")
    assert shown["responses_create_params"]["input"][1]["content"] == [
        {"type": "input_text", "text": "Why?"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "auto"},
    ]
    assert ("image" in shown, shown["has_image"], plain["has_image"]) == (False, True, False)
    assert prepared("hle", tmp_path, "text") == [plain]


def test_functions_become_tools(tmp_path: Path) -> None:
    rows = {row["category"]: row for row in prepared("bfcl", tmp_path)}
    assert len(rows) == 13
    assert (rows["java"]["language"], rows["simple"]["language"]) == ("java", "python")
    [java] = rows["java"]["responses_create_params"]["tools"]
    newer = {row["category"]: row for row in prepared("bfcl", tmp_path, "v4")}
    assert list(newer) == list(rows)
    assert newer["java"] == rows["java"]
    assert "is Java float type" in java["parameters"]["properties"]["x"]["description"]
    simple = rows["simple"]
    [tool] = simple["responses_create_params"]["tools"]
    assert (tool["name"], tool["description"]) == (
        "a_b",
        "Does. Note that the provided function is in Python 3 syntax.",
    )
    assert tool["parameters"]["properties"]["x"] == {
        "type": "number",
        "format": "float",
        "description": "How far. This is a float type value.",
    }
    assert simple["functions"] == [FUNCTION]
    assert simple["possible_answers"] == [{"a.b": {"x": [1.5]}}]
    assert rows["irrelevance"]["expects"] == rows["live_irrelevance"]["expects"] == "no call"
    assert rows["live_relevance"]["expects"] == "any call"


@pytest.mark.parametrize("name", ["apex_shortlist", "ifbench", "ifeval", "math500", "simpleqa"])
def test_plain_records_become_rows(name: str, tmp_path: Path) -> None:
    [row] = prepared(name, tmp_path)
    said = {"ifbench": "No commas.", "ifeval": "No commas.", "simpleqa": "Who?"}
    content = row["responses_create_params"]["input"][0]["content"]
    assert content == said.get(name, content)


def test_encrypted_questions_are_read_and_keep_their_canary(tmp_path: Path) -> None:
    [row] = prepared("browsecomp", tmp_path)
    assert (row["question"], row["ground_truth"], row["canary"]) == ("Wer? " * 30, "Bär", "own")
    text = row["responses_create_params"]["input"][0]["content"]
    assert text.endswith("Confidence: {your confidence score between 0% and 100% for your answer}")


def test_customers_become_simulated_users(tmp_path: Path) -> None:
    [row] = prepared("tau2_airline", tmp_path)
    system, greeting = row["responses_create_params"]["input"]
    assert system["content"].endswith("<policy>\n# Policy\n</policy>")
    assert (greeting["role"], row["id"], row["config"]) == ("assistant", "airline_7", {"domain": "airline"})
    user = row["simulated_user"]
    assert "You are Nora.\nWhat you do not know or remember: your number" in user["persona"]
    assert user["goal"].startswith("You want a refund.\n\nInsist.\n\n")
    assert user["stop"] == ["###STOP###", "###TRANSFER###", "###OUT-OF-SCOPE###"]


def test_customers_with_telephones_are_those_of_the_base_split(tmp_path: Path) -> None:
    [row] = prepared("tau2_telecom", tmp_path)
    assert row["id"] == "telecom_8"
    policy = row["responses_create_params"]["input"][0]["content"].partition("<policy>\n")[2]
    assert policy.startswith("<main_policy>\n# Main\n</main_policy>\n<tech_support_policy>\n# Manual\n")


def test_customers_of_the_bank_are_those_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "banking_knowledge/tasks").mkdir(parents=True)
    task = {**SERVED, "id": "task_001", "user_tools": []}
    (tmp_path / "banking_knowledge/tasks/task_001.json").write_text(json.dumps(task))
    monkeypatch.setenv("GYM_TAU2", str(tmp_path))
    [row] = prepared("tau2_banking", tmp_path)
    system = row["responses_create_params"]["input"][0]["content"]
    assert system.endswith("<policy>\n# Header\nSearch.\n</policy>")
    assert (row["id"], row["config"]["retrieval_config"]) == ("banking_task_001", "bm25_grep")


def test_a_record_of_another_form_is_refused_with_its_number(tmp_path: Path) -> None:
    source = catalogue.environment("simpleqa").definition.datasets[0]
    path = write("a.csv", [{"question": "Who?"}], tmp_path / "a")
    assert source.rows is not None
    with pytest.raises(
        UsageError, match=r"record 1 of a\.csv: no row can be made of it: KeyError: 'problem'"
    ):
        make_rows(source.rows, [("a.csv", path)], tmp_path / "rows.jsonl")


@table("name", BENCHMARKS)
def test_our_example_rows_have_the_published_prompt(name: str) -> None:
    environment = catalogue.environment(name)
    template = prompt(environment)
    for line in environment.examples.read_bytes().splitlines():
        row = json.loads(line)
        if template is not None:
            given = row.pop("responses_create_params")
            content = given["input"][-1]["content"]
            if isinstance(content, list):
                row[template.image] = content[1]["image_url"]
            assert json.loads(template.fill(json.dumps(row).encode()))["responses_create_params"] == given
