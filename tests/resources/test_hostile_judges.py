"""A judge is a model too: no answer of it holds the event loop up."""

from __future__ import annotations

import time

from gym_models.wire.failures import duration_s
from gym_resources.judging.pairwise import read_scores
from gym_resources.judging.refusals import class_label, wildguard_label
from gym_resources.judging.requirements import result
from tables import table

SHAPES = [
    *(
        "\n",
        " \n",
        " ",
        ":",
        ":\n",
        "a:\n",
        "a:",
        "response refusal",
        "response refusal ",
        "response refusal:\n",
    ),
    *("```json", "```json ", "```", "{", '{"score_1": ', "1_", "0", '{"result": "', "PASS ", "result: "),
]
CHARACTERS = 20_000


@table("read", [wildguard_label, class_label, read_scores, result])
@table("first", ["", "response refusal", "```json", "a:"])
def test_an_answer_of_any_shape_is_read_at_once(read: object, first: str) -> None:
    assert callable(read)
    for shape in SHAPES:
        started_s = time.process_time()
        assert read(first + shape * (CHARACTERS // len(shape))) is None
        # 20,000 empty lines took half a minute.
        assert time.process_time() - started_s < 0.5, shape


def test_labels_are_still_found() -> None:
    assert wildguard_label("**Response refusal**: **Yes**") == "yes"
    assert wildguard_label("Harmful request: no\n\n  Response refusal : no\nHarmful response: no") == "no"
    assert wildguard_label("request: no\nrefusal: yes\nresponse: no") == "yes"
    assert wildguard_label("request: no\nrefusal: n/a") is None


def test_a_header_with_a_duration_is_read_at_once() -> None:
    started_s = time.process_time()
    assert duration_s("0" * 8000) == 0.0
    assert time.process_time() - started_s < 0.1
    assert duration_s("1h2m3.5s") == 3723.5
