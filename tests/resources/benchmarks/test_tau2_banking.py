"""tau2-bench's bank: its tools, those that stand in documents, the documents, and what decides the reward."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gym_agents.step_loop import Agent
from gym_resources.tau2 import banking_library, banking_published
from gym_resources.tau2.banking import SEARCHES, Bank
from gym_resources.tau2.banking_desk import unlockable
from gym_resources.tau2.banking_ledger import digest
from gym_resources.tau2.banking_library import MODES, Corpus, Document, Index, Library
from gym_resources.tau2.criteria import FAILURES
from gym_resources.tau2.task import Limits
from gym_runtime.environment import catalogue
from gym_runtime.environment.replaying import session_of
from gym_runtime.environment.roles import Scripted, ScriptedAnswers
from gym_runtime.environment.verdict import Verdict, make_response
from gym_runtime.errors import AssetMissing, TaskError
from gym_testing.small_system import Engine, answer, function_call, small_system
from resources.benchmarks.banking_rows import NAME, Fields, bank, example, task, use
from resources.judging import call
from tables import table

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]


def test_ids_are_those_of_the_published_database() -> None:
    assert digest("debit_card:chk_cec8333d41_green:cec8333d41:03/20/2022", 12) == "31839d9c1891"
    assert digest("account:jm60a8b9c2:checking:Green Account") == "58d57780cc15e32d"


READ = "get_all_user_accounts_by_user_id_3847"
EXPECTED = [
    {"name": "call_discoverable_agent_tool", "arguments": {"agent_tool_name": READ, "arguments": "{}"}}
]


@pytest.mark.parametrize(("actions", "count"), [([], 0), (EXPECTED, 1)])
async def test_a_reading_call_is_noted_where_the_task_expects_it(actions: list[Fields], count: int) -> None:
    on = bank(example(1, actions=actions))
    assert "chk_71" in await use(on, READ, {"user_id": "u71"})
    assert len(on.state) == count


@table(
    ("name", "arguments", "said"),
    [
        ("unlock_discoverable_agent_tool", {"agent_tool_name": "x" * 10**6}, "Refused: there is no tool"),
        (
            "call_discoverable_agent_tool",
            {"agent_tool_name": READ, "arguments": "{}"},
            "unlock it with unlock_discoverable_agent_tool",
        ),
        ("give_discoverable_user_tool", {"discoverable_tool_name": READ}, "for customers"),
        (
            "give_discoverable_user_tool",
            {"discoverable_tool_name": "deposit_check_3847", "arguments": '{"x": 1}'},
            "no argument 'x'",
        ),
        ("change_user_email", {"user_id": "u9", "new_email": "x"}, "Refused: there is no such user"),
        ("get_user_information_by_name", {"customer_name": "hanna brandt"}, "No users found."),
        ("get_user_information_by_id", {"user_id": '", "name": "'}, "No users found."),
        ("transfer_to_human_agents", {"summary": "", "reason": "boredom"}, "validation_error"),
        ("get_current_time", {"zone": "EST"}, "Error: get_current_time has no argument 'zone'"),
        (READ, {"user_id": "u71"}, "Error: there is no such tool"),
    ],
)
async def test_calls_that_are_refused_leave_nothing(name: str, arguments: Fields, said: str) -> None:
    on = bank()
    assert said in await on.call("assistant", name, json.dumps(arguments))
    assert on.state == {}


@table(
    ("arguments", "said"),
    [
        ("{", "no JSON object"),
        ("[" * 100_000, "no JSON object"),
        ('["u71"]', "no JSON object"),
        ("{}", "needs the argument 'user_id'"),
        ('{"user_id": "u71", "limit": 3}', "has no argument 'limit'"),
        ('{"user_id": ' + "9" * 5000 + "}", "no JSON object"),
        ('{"user_id": {"a": [1]}}', "validation_error"),
    ],
)
async def test_hostile_arguments_of_an_unlocked_tool(arguments: str, said: str) -> None:
    on = bank()
    await on.call("assistant", "unlock_discoverable_agent_tool", json.dumps({"agent_tool_name": READ}))
    through = {"agent_tool_name": READ, "arguments": arguments}
    began = time.process_time()
    answer = await on.call("assistant", "call_discoverable_agent_tool", json.dumps(through))
    assert said in answer
    assert time.process_time() - began < 0.25
    assert not answer.startswith(FAILURES)


def test_every_tool_that_can_be_unlocked_is_described() -> None:
    assert len(unlockable()) == 43
    for name, (_, found) in unlockable().items():
        definition = found.definition()
        assert definition["name"] == name
        assert definition["description"].endswith(".")


@table("way", MODES)
def test_the_agent_has_the_tools_of_the_rows_way(way: str) -> None:
    row = example(1)
    row["config"]["retrieval_config"] = way
    offered = bank(row).offered("assistant")
    assert {name for name in offered if name in SEARCHES} == set(MODES[way])
    assert (
        bank({**row, "retrieval": "no_knowledge"}).offered("assistant").keys() & {"KB_search", "grep"}
        == set()
    )


@table(
    ("change", "message"),
    [
        ({"config": {"domain": "telecom"}}, "is 'telecom', not 'banking_knowledge'"),
        ({"retrieval": "openai_embeddings_grep"}, "needs a model of embeddings"),
        ({"retrieval": "bm25_reranker"}, "needs a language model that ranks"),
        ({"retrieval": "terminal_use_write"}, "needs a shell that keeps"),
        ({"retrieval": "alltools-qwen"}, "--set retrieval=NAME"),
        ({"retrieval": "telepathy"}, "is unknown; one of no_knowledge"),
    ],
)
def test_ways_that_do_not_run_here_are_refused_with_the_remedy(change: Fields, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        task(example(1) | change)


def test_a_task_may_begin_with_other_data() -> None:
    row = example(1, actions=[])
    row["task"]["initial_state"] = {
        "initialization_data": {
            "agent_data": {
                "accounts": {"data": {"chk_71": {"status": "CLOSED"}}},
                "users": {"data": {"u9": {"user_id": "u9", "name": "New"}}},
            },
            "user_data": None,
        }
    }
    on = bank(row)
    closed = on.records.find("accounts", "chk_71")
    assert closed
    assert (closed["status"], closed["user_id"]) == ("CLOSED", "u71")
    assert on.records.find("users", "u9") == {"user_id": "u9", "name": "New"}
    row["task"]["initial_state"] = {"initialization_data": {"agent_data": {"accounts": [1]}}}
    with pytest.raises(TaskError, match="Expected `object`"):
        task(row)


TEXTS = ["the fee of a card", "the card card", "the weather", "the bank", "a loan"]
SMALL = Library(Corpus([Document(f"d{n}", f"T{n}", text) for n, text in enumerate(TEXTS)]), Limits(top_k=2))


@pytest.mark.parametrize(
    ("query", "found"),
    [("card", ["d1", "d0"]), ("FEE card", ["d0", "d1"]), ("weather", ["d2"]), ("nothing", []), ("", [])],
)
def test_documents_are_found_by_words(query: str, found: list[str]) -> None:
    assert [passage.id for passage in SMALL.search(query)] == found


def test_scores_are_those_of_bm25_as_rank_bm25_counts_them() -> None:
    scores = Index(TEXTS).scores("card the")
    assert {number: round(score, 6) for number, score in scores.items()} == {
        0: 0.365572,
        1: 0.623311,
        2: 0.18172,
        3: 0.18172,
    }


async def test_documents_are_found_by_an_expression() -> None:
    found = await SMALL.grep("CARD|fee")
    assert [(one.id, one.score) for one in found] == [("d0", 2.0), ("d1", 2.0)]
    assert await SMALL.grep("x{9}") == []
    answer = await Bank(task(example(1)), SMALL).call("assistant", "grep", '{"pattern": "("}')
    assert answer == "Error: this is no regular expression"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("cat INDEX.md", "- d0.md: T0\n- d1.md: T1"),
        ("grep -l card *.md | sort; head -1 d2.md", "d0.md\nd1.md\n# T2"),
        ("grep -q zebra *.md", "exit code 1"),
        ("rm -f d0.md; ls | wc -l", "6"),
        ("touch new; ls | wc -l", "6"),
        ("true", "(no output)"),
        ("ls /root /home /work", "No such file"),
        ("sleep 60", "Error: the command took longer than 2 s"),
        ("x" * 3000, "Error: the command is longer than 2000"),
    ],
)
async def test_documents_are_files_of_a_shell_that_sees_nothing_else(
    command: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(banking_library, "SHELL_S", 2.0)
    row = example(1) | {"retrieval": "terminal_use"}
    on = Bank(task(row), SMALL)
    assert said in await on.call("assistant", "shell", json.dumps({"command": command}))


@pytest.mark.slow
async def test_an_expression_that_backtracks_is_stopped() -> None:
    on = Bank(task(example(1)), Library(Corpus([Document("d", "T", "a" * 60 + "b")]), Limits()))
    assert "took longer" in await on.call("assistant", "grep", '{"pattern": "(a|aa)+$"}')
    assert "longer than 2000" in await on.call("assistant", "KB_search", json.dumps({"query": "a " * 5000}))


def uses(name: str, **arguments: Any) -> Fields:
    """The customer calls a tool."""
    return {"output": [call(name, arguments, "u")]}


async def judged(
    row: Fields, turns: Sequence[Any], *customer: Scripted, judge: Sequence[Scripted] = ()
) -> Verdict:
    """The verdict on a conversation whose customer's part is written."""
    resource = catalogue.environment(NAME).resource
    models = ScriptedAnswers({"user": customer, "judge": judge}).models(resource.roles)
    output: list[Any] = []
    async with session_of(resource, json.dumps(row).encode(), models) as session:
        await resource.reset(session)
        for turn in turns:
            step = await resource.step(session, make_response(turn))
            output += [turn, *(msgspec.json.decode(item) for item in step.items)]
        found = await resource.verify(session, make_response(*output))
    assert isinstance(found, Verdict)
    return found


