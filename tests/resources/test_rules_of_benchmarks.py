"""Rules of environments that compare a reply with what a row expects, or ask a judge once."""

from __future__ import annotations

import json
import time
import unicodedata
from typing import Any

import pytest
from gym_resources import (
    arena_judge,
    frontierscience_judge,
    graphwalks,
    imo_gradingbench,
    imo_proofbench_judge,
    math_proof_judgement,
    rolemrc_judge,
    spartqa,
)
from gym_resources.benchmarks.polymath import score as weighted
from gym_resources.benchmarks.scoring.shares import found_and_missed
from gym_resources.extract.bleu import bleu, counts
from gym_resources.extract.text_similarity import chrf, composed, rouge_l
from gym_resources.judging.proofs import boxed_score
from gym_resources.puzzles.needles import generate
from gym_resources.schema import paths
from gym_runtime import ScoredRollout, UnusableAnswer
from gym_runtime.environment import catalogue
from gym_runtime.errors import ResourceError, TaskError
from resources.judging import judge, judged_by, quotations, row
from tables import table

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]
NODES: dict[str, Any] = {"expected_answer": '["a", "b"]'}
POEM = {"expected_answer": "x1Roses are red", "random_string_to_prepend": "x1"}
NEEDLES = {"outputs": ["Oslo", "Rome"], "subset": "niah"}
FORMS = {"outputs": ["NYC", "New York"], "subset": "qa_1"}
TWO_STEPS: dict[str, Any] = {"expected_answer": ["1"], "match_type": "2steps"}
WHO = {"expected_answer": "The Beatles", "alternatives": ["Fab Four"]}
JSON = {"output_type": "JSON", "raw_output_metric": ["a.b", "c"]}
BIRD = {"db_id": "quay", "gt_sql": "SELECT DISTINCT town FROM owner"}
ACID = {"options": [{"A": "HCl"}, {"B": "NaCl"}], "expected_answer": "A"}

