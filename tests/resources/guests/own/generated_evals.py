"""Tasks of inspect_evals whose data come from a hub, unchanged but for that: two records are generated here.

The records are our own, in the forms that the tasks' code reads; nothing is downloaded. A task is named
``MODULE.FUNCTION``. Source: inspect_evals 0.26.0.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import inspect_ai.util
from inspect_ai import task
from inspect_ai.dataset import MemoryDataset
from inspect_ai.dataset._util import data_to_samples, record_to_sample_fn

LETTERS = "ABCD"
FIND = "You should answer with only one number, no other words. The largest number of the list is: "
CHOICES = ["one", "two", "three", "four"]
ASKED = "What is the double of {}?"


def shared(n: int) -> dict[str, Any]:
    """What most tasks read: the second choice of the first record is right, and the third of the next.

    In tasks with free answers 4 is right, and then 6.
    """
    asked = ASKED.format(n + 2)
    letter, place, number = LETTERS[n + 1], n + 1, str(2 * (n + 2))
    texts = (
        "question",
        "Question",
        "problem",
        "Problem",
        "prompt",
        "text",
        "goal",
        "ctx",
        "sentence1",
        "input",
    )
    ids = ("id", "ID", "question_id", "query_id", "pubid", "source_id", "Record ID", "Key")
    return {
        **dict.fromkeys(texts, asked),
        **dict.fromkeys(ids, f"r{n}"),
        **dict(zip(LETTERS, CHOICES, strict=True)),
        **dict.fromkeys(("answer", "Answer", "answerKey", "solution"), letter),
        **dict.fromkeys(("options", "choices", "endings"), CHOICES),
        **dict.fromkeys(("subject", "Subject", "category", "task", "domain", "thought"), "arithmetic"),
        **dict.fromkeys(("passage", "context", "narrative", "article", "protocol", "source"), "Numbers."),
        "label": place,
        "target": number,
        "Solution": "",
        "cot_content": "",
        "question_concept": "two",
        "sentence2": asked,
        "paper-title": "Doubling",
        "ideal": CHOICES[place],
        "mini": True,
        "distractors": CHOICES[:place] + CHOICES[place + 1 :],
        "completion": number,
        "other": None,
    }


def records(name: str, n: int) -> dict[str, Any]:
    """A record of a task."""
    letter, place, number = LETTERS[n + 1], n + 1, str(2 * (n + 2))
    listed = {"text": [*CHOICES, "five"], "label": [*LETTERS, "E"]}
    module, _, function = name.partition(".")
    known: dict[str, dict[str, Any]] = {
        "aime2024": {"Answer": number},
        "aime2025": {"answer": number},
        "aime2026": {"answer": number},
        "arc": {"choices": {"text": CHOICES, "label": [*LETTERS]}},
        "boolq": {"answer": n == 0},
        "commonsense_qa": {"choices": listed},
        "cybermetric": {"answers": dict(zip(LETTERS, CHOICES, strict=True))},
        "drop": {
            "answer": {"number": number, "date": {"day": "", "month": "", "year": ""}, "spans": []},
            "validated_answers": {"number": [], "date": [], "spans": []},
        },
        "gpqa": {
            "Correct Answer": "two",
            "Incorrect Answer 1": "one",
            "Incorrect Answer 2": "three",
            "Incorrect Answer 3": "four",
            "High-level domain": "Physics",
            "Subdomain": "x",
        },
        "gsm8k": {"answer": f"Doubling.\n#### {number}"},
        "infinite_bench": {"answer": [number], "options": ["2", "4", "6", "8"], "id": n},
        "lingoly": {
            "obfuscated": False,
            "question_n": str(n),
            "obfuscated_question_n": f"{n}.0",
            "overall_question_n": n,
            "completion": json.dumps({"a": number}),
        },
        "math": {"solution": f"It is $\\boxed{{{number}}}$.", "level": "Level 1", "type": "Algebra"},
        "medqa": {"answer": [CHOICES[place]]},
        "mmlu": {"answer": place},
        "musr": {"choices": str(CHOICES), "answer_index": place},
        "paws": {"label": 1 - n},
        "piqa": {"label": n, "sol1": "one", "sol2": "two"},
        "pubmedqa": {
            "context": {"contexts": ["Numbers."]},
            "final_decision": ["no", "maybe"][n],
            "long_answer": "",
        },
        "sevenllm": {
            "instruction": {
                "question": "双倍" if function.endswith("zh") else ASKED.format(n + 2),
                "choice": dict(zip(LETTERS, CHOICES, strict=True)),
            },
            "output": letter,
        },
        "squad": {"answers": {"text": [number]}},
        "truthfulqa": {"mc1_targets": {"choices": CHOICES, "labels": [int(k == place) for k in range(4)]}},
        "winogrande": {"sentence": f"{n} is _.", "answer": str(2 - n), "option1": "one", "option2": "two"},
        "wmdp": {"answer": place},
    }
    special = {
        "agieval": {"options": [f"({one}){text}" for one, text in zip(LETTERS, CHOICES, strict=True)]},
        "agieval.agie_math": {"options": None, "label": None, "answer": number},
        "infinite_bench.infinite_bench_code_debug": {"answer": [["4", "6"][n]]},
        "infinite_bench.infinite_bench_code_run": {"input": "The value of func_1(2) is"},
        "infinite_bench.infinite_bench_math_find": {"input": FIND},
    }
    more = {**special.get(module, {}), **special.get(name, {})}
    if module == "agieval" and function != "agie_math":
        more["label"] = letter
    return {**shared(n), **known.get(module, {}), **more}


def dataset(name: str, sample_fields: Any) -> MemoryDataset:
    found = [records(name, n) for n in range(2)]
    return MemoryDataset(data_to_samples(found, record_to_sample_fn(sample_fields), True))


def _download(url: str, checksum: str, path: Path, *_: Any, **__: Any) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text('{"questions": []}')


@task
def generated(name: str, **arguments: Any):
    """A task of inspect_evals, with two generated records."""
    import inspect_evals.hf_dataset_script_helper as scripts
    import inspect_evals.utils as utils
    import inspect_evals.utils.huggingface as hub

    def here(*_: Any, sample_fields: Any = None, record_to_sample: Any = None, **__: Any) -> MemoryDataset:
        return dataset(name, sample_fields or record_to_sample)

    # Before the task's module takes these names; with another task's records they are taken again.
    hub.hf_dataset = scripts.load_hf_dataset_with_script = here
    utils.load_json_dataset = utils.load_csv_dataset = here
    inspect_ai.util.download = _download
    module, _, function = name.partition(".")
    loaded = import_module(f"inspect_evals.{module}")
    for found in [one for key, one in sys.modules.items() if key.startswith(f"inspect_evals.{module}")]:
        for key in ("hf_dataset", "load_hf_dataset_with_script", "load_json_dataset", "load_csv_dataset"):
            if hasattr(found, key):
                setattr(found, key, here)
        if hasattr(found, "download"):
            found.download = _download
    return getattr(loaded, function)(**arguments)
