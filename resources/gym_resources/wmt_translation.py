"""Translate a segment; the translation is compared with a reference by its n-grams of characters (WMT24++).

The reward is the sentence's chrF2, from 0 to 1, of the model's last message without its thoughts. Long
messages are compared in a process that can be killed. The score is the mean in percent, and the same by
target language; NeMo Gym reports BLEU of the whole set, and COMET, which needs a model on a GPU: they are not
here, and that chrF is the reward is our reading. ``wmt_translation:de_DE`` has one language.

Rows are those of NeMo Gym's environment of this name. Source: Deutsch et al. 2025, arXiv:2502.12404
(google/wmt24pp, Apache-2.0); the example rows are our own.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from gym_runtime import Benchmark, Environment, Reply, Task, Verdict

from gym_resources.benchmarks.scoring.shares import by_category
from gym_resources.extract.patterns import bounded
from gym_resources.extract.text_similarity import chrf
from gym_resources.judging.texts import last_message
from gym_resources.judging.thoughts import without_thoughts
from gym_resources.published_sets.languages import in_languages

PROMPT = """\
Translate the following segment from {source_lang_name} into {target_lang_name}. Write the translation and \
nothing else.

{text}"""
SHORT_CHARS = 5000
NAMES = {
    "de_DE": "German",
    "es_MX": "Spanish (Mexico)",
    "fr_FR": "French",
    "it_IT": "Italian",
    "ja_JP": "Japanese",
    "ko_KR": "Korean",
    "pt_BR": "Portuguese (Brazil)",
    "ru_RU": "Russian",
    "zh_CN": "Chinese",
}


class TranslationTask(Task):
    text: str
    translation: str
    target_language: str = ""

    def __post_init__(self) -> None:
        if not self.translation.strip():
            raise ValueError("'translation' is blank")


async def verify(task: TranslationTask, reply: Reply) -> Verdict:
    said = without_thoughts(last_message(reply))
    reward = await bounded(chrf, said, task.translation, long=SHORT_CHARS)
    return Verdict(reward, fields={"chrf": reward})


def row(segment: dict[str, Any], language: str) -> dict[str, Any] | None:
    if segment["is_bad_source"]:
        return None
    return {
        "text": segment["source"],
        "translation": segment["target"],
        "source_language": "en",
        "target_language": language,
        "source_lang_name": "English",
        "target_lang_name": NAMES[language],
    }


environment = Environment(
    resource=verify,
    description="Translate segments; n-grams of characters are compared with a reference (WMT24++).",
    domain="translation",
    agent="single_turn",
    benchmark=Benchmark(
        prompt=PROMPT, score=partial(by_category, field="target_language"), fields=("target_language",)
    ),
    data_license="Apache-2.0",
    datasets=in_languages("google/wmt24pp", "en-{}.jsonl", tuple(NAMES), row, "Apache-2.0"),
    agent_refs=("wmt24pp", "flores200"),
)
