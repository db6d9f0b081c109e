"""Graduate-level science questions with four options: the benchmark on GPQA's sets.

``gpqa`` is its 198 questions called Diamond; ``prepare gpqa:main`` and ``gpqa:extended`` fetch the larger
sets. The verifier is `mcqa`'s, in its mode ``lenient_answer_colon_md``: the letter behind the last
``Answer:``. The options are shuffled by the question's text, so each preparation gives the same order. The
prompt is that of OpenAI's simple-evals (github.com/openai/simple-evals, ``common.py``, MIT), the repeats are
NeMo Gym's. The score is the mean over 8 rollouts of a question, and the same by domain.

The data is CC-BY-4.0, gated, and asks not to be shown in plain text: it is fetched with a token of somebody
who was granted access, and the example rows are our own. Source: Rein et al. 2023, arXiv:2311.12022.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from functools import partial
from typing import Any

from gym_runtime import Benchmark, DatasetSource
from msgspec.structs import replace

from gym_resources import mcqa
from gym_resources.benchmarks.scoring.shares import by_category
from gym_resources.published_sets import choices

PROMPT = """\
Answer the following multiple choice question. The last line of your response should be of the following \
format: 'Answer: $LETTER' (without quotes) where LETTER is one of ABCD. Think step by step before answering.

{question}

{options_text}"""
LETTERS = "ABCD"
WRONG = ("Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")


def rows(questions: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in questions:
        question, right = one["Question"].strip(), one["Correct Answer"].strip()
        wordings = [right, *(one[name].strip() for name in WRONG)]
        seed = int(hashlib.md5(question.encode(), usedforsecurity=False).hexdigest(), 16)
        order = random.Random(seed).sample(range(4), 4)
        options = dict(zip(LETTERS, (wordings[place] for place in order), strict=True))
        yield {
            "question": question,
            "options_text": "\n".join(f"{letter}) {wording}" for letter, wording in options.items()),
            "options": [{letter: wording} for letter, wording in options.items()],
            "expected_answer": LETTERS[order.index(0)],
            "grading_mode": "lenient_answer_colon_md",
            "domain": one["High-level domain"],
        }


environment = replace(
    mcqa.environment,
    resource=choices.verify,
    description="Graduate-level multiple-choice questions in physics, chemistry and biology (GPQA).",
    repeats=8,
    benchmark=Benchmark(
        prompt=PROMPT,
        prompts={"nemo-gym": choices.ASKED_FOR_LETTER},
        score=partial(by_category, field="domain"),
        fields=("domain",),
    ),
    data_license="CC-BY-4.0",
    datasets=tuple(
        DatasetSource(
            repo_id="Idavidrein/gpqa",
            file=f"gpqa_{name}.csv",
            split="benchmark",
            license="CC-BY-4.0",
            name="" if name == "diamond" else name,
            rows=rows,
        )
        for name in ("diamond", "main", "extended")
    ),
    agent_refs=(),
)
