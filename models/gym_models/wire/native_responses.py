"""The Responses API as engines speak it natively: requests are assembled, answers pass through.

Input items and output items keep their bytes. What is the same for every turn of a rollout, the sampling
settings and the tools, is built once and cached.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import msgspec
from gym_runtime import TaskError
from gym_runtime.adapters import ModelCall
from gym_runtime.errors import UNREADABLE
from gym_runtime.messages import NULL, IncompleteDetails, Response, Usage, decode_response
from msgspec import Raw

from gym_models.wire import pieces

PATH = "/responses"
# What the runtime decides, whatever a row says.
_OURS = ("input", "model", "stream", "background")


class ForeignAnswer(Exception):
    """The body is not an answer of this API."""


class FailedAnswer(Exception):
    """The body is an answer with the status ``failed``; `failures.failed` reads the reason."""


class _Lenient(msgspec.Struct):
    """An answer whose lesser fields may have any type; some engines' do."""

    output: list[Raw]
    id: Any = None
    created_at: Any = None
    model: Any = None
    status: Any = None
    incomplete_details: Any = None
    usage: Any = None


_decode_lenient = msgspec.json.Decoder(_Lenient).decode


def request(call: ModelCall, model: str, extra_body: bytes) -> bytes:
    """The body of ``POST /responses``.

    The call's own parameters win over ``extra_body`` (a JSON object), its ``metadata.extra_body`` over
    both. An empty ``model`` leaves the row's own.

    Raises:
        TaskError: the row's ``metadata`` holds something other than JSON where JSON belongs, or names in
            ``extra_body`` a field that a row may not set.
    """
    return _head(bytes(call.params), model, extra_body) + b",".join(call.input) + b"]}"


@lru_cache(maxsize=256)
def _head(params: bytes, model: str, extra_body: bytes) -> bytes:
    fields = {
        name: value for name, value in pieces.decode_fields(params).items() if not pieces.is_null(value)
    }
    extra = pieces.take_side_channel(fields)
    named: dict[str, Any] = {"model": model} if model else {"model": fields.get("model")}
    for name in _OURS:
        fields.pop(name, None)
    return (
        # The object stays open: `request` adds the items, which differ from turn to turn.
        pieces.encode({**named, **pieces.decode_fields(extra_body), **fields, **extra})[:-1] + b',"input":['
    )


def answer(body: bytes) -> Raw:
    """The response object in a body: the body itself if its fields have the right types.

    Raises:
        FailedAnswer: the response has the status ``failed``.
        ForeignAnswer: the body holds no response.
    """
    try:
        response = decode_response(body)
    except UNREADABLE:
        return _repaired(body)
    # The output has a default, so that an object of another kind decodes, too.
    if not response.output and b'"output"' not in body:
        raise ForeignAnswer("no 'output'")
    if response.status == "failed":
        raise FailedAnswer
    return Raw(body)


class _Echo(msgspec.Struct):
    instructions: Raw = NULL
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    metadata: Raw = NULL
    parallel_tool_calls: bool = True
    prompt_cache_key: str | None = None
    reasoning: Raw = NULL
    safety_identifier: str | None = None
    service_tier: str | None = None
    store: bool | None = None
    temperature: float | None = None
    text: Raw = NULL
    tool_choice: Raw = Raw(b'"auto"')
    tools: list[Raw] = []
    top_logprobs: int | None = None
    top_p: float | None = None
    truncation: str | None = None
    user: str | None = None


_decode_echo = msgspec.json.Decoder(_Echo).decode


@lru_cache(maxsize=256)
def echo(params: bytes) -> Mapping[str, Any]:
    """The fields of a request that its response repeats, as fields of `Response`: for answers made here.

    Decoded once for all turns of a rollout, and of its group.
    """
    fields = {
        name: value for name, value in pieces.decode_fields(params).items() if not pieces.is_null(value)
    }
    try:
        pieces.take_side_channel(fields)
        return msgspec.structs.asdict(_decode_echo(pieces.encode(fields)))
    except (TaskError, *UNREADABLE):  # an engine accepted this request
        return {}


def overflow(model: str, repeated: Mapping[str, Any] = MappingProxyType({})) -> Raw:
    """The answer of an engine whose context is too short for the conversation: incomplete, and empty.

    ``repeated`` is the result of `echo`.
    """
    identity = pieces.identity()
    return Raw(
        pieces.encode(
            Response(
                id=f"resp_{identity}",
                created_at=float(int(time.time())),
                model=model,
                status="incomplete",
                incomplete_details=IncompleteDetails(reason="max_output_tokens"),
                usage=Usage(),
                **repeated,
            )
        )
    )


def _repaired(body: bytes) -> Raw:
    try:
        found = _decode_lenient(body)
    except UNREADABLE as error:
        raise ForeignAnswer(str(error)) from error
    if found.status == "failed":
        raise FailedAnswer
    repaired = Response(
        id=str(found.id or f"resp_{pieces.identity()}"),
        created_at=_convert(found.created_at, float) or time.time(),
        model=str(found.model or ""),
        output=found.output,
        status=str(found.status or "completed"),
        incomplete_details=_convert(found.incomplete_details, IncompleteDetails),
        usage=_convert(found.usage, Usage),
    )
    return Raw(pieces.encode(repaired))


def _convert(value: Any, kind: type[Any]) -> Any:
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        return None