RULES: list[tuple[str, dict[str, Any], str, float]] = [
    ("graphwalks", NODES, "Final Answer: [b, a]", 1.0),
    ("graphwalks", NODES, "Final Answer: [a, b]\nFinal Answer: [a]", 2 / 3),
    ("graphwalks", NODES, "Final Answer: [a, b]\nI hope so.", 0.0),
    ("graphwalks", {"expected_answer": []}, "Final Answer: []", 1.0),
    ("mrcr", POEM, "x1Roses are red", 1.0),
    ("mrcr", POEM, "Roses are red", 0.0),
    ("mrcr", POEM, "So: x1Roses are red", 0.0),
    ("mrcr", POEM, "x1Roses", 2 * 5 / 18),
    ("ruler", NEEDLES, "In OSLO.", 0.5),
    ("ruler", FORMS, "in new york", 1.0),
    ("ruler2", {"expected_answer": ["1", "2"], "match_type": "part"}, "2", 1.0),
    ("ruler2", {"expected_answer": ["1", "2"]}, "2", 0.5),
    ("ruler2", {"expected_answer": ["a b c d"]}, "a b x d", 0.75),
    ("ruler2", {"expected_answer": ["Document 7: a b", "x"], "match_type": "part"}, "Document 8: A B", 1.0),
    ("ruler2", TWO_STEPS, "Cats. 1\n\nThe answer is 2.", 0.0),
    ("ruler2", TWO_STEPS, "Cats. 2\r\nThe answer is 1.", 1.0),
    ("ruler2", {"expected_answer": ["1 2 3 4 " * 100], "match_type": "2steps"}, "1 2 x 4 " * 100, 0.75),
    ("ruler2", {"expected_answer": "C", "eval_type": "multichoice"}, "A cat. Answer: C", 1.0),
    ("ruler2", {"expected_answer": "C", "eval_type": "multichoice"}, "A cat. Answer: B", 0.0),
    ("ruler2", {"expected_answer": "C", "eval_type": "multichoice"}, "Question 1: A?\nIt is C.", 1.0),
    ("hotpotqa_qa", WHO, '{"answer": "beatles."}', 1.0),
    ("hotpotqa_qa", WHO, '{"answer": "the fab four"}', 1.0),
    ("hotpotqa_qa", WHO, "the Beatles", 1.0),
    ("hotpotqa_qa", WHO, '{"answer": "the Beatles or the Stones"}', 0.0),
    ("hotpotqa_qa", WHO, '{"answer": ["Beatles"]}', 0.0),
    ("ragtruth", {"is_halu": True}, '{"hallucination list": ["x"]}', 1.0),
    ("ragtruth", {"is_halu": False}, '{"hallucination list": []}', 1.0),
    ("ragtruth", {"is_halu": False}, "There is none.", 0.0),
    ("ragtruth", {"is_halu": False}, '{"hallucination list": "none"}', 0.0),
    ("spartqa", {"target": "both of them"}, "Final answer: one\n**Final answer:** Both of them.", 1.0),
    ("spartqa", {"target": "both of them"}, "both of them", 0.0),
    ("imo_gradingbench", {"expected_answer": "almost"}, "It is correct.\n**almost**", 1.0),
    ("imo_gradingbench", {"expected_answer": "correct"}, "incorrect", 0.0),
    (
        "math_proof_judgement",
        {"expected_judgement": "Judgement: No"},
        "Judgement: Yes? Judgement: **No**",
        1.0,
    ),
    ("math_proof_judgement", {"expected_judgement": "Judgement: Yes"}, "Yes", 0.0),
    ("proof_genselect", {"correct_index": 2}, "<best_solution>2</best_solution>", 1.0),
    ("proof_genselect", {"correct_index": 2}, "<best_solution>1 or 2</best_solution>", 0.0),
    ("bunsenbench_chemistry_mcq", ACID, "<choice>NaCl</choice> no: <choice> HCl </choice>", 1.0),
    ("bunsenbench_chemistry_mcq", ACID, "<choice>hcl</choice>", 0.0),
    ("structeval", JSON, '```json\n{"a": {"b": 1}, "c": 2}\n```', 1.0),
    ("structeval", JSON, '<|BEGIN_CODE|>{"a": {"b": 1}}<|END_CODE|>', 0.6),
    ("structeval", JSON, '{"a": ', 0.0),
    ("bird_sql", BIRD, "```sql\nSELECT town FROM owner ORDER BY town\n```", 1.0),
    ("bird_sql", BIRD, "```sql\nSELECT name FROM owner\n```", 0.0),
    ("bird_sql", BIRD, "```sql\nDROP TABLE owner\n```", 0.0),
    ("bird_sql", {"db_id": "quay", "gt_sql": "SELECT 1"}, "I do not know.", 1.0),
    ("rolemrc", {"reference": "the cat sat"}, "The cat sat.", 1.0),
    ("rolemrc", {"reference": "the cat sat"}, "<think>the cat sat</think>A dog ran.", 0.0),
    ("wmt_translation", {"text": "x", "translation": "Guten Tag"}, "Guten Tag", 1.0),
    (
        "wmt_translation",
        {"text": "x", "translation": "the cat lay on it"},
        "the cat sat on",
        0.2753476574515918,
    ),
    ("wmt_translation", {"text": "x", "translation": "Guten Tag"}, "", 0.0),
]


@pytest.mark.parametrize(("name", "task", "reply", "worth"), RULES)
async def test_a_reply_is_worth_what_the_rule_says(
    name: str, task: dict[str, Any], reply: str, worth: float, isolation: None
) -> None:
    assert (await judge(name, row(**task), reply)).reward == pytest.approx(worth)


