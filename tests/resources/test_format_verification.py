from __future__ import annotations

import json
from typing import Any

import pytest
from gym_resources.format_verification import LONGEST_LINE
from gym_runtime.environment import catalogue
from gym_runtime.errors import TaskError
from resources.judging import judge, nemo_gym_rows, row
from tables import table

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]
NAME = "format_verification"
BULLETS = {
    "type": "regex",
    "pattern_id": "b",
    "verify_regex": ["^- .+", r"^\d\. .+"],
    "verify_min_matches": 2,
}
MARKS = {"type": "string_match", "patterns": [r"\[\d+\]"], "expected_markers": ["[1]", "[3]"]}


@table(
    ("verifier", "text", "reward"),
    [
        (BULLETS, "- a\n- b", 1.0),
        (BULLETS, "So:\n- a\n1. b\n", 1.0),
        (BULLETS, "- a\n  - b", 0.0),
        (BULLETS, "- a", 0.0),
        (BULLETS, "- a\n- " + "b" * LONGEST_LINE, 0.0),
        (MARKS, "So [1]. And so [3].", 1.0),
        (MARKS, "[1][3]", 1.0),
        (MARKS, "So [1].", 0.0),
        (MARKS, "So [1][2][3].", 0.0),
        (MARKS, "So [ref:1][3].", 0.0),
        (BULLETS, "", 0.0),
        (MARKS, "", 0.0),
    ],
)
async def test_the_form_decides(verifier: dict[str, Any], text: str, reward: float) -> None:
    assert (await judge(NAME, row(verifier=verifier), text)).reward == reward


async def test_the_row_says_what_is_wrong() -> None:
    verdict = await judge(NAME, row(verifier=MARKS), "So [1][7][7].")
    assert verdict.fields == {"missing_markers": ["[3]"], "spurious_markers": ["[7]"]}
    verdict = await judge(NAME, row(verifier=BULLETS), "- a")
    assert verdict.fields == {"pattern_id": "b", "num_matches": 1}


@table(
    "verifier",
    [
        {"type": "regex", "verify_regex": []},
        {"type": "regex", "verify_regex": ["("]},
        {"type": "regex", "verify_regex": ["a"], "verify_min_matches": 0},
        {"type": "string_match", "patterns": ["["], "expected_markers": ["[1]"]},
        {"type": "string_match", "expected_markers": []},
        {"type": "other"},
    ],
)
async def test_rows_that_cannot_be_judged_are_refused(verifier: dict[str, Any]) -> None:
    with pytest.raises(TaskError):
        catalogue.environment(NAME).resource.task(row(verifier=verifier))


SHOWN = {
    "mixed_inline_numbered_heading": '1. "Boston": a town',
    "kv_equals": "Name = Ariel",
    "bullet_double_dash": "-- Kenya",
    "web_mixed_paragraphs_bullets": "- It is so.",
    "bullet_arrow": "→ It is so.",
    "own_arrow": "→ Elbe",
}


@pytest.mark.slow
async def test_rows_in_nemo_gyms_format_are_won_by_their_form() -> None:
    for line in nemo_gym_rows(NAME):
        verifier = json.loads(line)["verifier"]
        if verifier["type"] == "regex":
            right = "\n".join([SHOWN[verifier["pattern_id"]]] * verifier["verify_min_matches"])
        else:
            right = f"It is so {''.join(verifier['expected_markers'])}."
        assert (await judge(NAME, line, right)).reward == 1.0
        assert (await judge(NAME, line, "It is so.")).reward == 0.0
