from __future__ import annotations

from typing import Any

import msgspec
import pytest
from gym_resources import reasoning_gym
from gym_runtime import Reply, catalogue
from gym_runtime.errors import TaskError, UsageError
from gym_runtime.heavy import verify_heavy

pytestmark = pytest.mark.anyio

ROW: dict[str, Any] = {
    "responses_create_params": {"input": "Spell 'ship' backward."},
    "question": "Spell this word backward (example: sun -> nus): ship",
    "answer": "pihs",
    "metadata": {"source_dataset": "spell_backward", "source_index": 0, "word": "ship", "word_len": 4},
}


@pytest.fixture
def source() -> str:
    environment = catalogue.environment("reasoning_gym")
    try:
        catalogue.require(environment)
    except UsageError as error:
        pytest.skip(error.message)
    return str(environment.source)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer> pihs </answer>", "pihs"),
        (r"\boxed{no} <answer>pihs</answer>", "pihs"),
        (r"<answer>1</answer> <answer>2</answer>", "2"),
        (r"\boxed{1} or \boxed{pihs}", "pihs"),
        ("pihs\n", "pihs\n"),
        ("<answer>cut of", "<answer>cut of"),
        ("<answer></answer>", ""),
        ("", ""),
    ],
)
def test_the_answer_is_in_a_tag_or_in_a_box_or_is_the_text(text: str, answer: str) -> None:
    assert reasoning_gym.extract(text) == answer


async def test_answers_are_scored_by_the_datasets_scorer(source: str) -> None:
    async def score(text: str) -> tuple[float, str]:
        verdict = await verify_heavy(source, msgspec.json.encode(ROW), bytes(Reply.of(text).raw), 15)
        return verdict.reward, verdict.fields["extracted_answer"]

    assert await score("<answer>pihs</answer>") == (1.0, "pihs")
    reward, _ = await score(r"\boxed{pish}")
    assert 0.0 < reward < 1.0
    assert await score("") == (0.0, "")

    row = msgspec.json.encode({**ROW, "metadata": {"source_dataset": "spell_sideways"}})
    with pytest.raises(TaskError, match="Dataset 'spell_sideways' not registered"):
        await verify_heavy(source, row, bytes(Reply.of("pihs").raw), 15)


async def test_a_row_must_name_its_dataset() -> None:
    row = msgspec.json.encode({**ROW, "metadata": {"source_index": 0}})
    with pytest.raises(TaskError, match=r"'metadata.source_dataset' must name a dataset"):
        catalogue.environment("reasoning_gym").resource.task(row)
