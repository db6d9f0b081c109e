"""Records of benchmarks in their published form."""

from __future__ import annotations

import base64
import hashlib
import json
import pickle
import zlib
from pathlib import Path
from typing import Any

from resources.benchmarks import published_families

AIME = [{"id": 60, "problem": "Find $n$.", "solution": "…", "answer": "025", "url": "", "year": "2024"}]
HMMT = [{"problem_idx": 1, "problem": "Find $n$.", "answer": "(1, \\pi)", "problem_type": ["Algebra"]}]
GSM8K = [
    {"question": "How much?", "answer": "It is 2*800=<<2*800=1600>>1,600.\n#### 1,600"},
    {
        "question": "Three blue chips are in a jar which is 10% of the entire chips. How many are green?",
        "answer": "So.\n#### 15",
    },
]
GPQA = [
    {
        "Question": f"Which number is {n}?\n",
        "Correct Answer": f"{n}",
        "Incorrect Answer 1": "a",
        "Incorrect Answer 2": "b ",
        "Incorrect Answer 3": "c",
        "High-level domain": "Physics",
        "Subdomain": "x",
    }
    for n in range(6)
]
THOUGHT = "Let's think step by step. Two. The answer is (B)."
CASES = [{"input": "1\n", "output": "2\n", "testtype": "stdin"}]


def hidden(cases: Any) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(cases)))).decode()


def problem(date: str, starter: str = "", function: str = "") -> dict[str, Any]:
    return {
        "question_content": "Add one.",
        "starter_code": starter,
        "difficulty": "easy",
        "contest_date": date,
        "question_id": f"q{date}",
        "public_test_cases": json.dumps(CASES),
        "private_test_cases": hidden(CASES * 2),
        "metadata": json.dumps({"func_name": function} if function else {}),
    }


def question(number: int, category: str) -> dict[str, Any]:
    return {
        "question_id": number,
        "question": "1 + 1?",
        "options": ["1", "2", "N/A"],
        "answer": "B",
        "answer_index": 1,
        "category": category,
        "cot_content": f"A: {THOUGHT}",
    }


FUNCTION = {
    "name": "a.b",
    "description": "Does.",
    "parameters": {
        "type": "dict",
        "required": ["x"],
        "properties": {"x": {"type": "float", "description": "How far."}},
    },
}


def bfcl(file: str) -> list[dict[str, Any]]:
    category = Path(file).stem.removeprefix("BFCL_v3_").removeprefix("BFCL_v4_simple_")
    if "possible_answer" in file:
        return [{"id": f"{category}_0", "ground_truth": [{"a.b": {"x": [1.5]}}]}]
    asked = [[{"role": "user", "content": "Go."}]]
    return [{"id": f"{category}_0", "question": asked, "function": [FUNCTION]}]


def math(file: str) -> list[dict[str, Any]]:
    return [
        {
            "problem": file.partition("/")[0],
            "level": "Level 2",
            "type": "Algebra",
            "solution": "Not $\\boxed{1}$ but $\\boxed{\\frac{1}{2}}$.",
        }
    ]


EXTENDED = {
    "task_id": "HumanEval/999",
    "prompt": "def half(n):\n    ...\n",
    "canonical_solution": "    return n / 2\n",
    "entry_point": "half",
    "test": (
        "import numpy as np\n\ndef assertion(out, exp, atol):\n    assert out == exp\n\n"
        "def check(candidate):\n    inputs = [[1], [-3]]\n    results = [0.5, -1.5]\n"
        "    for i, (inp, exp) in enumerate(zip(inputs, results)):\n"
        "        assertion(candidate(*inp), exp, 0)\n"
    ),
}
CONVERSATION = {
    "id": "multi_turn_x_0",
    "question": [[{"role": "user", "content": "Go to a."}], [], [{"role": "user", "content": "Post it."}]],
    "initial_config": {"GorillaFileSystem": {"root": {}}},
    "path": ["GorillaFileSystem.cd"],
    "involved_classes": ["TwitterAPI", "GorillaFileSystem"],
}
CALLS = [["cd(folder='a')"], ["sort('b.txt')"], ["post_tweet(content='x', tags=['#y'])"]]


