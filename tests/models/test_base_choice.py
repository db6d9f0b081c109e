"""Options behind a text, compared by the log-probabilities of a real HTTP server: `base_choice`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gym_agents import each_alone
from gym_resources.benchmarks import base_choice
from gym_resources.published_sets import continuations
from gym_runtime.environment import catalogue
from gym_runtime.messages.outcomes import Completed, Failed, RolloutRecord
from gym_testing.small_system import rollout_spec, small_system
from models.json_server import JsonHandler, serving
from models.openai.openai_adapter import entered
from tables import table

pytestmark = pytest.mark.anyio
LIKELY = (" B", " With", " handle.", " star", " the", " ball")


class Handler(JsonHandler):
    """Knows some words, and says how likely each word of a prompt is."""

    def do_GET(self) -> None:
        self.answer({"object": "list", "data": [{"id": name} for name in ("base", "mute")]})

    def do_POST(self) -> None:
        body = self.asked()
        assert (body["echo"], body["max_tokens"], body["logprobs"]) == (True, 0, 1)
        words = re.findall(r"\s?[^\s]+|\s", body["prompt"])
        values = [None, *(-0.1 if word in LIKELY else -3.0 for word in words[1:])]
        told = {"tokens": words, "token_logprobs": values, "top_logprobs": None}
        choice = {"text": body["prompt"], "finish_reason": "length", "logprobs": told}
        if body["model"] == "mute":
            del choice["logprobs"]
        self.answer({"choices": [choice], "usage": {"prompt_tokens": len(words), "completion_tokens": 0}})


@pytest.fixture
def url() -> Iterator[str]:
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
        yield address


def examples() -> list[dict[str, Any]]:
    lines = Path(base_choice.__file__).with_suffix(".jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


async def run(url: str, name: str, row: dict[str, Any]) -> RolloutRecord:
    given = msgspec.json.encode({key: value for key, value in row.items() if key != "gold"})
    async with entered(url, name=name, api="completions") as adapter, small_system() as system:
        await system.add_agent({"each_alone": each_alone.Agent()})
        await system.add_model(adapter)
        await system.add_resource(catalogue.environment("base_choice"))
        (record,) = await system.make(rollout_spec(given, agent="each_alone", environment="base_choice"))
    return record


@pytest.mark.parametrize("number", range(5))
async def test_the_likelier_option_is_the_answer(url: str, number: int) -> None:
    record = await run(url, "base", examples()[number])
    assert isinstance(record.outcome, Completed)
    found = json.loads(bytes(record.row))
    assert found["reward"] == 1.0
    assert len(found["likelihoods"]) == len(examples()[number]["options"])
    assert found["likelihoods"].index(max(found["likelihoods"])) == examples()[number]["answer"]


async def test_an_engine_without_log_probabilities_is_no_verdict(url: str) -> None:
    record = await run(url, "mute", examples()[0])
    assert isinstance(record.outcome, Failed)
    assert "--model-api completions" in record.outcome.fault.message


RECORDS: dict[str, dict[str, Any]] = {
    "": {"question": "Q?", "choices": ["a", "b"], "answer": 1, "subject": "abstract_algebra"},
    "arc_challenge": {
        "question": "Q?",
        "choices": {"text": ["a", "b"], "label": ["1", "2"]},
        "answerKey": "2",
    },
    "global_mmlu_lite": {
        "question": "Q?",
        **{f"option_{one}": one for one in "abcd"},
        "answer": "C",
        "subject_category": "STEM",
    },
    "hellaswag": {
        "activity_label": "Cooking",
        "ctx_a": "He cooks.",
        "ctx_b": "he",
        "endings": ["eats.", "[x] runs."],
        "label": "0",
    },
    "openbookqa": {
        "question_stem": "The sun is",
        "choices": {"text": ["a star", "cold"], "label": ["A", "B"]},
        "answerKey": "A",
    },
    "piqa": {"goal": "Open it.", "sol1": "Pull.", "sol2": "Eat.", "label": 0},
    "race": {"article": "He came.", "question": "Who?", "options": ["He", "She"], "answer": "A"},
    "winogrande": {"sentence": "It broke as _ was old.", "option1": "it", "option2": "he", "answer": "1"},
}
MMLU_HEAD = "The following are multiple choice questions (with answers) about abstract algebra.\n\n"
MMLU_TEXT = "Q?\nA. a\nB. b\nAnswer:"


def test_rows_have_worked_examples_of_their_subject_before_them() -> None:
    other = {**RECORDS[""], "subject": "anatomy"}
    [row] = continuations.SETS[""].rows(iter([RECORDS[""]]), iter([other, *[RECORDS[""]] * 7]))
    before = MMLU_HEAD + f"{MMLU_TEXT} B\n\n" * 5 + MMLU_TEXT
    asked = [one["content"] for one in row["responses_create_params"]["input"]]
    assert asked == [f"{before} A", f"{before} B"]
    assert (row["options"], row["answer"], row["category"]) == ([" A", " B"], 1, "abstract_algebra")


ENDS = {
    "": " B",
    "arc_challenge": "Question: Q?\nA. a\nB. b\nAnswer: B",
    "global_mmlu_lite": "D. d\nAnswer: C",
    "hellaswag": "Cooking: He cooks. He eats.",
    "openbookqa": "The sun is a star",
    "piqa": "Question: Open it.\nAnswer: Pull.",
    "race": "Article: He came.\n\nQuestion: Who?\nAnswer: He",
    "winogrande": "It broke as it was old.",
}


@table("name", continuations.SETS)
def test_each_set_makes_rows(name: str) -> None:
    published = continuations.SETS[name]
    [row] = published.rows(*(iter([RECORDS[name]]) for _ in published.files))
    assert catalogue.environment("base_choice").resource.task(msgspec.json.encode(row))
    texts = [one["content"] for one in row["responses_create_params"]["input"]]
    assert all(text.endswith(option) for text, option in zip(texts, row["options"], strict=True))
    assert texts[row["answer"]].endswith(ENDS[name])
