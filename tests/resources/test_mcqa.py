from __future__ import annotations

from typing import Any

import msgspec
import pytest
from gym_runtime import Reply
from gym_runtime.environment import catalogue
from gym_runtime.environment.replaying import rejudge
from gym_runtime.errors import TaskError
from resources.judging import call, nemo_gym_rows, output
from resources.judging import judge as said
from tables import table

pytestmark = pytest.mark.anyio

ROW: dict[str, Any] = {
    "responses_create_params": {"input": "Which of these rusts?"},
    "options": [{"A": "Tin"}, {"B": "Iron"}, {"C": "Gold"}],
    "expected_answer": "B",
    "uuid": "1",
}
RESOURCE = catalogue.environment("mcqa").resource


async def judge(text: str, **fields: Any) -> tuple[float, str | None]:
    row = msgspec.json.encode({**ROW, **fields})
    verdict = await rejudge(RESOURCE, row, bytes(Reply.of(text).raw))
    return verdict.reward, verdict.fields["extracted_answer"]


@table(
    ("mode", "text", "reward", "extracted"),
    [
        ("strict_single_letter_boxed", r"\boxed{B}", 1.0, "B"),
        ("strict_single_letter_boxed", r"\boxed{A}", 0.0, "A"),
        ("strict_single_letter_boxed", r"\boxed{Iron}", 0.0, None),
        ("strict_single_letter_boxed", "Answer: B", 0.0, None),
        ("lenient_boxed", r"\boxed{B}", 1.0, "B"),
        ("lenient_boxed", r"\boxed{Iron}", 1.0, "B"),
        ("lenient_boxed", "Answer: B", 0.0, None),
        ("lenient_answer_colon", "Answer: B", 1.0, "B"),
        ("lenient_answer_colon", "Answer: iron", 1.0, "B"),
        ("lenient_answer_colon", "Answer: A\nAnswer: B", 0.0, "A"),
        ("lenient_answer_colon", "**Answer:** B", 0.0, None),
        ("lenient_answer_colon", r"\boxed{B}", 0.0, None),
        ("lenient_answer_colon_md", "**Answer:** B", 1.0, "B"),
        ("lenient_answer_colon_md", "Answer: A\nAnswer: B", 1.0, "B"),
        ("lenient_answer_colon_md", "Answer: ব", 1.0, "B"),
    ],
)
async def test_each_grading_mode_has_its_rule(
    mode: str, text: str, reward: float, extracted: str | None
) -> None:
    assert await judge(text, grading_mode=mode) == (reward, extracted)


async def test_the_default_mode_is_strict() -> None:
    assert await judge(r"\boxed{B}") == (1.0, "B")
    assert await judge("Answer: B") == (0.0, None)


EXPRESSIONS: list[tuple[str | list[str] | None, str, float, str | None]] = [
    (r"Choice: ([A-Za-z])", "Choice: A, no, Choice: B", 1.0, "B"),
    (r"Choice: ([A-Za-z])", "Choice: b", 1.0, "B"),
    (r"Choice: (\w+)", "Choice: iron", 1.0, "B"),
    (r"Choice: ([A-Za-z])", r"Chosen: A \boxed{B}", 1.0, "B"),  # no match: the grading mode decides
    (r"CHOICE: ([A-Z])", "Choice: b", 1.0, "B"),
    (r"Choice: ([A-Za-z]", r"Choice: A \boxed{B}", 1.0, "B"),  # no expression: the same
    (["Choice: (", "Choice: (.)"], "Choice: B", 1.0, "B"),
    (r"Choice: ([A-Za-z])", r"Choice: Z \boxed{B}", 0.0, "Z"),  # no option, but a letter
    (r"Choice: (\w+)", r"Choice: zinc \boxed{B}", 1.0, "B"),  # neither a letter nor a wording
    (r"Choice: (.)", r"Choice: 5 \boxed{B}", 1.0, "B"),
    (r"Choice: (.)", "Choice: ব", 1.0, "B"),
    (r"Choice: (.)", "Choice: Ｂ", 1.0, "B"),
    (r"One: (.)|Two: (.)", "One: A Two: b", 1.0, "B"),  # two groups: the one that is there
    (r"Choice: ([A-Za-z])", r"Choice: A \boxed{B}", 0.0, "A"),
    (["First: (.)", "Second: (.)"], "Second: B", 1.0, "B"),
    (["First: (.)", "Second: (.)"], "Second: B First: A", 0.0, "A"),
    (["First: (.)", "Second: (.)"], "Second: B First: Z", 0.0, "Z"),
    (["First: (.)", "Second: (.)"], "Second: B First: 1", 1.0, "B"),
    (r"(\w*)$", "", 0.0, None),
    ([], r"\boxed{B}", 1.0, "B"),
    ("", r"\boxed{B}", 1.0, "B"),
    (None, r"\boxed{B}", 1.0, "B"),
]