def gold(number: int) -> tuple[Fields, list[Any], list[Any]]:
    row = example(number)
    played = row.pop("gold")
    return row, played["turns"], played["roles"]["user"]


def replaced(turns: list[Any], old: str, new: str) -> list[Any]:
    return json.loads(json.dumps(turns).replace(old, new))


EXTRA = [
    call("unlock_discoverable_agent_tool", {"agent_tool_name": "get_user_dispute_history_7291"}, "x1"),
    call(
        "call_discoverable_agent_tool",
        {"agent_tool_name": "get_user_dispute_history_7291", "arguments": '{"user_id": "u71"}'},
        "x2",
    ),
]


@table(
    ("amount", "extra", "reward"),
    [
        ("2.5", [], 1.0),
        (r"\"2.50\"", [], 1.0),
        ("2.4", [], 0.0),
        ("2.5", EXTRA, 1.0),
        ("2.5", [call("give_discoverable_user_tool", {"discoverable_tool_name": "get_referral_link"})], 0.0),
        ("2.5", [call("change_user_email", {"user_id": "u71", "new_email": "x"})], 0.0),
    ],
)
async def test_the_database_decides(amount: str, extra: list[Any], reward: float) -> None:
    row, turns, customer = gold(1)
    played: list[Any] = [
        {**turn, "arguments": turn["arguments"].replace(r"amount\": 2.5", rf"amount\": {amount}")}
        if isinstance(turn, dict)
        else turn
        for turn in turns
    ]
    assert (played == turns) == (amount == "2.5")
    assert (await judged(row, [*played[:-1], *extra, played[-1]], *customer)).reward == reward


