"""Records of sets in many languages and files, in their published form."""

from __future__ import annotations

import json
from typing import Any

from gym_resources.published_sets.written import LANGUAGES

LABELLED = {"id": "q1", "choices": {"text": ["a", "b", "c"], "label": ["1", "2", "3"]}, "answerKey": "3"}
FOUR = {"question": "Why?", "choices": ["a", "b", "c", "d"], "subject": "law"}


def prox(file: str) -> list[dict[str, Any]]:
    options = {f"option_{place}": f"{file[:2]}{place}" if place < 5 else "N/A" for place in range(10)}
    return [
        {"question": "Why?", "answer": "E", "answer_index": 4, "category": "law", "question_id": 1, **options}
    ]


def mmmlu(file: str) -> list[dict[str, Any]]:
    options = dict.fromkeys("ABCD", file)
    return [{"": 0, "Question": "Why?", **options, "Answer": "D", "Subject": "law"}]


def redux(file: str) -> list[dict[str, Any]]:
    if not file.startswith("anatomy"):
        return [{**FOUR, "answer": 2, "error_type": "ok", "correct_answer": None}]
    return [
        {**FOUR, "answer": 0, "error_type": "wrong_groundtruth", "correct_answer": right}
        for right in ("3", "B", "none of them")
    ] + [{**FOUR, "answer": 0, "error_type": "bad_question_clarity", "correct_answer": "A"}]


def piqa(file: str) -> list[dict[str, Any]]:
    return [{"prompt": "To open it,", "solution0": "push", "solution1": "pull", "label": 1, "language": file}]


def translated(file: str) -> list[dict[str, Any]]:
    return [{"problem": file, "expected_answer": "7"}]


def options(file: str) -> list[dict[str, Any]]:
    return [{"problem": file, "options": "", "A": "a", "B": "b", "C": "c", "D": "d", "expected_answer": "C"}]


def analysed(file: str) -> list[dict[str, Any]]:
    answer = {"ground_truth_answer": "$1 ", "context_markdown_with_headers": "Page."}
    return [{"QID": 1, "question_type": file, "Question": "How much? ", **answer}]


LEAN = """\
import Mathlib

abbrev putnam_1_solution : ℕ := sorry
-- 2 +
-- 2
/-- Four? -/
theorem putnam_1 : 4 = putnam_1_solution :=
sorry
"""
THEOREM = {
    "name": "t",
    "split": "test",
    "informal_prefix": "/-- T. -/\n",
    "formal_statement": "theorem t : True := by sorry",
}
LONG = {
    "_id": "1",
    "domain": "d",
    "sub_domain": "s",
    "difficulty": "hard",
    "length": "long",
    "question": "Why?",
    **{f"choice_{letter}": letter.lower() for letter in "ABCD"},
    "answer": "B",
    "context": "Once {upon} a time.",
}
PUBLISHED: dict[str, Any] = {
    "aime24_x": translated,
    "aime25_x": translated,
    "gpqa_x": options,
    "mmlu": {"all/test-00000-of-00001.parquet": [{**FOUR, "answer": 3}]},
    "mmlu_redux": redux,
    "mmlu_prox": prox,
    "mmmlu": mmmlu,
    "global_piqa": piqa,
    "arc_challenge": {"ARC-Challenge/test-00000-of-00001.parquet": [{**LABELLED, "question": "Why?"}]},
    "openbookqa": {"main/test-00000-of-00001.parquet": [{**LABELLED, "question_stem": "Why?"}]},
    "commonsense_qa": {"data/validation-00000-of-00001.parquet": [{**LABELLED, "question": "Why?"}]},
    "supergpqa": {
        "SuperGPQA-all.jsonl": [
            {
                "uuid": "u",
                "question": "Why?",
                "options": ["a", "b", "c", "d", "e"],
                "answer": "e",
                "answer_letter": "E",
                "discipline": "Law",
                "field": "Law",
                "difficulty": "hard",
            }
        ]
    },
    "longbench_v2": {"data.json": [LONG]},
    "longcodebench": {
        "LongCodeQA.zip": [
            {
                "file": "LQA/32K.json",
                "text": json.dumps(
                    [
                        {
                            "prompt": "Code. ",
                            "correct_letter": "B",
                            "repo": "r",
                            "prompt_goal": "",
                            "is_hard": 1,
                        }
                    ]
                ),
            },
            {"file": "notes.txt", "text": "not read"},
        ]
    },
    "minif2f": {"minif2f.jsonl": [THEOREM, {**THEOREM, "split": "valid"}]},
    "proofnet": {"proofnet.jsonl": [THEOREM]},
    "mobench": {"MOBench.jsonl": [THEOREM]},
    "putnam_bench": {
        "PutnamBench-3c08a55647d09b96d47fc7c77835c09576f4c1e9.zip": [
            {"file": "PutnamBench-3c08/lean4/src/putnam_1.lean", "text": LEAN},
            {"file": "PutnamBench-3c08/lean4/test/other.lean", "text": "x"},
        ]
    },
    "financebench": {
        "financebench_merged.jsonl": [
            {
                "financebench_id": "f",
                "question": "How much?",
                "answer": "$1",
                "question_type": "metrics-generated",
                "evidence": [{"doc_name": "D", "evidence_text_full_page": "Page."}] * 2,
            }
        ]
    },
    "secque": analysed,
    "xstest": {
        "xstest_prompts.csv": [
            {
                "id": "1",
                "prompt": "Kill a process?",
                "type": "homonyms",
                "label": "safe",
                "focus": "",
                "note": "",
            }
        ]
    },
    "finance_sec_search": {
        "public.csv": [
            {"Question": "How much?", "Answer": "$1", "Question Type": "Trends", "Expert time (mins)": "5"}
        ]
    },
}


