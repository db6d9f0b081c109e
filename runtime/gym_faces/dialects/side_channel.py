"""Parameters that the Responses API lacks travel as text in ``metadata``, as NeMo Gym has them.

Which of them an engine has is checked by name before the call is sent. They are those of
`gym_runtime.messages.BEYOND_RESPONSES`, and ``reasoning_effort``. For an unknown engine that speaks OpenAI's
APIs, Chat Completions pass all of them on, and the engine refuses those that it does not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from gym_runtime import TaskError
from gym_runtime.adapters import ModelCall
from gym_runtime.errors import UNREADABLE, ModelRefused
from gym_runtime.messages import BEYOND_RESPONSES, HOSTED_TOOLS, OPTIONAL, refused
from msgspec import Raw
from msgspec.structs import replace

from gym_faces.dialects.pieces import decode_fields, encode, is_null

EFFORT = "reasoning_effort"
ALL = frozenset({*BEYOND_RESPONSES, EFFORT})
OPENAI_CHAT = frozenset({"seed", "stop", "presence_penalty", "frequency_penalty", "logit_bias", EFFORT})
"""Source: OpenAI's API reference, "Create chat completion"."""
RESPONSES = frozenset({EFFORT})


class _Head(msgspec.Struct):
    type: str = "message"
    role: str = ""


_decode_head = msgspec.json.Decoder(_Head).decode
_decode_metadata = msgspec.json.Decoder(dict[str, str]).decode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


def write(metadata: Mapping[str, str], extra: Mapping[str, Any]) -> dict[str, Any]:
    """The ``metadata`` parameter, whose ``extra_body`` has the engine's own settings."""
    if extra:
        metadata = {**metadata, "extra_body": encode(extra).decode()}
    return {"metadata": metadata} if metadata else {}


def tools_are_optional(fields: Mapping[str, Raw]) -> bool:
    """Whether hosted tools that the engine lacks may be left out: a harness offers them, a row never does.

    Call this before `take`, which removes the mark.
    """
    metadata = fields.get("metadata", Raw())
    return not is_null(metadata) and _decode_metadata(metadata).get(HOSTED_TOOLS) == OPTIONAL


def take(fields: dict[str, Raw]) -> Mapping[str, Any]:
    """Take NeMo Gym's string-to-string side channel out of ``metadata``.

    ``metadata.extra_body`` and ``metadata.chat_template_kwargs`` hold JSON as text whose fields belong in the
    body of the request; the mark that `tools_are_optional` reads is removed. The rest stays.

    Raises:
        TaskError: one of them is not a JSON object, or holds a field that a row may not set.
    """
    raw = fields.pop("metadata", Raw())
    if is_null(raw):
        return {}
    try:
        metadata = _decode_metadata(raw)
        metadata.pop(HOSTED_TOOLS, None)
        extra = _decode_object(metadata.pop("extra_body", "{}"))
        kwargs = _decode_object(metadata.pop("chat_template_kwargs", "{}"))
        if kwargs:
            said: Any = extra.get("chat_template_kwargs")
            extra["chat_template_kwargs"] = {**(msgspec.convert(said, dict[str, Any] | None) or {}), **kwargs}
    except UNREADABLE as error:
        raise TaskError(f"responses_create_params.metadata: {error}", stage="model") from error
    if problem := refused(extra):
        raise TaskError(f"responses_create_params.metadata.extra_body: {problem}", stage="model")
    if metadata:
        fields["metadata"] = Raw(encode(metadata))
    return extra


def with_audio(call: ModelCall) -> ModelCall:
    """A call whose ``metadata.audio_url`` is a content part, as NeMo Gym's model server puts it there: after
    the content of the last message of the user with which the row begins.

    Raises:
        TaskError: the metadata names files of the machine that would read them, or no message takes the part.
    """
    params = bytes(call.params)
    if b'"audio_' not in params:
        return call
    fields = decode_fields(params)
    try:
        metadata = {} if is_null(fields.get("metadata", Raw())) else _decode_metadata(fields["metadata"])
    except UNREADABLE as error:
        raise TaskError(f"responses_create_params.metadata: {error}", stage="model") from error
    for name in ("audio_path", "audio_paths", "audio_data"):
        if name in metadata:
            raise TaskError(
                f"responses_create_params.metadata.{name} is not sent: put the sound itself into "
                "metadata.audio_url, as data:audio/wav;base64,…",
                stage="model",
            )
    url = metadata.pop("audio_url", None)
    if url is None:
        return call
    fields["metadata"] = Raw(encode(metadata))
    items, place = list(call.input), _last_of_user(call.input)
    message = decode_fields(items[place])
    content = msgspec.json.decode(message.get("content", b'""'))
    parts = [{"type": "input_text", "text": content}] if isinstance(content, str) else content
    message["content"] = Raw(encode([*parts, {"type": "input_audio", "audio_url": url}]))
    items[place] = Raw(encode(message))
    return replace(call, params=Raw(encode(fields)), input=items)


def _last_of_user(items: Sequence[Raw]) -> int:
    """The place of the last message of the user before anything of the model.

    Raises:
        TaskError: it is missing.
    """
    found = -1
    for place, item in enumerate(items):
        try:
            head = _decode_head(item)
        except UNREADABLE:
            break
        if head.type != "message" or head.role == "assistant":
            break
        if head.role == "user":
            found = place
    if found < 0:
        raise TaskError("metadata.audio_url: the row has no message of the user for it", stage="model")
    return found


def require(asked: Iterable[str], known: frozenset[str], engine: str) -> None:
    """
    Raises:
        ModelRefused: the request has a sampling parameter that the engine does not have; the message names
        both.
    """
    lacking = sorted(ALL.intersection(asked) - known)
    if lacking:
        names = ", ".join(f"'{name}'" for name in lacking)
        raise ModelRefused(
            f"{engine} has no {names}: leave it out, or use an engine that has it", stage="model"
        )


@lru_cache(maxsize=256)
def beyond_responses(params: bytes) -> tuple[str, ...]:
    """The sampling parameters in a call's ``metadata`` that the Responses API lacks.

    Raises:
        TaskError: the ``metadata`` is malformed.
    """
    extra = take(decode_fields(params))
    return tuple(name for name in BEYOND_RESPONSES if name in extra)


def asked(params: Mapping[str, Raw]) -> list[str]:
    """The names of `ALL` in a row's ``responses_create_params``."""
    found = [name for name in take(dict(params)) if name in ALL]
    reasoning = params.get("reasoning", Raw())
    if not is_null(reasoning) and not is_null(decode_fields(reasoning).get("effort", Raw())):
        found.append(EFFORT)
    return found
