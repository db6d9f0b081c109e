"""Which of a rollout's texts a verifier may read."""

from __future__ import annotations

from typing import Any

from gym_runtime.environment.verdict import Reply
from tables import table

CALL = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "found"}
REASONING = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
USER = {"type": "message", "role": "user", "content": "and?"}
REFUSAL = {"type": "refusal", "refusal": "no"}


def said(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [*parts]}


def text(text: str | None, kind: str = "output_text") -> dict[str, Any]:
    return {"type": kind, "text": text}


@table(
    ("items", "joined", "lines", "last_item"),
    [
        ([], "", "", ""),
        (["one"], "one", "one", "one"),
        ([" one ", CALL, OUTPUT, USER, " two\n"], "one  two", "one \n two", " two\n"),
        (["one", CALL], "one", "one", ""),
        (["one", CALL, OUTPUT], "one", "one", ""),
        (["one", REASONING], "one", "one", ""),
        (["one", USER], "one", "one", ""),
        ([said(text("a"), text("b"))], "ab", "a\nb", "a"),
        ([said(text("a", "text"), text("b"))], "b", "a\nb", "a"),
        ([said(text(""), text("b"))], "b", "b", ""),
        ([said(text(None), text("b"))], "b", "b", ""),
        ([said(REFUSAL, text("b"))], "b", "b", ""),
        (["one", said()], "one", "one", ""),
        ([{"role": "assistant", "content": " plain "}], "plain", "plain", " plain "),
        ([{"role": "assistant", "content": None}], "", "", ""),
    ],
)
def test_texts_of_a_reply(items: list[Any], joined: str, lines: str, last_item: str) -> None:
    reply = Reply.of(*items)
    assert (reply.joined_text, reply.lines_text, reply.last_item_text) == (joined, lines, last_item)