async def test_a_customer_calls_only_what_it_knows_of() -> None:
    row, turns, customer = gold(4)
    assert (await judged(row, turns, *customer)).reward == 1.0
    row["task"]["user_tools"] = []
    assert (await judged(row, turns, *customer)).reward == 0.0


async def test_a_judge_and_the_calls_decide_where_the_task_says_so() -> None:
    row, turns, customer = gold(5)
    assert (await judged(row, turns, *customer, judge=["[[holds]]"])).reward == 1.0
    assert (await judged(row, turns, *customer, judge=["[[does not hold]]"])).reward == 0.0
    other = replaced(turns, "account_ownership_dispute", "other")
    assert (await judged(row, other, *customer)).reward == 0.0


def publish(place: Path) -> None:
    """A folder such as the authors'."""
    folder = place / banking_published.PLACE
    (folder / "prompts/components").mkdir(parents=True)
    for name in banking_published.COMPONENTS:
        (folder / f"prompts/components/{name}.md").write_text(f"# {name}")
    (folder / "db.json").write_text('{"users": {"data": {"u1": {"user_id": "u1"}}, "notes": ""}}')
    for name, files in {
        "documents": {
            "b": {"id": "b", "title": "B", "content": "fees"},
            "a": {"id": "a", "title": "A", "content": "x"},
        },
        "tasks": {"task_002": served("task_002", ["b"]), "task_001": served("task_001", ["gone"])},
    }.items():
        (folder / name).mkdir()
        for key, record in files.items():
            (folder / name / f"{key}.json").write_text(json.dumps(record))