@table(
    ("name", "task"),
    [
        ("graphwalks", {"expected_answer": "a, b"}),
        ("mrcr", {**POEM, "random_string_to_prepend": ""}),
        ("ruler", {"outputs": []}),
        ("ruler", {"outputs": ["Oslo", " "], "subset": "qa_1"}),
        ("ruler2", {"expected_answer": ["1", ""], "match_type": "part"}),
        ("ruler2", {"expected_answer": ["1"], "match_type": "3steps"}),
        ("rolemrc_judge", {"task": "role_related_mrc_answer_with_narration-3rd"}),
        ("rolemrc_judge", {"task": "role_related"}),
        ("hotpotqa_qa", {"expected_answer": "The"}),
        ("imo_gradingbench", {"expected_answer": "good"}),
        ("math_proof_judgement", {"expected_judgement": "perhaps"}),
        ("bunsenbench_chemistry_mcq", {**ACID, "expected_answer": "C"}),
        ("bunsenbench_chemistry_mcq", {**ACID, "options": [{"A": "HCl"}, {"B": "HCl"}]}),
        ("structeval", {**JSON, "output_type": "HTML"}),
        ("bird_sql", {**BIRD, "db_id": "../quay"}),
        ("spartqa", {"target": " "}),
        ("aalcr", {"question": "Why?", "answer": " "}),
    ],
)
async def test_a_row_that_decides_nothing_is_refused(name: str, task: dict[str, Any]) -> None:
    with pytest.raises(TaskError):
        catalogue.environment(name).resource.task(row(**task))


QUESTION = {"question": "Who?", "expected_answer": "Ada"}
RUBRIC = {**QUESTION, "grading": "rubric"}
PROOF = {"problem": "Show it."}
ANALYSIS = {"problem": "Show it.", "proof": "So.", "ground_truth_verify_score": 0.5}
BASE = {"question": "Why?", "baseline_answer": "So."}
MEMORY = {"verifier_metadata": {"question": "Who?", "answer": "Ada"}}
DOCUMENTS = {"question": "Who?", "answer": "Ada"}

JUDGED: list[tuple[str, dict[str, Any], str, dict[str, list[str]], float]] = [
    ("aalcr", DOCUMENTS, "Ada", {"judge": ["It is not INCORRECT.\nCORRECT"]}, 1.0),
    ("aalcr", DOCUMENTS, "Ada", {"judge": ["CORRECT\nOr so."]}, 0.0),
    ("aalcr", DOCUMENTS, "", {"judge": []}, 0.0),
    ("longmemeval", MEMORY, "Bob", {"judge": ["INCORRECT"]}, 0.0),
    ("omniscience", QUESTION, "Ada", {"judge": ["A"]}, 1.0),
    ("omniscience", QUESTION, "Ada?", {"judge": ["C"]}, 0.0),
    ("frontierscience_judge", QUESTION, "Ada", {"judge": ["CORRECT"]}, 1.0),
    ("frontierscience_judge", RUBRIC, "Ada", {"judge": ["POINTS: 6.5"]}, 0.0),
    ("frontierscience_judge", RUBRIC, "Ada", {"judge": ["POINTS: 7/10"]}, 1.0),
    ("imo_proofbench_judge", PROOF, "So.", {"judge": ["<points>6 out of 7</points>"]}, 1.0),
    ("imo_proofbench_judge", PROOF, "So.", {"judge": ["<points>5 out of 7</points>"]}, 0.0),
    ("imo_proofbench_judge", PROOF, "<points>7 out of 7</points>", {"judge": ["It is empty."]}, 0.0),
    ("proof_judge", PROOF, "So.", {"judge": ["\\boxed{0.5}"]}, 0.5),
    ("proof_judge", PROOF, "So.", {"judge": ["\\boxed{0}"], "meta_judge": ["\\boxed{1}"]}, 0.0),
    ("proof_verification", ANALYSIS, "Gaps.\n\\boxed{0.5}", {"judge": ["\\boxed{0.5}"]}, 0.5),
    ("proof_verification", ANALYSIS, "Fine.\n\\boxed{1}", {"judge": ["\\boxed{1}"]}, 0.5),
    ("proof_verification", ANALYSIS, "Gaps.", {"judge": []}, 0.0),
    ("arena_judge", BASE, "Well.", {"judge": ["[[A>B]]", "[[A>B]]"]}, 1.0),
    ("arena_judge", BASE, "Well.", {"judge": ["[[A=B]]", "[[B>>A]]"]}, 0.0),
    ("arena_judge", {**BASE, "arena_reward": "mean"}, "Well.", {"judge": ["[[A>B]]", "[[A>>B]]"]}, 0.375),
    ("math_with_autograder", QUESTION, "It is Ada.", {"judge": ["\\boxed{Correct}"]}, 1.0),
    ("math_with_autograder", {**QUESTION, "expected_answer": "3"}, "\\boxed{3}", {"judge": []}, 1.0),
    (
        "physics_judge",
        {**QUESTION, "expected_answer": "\\boxed{2}, \\boxed{3}"},
        "2",
        {"judge": ["No."]},
        0.0,
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "task", "reply", "answers", "worth"), JUDGED)
async def test_a_judged_reply_is_worth_what_its_label_says(
    name: str, task: dict[str, Any], reply: str, answers: dict[str, list[str]], worth: float, isolation: None
) -> None:
    verdict, prompts = await judged_by(name, answers, reply, **task)
    assert verdict.reward == pytest.approx(worth)
    assert len(prompts) == sum(map(len, answers.values()))
    assert all(quotations(prompt) for prompt in prompts)


