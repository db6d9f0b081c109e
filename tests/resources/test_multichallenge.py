"""Rubrics: one question for each item, and what the answers come to."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from gym_resources.judging.rubric import yes_or_no
from gym_resources.multichallenge import Challenge, verify
from gym_runtime import Model, Reply, Role
from gym_runtime.environment import catalogue
from gym_runtime.environment.roles import Scripted
from gym_runtime.environment.verdict import make_response
from gym_runtime.errors import ModelError, ModelUnavailable, TaskError, UnusableAnswer
from msgspec import Raw
from resources.judging import judged_by, quotations, row
from tables import table

pytestmark = pytest.mark.anyio

ITEMS = [
    {"question": "Polite?"},
    {"question": "Too long?", "pass_criteria": "NO", "weight": 3},
]


async def judged(answers: list[Scripted], reply: str = "Hello.", **fields: Any) -> Any:
    return await judged_by("multichallenge", {"judge": answers}, reply, **{"rubric": ITEMS, **fields})


@pytest.mark.parametrize(
    ("answers", "rewards"),
    [
        (["[[YES]]", "[[NO]]"], {"mean": 1, "min": 1, "max": 1, "all": 1, "any": 1, "weighted": 1}),
        (["[[YES]]", "[[YES]]"], {"mean": 0.5, "min": 0, "max": 1, "all": 0, "any": 1, "weighted": 0.25}),
        (["[[NO]]", "[[NO]]"], {"mean": 0.5, "min": 0, "max": 1, "all": 0, "any": 1, "weighted": 0.75}),
        (["[[NO]]", "[[YES]]"], {"mean": 0, "min": 0, "max": 0, "all": 0, "any": 0, "weighted": 0}),
    ],
)
async def test_scores_are_put_together(answers: list[Scripted], rewards: dict[str, float]) -> None:
    for mode, reward in rewards.items():
        verdict, _ = await judged(answers, aggregation_mode=mode)
        assert verdict.reward == reward, mode
        assert verdict.fields["num_total"] == 2


async def test_a_rubric_may_be_in_lower_case_and_in_the_metadata() -> None:
    small = [{"question": "Too long?", "pass_criteria": " no"}]
    for fields in ({"rubric": small}, {"rubric": [], "metadata": {"rubric": small}}):
        verdict, _ = await judged(["[[NO]]"], **fields)
        assert (verdict.reward, verdict.fields["rubric_evaluations"][0]["pass_criteria"]) == (1.0, "NO")
    verdict, _ = await judged(["[[YES]]"], rubric=ITEMS[:1], metadata={"rubric": "polite"})
    assert verdict.reward == 1.0


async def test_an_answer_without_a_label_passes_no_item() -> None:
    verdict, _ = await judged(["?"], rubric=ITEMS[:1])
    assert (verdict.reward, verdict.fields["judge_unparseable"]) == (0.0, 1)
    with pytest.raises(UnusableAnswer, match="unreadable_judge=rewarded") as caught:
        await judged(["[[YES]]", "?"])
    assert caught.value.stage == "judge"


async def test_the_row_says_what_was_asked_and_answered() -> None:
    verdict, prompts = await judged(["[[YES]]", "?"], context="[USER]: hi", unreadable_judge="rewarded")
    assert [quotations(prompt) for prompt in prompts] == [
        ["[USER]: hi", "Hello.", "Polite?"],
        ["[USER]: hi", "Hello.", "Too long?"],
    ]
    first, second = verdict.fields["rubric_evaluations"]
    assert (first["verdict"], first["score"], first["judge_prompt"]) == ("YES", 1.0, prompts[0])
    assert (second["verdict"], second["score"], second["weight"]) == ("NO", 1.0, 3.0)
    assert [first["judge_response"], second["judge_response"]] == ["[[YES]]", "?"]
    assert verdict.fields["context"] == "[USER]: hi"
    assert (verdict.fields["num_passed"], verdict.fields["judge_unparseable"]) == (2, 1)
    assert [one["verdict_label"] for one in verdict.fields["judge_evaluations"]] == ["YES", None]


async def test_the_conversation_may_stand_in_the_metadata_and_thoughts_are_not_shown() -> None:
    said = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
    _, prompts = await judged(
        ["[[YES]]"], "hm</think>Hello.", rubric=ITEMS[:1], metadata={"messages": said, "topic": "x"}
    )
    assert quotations(prompts[0])[:2] == ["[USER]: hi\n\n[ASSISTANT]: ho", "Hello."]


@pytest.mark.parametrize("reply", ["", "<think>Hello.</think>", "<thinking>Hello."])
async def test_silence_is_worth_nothing_even_where_no_is_right(reply: str) -> None:
    verdict, prompts = await judged([], reply)
    assert (verdict.reward, prompts, verdict.fields["num_passed"]) == (0.0, [], 0)


@table(
    "fields",
    [
        {"rubric": []},
        {"rubric": [{"question": "?", "weight": 0}]},
        {"rubric": [{"question": "?", "weight": -1}]},
        {"rubric": [{"question": "?", "pass_criteria": "MAYBE"}]},
        {"rubric": [], "metadata": {"rubric": "polite"}},
        {"rubric": ITEMS, "aggregation_mode": "median"},
        {"rubric": ITEMS, "metadata": {"messages": "none"}},
    ],
)
def test_rows_that_cannot_be_judged_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(TaskError):
        catalogue.environment("multichallenge").resource.task(row(**fields))


async def test_one_item_without_an_answer_is_no_verdict() -> None:
    with pytest.raises(ModelError) as caught:
        await judged(["[[YES]]", ModelUnavailable("503")])
    assert caught.value.stage == "judge"


async def test_all_items_are_asked_at_once_and_keep_their_order() -> None:
    asked: list[str] = []
    all_asked = anyio.Event()

    async def ask(role: Role, params: Raw, items: Any) -> Raw:
        number = len(asked)
        asked.append(bytes(items[0]).decode())
        if len(asked) == 3:
            all_asked.set()
        await all_asked.wait()
        await anyio.sleep(0.01 * (3 - number))  # the first question is answered last
        return Raw(make_response(["[[YES]]", "[[NO]]", "[[YES]]"][number]))

    rubric = [{"question": name} for name in ("first", "second", "third")]
    task = catalogue.environment("multichallenge").resource.task(row(rubric=rubric))
    assert isinstance(task, Challenge)
    verdict = await verify(task, Reply.of("Hello."), Model(Role(name="judge"), ask))
    assert [one["verdict"] for one in verdict.fields["rubric_evaluations"]] == ["YES", "NO", "YES"]
    assert [one["verdict_label"] for one in verdict.fields["judge_evaluations"]] == ["YES", "NO", "YES"]


@table(
    ("text", "answer"),
    [
        ("[[NO]] at first, but [[YES]]", "YES"),
        ("Verdict: NO\nSo much for that.", None),
        ("YES or NO?\nNO", "NO"),
        ("NO. A YES would need both dates.", "NO"),
        ("[[NO]]: to say [[YES]] is not enough", "NO"),
        ("<think>[[YES]]</think>", None),
        ("yes", None),
        ("NOTHING", None),
        ("", None),
    ],
)
def test_the_last_label_else_the_last_word(text: str, answer: str | None) -> None:
    assert yes_or_no(text) == answer