def bfcl_multi_turn(file: str) -> list[dict[str, Any]]:
    if "possible_answer" in file:
        return [{"id": "multi_turn_x_0", "ground_truth": CALLS}]
    if "func_doc" in file:
        names = {"posting_api": ["post_tweet"], "gorilla_file_system": ["cd", "sort"]}.get(
            Path(file).stem, []
        )
        return [{**FUNCTION, "name": name, "response": {"type": "dict"}} for name in names]
    return [{**CONVERSATION, **({"missed_function": {"1": ["sort"]}} if "miss_func" in file else {})}]


ISSUE = {
    "repo": "own/abacus",
    "instance_id": "own__abacus-1",
    "base_commit": "0" * 40,
    "patch": "--- a/abacus.py\n+++ b/abacus.py\n@@ -1 +1 @@\n-a\n+b\n",
    "test_patch": "--- a/test_a.py\n+++ b/test_a.py\n@@ -1 +1 @@\n-a\n+b\n",
    "problem_statement": "It is {wrong}.",
    "hints_text": "A hint.",
    "created_at": "2020-01-01T00:00:00Z",
    "version": "1.0",
    "FAIL_TO_PASS": '["test_a.py::test_x"]',
    "PASS_TO_PASS": "[]",
    "environment_setup_commit": "1" * 40,
    "difficulty": "<15 min fix",
}


def encrypted(text: str, password: str) -> str:
    key = hashlib.sha256(password.encode()).digest() * 9
    return base64.b64encode(
        bytes(one ^ other for one, other in zip(text.encode(), key, strict=False))
    ).decode()


INSTRUCTED = [
    {
        "key": 1000,
        "prompt": "No commas.",
        "instruction_id_list": ["punctuation:no_comma"],
        "kwargs": [{"num_words": None}],
    }
]
SERVED = {
    "id": "7",
    "user_scenario": {
        "persona": None,
        "instructions": {
            "task_instructions": "Insist.",
            "domain": "airline",
            "reason_for_call": "You want a refund.",
            "known_info": "You are Nora.",
            "unknown_info": "your number",
        },
    },
    "initial_state": None,
    "evaluation_criteria": {"actions": [], "communicate_info": [], "reward_basis": ["DB", "COMMUNICATE"]},
    "annotations": None,
}
TASK = {
    "prompt": "Double.",
    "text": "Double.",
    "test_list": ["assert half(1) == 0.5"],
    "code": "def half(n):\r\n  return n / 2",
}


def continued(file: str) -> list[dict[str, Any]]:
    """The files of `base_code`."""
    if file.startswith("full/"):
        return [{**TASK, "task_id": number} for number in (2, 3, 4, 6)]
    if "d5781c9c51e02795" in file:
        loop = "for i, (inp, exp) in enumerate(zip(inputs, results)):\n    assertion(half(*inp), exp, 0)\n"
        head, _, _ = EXTENDED["test"].partition("def check")
        return [{**TASK, "task_id": 9, "test": f"{head}inputs = [[1], [3]]\nresults = [0.5, 1.5]\n{loop}"}]
    return [EXTENDED] if file.startswith("data/") else []


