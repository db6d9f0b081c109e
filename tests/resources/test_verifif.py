"""What rules decide together with a judge; the rules themselves: instructions/verifif_cases.py."""

from __future__ import annotations

from typing import Any

import pytest
from gym_runtime.errors import GymError
from resources.judging import judged_by, quotations

pytestmark = pytest.mark.anyio
RULES = [
    {"instruction_id": "length:max_word_count", "max_words": 3, "uid": 1, "source": "user"},
    {"instruction_id": "stylistic:tone_formality", "tone_level": "formal"},
    {"instruction_id": "keywords:existence", "words": ["a rule has other arguments"]},
]


@pytest.mark.parametrize(
    ("mode", "reward"), [("all", 0.0), ("any", 1.0), ("mean", 0.75), ("min", 0.0), ("max", 1.0)]
)
async def test_rules_and_the_judge_together(mode: str, reward: float) -> None:
    found, prompts = await judged_by(
        "verifif",
        {"judge": ["[[YES]]", "[[YES]]", "No: [[NO]]"]},
        "So be it",
        instructions=RULES,
        llm_judge=[{"uid": 7, "content": "Is it polite?"}],
        aggregation_mode=mode,
    )
    assert found.reward == reward
    assert sorted(quotations(prompt)[2] for prompt in prompts) == [
        "Is it polite?",
        "keywords: existence (words: ['a rule has other arguments'])",
        "stylistic: tone formality (tone level: formal)",
    ]
    names = [one["instruction"] for one in found.fields["validation_results"]]
    assert names == [*(one["instruction_id"] for one in RULES), "llm_judge_7"]
    assert sum(found.fields["follow_instruction_list"]) == 3
    assert found.fields["follow_instruction_list"][0]


async def test_silence_is_worth_nothing_and_the_judge_is_not_asked() -> None:
    found, prompts = await judged_by("verifif", {"judge": []}, "<think>Hm.</think>", instructions=RULES)
    assert (found.reward, prompts) == (0.0, [])


async def test_an_answer_without_a_label_passes_nothing() -> None:
    found, _ = await judged_by(
        "verifif", {"judge": ["Well."]}, "Yes", llm_judge=[{"content": "Is it polite?"}]
    )
    assert (found.reward, found.fields["judge_unparseable"]) == (0.0, 1)


@pytest.mark.parametrize("fields", [{}, {"instructions": [{"uid": 1}]}, {"llm_judge": [{"uid": 1}]}])
async def test_rows_without_checks_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(GymError):
        await judged_by("verifif", {"judge": []}, "Yes", **fields)