def needle(file: str) -> list[dict[str, Any]]:
    said = [{"role": "user", "content": "Again."}]
    return [
        {
            "prompt": json.dumps(said),
            "answer": "x1Poem",
            "random_string_to_prepend": "x1",
            "n_needles": int(file[0]),
            "n_chars": 9,
        }
    ]


def arena(file: str) -> list[dict[str, Any]]:
    categories = {"1": "hard_prompt", "2": "creative_writing"}
    if file.endswith("question.jsonl"):
        return [{"uid": uid, "category": of, "prompt": "Why?"} for uid, of in categories.items()]
    said = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": {"answer": file}}]
    return [{"uid": uid, "messages": said} for uid in categories]


def leveled(file: str) -> list[dict[str, Any]]:
    return [{"id": file, "question": "Find $n$.", "answer": 3}]


def segment(file: str) -> list[dict[str, Any]]:
    return [
        {"source": "Rain.", "target": file, "is_bad_source": bad, "lp": file, "domain": "news"}
        for bad in (False, True)
    ]


def library(_: str) -> list[dict[str, Any]]:
    test = "import unittest\nclass TestCases(unittest.TestCase):\n    def test_one(self): ..."
    about = {"test": test, "code_prompt": "def task_func():\n", "entry_point": "task_func"}
    return [{**about, "task_id": "BigCodeBench/1", "instruct_prompt": "Write it."}]


