from __future__ import annotations

import json
from typing import Any

import pytest
from gym_runtime.environment import catalogue
from gym_runtime.errors import TaskError
from resources.judging import call, judge, nemo_gym_rows, row
from tables import table

pytestmark = pytest.mark.anyio
NAME = "citation_if"
A, B, C, D = (f"citation_{letter * 4}" for letter in "abcd")
ROW = {
    "id_regex": "citation_[a-z0-9]{4}",
    "valid_id_set": [A, B, C],
    "expected_ids": [A],
    "expected_slack": 1,
}
FORMS = {
    "cite_xml": "<cite>{}</cite>",
    "ascii_brackets": "[{}]",
    "claim_wrap_xml": '<cite id="{}">It is so.</cite>',
    "fullwidth_brackets": "【{}】",
    "ref_colon": "[ref:{}]",
    "double_angle": "<<{}>>",
    "web_brackets": "[web:{}]",
    "paren_part": "(Part {})",
    "markdown_footnote": "[^{}]",
    "curly_double": "{{{{{}}}}}",
    "angle_pipe": "<|{}|>",
}


async def gate(*items: dict[str, Any] | str, grammar: str = "ascii_brackets", **fields: Any) -> str | None:
    verdict = await judge(NAME, row(verifier={"grammar": grammar, **ROW, **fields}), *items)
    found = verdict.fields["match_details"]["gate"]
    assert verdict.reward == float(found is None)
    return found


@table("grammar", FORMS)
async def test_each_grammar_has_its_form(grammar: str) -> None:
    form = FORMS[grammar]
    assert await gate(f"So it is {form.format(A)}.", grammar=grammar) is None
    assert await gate(f"So it is {form.format(f'{A},{B}')}.", grammar=grammar) is None
    assert await gate(f"So it is {form.format(f'{A}, {B}')}.", grammar=grammar) == "malformed_attempt"
    assert await gate(f"So it is {form.format(A)}. Sources: {B}", grammar=grammar) == "malformed_attempt"
    assert await gate(f"So it is {form.format(A)} {form.format('')}.", grammar=grammar) == "malformed_attempt"
    other = FORMS["double_angle" if grammar != "double_angle" else "cite_xml"]
    assert await gate(f"So it is {other.format(A)}.", grammar=grammar) == "malformed_attempt"
    bare = await gate(form.format(A), grammar=grammar)
    assert bare == (None if grammar == "claim_wrap_xml" else "no_answer")
    assert await gate(f"It is so {form.format(A)}.", grammar=grammar, mode="no_cite") == "must_not_cite"


@table(
    ("text", "fields", "failed"),
    [
        ("", {}, "structural"),
        ("...", {}, "no_answer"),
        ("So it is.", {}, "must_cite"),
        (f"So [{A}].", {"min_valid_citations": 2}, "must_cite"),
        (f"So [{A}] and so [{A}].", {"min_valid_citations": 2}, None),
        (f"So [{A}][{D}].", {}, "no_hallucination"),
        ("So [citation_xmpl].", {"valid_id_set": [A, "citation_xmpl"]}, "no_hallucination"),
        (f"So [{B}].", {}, "correctness_missed_gold"),
        (f"So [{A}][{B}].", {}, None),
        (f"So [{A}][{B}][{C}].", {}, "correctness_over_cap"),
        (f"So [{A}][{B}][{C}].", {"expected_ids": None}, None),
        (f"So [{A}]: citation_1", {}, "malformed_attempt"),
    ],
)
async def test_the_first_gate_that_fails_is_named(
    text: str, fields: dict[str, Any], failed: str | None
) -> None:
    assert await gate(text, **fields) == failed


@table(
    ("text", "failed"),
    [
        ("It is so, in 1893.", None),
        ("", "structural"),
        ("It is so [1].", "must_not_cite"),
        ("It is so 【3】.", "must_not_cite"),
        ("It is so, says citation_zzzz.", "must_not_cite"),
        ("It is so <cite></cite>.", "must_not_cite"),
    ],
)
async def test_a_text_may_have_to_cite_nothing(text: str, failed: str | None) -> None:
    assert await gate(text, mode="no_cite") == failed


async def test_a_call_is_no_answer() -> None:
    assert await gate(f"So [{A}].", call("web_search", {"query": "so"})) == "structural"
    assert await gate("So.", call("web_search", {"query": "so"}), mode="no_cite") == "structural"


async def test_the_ids_are_kept_whatever_the_verdict() -> None:
    verdict = await judge(NAME, row(verifier={"grammar": "ascii_brackets", **ROW}), f"So [{B}][{D}][{B}].")
    assert verdict.fields["match_details"]["cited_ids"] == [B, D]


async def test_without_an_expression_ids_have_numbers() -> None:
    fields: dict[str, Any] = {
        "id_regex": None,
        "valid_id_set": ["citation_1:snippet_2"],
        "expected_ids": None,
    }
    assert await gate("So [citation_1:snippet_2].", id_kind="snippet", **fields) is None
    assert await gate("So [citation_1].", id_kind="snippet", **fields) == "malformed_attempt"


@pytest.mark.parametrize("fields", [{"grammar": "apa"}, {"grammar": "cite_xml", "id_regex": "("}])
async def test_rows_that_cannot_be_judged_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(TaskError):
        catalogue.environment(NAME).resource.task(row(verifier={**ROW, **fields}))


async def test_rows_in_nemo_gyms_format_are_won_by_the_citation() -> None:
    for line in nemo_gym_rows(NAME):
        verifier = json.loads(line)["verifier"]
        cites = verifier["mode"] == "cite"
        mark = FORMS[verifier["grammar"]].format(
            ",".join(verifier["expected_ids"] or verifier["valid_id_set"])
        )
        rewards = [(await judge(NAME, line, text)).reward for text in (f"It is so {mark}.", "It is so.")]
        assert rewards == [float(cites), float(not cites)]
