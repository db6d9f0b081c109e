"""Everyday situations and which of two endings is more likely, written by speakers of each language.

``global_piqa`` has the languages named in `LANGUAGES`, ``global_piqa:kor_hang`` one. The verifier is
`mcqa`'s, which reads the letter after the last ``Answer:``; the prompt is our own, in English. The score is
the share that is right, and the same by language. The data set has over a hundred languages, of which these
are a part. Source: Global PIQA, the part that is not parallel (arXiv:2510.24081, CC-BY-SA-4.0, for evaluation
only); the example rows are our own.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from gym_runtime import Benchmark
from msgspec.structs import replace

from gym_resources import mcqa
from gym_resources.benchmarks.scoring.shares import by_category
from gym_resources.published_sets import choices
from gym_resources.published_sets.choices import choice_row
from gym_resources.published_sets.languages import in_languages

PROMPT = """\
Which of the two options goes better with the situation? Think first if you need to. The last line of your \
response should be of the following format: 'Answer: $LETTER' (without quotes) where LETTER is A or B.

Situation: {question}

{options_text}"""
LANGUAGES = (
    *("cat_latn", "deu_latn", "eng_latn", "fra_latn_fran", "glg_latn", "ita_latn", "jpn_jpan"),
    *("kor_hang", "pol_latn", "por_latn_port", "rus_cyrl", "spa_latn_spai", "tur_latn", "vie_latn"),
)


def row(situation: dict[str, Any], language: str) -> dict[str, Any]:
    options = [situation["solution0"], situation["solution1"]]
    return choice_row(situation["prompt"], options, int(situation["label"]))


environment = replace(
    mcqa.environment,
    resource=choices.verify,
    description="Everyday situations with two endings, in many languages (Global PIQA).",
    benchmark=Benchmark(prompt=PROMPT, score=partial(by_category, field="language"), fields=("language",)),
    data_license="CC-BY-SA-4.0",
    datasets=in_languages(
        "mrlbenchmarks/global-piqa-nonparallel", "data/{}.tsv", LANGUAGES, row, "CC-BY-SA-4.0"
    ),
    agent_refs=(),
)