async def test_the_rows_own_expression_comes_first() -> None:
    for expression, text, reward, extracted in EXPRESSIONS:  # in one test: they share a process
        verdict = await judge(text, template_metadata={"output_regex": expression})
        assert verdict == (reward, extracted), (expression, text)


TEMPLATES = (
    r"Answer: \boxed{X}",
    r"Answer: \boxed{X}",
    "Option Selected: X",
    "Answer: X",
    "ANSWER IS X",
    "Final Choice: X",
)


@pytest.mark.slow
async def test_rows_in_nemo_gyms_format_are_won_in_their_templates_words() -> None:
    lines = [line for line in nemo_gym_rows("mcqa") if b"template_metadata" in line]
    assert len(lines) in (1, len(TEMPLATES))  # our own row is the first
    for line, template in zip(lines, TEMPLATES, strict=False):
        right = msgspec.json.decode(line)["expected_answer"]
        wrong = "A" if right != "A" else "B"
        for words, reward in (
            (template.replace("X", right), 1.0),
            (template.replace("X", right.lower()), 1.0),
            (template.replace("X", wrong) + " Rather: " + template.replace("X", right), 1.0),
            (template.replace("X", right) + " Rather: " + template.replace("X", wrong), 0.0),
            (f"It is {right}.", 0.0),
            (rf"\boxed{{{right}}}", 1.0),  # without a match the default mode decides
        ):
            verdict = await rejudge(RESOURCE, line, bytes(Reply.of(words).raw))
            assert verdict.reward == reward, (template, words)


@table(
    ("items", "reward"),
    [
        ([r"\boxed{B}", "That is all."], 1.0),
        ([r"\boxed{A}", r"\boxed{B}"], 1.0),
        ([r"\boxed{B}", call("look", {}), output(r"\boxed{A}")], 1.0),
        (["\\box", "ed{B}"], 1.0),  # put together without a separator
        ([call("look", {}), output(r"\boxed{B}")], 0.0),
        ([], 0.0),
        (["  \n"], 0.0),
    ],
)
async def test_all_messages_are_read(items: list[Any], reward: float) -> None:
    assert (await said("mcqa", msgspec.json.encode(ROW), *items)).reward == reward


async def test_a_row_may_lack_options_and_the_answer() -> None:
    template = {"output_regex": "Choice: (.)"}
    for options in (None, [], [{"A": None}, {"10": "ten"}]):
        assert await judge("Choice: b", options=options, template_metadata=template) == (1.0, "B")
        assert await judge(r"\boxed{B}", options=options) == (0.0, None)
    for expected in (None, "", " "):
        assert await judge(r"\boxed{B}", expected_answer=expected) == (0.0, "B")


async def test_letters_are_compared_in_upper_case() -> None:
    assert await judge(r"\boxed{B}", options=[{"a": "Tin"}, {"b": "Iron"}], expected_answer=" b ") == (
        1.0,
        "B",
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"grading_mode": "lenient"}, "Invalid enum value 'lenient'"),
        ({"options": [{"A": 1}]}, "Expected `str | null`, got `int`"),
        ({"options": ["Tin"]}, r"Expected `object`, got `str` - at `\$.options\[0\]`"),
        ({"template_metadata": {"output_regex": 1}}, "Expected `str | array | null`, got `int`"),
    ],
)
async def test_a_bad_row_is_refused_with_the_reason(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        await judge("", **fields)
