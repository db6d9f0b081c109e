"""Questions that base models answer in writing: verdicts of `base_answer` and `base_code`, and their rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gym_agents import single_turn
from gym_resources.benchmarks import base_answer, base_code
from gym_resources.published_sets.written import LANGUAGES, before
from gym_runtime.environment import catalogue
from gym_runtime.messages.outcomes import Completed
from gym_testing.small_system import rollout_spec, small_system
from models.json_server import JsonHandler, serving
from models.openai.openai_adapter import entered
from resources.benchmarks.test_published_rows import prepared
from resources.judging import judge, row, usable
from tables import table

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]


def examples(module: Any) -> list[dict[str, Any]]:
    lines = Path(module.__file__).with_suffix(".jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


async def rewarded(module: Any, number: int, text: str, **fields: Any) -> float:
    name = module.__name__.rpartition(".")[2]
    usable(name)
    example = examples(module)[number]
    given = {key: value for key, value in example.items() if key not in ("gold", "responses_create_params")}
    return (await judge(name, row(**given, **fields), text)).reward


NUMBER, FORMULA, GERMAN, LETTER, STATED = range(5)


@pytest.mark.slow
@pytest.mark.timeout(120)
@table(
    ("number", "text", "reward"),
    [
        (NUMBER, " 12*5=60, and 9 more.\n#### 69", 1.0),
        (NUMBER, " She reads 69 pages.", 1.0),
        (NUMBER, " #### 69\n\nThe next one has 4.", 1.0),
        (NUMBER, " #### 68\n\nQuestion: What is 70-1?\nAnswer: 69\n#### 69", 0.0),
        (NUMBER, "Question: #### 69", 0.0),
        (NUMBER, " #### 69\n#### 68", 0.0),
        (NUMBER, " ####", 0.0),
        (NUMBER, "", 0.0),
        (FORMULA, " Final Answer: The final answer is $\\sqrt{48}$. I hope it is correct.", 1.0),
        (FORMULA, " So $\\boxed{4\\sqrt{3}}$.", 1.0),
        (FORMULA, " So $\\boxed{4\\sqrt{3}}$.\nFinal Answer: The final answer is $7$.", 0.0),
        (FORMULA, "\\boxed{" * 10_000, 0.0),
        (GERMAN, " 8 * 40 = 320. Die Antwort lautet 320.", 1.0),
        (GERMAN, " 答案是 320。", 1.0),
        (GERMAN, " Die Antwort lautet 32.\n\nFrage: Wie viele? Die Antwort lautet 320.", 0.0),
        (LETTER, " B", 1.0),
        (LETTER, " (B) Ida is no poet.", 1.0),
        (LETTER, " C\nB", 0.0),
        (LETTER, " no letter", 0.0),
        (LETTER, "A" * 1_000_000 + " B C", 1.0),
        (STATED, " It is 60. The answer is (C).", 1.0),
        (STATED, " The answer is (B).\n\nQuestion: Which? The answer is (C).", 0.0),
        (STATED, " It is 60 km/h.", 0.0),
        (STATED, "Question: " * 100_000, 0.0),
    ],
)
async def test_an_answer_is_read_where_the_form_has_it(number: int, text: str, reward: float) -> None:
    assert await rewarded(base_answer, number, text) == reward


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_a_list_of_letters_is_paid_unless_the_rule_is_strict() -> None:
    text = " The answer is (C) or (B)."
    assert await rewarded(base_answer, STATED, text) == 1.0
    assert await rewarded(base_answer, STATED, text, strict=True) == 0.0
    assert await rewarded(base_answer, STATED, " The answer is (C).", strict=True) == 1.0


@pytest.mark.slow
@pytest.mark.timeout(120)
@table(
    ("number", "text", "reward"),
    [
        (2, "    return text == text[::-1]\n\ndef other(:\n", 1.0),
        (2, "    return text == text[::-1]\n# done\nraise SystemExit", 1.0),
        (2, "def is_palindrome(text): return text == text[::-1]", 1.0),
        (2, "    return True\n", 0.0),
        (2, "    import os\n    os._exit(0)\n", 0.0),
        (2, "", 0.0),
        (
            4,
            "def initials(text):\n    return ''.join(w[0] for w in text.split()).upper()\n[DONE]\nraise",
            1.0,
        ),
        (4, "[DONE]\ndef initials(text): return ''.join(w[0] for w in text.split()).upper()", 0.0),
        (4, "def initials(text):\n    return {'red green': 'RG', '': '', 'one': 'O'}[text]\n[DONE]", 0.0),
        (4, "[" * 1_000_000, 0.0),
    ],
)
async def test_a_program_goes_on_to_its_stop(number: int, text: str, reward: float) -> None:
    assert await rewarded(base_code, number, text) == reward


def test_the_first_of_the_stops_ends_a_text() -> None:
    assert before("ab c b", ["c", "b"]) == "a"
    assert before("ab", []) == before("ab", ["x"]) == "ab"


class Handler(JsonHandler):
    """Goes on with the example's right answer, and says what it was asked."""

    def do_GET(self) -> None:
        self.answer({"object": "list", "data": [{"id": "base"}]})

    def do_POST(self) -> None:
        body = self.asked()
        example = next(
            one
            for one in examples(base_answer)
            if one["responses_create_params"]["input"][0]["content"] == body["prompt"]
        )
        assert (self.path, body["stop"], body["max_tokens"]) == ("/v1/completions", example["stops"], 64)
        self.answer({"choices": [{"text": example["gold"], "finish_reason": "stop"}], "usage": {}})


