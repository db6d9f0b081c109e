"""A verifier's result, the verdict, and its input, the model's reply."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from numbers import Real
from typing import Any

import msgspec
from msgspec import Raw

from gym_runtime.errors import NOT_JSON, ResourceError
from gym_runtime.messages.responses import (
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    Response,
    decode_items,
    decode_response,
    encode_item,
)
from gym_runtime.messages.transcripts import encoded


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """A reward and its reasons.

    Attributes:
        reward: any finite number; most verifiers stay within 0 and 1.
        components: named parts of a composed reward.
        fields: further top-level fields of the result row, such as ``extracted_answer``; metrics are computed
            of numeric ones. Values must be JSON-serialisable; numpy's are, too.
        rewards: with several trained seats, the reward of each, by its name; ``reward`` is the main seat's.
    """

    reward: float
    components: dict[str, float] = {}
    fields: dict[str, Any] = {}
    rewards: dict[str, float] = {}

    def checked(self) -> Verdict:
        """This verdict with plain numbers: those of numpy are taken, too.

        Raises:
            ResourceError: a reward or a component is not a finite number, or a name or a field is not JSON.
        """
        for name in ("components", "fields", "rewards"):
            if not isinstance(value := getattr(self, name), dict):
                what = f"the verifier returned {name} = {value!r}; it must be a dict"
                raise ResourceError(what, stage="verify")
        fields, names = self.fields, dict.fromkeys((*self.components, *self.rewards))
        try:
            msgspec.json.encode((fields, names))
        except NOT_JSON:
            fields, names = _as_json(fields), _as_json(names)
        return Verdict(
            finite("reward", self.reward),
            {name: finite(name, value) for name, value in self.components.items()},
            fields,
            {name: finite(name, value) for name, value in self.rewards.items()},
        )


class Pending(msgspec.Struct, frozen=True):
    """Instead of a verdict: the reward comes from the comparison of the whole group.

    Attributes:
        features: what the environment's ``compare`` has to know of this rollout: a struct, or values of JSON.
    """

    features: Any


def finite(name: str, value: object, stage: str = "verify") -> float:
    """A reward, or a part of it, as a float.

    Raises:
        ResourceError: it is no finite number. Booleans, and integers too large for a float, are refused, too.
    """
    with suppress(OverflowError):
        if value is not True and value is not False and isinstance(value, Real) and math.isfinite(value):
            return float(value)
    who = "the verifier" if stage == "verify" else stage
    what = f"{who} returned {name} = {value!r}; it must be a finite number: float(...)"
    raise ResourceError(what, stage=stage)


def _as_json(fields: Mapping[str, object]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in fields.items():
        try:
            made |= msgspec.json.decode(encoded({name: value}))
        except NOT_JSON as error:
            what = f"the verdict's field {name!r} is not JSON: {error}"
            raise ResourceError(what, stage="verify") from error
    return made


class Reply:
    """The result of a rollout: a response whose output is the whole transcript.

    ``items`` are the model's messages, reasoning and function calls, and the tools' outputs between them, in
    order, without the row's own input. Fields are decoded when they are first read.
    """

    def __init__(self, response: Raw | bytes) -> None:
        self.raw = response

    @cached_property
    def response(self) -> Response:
        return decode_response(self.raw)

    @cached_property
    def items(self) -> list[Item]:
        return decode_items(self.response.output)

    @cached_property
    def messages(self) -> list[Message]:
        """The assistant's messages, in order."""
        return [item for item in self.items if isinstance(item, Message) and item.role == "assistant"]

    @cached_property
    def function_calls(self) -> list[FunctionCall]:
        return [item for item in self.items if isinstance(item, FunctionCall)]

    @cached_property
    def tool_outputs(self) -> list[FunctionCallOutput]:
        return [item for item in self.items if isinstance(item, FunctionCallOutput)]

    @property
    def text(self) -> str:
        """The text of the assistant's last message; empty without such a message."""
        return self.messages[-1].text if self.messages else ""

    @property
    def all_text(self) -> str:
        """The texts of all the assistant's messages, concatenated."""
        return "".join(message.text for message in self.messages)

    @property
    def joined_text(self) -> str:
        """All ``output_text`` parts of all the assistant's messages, without a separator, trimmed."""
        return "".join(
            text for message in self.messages for text in _texts(message, only="output_text")
        ).strip()

    @property
    def lines_text(self) -> str:
        """The text of every part of every message of the assistant, joined by newlines, trimmed."""
        return "\n".join(text for message in self.messages for text in _texts(message)).strip()

    @property
    def last_item_text(self) -> str:
        """The first content part of the last output item; empty if that is not text of the assistant.

        It is empty if a call, reasoning or a tool's output follows the last message, or if the first part is
        a refusal.
        """
        last = self.items[-1] if self.items else None
        if not isinstance(last, Message) or last.role != "assistant":
            return ""
        if isinstance(last.content, str):
            return last.content
        return (last.parts[0].text or "") if last.parts else ""

    @classmethod
    def of(cls, *items: Mapping[str, Any] | str) -> Reply:
        """A reply for tests and examples, from items; a string is an assistant's message.

        >>> Reply.of("It is \\\\boxed{B}.").text
        'It is \\\\boxed{B}.'
        """
        return cls(make_response(*items))

    @classmethod
    def of_items(cls, items: Sequence[Item]) -> Reply:
        """A part of a transcript that was read before; its items are not decoded again."""
        reply = cls(encoded({"output": [encode_item(item) for item in items]}))
        reply.items = list(items)
        return reply


def _texts(message: Message, only: str | None = None) -> Iterator[str]:
    """The texts of a message's parts, of one type or of all types; a plain text counts as one part."""
    if isinstance(message.content, str):
        yield message.content
        return
    for part in message.parts:
        if part.text is not None and only in (None, part.type):
            yield part.text


def make_response(*items: Mapping[str, Any] | str) -> bytes:
    """The JSON of a response that holds these output items; a string is an assistant's message."""
    output: list[Mapping[str, Any]] = [
        {
            "id": f"msg_{index}",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": item, "annotations": []}],
        }
        if isinstance(item, str)
        else item
        for index, item in enumerate(items)
    ]
    return encoded({"id": "resp_0", "object": "response", "status": "completed", "output": output})
