"""Settings: defaults of row fields. The row wins, then the run, then what belongs to an agent's name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gym_runtime import Environment, Reply, Task, Verdict
from gym_runtime.client import make_pools
from gym_runtime.environment import catalogue
from gym_runtime.environment.environment import AgentChoice, LoadedEnvironment, with_settings
from gym_runtime.environment.settings import checked_agent, filled, require_known
from gym_runtime.errors import UsageError
from gym_runtime.files.dataset import open_dataset
from gym_runtime.files.row_reader import BadRow, RowReader
from gym_runtime.files.rows import expand
from tables import table

MODULE = """
from typing import Annotated

import msgspec

from gym_runtime import Environment, Reply, Task, Verdict


class LimitTask(Task):
    limit: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    mode: str = "sum"


async def verify(task: LimitTask, reply: Reply) -> Verdict:
    return Verdict(task.limit)


environment = Environment(
    resource=verify,
    description="d",
    agent_settings={"limited": {"limit": 2, "mode": "max"}, "limited_v2": {"limit": 3}},
    agent_refs=("limited_v2_simple_agent",),
)
"""


@pytest.fixture
def limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoadedEnvironment:
    monkeypatch.chdir(tmp_path)
    Path("limited.py").write_text(MODULE)
    return catalogue.environment("limited")


def fields(environment: LoadedEnvironment, row: dict[str, Any], ref: str | None = None) -> dict[str, Any]:
    return json.loads(filled(environment, json.dumps(row).encode(), ref))


def test_a_setting_stands_for_what_a_row_leaves_out(limited: LoadedEnvironment) -> None:
    given = with_settings(limited, {"limit": 5, "elsewhere": 1})
    assert fields(given, {"x": 1}) == {"x": 1, "limit": 5}
    assert fields(given, {"limit": None}) == {"limit": 5}
    row = b'{ "limit" :0, "mode": null}'
    assert filled(given, row, None) == row


@pytest.mark.parametrize(
    ("ref", "settings"),
    [
        (None, {}),
        ("limit", {}),
        ("limitedness_agent", {}),
        ("limited", {"limit": 2, "mode": "max"}),
        ("limited_simple_agent", {"limit": 2, "mode": "max"}),
        ("limited_v2", {"limit": 3}),
        ("limited_v2_agent", {"limit": 3}),
        ("limited_v20_agent", {"limit": 2, "mode": "max"}),
    ],
)
def test_an_agents_name_brings_settings(
    ref: str | None, settings: dict[str, Any], limited: LoadedEnvironment
) -> None:
    assert fields(limited, {}, ref) == settings
    if settings:
        assert fields(with_settings(limited, {"limit": 9}), {}, ref) == {**settings, "limit": 9}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"limit": "high"}, r"setting limit=\"high\" of 'limited': Expected `float`, got `str`"),
        ({"limit": -1}, r"setting limit=-1 of 'limited': Expected `float` >= 0.0"),
    ],
)
def test_a_value_that_does_not_fit_is_one_line(
    settings: dict[str, Any], message: str, limited: LoadedEnvironment
) -> None:
    with pytest.raises(UsageError, match=message):
        with_settings(limited, settings)


def test_an_unknown_setting_gets_the_nearest_one(limited: LoadedEnvironment) -> None:
    mcqa = catalogue.environment("mcqa")
    require_known(["limit", "grading_mode"], [limited, mcqa])
    with pytest.raises(UsageError, match="no setting 'limti' of limited; did you mean 'limit'"):
        require_known(["limti"], [limited])
    with pytest.raises(UsageError, match="no setting 'xyzzy' of limited; there are: limit, mode"):
        require_known(["xyzzy"], [limited])


def write(*rows: dict[str, Any]) -> Path:
    path = Path("rows.jsonl")
    path.write_text(
        "".join(json.dumps({"responses_create_params": {"input": "?"}, **row}) + "\n" for row in rows)
    )
    return path


def test_rollouts_are_published_with_them(limited: LoadedEnvironment) -> None:
    path = write({}, {"limit": 0}, {"agent_ref": {"name": "limited_v2_simple_agent"}}, {"mode": None})
    with open_dataset(path, environment="limited", settings={"mode": "min"}) as dataset:
        tasks = list(expand(dataset.read(), run="r"))
    rows = [json.loads(bytes(task.row)) for task in tasks]
    assert [(row.get("limit"), row["mode"]) for row in rows] == [
        (None, "min"),
        (0, "min"),
        (3, "min"),
        (None, "min"),
    ]
    with pytest.raises(UsageError, match="no setting 'moed' of limited; did you mean 'mode'"):
        open_dataset(path, environment="limited", settings={"moed": "min"})


def test_a_bad_row_names_its_field(limited: LoadedEnvironment) -> None:
    line = b'{"mode": 1,   "responses_create_params": {"input": "?"}}'
    with pytest.raises(BadRow, match=r"^'mode': "):
        RowReader("limited", {"limit": 4}).read(line)


@table("name", catalogue.names("environments"))
def test_what_belongs_to_agents_names_fits_the_rows(name: str) -> None:
    environment = catalogue.environment(name)
    for prefix, settings in environment.definition.agent_settings.items():
        require_known(settings, [environment])
        with_settings(environment, settings)
        assert catalogue.resolve_agent_ref(f"{prefix}_agent") == name
    for ref, choice in {"": environment.definition.agent_of(""), **environment.definition.agents}.items():
        assert catalogue.exists("agents", checked_agent(choice).name)
        assert not ref or catalogue.resolve_agent_ref(ref) == name


def test_null_means_the_default(limited: LoadedEnvironment) -> None:
    row = {"responses_create_params": {"input": "?"}, "limit": None, "mode": None}
    task = limited.resource.task(json.dumps(row).encode())
    assert msgspec.structs.asdict(task) | {"responses_create_params": None} == {
        "responses_create_params": None, "limit": 1.0, "mode": "sum",
    }  # fmt: skip


def test_null_means_the_default_of_every_field_of_every_environment() -> None:
    for name in catalogue.names("environments"):
        resource = catalogue.environment(name).resource
        row = catalogue.environment(name).examples.read_bytes().splitlines()[0]
        given = json.loads(row)
        defaulted = [
            field.encode_name
            for field in msgspec.structs.fields(resource.task_type)
            if not field.required and field.encode_name not in given
        ]
        nulls = json.dumps({**dict.fromkeys(defaulted), **given}).encode()
        assert msgspec.json.encode(resource.task(nulls)) == msgspec.json.encode(
            resource.task(json.dumps(given).encode())
        ), name


def test_an_environment_may_lack_settings() -> None:
    def verify(task: Task, reply: Reply) -> Verdict:
        return Verdict(1.0)

    definition = Environment(resource=verify, description="d")
    environment = LoadedEnvironment(
        name="own", definition=definition, resource=definition.build(), source=Path("own.py")
    )
    with pytest.raises(UsageError, match="no setting 'a' of own; there are: none"):
        require_known(["a"], [environment])


# -- agents and their options ---------------------------------------------------------------------------


def made(rows: list[dict[str, Any]], environment: str, **more: Any) -> list[tuple[str, dict[str, Any]]]:
    lines = [json.dumps({"responses_create_params": {"input": "?"}, **row}).encode() for row in rows]
    specs = expand(lines, run="r", environment=environment, **more)
    return [(spec.agent, spec.agent_options) for spec in specs]


def of(ref: str) -> dict[str, Any]:
    return {"agent_ref": {"type": "responses_api_agents", "name": ref}}


@table(
    ("ref", "agent"),
    [
        ("reasoning_gym_simple_agent", "tool_loop"),
        ("reasoning_gym_langgraph_agent", "reflection"),
        ("reasoning_gym_orchestrator_agent", "orchestrator"),
        ("reasoning_gym_parallel_thinking_agent", "parallel_thinking"),
        ("reasoning_gym_rewoo_agent", "rewoo"),
        ("langgraph_orchestrator_reasoning_gym_agent", "orchestrator"),
        ("langgraph_reflection_reasoning_gym_agent", "reflection"),
    ],
)
def test_a_row_may_name_its_agent(ref: str, agent: str) -> None:
    row = {**of(ref), "question": "?", "metadata": {"source_dataset": "leg_counting"}}
    assert made([row], "mcqa") == [(agent, {})]
    assert made([row], "mcqa", agent="single_turn") == [("single_turn", {})]


def test_an_environments_options_are_its_agents_and_the_runs_come_first() -> None:
    row = {"question": "?", "expected_answer": "!"}
    own = {"done_tools": ["submit_final_result"], "nudge": "Continue.", "tool_timeout_s": 300}
    rows = [row, {**row, **of("finance_agent")}]
    assert made(rows, "finance_sec_search") == [("tool_loop", own)] * 2
    options = {"nudge": "", "max_time_s": 60}
    assert made([row], "finance_sec_search", agent_options=options) == [("tool_loop", {**own, **options})]
    assert made([row], "finance_sec_search", agent="single_turn") == [("single_turn", {})]
    ((agent, options),) = made([{**of("browsecomp_agent"), "question": "?", "ground_truth": "!"}], "mcqa")
    assert (agent, options["context_reset_tokens"]) == ("tool_loop", 50_000)


@pytest.mark.parametrize(
    ("agent", "options", "what"),
    [
        (
            "tool_loop",
            {"max_time": 3},
            "agent 'tool_loop' has no option 'max_time'; did you mean 'max_time_s'?",
        ),
        ("tool_loop", {"max_time_s": "3"}, "options of agent 'tool_loop': Expected a number or None, got t"),
        ("single_turn", {"n": 3}, "agent 'single_turn' has no option 'n'; there are: none"),
    ],
)
def test_options_are_checked_before_the_first_rollout(agent: str, options: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=re.escape(what)):
        made([{}], "example_single_tool_call", agent=agent, agent_options=options)


def test_an_agent_that_derives_from_another_has_its_options(tmp_path: Path) -> None:
    path = tmp_path / "my_codex.py"
    path.write_text(
        "from gym_agents.acp import Agent as Acp\n\nclass Agent(Acp):\n    command = ('codex',)\n"
    )
    choice = AgentChoice(str(path), {"permissions": "refuse", "on_divergence": "fail"})
    assert checked_agent(choice) == choice
    with pytest.raises(UsageError, match="no option 'permission'; did you mean 'permissions'"):
        checked_agent(AgentChoice(str(path), {"permission": "refuse"}))


def test_a_run_starts_the_agents_that_rows_may_name() -> None:
    agents = {"parallel_thinking", "orchestrator", "reflection", "rewoo", "tool_loop"}
    assert set(make_pools(["reasoning_gym"], None)[0].names) == agents


def test_workers_know_the_options_of_agents_that_are_not_here() -> None:
    rows = made([{}], "example_single_tool_call", agent="elsewhere", agent_options={"n": 1})
    assert rows == [("elsewhere", {"n": 1})]
