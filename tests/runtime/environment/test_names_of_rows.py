"""What names in rows stand for: environments, harnesses, ways to sample; an environment under two names."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from gym_runtime.client import make_pools
from gym_runtime.environment import catalogue, declared, requirements
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.environment.isolated import judge_recorded
from gym_runtime.environment.roles import Models
from gym_runtime.environment.verdict import Verdict, make_response
from gym_runtime.errors import UsageError
from gym_runtime.files.dataset import open_dataset
from gym_runtime.files.recorded_run import RunPlan
from gym_runtime.files.row_reader import RowReader
from gym_runtime.files.rows import expand
from gym_runtime.messages.calls import decode_declaration
from gym_runtime.messages.rollout_settings import RolloutSettings
from msgspec import json as wire
from tables import table

HARNESSES = [
    *((f"math_with_judge_{name}_agent", name) for name in ("hermes", "cline", "kilocode", "openclaw")),
    *((f"math_with_judge_{name}_agent", name) for name in ("opencode", "pi")),
    *((f"reasoning_gym_{name}_agent", name) for name in ("claude_code", "codex")),
    *((f"reasoning_gym_{name}_agent_model_server", name) for name in ("claude_code", "codex")),
]
FIELDS: dict[str, dict[str, Any]] = {
    "math_with_judge": {"expected_answer": "4"},
    "reasoning_gym": {"question": "?", "metadata": {"source_dataset": "leg_counting"}},
}


def line(ref: str, **fields: Any) -> bytes:
    return json.dumps(
        {"responses_create_params": {"input": "?"}, "agent_ref": {"name": ref}, **fields}
    ).encode()


def asking(ref: str) -> bytes:
    return line(ref, **next(fields for name, fields in FIELDS.items() if ref.startswith(name)))


@table(("ref", "harness"), HARNESSES)
def test_a_row_for_another_harness_is_refused_with_the_remedy(ref: str, harness: str) -> None:
    with pytest.raises(
        UsageError, match=f"the harness '{harness}' .* --agent {harness}.py .*--agent tool_loop"
    ):
        list(expand([asking(ref)], run="r"))
    (spec,) = expand([asking(ref)], run="r", agent="tool_loop")
    assert spec.agent == "tool_loop"


def test_a_run_is_refused_before_anything_starts_and_runs_on_the_harness_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(asking("math_with_judge_kilocode_agent"))
    with open_dataset(path) as dataset:
        assert (dataset.agents, dataset.harnesses) == ({"kilocode"}, {"kilocode"})
        with pytest.raises(UsageError, match="the harness 'kilocode'"):
            RunPlan(dataset, RolloutSettings()).require_runnable()
        RunPlan(dataset, RolloutSettings(agent="tool_loop")).require_runnable()
        monkeypatch.chdir(tmp_path)
        Path("kilocode.py").write_text("from gym_agents.tool_loop import Agent, Options\n")
        with pytest.raises(UsageError, match="the harness 'kilocode'"):  # a row makes no file an agent
            RunPlan(dataset, RolloutSettings()).require_runnable()
        assert catalogue.known_name("agents", "kilocode.py") == "kilocode"
        RunPlan(dataset, RolloutSettings()).require_runnable()
        (spec,) = expand(dataset.read(), run="r")
        assert spec.agent == "kilocode"
        pools = make_pools(["math_with_judge"], None, further_agents=tuple(dataset.harnesses))
        assert pools[0].names == (str(tmp_path / "kilocode.py"), "tool_loop")


def test_reasoning_is_off_for_rows_that_name_that_agent() -> None:
    def kwargs(ref: str, **settings: Any) -> Any:
        row = line(ref)
        (spec, *_) = expand([row], run="r", repeats=2, **settings)
        params = json.loads(bytes(spec.row))["responses_create_params"]
        return json.loads(params.get("metadata", {}).get("chat_template_kwargs", "null"))

    assert kwargs("genrm_simple_agent") is None
    assert kwargs("genrm_simple_agent_reasoning_off") == {"enable_thinking": False}
    own = {"sampling": {"chat_template_kwargs": {"enable_thinking": True, "x": 1}}}
    assert kwargs("genrm_simple_agent_reasoning_off", **own) == {"enable_thinking": True, "x": 1}

    said = wire.encode(declared.declaration(catalogue.environment("genrm_compare")))
    elsewhere = declared.from_declaration(decode_declaration(said))
    assert list(elsewhere.definition.agent_sampling) == ["genrm_simple_agent_reasoning_off"]


@table(
    ("domain", "name"),
    [
        *((one, f"tau2_{one}") for one in ("airline", "retail", "telecom")),
        ("banking_knowledge", "tau2_banking"),
    ],
)
@table("ref", ["tau2_agent", "tau2_benchmark_agent"])
def test_a_row_says_which_of_several_environments_of_its_name_it_belongs_to(
    ref: str, domain: str, name: str
) -> None:
    loaded = catalogue.environment(name)
    row = json.loads(loaded.examples.read_text().splitlines()[0])
    assert row["config"]["domain"] == domain
    found = RowReader().read(json.dumps({**row, "agent_ref": {"name": ref}}).encode())
    assert found.environment.name == name


# -- one environment under two names ---------------------------------------------------------------------


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[LoadedEnvironment, LoadedEnvironment]:
    monkeypatch.chdir(tmp_path)
    for name, mode in (("boxed_mcqa", "strict_single_letter_boxed"), ("told_mcqa", "lenient_answer_colon")):
        Path(f"{name}.toml").write_text(f'environment = "mcqa"\n[settings]\ngrading_mode = "{mode}"\n')
    return catalogue.environment("boxed_mcqa.toml"), catalogue.environment("told_mcqa.toml")


QUESTION = {"options": [{"A": "x"}, {"B": "y"}], "expected_answer": "B"}


@pytest.mark.anyio
async def test_one_environment_is_served_under_two_names_with_different_settings(
    two: tuple[LoadedEnvironment, LoadedEnvironment], tmp_path: Path
) -> None:
    boxed, told = two
    assert (boxed.name, told.name) == ("boxed_mcqa", "told_mcqa")
    assert catalogue.address("boxed_mcqa") == str(tmp_path / "boxed_mcqa.toml")
    rewards: dict[str, float] = {}
    for ref in ("boxed_mcqa", "told_mcqa_simple_agent", "mcqa_simple_agent"):
        row = RowReader().read(line(ref, **QUESTION))
        verdict = await judge_recorded(row.environment, row.line, make_response("Answer: B"), Models())
        assert isinstance(verdict, Verdict)
        rewards[row.environment.name] = verdict.reward
    assert rewards == {"boxed_mcqa": 0.0, "told_mcqa": 1.0, "mcqa": 0.0}

    # The row and the run come first, and a row that names the environment belongs to the name that was given.
    said = {"grading_mode": "lenient_boxed"}
    for row, settings, mode in (
        (line("", **QUESTION, **said), {}, "lenient_boxed"),
        (line("", **QUESTION), said, "lenient_boxed"),
        (line("mcqa_simple_agent", **QUESTION), {}, "lenient_answer_colon"),
    ):
        found = RowReader("told_mcqa.toml", settings).read(row)
        assert (found.environment.name, json.loads(found.line)["grading_mode"]) == ("told_mcqa", mode)

    # A client that lacks the file fills rows in, too.
    said = wire.encode(declared.declaration(told))
    elsewhere = declared.from_declaration(decode_declaration(said))
    row = RowReader(declared={"far_mcqa": elsewhere}).read(line("far_mcqa", **QUESTION))
    assert json.loads(row.line)["grading_mode"] == "lenient_answer_colon"
    requirements.require(told)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("environment = 3", "does not serve an environment: Expected `str`"),
        ("= ", "does not serve an environment: Invalid"),
        ('[[pools]]\nkind = "agent"', "does not serve an environment: Object "),
        ('environment = "mqca"', "there is no environment 'mqca'; did you mean 'mcqa'"),
        (
            'environment = "mcqa"\n[settings]\ngrading_mod = 1',
            "no setting 'grading_mod' of mcqa; did you mean",
        ),
        ('environment = "mcqa"\n[settings]\ngrading_mode = 1', "setting grading_mode=1 of 'odd'"),
    ],
)
def test_a_file_that_serves_no_environment_is_one_line(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("odd.toml").write_text(text)
    with pytest.raises(UsageError, match=re.escape(said)):
        catalogue.environment("odd.toml")


def test_a_row_names_no_toml_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("unnamed.toml").write_text('environment = "mcqa"')
    for ref in ("unnamed", "unnamed.toml", "./unnamed.toml"):
        with pytest.raises(UsageError, match="no environment has agent_ref"):
            catalogue.resolve_agent_ref(ref)


@pytest.mark.parametrize(
    ("environment", "name", "data_set"),
    [
        ("calendar", "v2", "Instruction-Following-Calendar-v2"),
        ("mcqa", "", "knowledge-mcqa"),
        ("single_step_tool_use_with_argument_comparison", "swe", "Agentic-SWE-Pivot-v1"),
        (
            "single_step_tool_use_with_argument_comparison",
            "function_calling",
            "Agentic-Function-Calling-Pivot-v1",
        ),
        ("math_advanced_calculations", "", "math-advanced_calculations"),
    ],
)
def test_data_sets_go_by_their_published_names(environment: str, name: str, data_set: str) -> None:
    sources = catalogue.environment(environment).definition.datasets
    (source,) = (one for one in sources if (one.split, one.name) == ("train", name))
    assert source.repo_id == f"nvidia/Nemotron-RL-{data_set}"


def test_records_of_published_questions_become_rows() -> None:
    (source,) = catalogue.environment("mcqa").definition.datasets
    message = {"role": "user", "content": "Which?", "type": None}
    record = {
        "responses_create_params": {"input": [message], "tools": None},
        "options": [{"A": "x", "B": None}, {"A": None, "B": "y"}],
        "expected_answer": "B",
        "template_metadata": None,
    }
    assert source.rows is not None
    first, _ = source.rows(iter([record]), iter([record]))
    assert first["options"] == [{"A": "x"}, {"B": "y"}]
    assert json.loads(RowReader("mcqa").read(wire.encode(first)).line)["expected_answer"] == "B"
