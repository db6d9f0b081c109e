"""Rows as ATIF documents and back: exact, valid for Harbor's models; broken documents are refused."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from gym_runtime.cli import main
from gym_runtime.errors import UsageError
from gym_view import atif_files
from gym_view.atif import from_atif, to_atif
from gym_view.atif_reading import BadDocument
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import table

HARBORS = Path(__file__).parents[1] / "resources" / "guests" / "own" / "harbor_trajectories.py"
TOOL = {"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": True}
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"}


def said(text: str, **more: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {
        "id": "msg",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
        **more,
    }


def call(name: str, arguments: str = '{"amount": 2}', **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": name, "name": "add", "arguments": arguments, **more}


def answer(name: str, output: Any = "2") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": name, "output": output}


def tokens(*completion: int) -> dict[str, Any]:
    logs = [-0.1 * one for one in completion]
    return {
        "prompt_token_ids": [1, 2],
        "generation_token_ids": list(completion),
        "generation_log_probs": logs,
    }


def row(output: list[Any], **more: Any) -> dict[str, Any]:
    given = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Count to 2."}]
    return {
        "responses_create_params": {"input": given, "tools": [TOOL, {"type": "web_search"}]},
        "response": {"model": "policy", "output": output, "usage": {"input_tokens": 9, "output_tokens": 4}},
        "reward": 1.0,
        "_ng_task_index": 3,
        "_ng_rollout_index": 1,
        "agent_ref": {"name": "counter"},
        "_gym": {"rollout_id": "run.3.1"},
        **more,
    }


REASONING = {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "one call"}]}
RICH = row(
    [
        REASONING,
        said("I add."),
        call("1", **tokens(4, 5)),
        answer("1"),
        call("a"),
        call("a", "{broken", **tokens(6)),
        answer("a", [{"type": "input_text", "text": "see"}, IMAGE]),
        {"type": "message", "role": "user", "content": "Go on."},
        answer("a", "late"),
        answer("unknown", "stray"),
        {"type": "web_search_call", "id": "ws", "status": "completed"},
        said("Done.", **tokens(7, 8, 9)),
    ]
)


@pytest.fixture(scope="module")
def models() -> list[Any]:
    """The models of the format of Harbor and of PyPI's ``atif``, those that are installed."""
    found: list[Any] = []
    for name in ("harbor.models.trajectories", "atif"):
        try:
            found.append(__import__(name, fromlist=["Trajectory"]).Trajectory)
        except ImportError:
            continue
    return found


def test_a_row_as_a_document() -> None:
    document = to_atif(RICH, "all")
    assert [step["source"] for step in document["steps"]] == [
        "system",
        "user",
        "agent",
        "agent",
        "user",
        "agent",
    ]
    first, second = document["steps"][2:4]
    assert (first["message"], first["reasoning_content"], first["llm_call_count"]) == (
        "I add.",
        "one call",
        1,
    )
    assert first["tool_calls"][0]["arguments"] == {"amount": 2}
    assert first["observation"] == {"results": [{"source_call_id": "1", "content": "2"}]}
    assert first["metrics"] == {
        "completion_tokens": 2,
        "extra": {"item": 2},
        "prompt_tokens": 2,
        "prompt_token_ids": [1, 2],
        "completion_token_ids": [4, 5],
        "logprobs": [-0.4, -0.5],
    }
    assert [one["tool_call_id"] for one in second["tool_calls"]] == ["a", "a#2"]
    assert second["tool_calls"][1] == {
        "tool_call_id": "a#2",
        "function_name": "add",
        "arguments": {},
        "extra": {"raw_arguments": "{broken"},
    }
    image, late = second["observation"]["results"]
    assert image["content"][1]["source"] == {"media_type": "image/png", "path": IMAGE["image_url"]}
    assert (late["source_call_id"], late["content"]) == ("a#2", "late")
    assert [tool["function"]["name"] for tool in document["agent"]["tool_definitions"]] == ["add"]
    assert (document["session_id"], document["trajectory_id"]) == ("run", "run.3.1")
    assert (document["extra"]["gym"]["reward"], document["extra"]["gym"]["environment"]) == (1.0, "counter")


def test_how_many_tokens_are_written() -> None:
    for chosen, names in (
        ("none", {"completion_tokens", "prompt_tokens", "extra"}),
        ("completion", {"completion_tokens", "prompt_tokens", "extra", "completion_token_ids", "logprobs"}),
    ):
        document = to_atif(RICH, chosen)  # type: ignore[arg-type]
        assert set(document["steps"][2]["metrics"]) == names
        assert "prompt_token_ids" not in json.dumps(document["extra"])
        back = from_atif(document)
        assert [one.get("generation_token_ids") for one in back["response"]["output"][2:3]] == (
            [None] if chosen == "none" else [[4, 5]]
        )


