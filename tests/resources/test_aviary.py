"""Aviary's environments: the library's tools and rewards, and what keeps a worker alive."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gym_runtime
import msgspec
import pytest
from gym_resources.aviary.episode import chosen
from gym_resources.aviary.pages import PAGES_AT_MOST, RecentPages
from gym_runtime import Reply
from gym_runtime.environment import catalogue, requirements
from gym_runtime.environment.replay import session_of
from gym_runtime.environment.resource import Resource
from gym_runtime.environment.shapes import Episode
from gym_runtime.errors import ResourceError, TaskError, UsageError
from resources.judging import NEMO_GYM_ROWS, call, nemo_gym_rows

pytestmark = pytest.mark.anyio

SUM: dict[str, Any] = {"task_idx": 0, "question": "What is 40 + 2?", "answer": 42}
PAGES = {
    "Ada Lovelace": "Ada Lovelace was a mathematician of London.\nShe wrote notes on an engine.",
    "Charles Babbage": "Charles Babbage was an engineer. He <planned> an engine & never finished it.",
}
QUESTION: dict[str, Any] = {
    "task_idx": 0,
    "question": "Who wrote notes on Babbage's engine?",
    "answer": "Ada Lovelace",
    "pages": PAGES,
}


@pytest.fixture(params=["gsm8k_aviary", "hotpotqa_aviary"])
def name(request: pytest.FixtureRequest) -> str:
    needed(request.param)
    return request.param


def needed(name: str) -> Resource:
    environment = catalogue.environment(name)
    try:
        requirements.require(environment)
    except UsageError as error:
        pytest.skip(error.message)
    return environment.resource


def row(fields: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"responses_create_params": {"input": []}, **fields})


async def steps(
    resource: Resource, fields: dict[str, Any], *answers: list[Any]
) -> tuple[list[list[Any]], list[float], bool]:
    """What each answer got to read, what it was worth, and whether the last one ended the episode."""
    read: list[list[Any]] = []
    worth: list[float] = []
    over = False
    async with session_of(resource, row(fields)) as session:
        assert isinstance(session, Episode)
        await resource.reset(session)
        for answer in answers:
            assert not over
            step = await resource.step(session, Reply.of(*answer).raw)
            items = [msgspec.json.decode(item) for item in step.items]
            read.append([item.get("output", item.get("content")) for item in items])
            worth.append(step.reward)
            over = step.terminated
        assert (await resource.verify(session, Reply.of().raw)).reward == sum(worth)
    return read, worth, over


@pytest.mark.slow
async def test_the_tools_come_from_the_library(name: str) -> None:
    resource = needed(name)
    async with session_of(resource, row(SUM if name == "gsm8k_aviary" else QUESTION)) as session:
        assert isinstance(session, Episode)
        assert resource.offered_tools(session) == []
        [question] = await resource.reset(session)
        offered = [msgspec.json.decode(tool) for tool in resource.offered_tools(session)]
    assert msgspec.json.decode(question)["role"] == "user"
    assert [tool["name"] for tool in offered] == (
        ["calculator", "submit_answer"] if name == "gsm8k_aviary" else ["search", "lookup", "submit_answer"]
    )
    for tool in offered:
        assert tool["type"] == "function"
        assert tool["description"]
        [(parameter, schema)] = tool["parameters"]["properties"].items()
        assert tool["parameters"]["required"] == [parameter]
        assert schema["type"] == "string"


CALCULATED: list[tuple[list[Any], list[Any] | None, float, bool]] = [
    ([call("calculator", {"expr": "40 + 2"})], ["42"], 0.0, False),
    ([call("calculator", {"expr": " (1 + 2) * 3 / 4"})], ["2.25"], 0.0, False),
    ([call("submit_answer", {"answer": "42.0"})], ["True"], 1.0, True),
    ([call("submit_answer", {"answer": 42})], ["True"], 1.0, True),
    ([call("submit_answer", {"answer": "41"})], ["False"], 0.0, True),
    ([call("submit_answer", {"answer": "42 apples"})], ["False"], -1.0, True),
    ([call("calculator", {"expr": "1 / 0"})], None, -1.0, True),
    ([call("calculator", {"expr": "__import__('os')"})], None, -1.0, True),
    ([call("abacus", {})], [""], -1.0, True),
    ([call("calculator", {})], [""], -1.0, True),
    ([call("calculator", {"expr": ["1"]})], [""], -1.0, True),
    ([call("calculator", "{")], [""], -1.0, True),
    (
        [call("calculator", {"expr": "6*7"}, "a"), call("submit_answer", {"answer": "42"}, "b")],
        ["42", "True"], 1.0, True,
    ),
    (["42"], ["No tool calls received. Please call one or more tools to proceed."], 0.0, False),
]  # fmt: skip


async def test_the_calculator_pays_what_the_library_pays() -> None:
    resource = needed("gsm8k_aviary")
    for answer, read, reward, over in CALCULATED:
        got, worth, ended = await steps(resource, SUM, answer)
        assert (worth, ended) == ([reward], over), answer
        if read is None:
            assert got[0][0].startswith("Error using calculator: ")
        else:
            assert got == [read], answer


@pytest.mark.parametrize(
    "expr",
    [
        "9**9**9**9",
        "(-9)**(9**9)",
        "10**4000 * 10**4000",
        "round(1, -10**5)",
        "round(1, -10**10)",
        "9" * 5000,
        "1e308 * 10",
        "(-8)**0.5",
        "-" * 10_000 + "1",
        "(" * 10_000,
        "1+" * 10_000 + "1",
        "1" + "\0",
        "\N{MULTIPLICATION SIGN}",
    ],
)
async def test_an_expression_that_cannot_be_evaluated_is_a_failed_call(expr: str) -> None:
    [[said]], worth, over = await steps(needed("gsm8k_aviary"), SUM, [call("calculator", {"expr": expr})])
    assert said.startswith("Error using calculator: ")
    assert (worth, over) == ([-1.0], True)


@pytest.mark.parametrize(
    ("expr", "result"),
    [
        ("2**10", "1024"),
        ("2**-1", "0.5"),
        ("1**10**9", "1"),
        ("2**0.5", "1.4142135623730951"),
        ("round(2.678, 1)", "2.7"),
        ("round(7/2)", "4"),
        ("max(3, min(5, 4)) + abs(-2)", "6"),
        ("7 // 2 + 7 % 4", "6"),
        ("10**4000 // 10**3999", "10"),
    ],
)
async def test_what_the_library_calculates_is_calculated(expr: str, result: str) -> None:
    from aviary.envs.gsm8k.env import SafeMathEvaluator

    [[said]], worth, over = await steps(needed("gsm8k_aviary"), SUM, [call("calculator", {"expr": expr})])
    assert (said, worth, over) == (result, [0.0], False)
    assert float(said) == SafeMathEvaluator.evaluate(expr)


async def test_searches_are_answered_from_the_rows_pages() -> None:
    resource = needed("hotpotqa_aviary")
    read, worth, over = await steps(
        resource,
        QUESTION,
        [call("search", {"entity": "Babbage"})],
        [call("search", {"entity": "charles babbage"})],
        [call("lookup", {"keyword": "engine"}, "a"), call("lookup", {"keyword": "engine"}, "b")],
        [call("search", {"entity": "weather"}), call("fly", {}, "d")],
        [call("submit_answer", {"answer": "It was the Ada Lovelace!"})],
    )
    assert read == [
        ["Search for 'Babbage' returned no results. Similar: ['Charles Babbage']."],
        ["Charles Babbage was an engineer. He <planned> an engine & never finished it.."],
        [
            "(Result 1 / 1) Charles Babbage was an engineer. He <planned> an engine & never finished it.",
            "No more results.",
        ],
        [
            "Search for 'weather' returned no results. Similar: ['Ada Lovelace', 'Charles Babbage'].",
            "Invalid tool call: fly",
        ],
        ["Finished."],
    ]
    assert (worth, over) == ([0, 0, 0, 0, 1.0], True)


@pytest.mark.parametrize(
    ("answer", "reward", "over"),
    [
        (call("submit_answer", {"answer": "Charles Babbage"}), 0.0, True),
        (call("submit_answer", {"answer": ""}), 0.0, True),
        (call("search", {"entity": ""}), 0.0, True),
        (call("lookup", {"keyword": "notes"}), 0.0, False),
        (call("search", {"keyword": "Ada"}), 0.0, False),
    ],
)
async def test_what_leads_nowhere_is_worth_nothing(answer: Any, reward: float, over: bool) -> None:
    _, worth, ended = await steps(needed("hotpotqa_aviary"), QUESTION, [answer])
    assert (worth, ended) == ([reward], over)


async def test_a_rows_own_task_is_whole_or_not_there(name: str) -> None:
    resource = needed(name)
    whole = SUM if name == "gsm8k_aviary" else QUESTION
    for field in sorted(set(whole) - {"task_idx"}):
        with pytest.raises(TaskError, match="go together"):
            resource.task(row({key: value for key, value in whole.items() if key != field}))
    with pytest.raises(TaskError):
        resource.task(row({**whole, "task_idx": -1}))


def test_rows_in_nemo_gyms_format_are_its_tasks(name: str) -> None:
    files = (NEMO_GYM_ROWS / "aviary").glob(f"{name.removesuffix('_aviary')}_example.jsonl")
    lines = [line for path in files for line in path.read_bytes().splitlines()]
    for line in [*nemo_gym_rows(name), *lines]:
        assert msgspec.structs.asdict(needed(name).task(line))["task_idx"] == json.loads(line)["task_idx"]
    assert catalogue.resolve_agent_ref(f"{name}_agent") == name


def test_a_task_is_one_of_the_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed("gsm8k_aviary")
    import datasets
    from aviary.envs.gsm8k import GSM8kDataset

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    problems = [{"question": f"{n} + 1?", "answer": f"It is so.\n#### 1,00{n + 1}"} for n in range(6)]
    with TemporaryDirectory(prefix="gsm8k-") as folder:  # tmp_path says "test", which the library reads
        (Path(folder) / "train.jsonl").write_text("\n".join(json.dumps(problem) for problem in problems))

        def local(split: str) -> GSM8kDataset:
            return GSM8kDataset(split, hf_source=folder)

        found = chosen(local, "train", 0)
        assert (found.problem, found.answer, found.problem_id) == ("1 + 1?", 1002.0, "train_1")
        assert chosen(local, "val", 1).problem == "5 + 1?"
        with pytest.raises(TaskError, match="task_idx is 4; 'train' has 4 tasks"):
            chosen(local, "train", 4)


@pytest.mark.slow
async def test_data_that_cannot_be_had_are_a_failure(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    resource = needed(name)
    import datasets

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", "/nonexistent")
    with pytest.raises(ResourceError, match=r"hotpot_qa|gsm8k") as raised:
        await resource.open(row({"task_idx": 0}))
    assert raised.value.stage == "open"


def test_wikipedia_is_remembered_within_bounds() -> None:
    pages = RecentPages()
    for number in range(PAGES_AT_MOST + 2):
        pages[str(number)] = "page"
    assert len(pages) == PAGES_AT_MOST
    assert "1" not in pages
    assert "2" in pages


@pytest.mark.slow
async def test_a_model_is_offered_the_tools() -> None:
    needed("hotpotqa_aviary")
    task = {"responses_create_params": {"input": []}, **QUESTION}
    name = "hotpotqa_aviary"
    async with gym_runtime.connect(model="scripted/tool-then-message", environments=[name]) as gym:
        [record] = [record async for record in gym.rollouts([task], environment=name)]
    written = json.loads(bytes(record.row))
    offered = written["responses_create_params"]["tools"]
    called, answered = written["response"]["output"][:2]
    assert [tool["name"] for tool in offered] == ["search", "lookup", "submit_answer"]
    assert called["name"] == "search"
    assert answered["type"] == "function_call_output"
    assert isinstance(record.reward, float)
