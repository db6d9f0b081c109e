"""The requests that one vLLM's answers are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec
from gym_faces.dialects import chat_answer, chat_request, chat_tokens, responses
from gym_faces.dialects.chat_request import ChatVariant
from gym_faces.dialects.dialect import ForeignAnswer
from gym_faces.dialects.pieces import encode
from gym_runtime.adapters import CallContext, ModelAnswer, ModelCall
from gym_runtime.errors import UNREADABLE
from gym_runtime.messages import unpack_ids
from msgspec import Raw
from msgspec.structs import replace

from gym_models.vllm_engine import tokens
from gym_models.vllm_engine.tokens import Rendering
from gym_models.wire.engine import Engine
from gym_models.wire.failures import not_an_answer
from gym_models.wire.http import Answer

_UNPROMPTED = b',"add_generation_prompt":false}'

T = TypeVar("T")


class Refused(Exception):
    """The engine answered one of an exact call's requests with an error."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


class VllmRequests(Engine):
    """Asks one vLLM; see `wire.engine.Engine`."""

    @property
    def root(self) -> str:
        """The server's address, where the endpoints are that OpenAI does not have."""
        return self.endpoint.url.removesuffix("/v1")

    async def _render(
        self, call: ModelCall, context: CallContext, items: Sequence[Raw] | None = None
    ) -> Rendering:
        """The whole conversation with a prompt to answer, or the given part of it without one."""
        body = self._chat_body(call, call.input if items is None else items)
        if items is not None:
            body = body[:-1] + _UNPROMPTED
        answer = await self._post(tokens.RENDER, body, context)
        rendering = self._decoded(answer, Rendering)
        rendering.body = answer.body
        return rendering

    async def _tokenize(
        self, call: ModelCall, context: CallContext, items: Sequence[Raw] | None = None
    ) -> Rendering:
        """As `_render`, for an engine without the render endpoint."""
        dialect = self._dialect
        if dialect.reasoning == "reasoning_content":
            dialect = replace(dialect, reasoning="reasoning")
        body = self._chat_body(call, call.input if items is None else items, dialect)
        body = tokens.tokenize_request(body, prompted=items is None)
        found = await self._ask(self.root + tokens.TOKENIZE, body, tokens.Tokenized, context)
        return Rendering(token_ids=found.tokens)

    async def _rendered_from(self, call: ModelCall, context: CallContext) -> tuple[list[int], list[int]]:
        """The prompt of a turn that goes on from the tokens so far, and these."""
        so_far = [] if call.prefix is None else unpack_ids(call.prefix.ids)
        body = tokens.tokenize_request(self._chat_body(call, call.input), prompted=True)
        body = tokens.with_prefix(body, so_far)
        return (await self._ask(self.root + tokens.TOKENIZE, body, tokens.Tokenized, context)).tokens, so_far

    def _completed(self, answer: Answer, call: ModelCall) -> ModelAnswer:
        try:
            completion, said = chat_tokens.read_answer(answer.body)
            response = chat_answer.response(completion, responses.echo(bytes(call.params)))
        except (ForeignAnswer, *UNREADABLE) as error:
            return self._foreign(answer, call, error)
        return ModelAnswer(response=response, tokens=said)

    def _chat_body(self, call: ModelCall, items: Sequence[Raw], dialect: ChatVariant | None = None) -> bytes:
        return chat_request.write_request(
            replace(call, input=list(items)), self.model, self._extra_body, dialect or self._dialect
        )

    async def _text(self, context: CallContext, ids: list[int]) -> str:
        body = encode({"model": self.model, "tokens": ids})
        return (await self._ask(self.root + tokens.DETOKENIZE, body, tokens.Text, context)).prompt

    async def _ask(self, path: str, body: bytes, kind: type[T], context: CallContext) -> T:
        return self._decoded(await self._post(path, body, context), kind)

    def _decoded(self, answer: Answer, kind: type[T]) -> T:
        if answer.status >= 300:
            raise Refused(answer)
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except UNREADABLE as error:
            raise not_an_answer(answer, self.endpoint, str(error)) from error