TEXT = st.text(alphabet='ab<>{}"é\n', max_size=8)
IDS = st.sampled_from(["1", "2", ""])
TOKENS = st.one_of(st.just({}), st.lists(st.integers(0, 9), max_size=3).map(lambda ids: tokens(*ids)))
ITEMS = st.one_of(
    st.builds(lambda text, more: said(text, **more), TEXT, TOKENS),
    st.builds(
        lambda name, text, more: call(name, text, **more),
        IDS,
        st.sampled_from(["{}", "[", '{"a":1}', "1"]),
        TOKENS,
    ),
    st.builds(answer, IDS, st.one_of(TEXT, st.just([IMAGE]))),
    st.builds(
        lambda role, text: {"role": role, "content": text},
        st.sampled_from(["user", "developer", "odd"]),
        TEXT,
    ),
    st.builds(lambda text: {**REASONING, "content": [{"type": "text", "text": text}]}, TEXT),
    st.sampled_from(
        [{"type": "web_search_call"}, {}, {"type": "message", "role": "assistant", "content": None}, 5]
    ),
    st.just(said("odd", generation_token_ids=[1, "2"], prompt_token_ids=None)),
)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.lists(ITEMS, max_size=8), st.lists(ITEMS, max_size=3))
def test_rows_come_back_exactly_and_the_models_take_them(
    models: list[Any], output: list[Any], first: list[Any]
) -> None:
    made = row(output)
    made["responses_create_params"]["input"] = first
    document = json.loads(json.dumps(to_atif(made, "all")))
    assert from_atif(document) == made
    for model in models:
        model.model_validate(document)


def test_the_models_that_check_documents_are_there(models: list[Any]) -> None:
    if not models:
        pytest.skip("needs Harbor's models or atif: pip install atif")
    for model in models:
        model.model_validate(to_atif(RICH))
        with pytest.raises(ValueError, match=r"."):
            model.model_validate({**to_atif(RICH), "unknown": 1})


def foreign(version: str = "ATIF-v1.6", **more: Any) -> dict[str, Any]:
    """A document as another program writes it."""
    steps = [
        {"step_id": 1, "source": "user", "message": [{"type": "text", "text": "Look."}, {
            "type": "image", "source": {"media_type": "image/png", "path": "images/a.png"}}]},
        {"step_id": 2, "source": "agent", "message": "copied", "is_copied_context": True,
         "metrics": {"completion_token_ids": [1]}},
        {"step_id": 3, "source": "agent", "message": "", "reasoning_content": "hm",
         "timestamp": "2026-01-01T00:00:00Z",
         "tool_calls": [{"tool_call_id": "x", "function_name": "ls", "arguments": {"path": "/"}}],
         "observation": {"results": [{"source_call_id": "x", "content": "bin"}, {"content": "and this"}]},
         "metrics": {"prompt_token_ids": [1], "completion_token_ids": [2, 3], "logprobs": [-1, -0.5],
                     "discarded": 1}},
        {"step_id": 4, "source": "somebody", "message": "Go on."},
        {"step_id": 5, "source": "agent", "message": "Done.", "extra": {"a": 1}},
    ]  # fmt: skip
    agent = {"name": "other", "version": "2", "model_name": "m", "tool_definitions": [
        {"type": "function", "function": {"name": "ls", "parameters": {}}}]}  # fmt: skip
    return {"schema_version": version, "session_id": "s", "agent": agent, "steps": steps, **more}