@pytest.mark.parametrize(
    ("name", "task", "reply", "answers"),
    [
        ("proof_judge", PROOF, "So.", {"judge": ["Fine."]}),
        ("proof_judge", PROOF, "So.", {"judge": ["\\boxed{1}"], "meta_judge": ["\\boxed{0}"]}),
        ("proof_verification", ANALYSIS, "\\boxed{0.5}", {"judge": ["Fine."]}),
        ("arena_judge", {**BASE, "arena_reward": "mean"}, "Well.", {"judge": ["A", "B"]}),
    ],
)
async def test_a_judge_that_cannot_be_read_is_a_failure(
    name: str, task: dict[str, Any], reply: str, answers: dict[str, list[str]]
) -> None:
    with pytest.raises((UnusableAnswer, ResourceError)):
        await judged_by(name, answers, reply, **task)


async def test_the_swapped_question_shows_the_baseline_first() -> None:
    _, prompts = await judged_by("arena_judge", {"judge": ["[[A>B]]", "[[B>A]]"]}, "Well.", **BASE)
    assert [quotations(prompt) for prompt in prompts] == [["Why?", "Well.", "So."], ["Why?", "So.", "Well."]]


def test_the_win_rate_is_that_of_the_battles() -> None:
    def rollout(category: str, *verdicts: float | None) -> ScoredRollout:
        return ScoredRollout(0, 0.0, {"category": category, "arena_verdicts": verdicts})

    rollouts = [rollout("hard_prompt", 1.0, 0.25), rollout("creative_writing", 0.5, None)]
    assert arena_judge.score(rollouts) == {"win rate": 62.5, "creative_writing": 50.0, "hard_prompt": 75.0}
    assert arena_judge.score([rollout("hard_prompt", None, None)]) == {}


def test_scores_of_findings_and_of_levels() -> None:
    def found(said: bool | None, true: bool) -> ScoredRollout:
        return ScoredRollout(0, 0.0, {"said": said, "true": true})

    rollouts = [found(True, True), found(True, False), found(None, True), found(False, False)]
    assert found_and_missed(rollouts, "said", "true") == {"f1": 50.0, "precision": 50.0, "recall": 50.0}
    assert found_and_missed([found(None, False)], "said", "true") == {"f1": 0, "precision": 0, "recall": 0}
    levels = [
        ScoredRollout(0, 1.0, {"weight": 1.0, "language": "de"}),
        ScoredRollout(1, 0.0, {"weight": 8.0, "language": "en"}),
    ]
    assert weighted(levels) == {"weighted accuracy": pytest.approx(100 / 9), "de": 100.0, "en": 0.0}


def test_generated_rows_are_the_same_for_the_same_seed() -> None:
    rows = list(generate(4, 7, words=60))
    assert rows == list(generate(4, 7, words=60))
    assert rows != list(generate(4, 8, words=60))
    for one in rows:
        text = one["responses_create_params"]["input"][0]["content"]
        assert all(output in text for output in one["outputs"])
    assert [one["subset"] for one in rows] == ["niah_multikey", "vt"] * 2


