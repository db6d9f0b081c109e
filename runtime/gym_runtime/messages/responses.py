"""The two ends of a model call: ``responses_create_params`` of a row, and the response that came back.

Both keep every field of the OpenAI Responses API that result rows show, nulls included, because programs
that read such rows index them. Fields that are only passed on stay raw.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from gym_runtime.messages.items import user_message

NULL = Raw(b"null")
"""The default of optional raw fields: msgspec does not decode ``Raw | None``."""
_EMPTY_LIST = Raw(b"[]")
_AUTO = Raw(b'"auto"')


class CreateParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row's ``responses_create_params``: the input and how to sample.

    Source: OpenAI Responses API, "Create a model response", the non-streaming fields.
    """

    background: bool | None = None
    include: Raw = NULL
    input: Raw = _EMPTY_LIST
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    metadata: dict[str, str] | None = None
    model: str | None = None
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    prompt: Raw = NULL
    reasoning: Raw = NULL
    service_tier: str | None = None
    store: bool | None = None
    temperature: float | None = None
    text: Raw = NULL
    tool_choice: Raw = _AUTO
    tools: list[Raw] = []
    top_logprobs: int | None = None
    top_p: float | None = None
    truncation: str | None = None
    user: str | None = None
    stream: bool | None = None

    def input_items(self) -> list[Raw]:
        """The input as a list of raw items; a string is one user message."""
        if bytes(memoryview(self.input)[:1]) == b'"':
            return [user_message(msgspec.json.decode(self.input, type=str))]
        # Parts of the row's own bytes: a copy would be held for as long as the rollout.
        return list(_raw_list.decode(self.input))


class InputTokensDetails(msgspec.Struct, frozen=True, kw_only=True):
    cached_tokens: int = 0


class OutputTokensDetails(msgspec.Struct, frozen=True, kw_only=True):
    reasoning_tokens: int = 0


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one call, or of a rollout's calls together."""

    input_tokens: int = 0
    input_tokens_details: InputTokensDetails | None = InputTokensDetails()
    output_tokens: int = 0
    output_tokens_details: OutputTokensDetails | None = OutputTokensDetails()
    total_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        cached = [d.cached_tokens for d in (self.input_tokens_details, other.input_tokens_details) if d]
        thought = [d.reasoning_tokens for d in (self.output_tokens_details, other.output_tokens_details) if d]
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            input_tokens_details=InputTokensDetails(cached_tokens=sum(cached)),
            output_tokens=self.output_tokens + other.output_tokens,
            output_tokens_details=OutputTokensDetails(reasoning_tokens=sum(thought)),
            total_tokens=self.total_tokens + other.total_tokens,
        )


class IncompleteDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Why an answer is incomplete: ``max_output_tokens`` (or the context limit) or ``content_filter``."""

    reason: str | None = None


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """An engine's answer, in the fields that result rows show; ``output`` holds raw items."""

    id: str = ""
    created_at: float = 0.0
    error: Raw = NULL
    incomplete_details: IncompleteDetails | None = None
    instructions: Raw = NULL
    metadata: Raw = NULL
    model: str = ""
    object: str = "response"
    output: list[Raw] = []
    parallel_tool_calls: bool = True
    temperature: float | None = None
    tool_choice: Raw = _AUTO
    tools: list[Raw] = []
    top_p: float | None = None
    background: bool | None = None
    conversation: Raw = NULL
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    previous_response_id: str | None = None
    prompt: Raw = NULL
    prompt_cache_key: str | None = None
    reasoning: Raw = NULL
    safety_identifier: str | None = None
    service_tier: str | None = None
    status: str | None = "completed"
    store: bool | None = None
    text: Raw = NULL
    top_logprobs: int | None = None
    truncation: str | None = None
    usage: Usage | None = None
    user: str | None = None


_raw_list = msgspec.json.Decoder(list[Raw])
decode_params = msgspec.json.Decoder(CreateParams).decode
decode_response = msgspec.json.Decoder(Response).decode