PUBLISHED: dict[str, Any] = {
    **published_families.PUBLISHED,
    "base_code": continued,
    "aime24": {"data/train-00000-of-00001.parquet": AIME},
    "aime25": {
        "data/train-00000-of-00001.parquet": [{"problem_idx": 1, "problem": "Find $n$.", "answer": 25}]
    },
    "aime26": {
        "data/train-00000-of-00001.parquet": [{"problem_idx": 1, "problem": "Find $n$.", "answer": 25}]
    },
    "livecodebench_x": lambda file: (
        [{"question": "Addiere eins.", "task_id": "q2024", "release_version": "v6"}]
        if file.startswith("v6/")
        else [problem("2024")]
    ),
    "apex_shortlist": {"data/train-00000-of-00001.parquet": HMMT},
    "bfcl": bfcl,
    "bfcl_multi_turn": bfcl_multi_turn,
    "evalplus": {
        "data/test-00000-of-00001-5973903632b82d40.parquet": [EXTENDED],
        "openai_humaneval/test-00000-of-00001.parquet": [
            {
                "task_id": EXTENDED["task_id"],
                "test": "def check(candidate):\n    assert candidate(-3) == -1.5\n",
            }
        ],
    },
    "code_fim": {
        "data/HumanEval-SingleLineInfilling.jsonl.gz": [
            {
                "task_id": f"SingleLineInfilling/{EXTENDED['task_id']}/L0",
                "prompt": EXTENDED["prompt"],
                "suffix": "",
            }
        ],
        "data/test-00000-of-00001-5973903632b82d40.parquet": [EXTENDED],
        "openai_humaneval/test-00000-of-00001.parquet": [],
    },
    "browsecomp": {
        "browse_comp_test_set.csv": [
            {"problem": encrypted("Wer? " * 30, "own"), "answer": encrypted("Bär", "own"), "canary": "own"}
        ]
    },
    "gpqa": {"gpqa_diamond.csv": GPQA},
    "gsm8k": {"main/test-00000-of-00001.parquet": GSM8K},
    "hendrycks_math": math,
    "hle": {
        "data/test-00000-of-00001.parquet": [
            {
                "id": str(n),
                "question": "Why?",
                "image": image,
                "answer": "So.",
                "answer_type": "exactMatch",
                "category": "Math",
                "image_preview": {"bytes": b"\x00"},
            }
            for n, image in enumerate(["", "data:image/png;base64,AA=="])
        ]
    },
    "hmmt": {"data/train-00000-of-00001.parquet": HMMT},
    "ifbench": {"data/train-00000-of-00001.parquet": [{**INSTRUCTED[0], "key": "0"}]},
    "ifeval": {"ifeval_input_data.jsonl": INSTRUCTED},
    "livecodebench": {
        "test4.jsonl": [problem("2024-07-31T00:00:00"), problem("2024-08-01T00:00:00")],
        "test5.jsonl": [problem("2025-01-02T00:00:00", "class Solution: …", "add")],
        "test6.jsonl": [problem("2025-06-01T00:00:00")],
    },
    "math500": {
        "test.jsonl": [
            {"problem": "Add.", "answer": "\\frac{1}{2}", "level": 2, "subject": "Algebra", "unique_id": "u"}
        ]
    },
    "mmlu_pro": {
        "data/test-00000-of-00001.parquet": [question(7, "math")],
        "data/validation-00000-of-00001.parquet": [
            question(1, "math"),
            question(2, "law"),
            question(3, "math"),
        ],
    },
    "swebench_verified": {"data/test-00000-of-00001.parquet": [ISSUE]},
    **{
        f"tau2_{domain}": {f"{domain}/tasks.json": [SERVED], f"{domain}/policy.md": [{"text": "# Policy\n"}]}
        for domain in ("airline", "retail")
    },
    "tau2_banking": {
        "banking_knowledge/prompts/classic_rag_bm25.md": [{"text": "{{component:policy_header}}\nSearch."}],
        "banking_knowledge/prompts/components/policy_header.md": [{"text": "# Header"}],
        "banking_knowledge/prompts/components/additional_instructions.md": [{"text": "# More"}],
    },
    "tau2_telecom": {
        "telecom/tasks.json": [SERVED, {**SERVED, "id": "8"}],
        "telecom/split_tasks.json": [{"base": ["8"], "small": ["7", "8"]}],
        "telecom/main_policy.md": [{"text": "# Main"}],
        "telecom/tech_support_manual.md": [{"text": "# Manual"}],
    },
    "simpleqa": {"simpleqa_verified.csv": [{"problem": "Who?", "answer": "She", "topic": "Art"}]},
}