@table("version", [f"ATIF-v1.{minor}" for minor in range(9)])
def test_foreign_documents_become_rows_and_themselves_again(version: str) -> None:
    document = foreign(
        version, notes="theirs", final_metrics={"total_prompt_tokens": 5, "total_completion_tokens": 2}
    )
    found = from_atif(document)
    assert [item.get("role") for item in found["responses_create_params"]["input"]] == ["user", "assistant"]
    picture = found["responses_create_params"]["input"][0]["content"][1]
    assert picture == {"type": "input_image", "image_url": "images/a.png", "detail": "auto"}
    assert "generation_token_ids" not in found["responses_create_params"]["input"][1]
    kinds = [item["type"] for item in found["response"]["output"]]
    assert kinds == ["reasoning", "function_call", "function_call_output", "message", "message", "message"]
    sampled = found["response"]["output"][1]
    assert (sampled["prompt_token_ids"], sampled["generation_token_ids"]) == ([1], [2, 3])
    assert json.loads(sampled["arguments"]) == {"path": "/"}
    assert found["responses_create_params"]["tools"][0]["name"] == "ls"
    assert to_atif(found, "all") == document
    assert "prompt_token_ids" not in to_atif(found)["steps"][2]["metrics"]
    judged = {**found, "reward": 0.5, "agent_ref": {"name": "quiz"}}
    assert to_atif(judged, "all") == {**document, "extra": {"gym": {"reward": 0.5, "environment": "quiz"}}}
    assert from_atif(to_atif(judged, "all"))["reward"] == 0.5


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("harbor") is None, reason="needs harbor 0.26 on the PATH")
def test_documents_of_harbors_own_converters(models: list[Any], tmp_path: Path) -> None:
    """24 documents that Harbor makes of three sessions in the logs of eight agents."""
    program = Path(shutil.which("harbor") or "").read_text().splitlines()[0].removeprefix("#!")
    told = [program, str(HARBORS), str(tmp_path)]
    said = subprocess.run(told, capture_output=True, text=True, check=True)
    made = [json.loads(line) for line in said.stdout.splitlines()]
    assert len(made) == 24
    versions: set[str] = set()
    for one in made:
        document = one["document"]
        versions.add(document["schema_version"])
        found = from_atif(document)
        assert to_atif(found, "all") == document, one["name"]
        output = found["response"]["output"]
        calls = [item for item in output if item["type"] == "function_call"]
        assert len(calls) == [0, 1, 2 if one["name"].startswith("swe") else 3][int(one["name"][-1])], one[
            "name"
        ]
        assert "hree" in output[-1]["content"][0]["text"], one["name"]
        # Without the document beside it, the row is one of ours.
        plain = {name: value for name, value in found.items() if name != "_atif"}
        ours = json.loads(json.dumps(to_atif(plain, "all")))
        assert from_atif(ours) == plain, one["name"]
        for model in models:
            model.model_validate(ours)
    assert versions == {"ATIF-v1.2", "ATIF-v1.5", "ATIF-v1.6", "ATIF-v1.7"}


def test_a_document_that_was_changed_says_what_it_says_now() -> None:
    document = copy.deepcopy(to_atif(RICH, "all"))
    document["steps"][2]["message"] = "I subtract."
    found = from_atif(document)
    assert found["response"]["output"][1]["content"][0]["text"] == "I subtract."
    assert found["reward"] == 1.0
    assert found["response"]["output"][2]["generation_token_ids"] == [4, 5]


def broken() -> list[tuple[dict[str, Any], str]]:
    def step(number: int, **fields: Any) -> dict[str, Any]:
        document = foreign()
        document["steps"][number - 1] |= fields
        return document

    metrics = {"completion_token_ids": [1], "logprobs": [-1, -2]}
    return [
        ({}, "agent"),
        ({**foreign(), "steps": []}, "no steps"),
        ({**foreign(), "steps": {}}, "array"),
        (foreign("ATIF-v2.0"), "schema_version"),
        (foreign("1.6"), "schema_version"),
        ({**foreign(), "agent": {"version": "1"}}, "name"),
        (step(4, message=None), "step 4"),
        (step(5, source=1), "step 5"),
        (step(3, tool_calls=[{"tool_call_id": "x", "function_name": "ls", "arguments": [1]}]), "step 3"),
        (step(3, tool_calls=None), "step 3: an observation answers the call 'x'"),
        (step(3, metrics={"completion_token_ids": ["a"]}), "step 3"),
        (step(3, metrics=metrics), "step 3: there are 2 logprobs of 1"),
        (step(3, metrics={"logprobs": [float("inf")]}), "step 3: a logprob is no finite number"),
        (step(4, metrics={}), "step 4: calls, metrics and reasoning are an agent's"),
        (step(1, message=[{"text": "no type"}]), "step 1"),
        ({**foreign(), "extra": {"gym": {"row": {}, "tokens": "all"}}, "steps": 5}, "array"),
    ]


@table("number", range(16))
def test_broken_documents_are_named_with_their_step(number: int) -> None:
    document, words = broken()[number]
    with pytest.raises(BadDocument, match=words) as raised:
        from_atif(document)
    assert "\n" not in str(raised.value)


