"""One engine, in whichever of OpenAI's two dialects it speaks."""

from __future__ import annotations

from typing import Literal, Self

import msgspec
from gym_runtime.messages.calls import ModelAnswer, ModelCall
from gym_runtime.model import CallContext

from gym_models.wire import chat_answer, chat_request, chat_stream, chat_tokens, responses
from gym_models.wire.chat_request import Dialect
from gym_models.wire.endpoint import Endpoint
from gym_models.wire.failures import failure, is_context_overflow, not_an_answer
from gym_models.wire.http import Answer, Authorize, Pool
from gym_models.wire.pace import Pace
from gym_models.wire.responses import ForeignAnswer

Api = Literal["auto", "responses", "chat"]
NO_SUCH_API = (404, 405, 501)


class Engine:
    """Asks one engine. Any number of calls may be in flight.

    With ``auto`` a call goes to the Responses API first and, where the engine has none, to Chat
    Completions. Once an answer has shown which one it is, `api` stays that for good. Only a call that wants
    tokens goes to Chat Completions whatever the engine has, because no engine gives them elsewhere.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        model: str,
        api: Api,
        extra_body: bytes = b"{}",
        dialect: Dialect,
        authorize: Authorize | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.model = model
        self.api: Api = api
        self._free = api == "auto"
        # llama.cpp closes a connection after a stream and does not say so.
        self.pool = Pool(endpoint, reuse=not dialect.stream, authorize=authorize)
        self._pace = Pace(endpoint.url)
        self._extra_body = extra_body
        self._dialect = dialect

    async def __aenter__(self) -> Self:
        await self.pool.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.pool.__aexit__()

    async def respond(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        """Answer one call; see `gym_runtime.model.Adapter.respond`."""
        if self.api == "chat" or (self._free and call.return_tokens):
            return await self._chat(call, context)
        if self.api == "responses":
            return await self._responses(call, context)
        return await self._whichever(call, context)

    async def _whichever(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        answer = await self._post(
            responses.PATH, responses.request(call, self.model, self._extra_body), context
        )
        if answer.status not in NO_SUCH_API:
            try:
                found = self._response(answer, call)
            except ForeignAnswer:
                pass
            else:
                self.api = "responses"
                return found
        found = await self._chat(call, context)
        self.api = "chat"
        return found

    async def _responses(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        answer = await self._post(
            responses.PATH, responses.request(call, self.model, self._extra_body), context
        )
        try:
            return self._response(answer, call)
        except ForeignAnswer as error:
            raise not_an_answer(answer, self.endpoint, str(error)) from error

    def _response(self, answer: Answer, call: ModelCall) -> ModelAnswer:
        if answer.status >= 300:
            return self._overflow_or_raise(answer, call)
        return ModelAnswer(response=responses.answer(answer.body))

    async def _chat(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        body = chat_request.request(call, self.model, self._extra_body, self._dialect)
        answer = await self._post(chat_request.PATH, body, context)
        if answer.status >= 300:
            return self._overflow_or_raise(answer, call)
        try:
            if call.return_tokens:
                completion, tokens = chat_tokens.decode(answer.body)
            else:
                completion = (chat_stream if self._dialect.stream else chat_answer).decode(answer.body)
                tokens = None
            repeated = responses.echo(bytes(call.params))
            return ModelAnswer(response=chat_answer.response(completion, repeated), tokens=tokens)
        except (ForeignAnswer, msgspec.DecodeError) as error:
            raise not_an_answer(answer, self.endpoint, str(error)) from error

    def _overflow_or_raise(self, answer: Answer, call: ModelCall) -> ModelAnswer:
        if is_context_overflow(answer):
            return ModelAnswer(response=responses.overflow(self.model, responses.echo(bytes(call.params))))
        raise failure(answer, self.endpoint)

    async def _post(self, path: str, body: bytes, context: CallContext) -> Answer:
        number = await self._pace.turn(context.deadline_s)
        headers = self._affinity(context) if self.endpoint.private else context.headers
        answer = await self.pool.post(path, body, deadline_s=context.deadline_s, headers=headers or None)
        self._pace.heard(number, answer.status, answer.headers)
        return answer

    def _affinity(self, context: CallContext) -> dict[str, str]:
        """What keeps a rollout at one engine behind a router: vLLM's router reads one, SGLang's the other."""
        return {
            **context.headers,
            "x-session-id": context.rollout,
            "x-smg-routing-key": context.rollout,
        }
