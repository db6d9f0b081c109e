"""What a notebook shows of rollouts: the verdict, and text of models only as text."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import msgspec
from gym_runtime.errors import Fault
from gym_runtime.messages.outcomes import Completed, Failed, RolloutRecord
from gym_runtime.messages.transcripts import MOST_CHARACTERS
from gym_runtime.rollout.groups import Group
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

HOSTILE = "</pre></details><script>alert(1)</script><img src=x onerror='alert(1)'>"
ALLOWED = {"table", "thead", "tbody", "tr", "th", "td", "details", "summary", "b", "pre", "p"}


class Elements(HTMLParser):
    """The elements of a piece of HTML, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.names.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def record(text: str, reward: float | None = 0.5) -> RolloutRecord:
    row = {"response": {"output": [{"type": "message", "role": text[:50], "content": text}]}}
    failed = Failed(fault=Fault(kind="model", message=text))
    return RolloutRecord(
        run="r",
        task_index=3,
        rollout_index=0,
        environment=text,
        outcome=Completed() if reward is not None else failed,
        row=Raw(msgspec.json.encode(row)),
        reward=reward,
    )


@given(st.just(HOSTILE) | st.text())
def test_text_of_a_model_stays_text(text: str) -> None:
    rollouts, failed = [record(text)], [record(text, None)]
    group = Group(run="r", task_index=3, environment=text, rollouts=rollouts, failures=failed)
    for shown in (rollouts[0], failed[0], group):
        assert Elements(shown._repr_html_()).names <= ALLOWED


def test_the_verdict_and_the_conversation_are_shown() -> None:
    found = Elements(record(HOSTILE)._repr_html_())
    assert "0.5" in found.text
    assert HOSTILE in found.text
    group = Group(
        run="r", task_index=3, environment="quiz", rollouts=[record("a"), record("b", None)], failures=[]
    )
    said = Elements(group._repr_html_()).text
    assert "failed: b" in said
    assert "mean reward" in said


def test_long_text_is_cut_and_odd_rows_are_said() -> None:
    shown = record("x" * 1_000_000)._repr_html_()
    assert len(shown) < 5 * MOST_CHARACTERS
    odd = msgspec.structs.replace(record("a"), row=Raw(b"[1]"))
    assert "the row is no JSON object" in odd._repr_html_()