def test_files(tmp_path: Path) -> None:
    rows = [
        RICH,
        {**RICH, "_ng_rollout_index": 2, "reward": 0.0},
        {**RICH, "_ng_rollout_index": 3, "reward": None},
    ]
    other = {**RICH, "agent_ref": {"name": "other"}}
    source = tmp_path / "rows.jsonl"
    unreadable = '{"reward": 1, "text": "\\ud83d"}\n'
    source.write_text("".join(json.dumps(one) + "\n" for one in [*rows, other]) + unreadable)
    done = atif_files.export([source], tmp_path / "all", tokens="all")
    assert sorted(Path(one).name for one in done.files) == ["3.1-2.json", "3.1.json", "3.2.json"]
    assert done.left_out == {"the row is no JSON object in UTF-8": 1}
    assert atif_files.export([source], tmp_path / "best.jsonl", tokens="all", min_reward=0.5).rows == 2
    for names, expected in ((["all"], [RICH, other, rows[1]]), (["best.jsonl"], [RICH, other])):
        target = tmp_path / f"back-{len(expected)}.jsonl"
        assert atif_files.imported([tmp_path / name for name in names], target) == len(expected)
        found = [json.loads(line) for line in target.read_text().splitlines()]
        assert sorted(found, key=json.dumps) == sorted(expected, key=json.dumps)
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps({**foreign(), "steps": [{"source": "user"}]}))
    for name, problem in (("bad.json", "bad.json is no ATIF document: step 1"), ("none", "there is no file")):
        with pytest.raises(UsageError, match=problem):
            atif_files.imported([tmp_path / name], tmp_path / "new.jsonl")
    with pytest.raises(UsageError, match="is there already"):
        atif_files.imported([tmp_path / "all"], source)
    assert not list(tmp_path.glob(".*partial"))


def test_rollouts_of_several_runs_with_one_number_are_refused(tmp_path: Path) -> None:
    output = [{"type": "message", "role": "assistant", "content": "x"}]
    for run in "ab":
        row = {"responses_create_params": {"input": run}, "response": {"output": output}, "reward": 1.0}
        (tmp_path / f"{run}.jsonl").write_text(json.dumps(row | {"_ng_task_index": 0}) + "\n")
        atif_files.export([tmp_path / f"{run}.jsonl"], tmp_path / run)
    folders = [tmp_path / "a", tmp_path / "b"]
    with pytest.raises(UsageError, match=r"a.*0\.0\.json and .*b.*0\.0\.json are different rollouts"):
        atif_files.imported(folders, tmp_path / "back.jsonl")
    assert atif_files.imported([folders[0], folders[0]], tmp_path / "back.jsonl") == 2


def test_trials_of_harbor_bring_their_rewards(tmp_path: Path) -> None:
    for name, task, result in (
        ("a__1", "a", {"verifier_result": {"rewards": {"reward": 1, "style": 0.5}}}),
        ("a__2", "a", {"verifier_result": {"rewards": {"only": 0.25}}}),
        (
            "b__1",
            "b",
            {"verifier_result": None, "exception_info": {"exception_type": "RewardFileNotFoundError"}},
        ),
        ("b__2", "b", {"verifier_result": {"rewards": {"reward": 0.0}}, "reward_valid": False}),
    ):
        (tmp_path / "job" / name / "agent").mkdir(parents=True)
        (tmp_path / "job" / name / "agent" / "trajectory.json").write_text(json.dumps(foreign()))
        (tmp_path / "job" / name / "result.json").write_text(json.dumps({"task_name": task, **result}))
    assert atif_files.imported([tmp_path / "job"], tmp_path / "rows.jsonl", environment="quiz") == 4
    found = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [one.get("reward") for one in found] == [1.0, 0.25, None, None]
    assert [(one["_ng_task_index"], one["_ng_rollout_index"]) for one in found] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]
    assert found[0]["agent_ref"] == {"name": "quiz"}


def test_a_trial_without_a_trajectory_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Harbor's mean counts it, and the rows have it not."""
    result = {"task_name": "a", "verifier_result": {"rewards": {"reward": 0}}}
    for name in ("a__1", "a__2"):
        (tmp_path / "job" / name / "agent").mkdir(parents=True)
        (tmp_path / "job" / name / "result.json").write_text(json.dumps(result))
    (tmp_path / "job" / "a__1" / "agent" / "trajectory.json").write_text(json.dumps(foreign()))
    (tmp_path / "job" / "result.json").write_text("{}")
    assert main.run(["import-atif", str(tmp_path / "job"), "-o", str(tmp_path / "rows.jsonl")]) == 0
    said = capsys.readouterr().out
    assert "1 row:" in said
    assert "1 left out: the trial has a result and no trajectory" in said
