"""Translate a segment; the translation is compared with a reference by BLEU (WMT24++).

The reward is the sentence's BLEU, from 0 to 1, of the model's last message without its thoughts; ``chrf`` is
beside it. Long messages are compared in a process that can be killed. The score is the BLEU of the whole set
in percent, a mean over its languages, and that of each pair of languages, over all rollouts. COMET, which
NeMo Gym adds where a GPU is there for its model, is not here. ``wmt_translation:de_DE`` has one language.

Rows and rewards are those of NeMo Gym's environment of this name, which has dictionaries for the words of
Japanese and Korean (`gym_resources.extract.bleu`). Source: Deutsch et al. 2025, arXiv:2502.12404
(google/wmt24pp, Apache-2.0); the example rows are our own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import msgspec
from gym_runtime import Benchmark, Environment, Reply, ScoredRollout, Task, Verdict

from gym_resources.extract.bleu import bleu, counts
from gym_resources.extract.patterns import bounded
from gym_resources.extract.text_similarity import chrf, composed
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
    source_language: str = "en"
    target_language: str = ""

    def __post_init__(self) -> None:
        if not self.translation.strip():
            raise ValueError("'translation' is blank")


class Compared(msgspec.Struct):
    counts: list[int]
    chrf: float


def compared(text: str, reference: str, language: str) -> Compared:
    """What a translation has of its reference; both with composed letters."""
    text, reference = composed(text), composed(reference)
    return Compared(counts(text, reference, language), chrf(text, reference))


async def verify(task: TranslationTask, reply: Reply) -> Verdict:
    said = without_thoughts(last_message(reply))
    found = await bounded(compared, said, task.translation, task.target_language[:2], long=SHORT_CHARS)
    pair = f"{task.source_language}->{task.target_language}"
    fields = {"bleu_counts": found.counts, "chrf": found.chrf, "languages": pair}
    return Verdict(bleu([found.counts], effective_order=True), fields=fields)


def score(rollouts: Sequence[ScoredRollout]) -> dict[str, float]:
    """BLEU of the whole set in percent: ``bleu``, the mean of the pairs of languages, and each pair's."""
    pairs: dict[str, list[list[int]]] = defaultdict(list)
    for one in rollouts:
        pairs[str(one.fields["languages"])].append(one.fields["bleu_counts"])
    every = {name: 100 * bleu(pairs[name]) for name in sorted(pairs)}
    return {"bleu": fmean(every.values()), **every}


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
    description="Translate segments; BLEU compares them with a reference (WMT24++).",
    domain="translation",
    agent="single_turn",
    benchmark=Benchmark(prompt=PROMPT, score=score, fields=("languages", "bleu_counts")),
    data_license="Apache-2.0",
    datasets=in_languages("google/wmt24pp", "en-{}.jsonl", tuple(NAMES), row, "Apache-2.0"),
    agent_refs=("wmt24pp", "flores200"),
)
