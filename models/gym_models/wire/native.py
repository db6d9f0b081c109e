"""The computer tools that models know by themselves: which API each is asked by, and with which headers.

    =============================================  =====================================================
    ``computer``, ``computer_use_preview``         OpenAI's Responses API
    ``computer_20250124``, ``computer_20251124``,  Anthropic's Messages API; its base URL ends in ``/v1``
    ``computer_toolset_20260801``
    ``gemini``                                     Gemini's ``generateContent``; ends in ``/v1beta``
    =============================================  =====================================================

A call for tokens never comes here: tokens to train are those of a function's call.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from gym_faces.dialects import computer_items, gemini_engine, messages_engine, responses_api
from gym_runtime.adapters import ModelCall
from msgspec import Raw

from gym_models.wire.endpoint import Endpoint

Computer = Literal[
    "computer",
    "computer_use_preview",
    "computer_20250124",
    "computer_20251124",
    "computer_toolset_20260801",
    "gemini",
]


class Native(NamedTuple):
    """A request in the API of such a tool.

    Attributes:
        path: below the base URL, or a whole address.
        headers: besides those of the endpoint.
    """

    path: str
    headers: dict[str, str]
    body: bytes


def request(tool: Computer, call: ModelCall, model: str, extra_body: bytes, endpoint: Endpoint) -> Native:
    """The request of a call.

    Raises:
        TaskError: the row holds what the API cannot carry.
    """
    key = endpoint.headers.get("authorization", "").removeprefix("Bearer ")
    if tool == "gemini":
        path = endpoint.url.removesuffix("/openai") + gemini_engine.path(model)
        login = {"x-goog-api-key": key} if key else {}
        return Native(path, login, gemini_engine.write_request(call, extra_body))
    if tool in ("computer", "computer_use_preview"):
        call = computer_items.natively(call, tool)
        return Native(responses_api.PATH, {}, responses_api.write_request(call, model, extra_body))
    headers = {"anthropic-version": messages_engine.VERSION}
    if beta := messages_engine.BETAS[tool]:
        headers["anthropic-beta"] = beta
    if key:
        headers["x-api-key"] = key
    body = messages_engine.write_request(call, model, extra_body, tool)
    return Native(messages_engine.PATH, headers, body)


def read(tool: Computer, body: bytes, call: ModelCall, model: str) -> Raw:
    """The response object in an engine's body.

    Raises:
        FailedAnswer: see `responses_api.read_answer`.
        ForeignAnswer: it is not an answer of this API.
    """
    if tool in ("computer", "computer_use_preview"):
        return computer_items.functions(responses_api.read_answer(body))
    repeated = responses_api.echo(bytes(call.params))
    if tool == "gemini":
        return gemini_engine.read_answer(body, call, model, repeated)
    return messages_engine.read_answer(body, repeated)