@pytest.fixture
def url() -> Iterator[str]:
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
        yield address


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_an_engine_is_told_where_to_stop(url: str) -> None:
    given = {key: value for key, value in examples(base_answer)[LETTER].items() if key != "gold"}
    async with entered(url, name="base", api="completions") as adapter, small_system() as system:
        await system.add_agent({"single_turn": single_turn.Agent()})
        await system.add_model(adapter)
        await system.add_resource(catalogue.environment("base_answer"))
        spec = rollout_spec(msgspec.json.encode(given), agent="single_turn", environment="base_answer")
        (record,) = await system.make(spec)
    assert isinstance(record.outcome, Completed)
    assert json.loads(bytes(record.row))["reward"] == 1.0


def shown(one: dict[str, Any]) -> str:
    return one["responses_create_params"]["input"][0]["content"]


def stopped(one: dict[str, Any]) -> list[str]:
    found = json.loads(one["responses_create_params"]["metadata"]["extra_body"])["stop"]
    assert found == one["stops"]
    return found


def test_word_problems_stand_behind_the_first_five_worked_examples(tmp_path: Path) -> None:
    [made] = prepared("base_answer", tmp_path)
    worked = "".join(f"Question: How many, {n}?\nAnswer: So.\n#### {n}\n\n" for n in range(5))
    assert shown(made) == f"{worked}Question: How much?\nAnswer:"
    assert (made["expected_answer"], made["mark"], stopped(made)) == ("1600", "####", ["Question:"])


def test_questions_of_experts_have_others_with_explanations_before_them(tmp_path: Path) -> None:
    rows = prepared("base_answer", tmp_path, "gpqa")
    assert len(rows) == 2
    for number, made in enumerate(rows):
        head, worked, asked = shown(made).split("Question: ")
        assert head == base_answer.EXPERTS
        assert worked.startswith("Which, 2?\nChoices:\n(A) ")
        assert "Let's think step by step: Thus 2.\nThe answer is (" in worked
        assert asked.startswith(f"Which, {number}?")
        assert asked.endswith("\nLet's think step by step:")
        assert f"({made['expected_answer']}) yes" in asked


def test_exams_begin_with_questions_that_are_not_asked(tmp_path: Path) -> None:
    rows = prepared("base_answer", tmp_path, "agieval")
    assert len(rows) == 10 * 2
    first = next(one for one in rows if one["category"] == "sat-math")
    assert shown(first).startswith("Q: 0?\nA: the answer is A\n\nQ: 1?\nA: the answer is B\n\n")
    assert shown(first).endswith("answer is C\n\nQ: 3?\nA: the answer is")
    assert (first["expected_answer"], first["reads"]) == ("D", "letter")
    number = next(one for one in rows if one["category"] == "math")
    assert (number["expected_answer"], number["reads"]) == ("3", "math")


def test_problems_have_solutions_of_their_subject_before_them(tmp_path: Path) -> None:
    rows = prepared("base_answer", tmp_path, "math")
    assert len(rows) == 7
    for made in rows:
        assert shown(made).count(made["category"]) == 2
        assert "$\\boxed{2}$\nFinal Answer: The final answer is $2$. I hope it is correct." in shown(made)
        assert shown(made).endswith("test-00000-of-00001.parquet?\n\nSolution:")


def test_languages_take_their_words_from_their_worked_examples(tmp_path: Path) -> None:
    rows = prepared("base_answer", tmp_path, "mgsm")
    assert [one["category"] for one in rows] == list(LANGUAGES)
    assert shown(rows[1]) == "Frage: Eins?\nAntwort: 1.\n\nFrage: Zwei?\nAntwort:"
    assert stopped(rows[1]) == ["Frage:"]
    assert shown(rows[-1]).endswith("问题： Zwei?\nAntwort:")
    assert stopped(rows[-1]) == ["问题："]


def test_subjects_are_asked_in_their_authors_form(tmp_path: Path) -> None:
    [made] = prepared("base_answer", tmp_path, "mmlu_pro")
    assert "about law." in shown(made)
    assert shown(made).count("The answer is (B).\n\n") == 1
    assert shown(made).endswith("Answer: Let's think step by step.")
    assert (made["category"], made["expected_answer"], made["reads"]) == ("law", "B", "stated")


def test_functions_are_their_own_prompt(tmp_path: Path) -> None:
    [made] = prepared("base_code", tmp_path)
    assert shown(made) == made["verifier_metadata"]["given"] == "def half(n):\n    ...\n"
    assert "\ndef" in stopped(made)


def test_tasks_stand_behind_three_programs(tmp_path: Path) -> None:
    [made] = prepared("base_code", tmp_path, "mbpp")
    asked = base_code.request("Double.", ["assert half(1) == 0.5"])
    assert shown(made) == f"{asked}def half(n):\n  return n / 2\n[DONE]\n\n" * 3 + asked
    assert (made["verifier_metadata"]["base"], stopped(made)) == (1, ["[DONE]"])