def served(key: str, documents: list[str]) -> Fields:
    return {
        "id": key,
        "user_scenario": {"persona": None, "instructions": "You want a card."},
        "initial_state": None,
        "evaluation_criteria": {"actions": [], "reward_basis": ["DB"]},
        "user_tools": ["apply_for_credit_card"],
        "required_documents": documents,
    }


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    publish(tmp_path)
    monkeypatch.setenv("GYM_TAU2", str(tmp_path))
    return tmp_path


def test_published_files_are_read(published: Path) -> None:
    assert banking_published.tables() == {"users": {"u1": {"user_id": "u1"}}}
    assert [one.id for one in Library(banking_published.corpus(), Limits()).search("fees")] == ["b"]
    (row,) = [
        one for one in rows("bm25", "{{component:policy_header}}\n…") if one["id"] == "banking_task_002"
    ]
    found = task({**row, "agent_ref": {"name": "tau2_agent"}})
    assert (found.way, found.tables()) == ("bm25", banking_published.tables())
    found.check_assets()


def rows(way: str, template: str) -> list[Fields]:
    texts = iter([{"text": f"# {name}"}] for name in banking_published.COMPONENTS)
    return list(banking_published.rows(way, iter([{"text": template}]), *map(iter, texts)))


@pytest.mark.parametrize(
    ("way", "template", "policies"),
    [
        ("full_kb", "{{full_knowledge_base}}", ["## A\n\nx\n\n---\n\n## B\n\nfees"] * 2),
        ("golden_retrieval", "{{required_documents}}", ["(No documents provided)", "## B\n\nfees"]),
        (
            "bm25",
            "{{component:policy_header}} {{component:other}}",
            ["# policy_header {{component:other}}"] * 2,
        ),
    ],
)
@pytest.mark.usefixtures("published")
def test_rows_have_the_prompt_of_their_way(way: str, template: str, policies: list[str]) -> None:
    found = rows(way, template)
    assert [row["id"] for row in found] == ["banking_task_001", "banking_task_002"]
    systems = [row["responses_create_params"]["input"][0]["content"] for row in found]
    assert [system.partition("<policy>\n")[2].removesuffix("\n</policy>") for system in systems] == policies
    assert {row["config"]["retrieval_config"] for row in found} == {way}


def test_without_the_files_one_line_says_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GYM_TAU2", str(tmp_path))
    row = example(1)
    del row["documents"]
    with pytest.raises(AssetMissing, match=r"gym-runtime prepare --assets tau2_banking, or set GYM_TAU2"):
        task(row).check_assets()
    row["retrieval"] = "full_kb"
    task(row).check_assets()  # its documents are in the prompt


@pytest.mark.slow
async def test_a_row_in_nemo_gyms_form_has_its_tasks_customer_and_no_tool_twice() -> None:
    row, _, _ = gold(4)
    del row["simulated_user"]
    prompt = row["responses_create_params"]
    prompt["input"] = prompt["input"][:1]
    prompt["tools"] = [{"type": "function", "name": "get_current_time", "parameters": {"type": "object"}}]
    policy = Engine(answer("The Gold Rewards Card."))
    wanted = row["task"]["evaluation_criteria"]["actions"][0]["arguments"]
    apply = answer(function_call("apply_for_credit_card", json.dumps(wanted)))
    customer = Engine(answer("Which card?"), apply, answer("###STOP###"))
    async with small_system() as system:
        await system.add_resource(catalogue.environment(NAME))
        await system.add_agent({"step_loop": Agent()})
        await system.add_model(policy)
        await system.add_model(customer, name="user-1", pool="user")
        (record,) = [record async for record in system.client.rollouts([row], environment=NAME, repeats=1)]
    assert record.reward == 1.0
    asked = policy.calls.items[0][0]
    said = [msgspec.json.decode(item) for item in asked.input]
    assert [item["role"] for item in said] == ["system", "assistant", "user"]
    names = [tool["name"] for tool in msgspec.json.decode(asked.params)["tools"]]
    assert len(names) == len(set(names)) == 14
