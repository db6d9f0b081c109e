"""Records of sets in many languages and files, in their published form."""

from __future__ import annotations

import json
from typing import Any

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