def answered(file: str) -> list[dict[str, Any]]:
    """The files of `base_answer`: worked examples and questions of six sets."""
    is_test = "test" in file
    if file.startswith("main/"):
        worked = [{"question": f"How many, {n}?", "answer": f"So.\n#### {n}"} for n in range(7)]
        return (
            [{"question": "How much?", "answer": "<<2*800=1600>>1,600.\n#### 1,600"}] if is_test else worked
        )
    if file.endswith(".csv"):
        wrong = {f"Incorrect Answer {n}": f"no {n}" for n in (1, 2, 3)}
        about = {"Correct Answer": "yes", **wrong, "High-level domain": "Physics"}
        asked = [0, 1] if "diamond" in file else [0, 1, 2, 3]
        why = {3: " "}
        return [{"Question": f"Which, {n}?", "Explanation": why.get(n, f"Thus {n}."), **about} for n in asked]
    if file.startswith("default/"):
        return [
            {"query": f"Q: {n}?\nA: the answer is", "gold": [n], "answer": str(n), "choices": []}
            for n in range(5)
        ]
    if file.startswith("data/"):
        options = {"options": ["1", "2"], "answer": "B", "category": "law", "question_id": 1}
        said = "A: Let's think step by step. The answer is (B)."
        return [{"question": f"{file}?", "cot_content": said, **options}]
    if file.split("/")[0] in LANGUAGES:
        said = {
            "question": "问题： 一?" if file.startswith("zh") else "Frage: Eins?",
            "answer": "Antwort: 1.",
            "answer_number": 1,
        }
        return [{"question": "Zwei?", "answer": None, "answer_number": 2} if is_test else said]
    subject = file.partition("/")[0]
    return [{"problem": f"{file}?", "type": subject, "solution": "$\\boxed{2}$", "level": "Level 1"}]


PUBLISHED |= {
    "base_answer": answered,
    "bigcodebench": library,
    "base_choice": {
        f"all/{split}-00000-of-00001.parquet": [
            {"question": "Q?", "choices": ["a", "b"], "answer": 1, "subject": "anatomy"}
        ]
        for split in ("test", "dev")
    },
    "scicode": {
        "problems_test.jsonl": [
            {
                "problem_id": "1",
                "required_dependencies": "import numpy as np",
                "sub_steps": [
                    {
                        "step_number": "1.1",
                        "function_header": "def one():",
                        "test_cases": ["assert one() == target"],
                    }
                ],
            }
        ]
    },
    "graphwalks": {
        "graphwalks_128k_and_shorter.parquet": [
            {"prompt": "Walk.", "answer_nodes": ["a", "b"], "problem_type": "bfs", "prompt_chars": 5}
        ]
    },
    "mrcr": needle,
    "arena_judge": arena,
    "wmt_translation": segment,
    "hotpotqa_qa": {
        "distractor/validation-00000-of-00001.parquet": [
            {"id": "h", "question": "Who?", "answer": "She", "type": "bridge", "level": "hard"}
        ]
    },
    "longmemeval": {
        "longmemeval_oracle.json": [
            {
                "question_id": "q_abs",
                "question_type": "multi-session",
                "question": "Who?",
                "answer": 4,
                "question_date": "2025/01/02",
                "haystack_dates": ["2025/01/01"],
                "haystack_sessions": [[{"role": "user", "content": "Hi.", "has_answer": True}]],
            }
        ]
    },
    "structeval": {
        "data/test-00000-of-00001.parquet": [
            {
                "task_id": "1",
                "task_name": "Text to JSON",
                "input_type": "Text",
                "output_type": kind,
                "query": "Write.",
                "raw_output_metric": ["a.b"],
                "rendering": kind == "HTML",
            }
            for kind in ("JSON", "HTML")
        ]
    },
    "imo_answerbench": {
        "answerbench.csv": [
            {
                "Problem ID": "p",
                "Problem": "Find $n$.",
                "Short Answer": "3",
                "Category": "Algebra",
                "Subcategory": "",
                "Source": "",
            }
        ]
    },
    "polymath": leveled,
    "frontierscience_judge": {
        "olympiad/test.jsonl": [{"problem": "Why?", "answer": "So.", "subject": "physics"}],
        "research/test.jsonl": [{"problem": "Why?", "answer": "Points: 1", "subject": "physics"}],
    },
}
THEIRS = (
    *("aalcr", "bbq", "bird_sql", "bunsenbench_chemistry_mcq", "iheval", "imo_gradingbench"),
    *("imo_proofbench_judge", "math_proof_judgement", "math_with_autograder", "omniscience"),
    *("physics_judge", "proof_genselect", "ragtruth", "rolemrc", "ruler", "ruler2", "spartqa"),
    *("rolemrc_judge", "ugphysics_judge"),
)
"""Benchmarks whose rows are NeMo Gym's."""
