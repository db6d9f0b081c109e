"""Sampling settings: their bounds, what they override, and how they are laid over a row's own."""

from __future__ import annotations

import dataclasses
import inspect
import json
from typing import Any

import msgspec
import pytest
from gym_runtime.errors import UsageError
from gym_runtime.messages.rollout_settings import BEYOND_RESPONSES, Sampling, fold, lay_over, refused
from msgspec import Raw
from tables import table

EVERYTHING: dict[str, Any] = {
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 20,
    "min_p": 0.05,
    "max_output_tokens": 64,
    "seed": 7,
    "stop": ["END", "\n\n"],
    "presence_penalty": -1,
    "frequency_penalty": 1.5,
    "repetition_penalty": 1.1,
    "logit_bias": {"12": -100},
    "reasoning_effort": "low",
    "chat_template_kwargs": {"enable_thinking": False},
    "system_prompt": "Be brief.",
    "extra_body": {"ignore_eos": True},
}


def laid(params: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """A row's parameters after a run's settings, as JSON values; what the side channel holds decoded."""
    raw = msgspec.json.decode(json.dumps(params), type=dict[str, Raw])
    found = json.loads(msgspec.json.encode(lay_over(raw, Sampling.read(settings).overrides())))
    for name in ("extra_body", "chat_template_kwargs"):
        if name in (found.get("metadata") or {}):
            found["metadata"][name] = json.loads(found["metadata"][name])
    return found


def side(**metadata: Any) -> dict[str, Any]:
    return {"metadata": {name: json.dumps(value) for name, value in metadata.items()}}


def test_every_field_has_a_line_in_the_docstring_and_overrides_something() -> None:
    assert set(EVERYTHING) == {one.name for one in dataclasses.fields(Sampling)}
    for name in EVERYTHING:
        assert f"\n    {name}: " in (inspect.getdoc(Sampling) or "")
        assert Sampling.read({name: EVERYTHING[name]}).overrides()
    assert Sampling().overrides() == {}


def test_what_the_responses_api_lacks_is_in_the_extra_body() -> None:
    overrides = json.loads(msgspec.json.encode(Sampling.read(EVERYTHING).overrides()))
    assert overrides == {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_output_tokens": 64,
        "reasoning": {"effort": "low"},
        "instructions": "Be brief.",
        "extra_body": {"ignore_eos": True, **{name: EVERYTHING[name] for name in BEYOND_RESPONSES}},
    }
    assert Sampling.read({"extra_body": overrides["extra_body"]}).overrides() == {
        "extra_body": overrides["extra_body"]
    }


@table(
    ("settings", "message"),
    [
        ({"temperature": -0.1}, "'temperature': expected float >= 0"),
        ({"top_p": 0}, "'top_p': expected float > 0"),
        ({"top_k": -2}, "'top_k': expected int >= -1"),
        ({"min_p": 1.5}, "'min_p': expected float <= 1"),
        ({"max_output_tokens": 0}, "'max_output_tokens': expected int >= 1"),
        ({"seed": "x"}, "'seed': expected int, got str"),
        ({"stop": "END"}, "'stop': expected array, got str"),
        ({"stop": [""]}, "'stop"),
        ({"presence_penalty": 3}, "'presence_penalty': expected float <= 2"),
        ({"repetition_penalty": 0}, "'repetition_penalty': expected float > 0"),
        ({"logit_bias": {"the": 1}}, "'logit_bias"),
        ({"reasoning_effort": "huge"}, "'reasoning_effort': invalid enum value 'huge'; there are: none, min"),
        ({"temperature": float("nan")}, "'temperature'"),
        ({"extra_body": {"top_k": "five"}}, "'top_k': expected int, got str"),
        ({"extra_body": {"n": 4}}, "'extra_body': 'n' cannot be set in extra_body"),
        ({"stop": {1, 2}, "seed": object()}, "JSON values"),
    ],
)
def test_settings_have_bounds(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Sampling.read(settings)
    assert message in caught.value.message


@table(
    "name",
    [
        *("model", "n", "stream", "messages", "input", "api_key", "apikey", "base_url", "api_base"),
        *("extra_headers", "headers", "Authorization", "kv_transfer_params", "return_token_ids", "best_of"),
    ],
)
def test_an_extra_body_says_neither_who_is_asked_nor_how_often_nor_as_whom(name: str) -> None:
    assert f"'{name}'" in refused({"top_k": 1, name: "x"})


@table("name", [*BEYOND_RESPONSES, "max_tokens", "ignore_eos", "prompt_cache_key", "user"])
def test_an_extra_body_says_how_to_sample(name: str) -> None:
    assert refused({name: "x"}) == ""


@table(
    ("params", "settings", "expected"),
    [
        ({"temperature": 1}, {"temperature": 0.5}, {"temperature": 0.5}),
        ({"temperature": 1}, {"top_k": 5}, {"temperature": 1, "metadata": {"extra_body": {"top_k": 5}}}),
        (side(extra_body={"top_k": 1, "seed": 3}), {"top_k": 5},
         {"metadata": {"extra_body": {"top_k": 5, "seed": 3}}}),
        # a row's extra body does not take back what the run says, whatever it calls it
        (side(extra_body={"temperature": 1, "top_p": 0.1}), {"temperature": 0.5},
         {"temperature": 0.5, "metadata": {"extra_body": {"top_p": 0.1}}}),
        (side(extra_body={"max_tokens": 9}), {"max_output_tokens": 5}, {"max_output_tokens": 5}),
        (side(extra_body={"max_completion_tokens": 9}), {"max_output_tokens": 5}, {"max_output_tokens": 5}),
        (side(extra_body={"reasoning_effort": "high"}), {"reasoning_effort": "low"},
         {"reasoning": {"effort": "low"}}),
        (side(extra_body={"repeat_penalty": 2}), {"repetition_penalty": 1.0},
         {"metadata": {"extra_body": {"repetition_penalty": 1.0}}}),
        ({"max_output_tokens": 9}, {"extra_body": {"max_tokens": 5}},
         {"metadata": {"extra_body": {"max_tokens": 5}}}),
        # field by field
        ({"reasoning": {"effort": "high", "summary": "auto"}}, {"reasoning_effort": "low"},
         {"reasoning": {"effort": "low", "summary": "auto"}}),
        (side(chat_template_kwargs={"a": 1, "b": 1}, extra_body={"chat_template_kwargs": {"c": 1}}),
         {"chat_template_kwargs": {"b": 2}},
         {"metadata": {"chat_template_kwargs": {"a": 1, "b": 2, "c": 1}}}),
        ({"instructions": "old"}, {"system_prompt": "new"}, {"instructions": "new"}),
        ({"metadata": {"mine": "1"}}, {"seed": 1}, {"metadata": {"mine": "1", "extra_body": {"seed": 1}}}),
        ({"metadata": None}, {"temperature": 1}, {"metadata": None, "temperature": 1}),
    ],
)  # fmt: skip
def test_what_a_run_says_wins(params: dict[str, Any], settings: Any, expected: dict[str, Any]) -> None:
    assert laid(params, **settings) == expected


def test_a_rows_object_becomes_the_text_that_nemo_gym_has() -> None:
    raw = msgspec.json.decode(
        b'{"input":"x","extra_body":{"top_k":5},"metadata":{"a":"b"}}', type=dict[str, Raw]
    )
    assert json.loads(msgspec.json.encode(fold(raw))) == {
        "input": "x",
        "metadata": {"a": "b", "extra_body": '{"top_k":5}'},
    }
    plain = {"input": Raw(b'"x"')}
    assert fold(plain) == plain
