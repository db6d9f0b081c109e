"""Results without the input of their row, whose client puts it back."""

from __future__ import annotations

from array import array
from typing import Any

import msgspec
import pytest
from gym_runtime.messages.call_tokens import Tokens
from gym_runtime.messages.outcomes import (
    Completed,
    RolloutRecord,
    encode_record,
    read_record,
    with_input,
    without_input,
)
from gym_runtime.messages.responses import CreateParams, Response, decode_params
from gym_runtime.messages.rollout_spec import LONG_ROW_BYTES
from gym_runtime.rollout.record import Facts, make_record
from gym_testing.small_system import message, rollout_spec
from msgspec import Raw
from msgspec.structs import replace
from tables import table

LONG = "Wörter, " * LONG_ROW_BYTES
IMAGE = "data:image/png;base64," + "A" * 5000
MESSAGES = [{"role": "user", "content": LONG}]
SEEN = [{"role": "user", "content": [{"type": "input_image", "image_url": IMAGE}] * 9}]


def row(given: Any, **params: Any) -> bytes:
    """As a person writes it, with spaces that the runtime does not write."""
    encoded = msgspec.json.format(msgspec.json.encode(given), indent=0)
    return b'{ "goal": 1, "responses_create_params": {"input": %b, "include": %b} }' % (
        encoded,
        msgspec.json.encode(params.get("include")),
    )


def made(line: bytes, *, has_row: bool, given: Any = None, tokens: bool = False) -> RolloutRecord:
    """As an agent worker makes it, and its broker keeps it; ``given`` is what the agent made of the input."""
    fields = msgspec.json.decode(line, type=dict[str, Raw])
    params = decode_params(fields["responses_create_params"])
    if given is not None:
        params = replace(params, input=Raw(msgspec.json.encode(given)))
    output = [Raw(msgspec.json.encode(item)) for item in (message("seen: " + IMAGE), *SEEN)]
    packed = {0: Tokens(prompt_ids=array("i", range(9)).tobytes(), generation_ids=array("i", [1]).tobytes())}
    facts = Facts(
        row_fields=fields, params=params, response=Response(output=output), tokens=packed if tokens else {}
    )
    task = rollout_spec(line, has_row=has_row, names_images=True, packed_tokens=tokens)
    return make_record(task, Completed(), facts, attempt=1, worker="agent-1")


@table("given", [MESSAGES, LONG, SEEN], ids=["messages", "text", "images"])
@table("tokens", [True, False])
def test_a_row_with_its_input_put_back_is_the_same_to_the_byte(given: Any, tokens: bool) -> None:
    line = row(given)
    whole, short = (encode_record(made(line, has_row=has, tokens=tokens)) for has in (False, True))
    assert len(short) < 20_000 < len(line) <= len(whole) + 1000
    lacking = read_record(short)
    assert lacking.left_out is not None
    start, size = lacking.left_out.start, lacking.left_out.size
    assert with_input(lacking, line[start : start + size]) == read_record(whole)


def test_what_is_short_or_changed_or_is_not_asked_for_stays() -> None:
    just = "a" * (LONG_ROW_BYTES - 2)
    for line, given, has_row in (
        (row(just[1:]), None, True),
        (row(LONG), None, False),
        (row(MESSAGES), [*MESSAGES, {"role": "user", "content": "an observation"}], True),
        (row(LONG, include=[{"input": "gym-input"}]), None, True),
    ):
        record, whole = (made(line, has_row=has, given=given) for has in (has_row, False))
        assert record.left_out is None
        assert record.row == whole.row
    assert made(row(just), has_row=True).left_out is not None


def test_another_input_is_never_put_in_its_place() -> None:
    line = row(MESSAGES)
    lacking = made(line, has_row=True)
    left = lacking.left_out
    assert left is not None
    text = line[left.start : left.start + left.size]
    assert with_input(lacking, text).left_out is None
    for record, other in (
        (lacking, text.replace(b"W", b"V", 1)),
        (lacking, text + b" "),
        (lacking, b""),
        (replace(lacking, left_out=None), text),
        (replace(lacking, row=Raw(b"{}")), text),
        (replace(lacking, row=Raw(b"null")), text),
    ):
        with pytest.raises(msgspec.DecodeError, match="lacks its row's input"):
            with_input(record, other)


def test_a_row_that_could_not_be_read_is_whole() -> None:
    task = rollout_spec(row(LONG), has_row=True)
    assert make_record(task, Completed(), Facts.of_row(task.row), attempt=1, worker="a").left_out is None
    params = CreateParams(input=Raw(msgspec.json.encode(LONG)))
    assert without_input(Raw(b"{}"), params) == (params, None)
