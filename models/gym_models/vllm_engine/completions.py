"""The completion that the engine's parsers made of tokens, completed by what they leave out."""

from __future__ import annotations

from typing import Any

import msgspec
from gym_faces.dialects import chat_answer
from gym_faces.dialects.pieces import encode
from msgspec import Raw

from gym_models.vllm_engine.tokens import Choice, Generated


def amend(completion: chat_answer.Completion[chat_answer.Choice], choice: Choice) -> None:
    """Count the token that ended the completion, and take off the stop string at which it ended."""
    if completion.usage is not None:
        completion.usage.completion_tokens = len(choice.token_ids or [])
    message = completion.choices[0].message
    if isinstance(choice.stop_reason, str) and bytes(message.content).startswith(b'"'):
        text, found, _ = msgspec.json.decode(message.content, type=str).rpartition(choice.stop_reason)
        if found:
            message.content = Raw(encode(text))


def nothing(generated: Generated, model: str) -> bytes:
    """The completion of a model that generated no text."""
    choice, prompt = generated.choices[0], len(generated.prompt_token_ids or [])
    said = len(choice.token_ids or [])
    message: dict[str, Any] = {"message": {"content": ""}, "finish_reason": choice.finish_reason}
    usage = {"prompt_tokens": prompt, "completion_tokens": said, "total_tokens": prompt + said}
    return encode({"model": model, "choices": [message], "usage": usage})
