"""Questions of MMLU that translators have put into 14 languages (MMMLU), 14,042 in each.

``mmmlu`` has all languages, ``mmmlu:DE-DE`` one. Prompt and rule are those of OpenAI's simple-evals (MIT),
which `mcqa` has as ``lenient_answer_colon_md``. The score is the share that is right, and the same by
language. Source: openai/MMMLU (MIT); the example rows are our own.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from gym_runtime import Benchmark
from msgspec.structs import replace

from gym_resources import mcqa
from gym_resources.benchmarks.gpqa import PROMPT
from gym_resources.benchmarks.scoring.shares import by_category
from gym_resources.published_sets import choices
from gym_resources.published_sets.choices import choice_row
from gym_resources.published_sets.languages import in_languages

LANGUAGES = (
    *("AR-XY", "BN-BD", "DE-DE", "ES-LA", "FR-FR", "HI-IN", "ID-ID"),
    *("IT-IT", "JA-JP", "KO-KR", "PT-BR", "SW-KE", "YO-NG", "ZH-CN"),
)


def row(question: dict[str, Any], language: str) -> dict[str, Any]:
    options = [question[letter] for letter in "ABCD"]
    return choice_row(question["Question"], options, question["Answer"], subject=question["Subject"])


environment = replace(
    mcqa.environment,
    resource=choices.verify,
    description="Questions of MMLU in 14 languages (MMMLU).",
    benchmark=Benchmark(prompt=PROMPT, score=partial(by_category, field="language"), fields=("language",)),
    data_license="MIT",
    datasets=in_languages("openai/MMMLU", "test/mmlu_{}.csv", LANGUAGES, row, "MIT"),
    agent_refs=(),
)
