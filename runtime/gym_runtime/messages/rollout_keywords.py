# Written by 'python .ci/reference'. Change the code or .ci/reference, not this module.
"""Those keywords of `Client.rollouts` that are settings, for editors and type checkers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict


class SamplingKeywords(TypedDict, total=False):
    """Fields of `Sampling`, and those of a row's ``responses_create_params``."""

    background: bool | None
    chat_template_kwargs: Mapping[str, Any] | None
    extra_body: Mapping[str, Any] | None
    frequency_penalty: float | None
    include: Any
    input: Any
    instructions: str | None
    logit_bias: Mapping[str, float] | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    metadata: Mapping[str, str] | None
    min_p: float | None
    parallel_tool_calls: bool
    presence_penalty: float | None
    previous_response_id: str | None
    prompt: Any
    reasoning: Any
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None
    repetition_penalty: float | None
    seed: int | None
    service_tier: str | None
    stop: Sequence[str] | None
    store: bool | None
    stream: bool | None
    system_prompt: str | None
    temperature: float | None
    text: Any
    tool_choice: Any
    tools: Sequence[Any]
    top_k: int | None
    top_logprobs: int | None
    top_p: float | None
    truncation: str | None
    user: str | None


class GroupKeywords(SamplingKeywords, total=False):
    """As `RolloutKeywords`, where the number of rollouts per row is not among the settings."""

    agent: str | None
    agent_options: Mapping[str, Any]
    call_timeout: float | None
    call_timeout_s: float | None
    durability: Literal["turn", "result"]
    max_attempts: int
    max_staleness: int | None
    max_turns: int | None
    model_pool: str
    priority: int | None
    return_token_ids: bool
    return_tokens: bool
    role_sampling: Mapping[str, Mapping[str, Any]]
    roles: Mapping[str, str]
    sampling: Mapping[str, Any]
    seed_repeats: bool
    share: float | None
    skip_verification: float | None
    timeout: float | None
    timeout_s: float | None


class RolloutKeywords(SamplingKeywords, total=False):
    """Fields of `RolloutSettings`, some also under the names of their flags; and those of the sampling."""

    agent: str | None
    agent_options: Mapping[str, Any]
    call_timeout: float | None
    call_timeout_s: float | None
    durability: Literal["turn", "result"]
    max_attempts: int
    max_staleness: int | None
    max_turns: int | None
    model_pool: str
    priority: int | None
    repeats: int | Mapping[str, int] | None
    return_token_ids: bool
    return_tokens: bool
    role_sampling: Mapping[str, Mapping[str, Any]]
    roles: Mapping[str, str]
    sampling: Mapping[str, Any]
    seed_repeats: bool
    share: float | None
    skip_verification: float | None
    timeout: float | None
    timeout_s: float | None