SHAPES = [
    "Final Answer: [",
    "[",
    "Final answer:",
    "judgement:",
    "**",
    " ",
    "points:",
    "<points>",
    "\\boxed{",
    "a[",
]
READERS = [
    graphwalks.nodes,
    imo_gradingbench.grade,
    math_proof_judgement.judgement,
    imo_proofbench_judge.points,
    frontierscience_judge.points,
    boxed_score,
]


@table("read", READERS)
def test_a_text_of_any_shape_is_read_at_once(read: Any) -> None:
    for shape in SHAPES:
        started_s = time.process_time()
        assert read(shape * (100_000 // len(shape))) is None, shape
        assert time.process_time() - started_s < 0.5, shape


def test_long_texts_take_a_bounded_time() -> None:
    started_s = time.process_time()
    assert spartqa.stated("final answer:" * 20_000)
    assert chrf("a" * 5000, "b" * 5000) == 0.0
    assert rouge_l("a " * 250, "b " * 1000) == 0.0
    assert paths.code("```\n" * 20_000) == ""
    assert not paths.holds({"a": [{"b": 1}] * 1000}, "a." * 400 + "c")
    assert not paths.holds(json.loads("[" * 900 + "]" * 900), "a")
    assert time.process_time() - started_s < 2.0


@pytest.mark.parametrize(
    ("environment", "fields"),
    [("rolemrc", {"reference": "a"}), ("wmt_translation", {"text": "x", "translation": "a"})],
)
async def test_a_letter_with_very_many_marks_is_judged(environment: str, fields: dict[str, str]) -> None:
    marked = "a" + "\u0323\u0307" * 50_000  # it took longer than the 5 s after which the rollout has failed
    assert (await judge(environment, row(**fields), marked)).reward < 1


def test_composed_letters_are_those_of_the_whole_text() -> None:
    text = "Cafe\u0301 e\u0323\u0307 " + "\u1112\u1161\u11ab" * 50
    assert composed(text) == unicodedata.normalize("NFC", text)


def test_bleu_of_a_set_is_sacrebleus() -> None:
    said = ["Das Wetter ist heute schön, nicht wahr?", "Er zahlte 3.50 Euro (bar) für 2-3 Äpfel."]
    wanted = ["Das Wetter ist heute schön.", "Er zahlte 3.50 Euro bar für 2-3 grüne Äpfel."]
    every = [counts(one, other, "de") for one, other in zip(said, wanted, strict=True)]
    assert bleu(every) == pytest.approx(0.4440750605884706)  # sacreBLEU 2's corpus_bleu says so
    assert bleu([counts("今日は天気がいいですね。", "今日は良い天気ですね。", "zh")]) == pytest.approx(
        0.24177237023718654
    )
    assert bleu([counts("Guten Tag", "Guten Tag", "de")]) == 0.0


async def test_aspects_of_a_role_are_judged_one_by_one() -> None:
    task = {"task": "role_unrelated_mrc_refused_no_narration"}
    found, prompts = await judged_by(
        "rolemrc_judge", {"judge": ["[[YES]]", "Hm."]}, "Never heard of it.", **task
    )
    assert (found.reward, found.fields["judge_unparseable"], len(prompts)) == (0.5, 1, 2)
    assert (found.fields["knowledge_range"], found.fields["nested_instruction"]) == (1.0, None)
    assert {one in "".join(prompts) for one in (rolemrc_judge.BEYOND, rolemrc_judge.SPOKEN)} == {True}
    silent, prompts = await judged_by("rolemrc_judge", {"judge": []}, "<think>", **task)
    assert (silent.reward, prompts) == (0.0, [])


def test_aspects_count_by_the_judges_answers() -> None:
    none = dict.fromkeys(rolemrc_judge.ASPECTS)
    every: list[dict[str, Any]] = [
        {"knowledge_range": 1.0, "style_compliance": 0.0},
        {"knowledge_range": 1.0},
        {"multi_turn_instruction": 0.0},
    ]
    rollouts = [
        ScoredRollout(task_index=n, reward=0.0, fields={**none, **one}) for n, one in enumerate(every)
    ]
    found = rolemrc_judge.score(rollouts)
    assert (found["simple, without multi_turn"], found["weighted"]) == (50.0, 50.0)
    assert found["simple"] == pytest.approx(100 / 3)
