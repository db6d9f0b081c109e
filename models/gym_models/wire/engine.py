"""One engine that speaks one of OpenAI's two APIs, or both; or only completions, for base models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, Self

from gym_faces.dialects import (
    ChatVariant,
    FailedAnswer,
    ForeignAnswer,
    chat_answer,
    chat_request,
    chat_tokens,
    completions,
    responses_api,
    side_channel,
)
from gym_runtime.adapters import CallContext, ModelAnswer, ModelCall
from gym_runtime.errors import UNREADABLE, ModelLimited, ModelRefused
from gym_runtime.logs import logger

from gym_models.wire import media, native
from gym_models.wire.endpoint import Endpoint
from gym_models.wire.failures import failed, failure, is_context_overflow, not_an_answer, passed_on
from gym_models.wire.http import Answer, Authorize, Pool
from gym_models.wire.native import Computer
from gym_models.wire.rate_limit import AnnouncedLimit

Api = Literal["auto", "responses", "chat", "completions"]
NO_SUCH_API = (404, 405, 501)


class Engine:
    """Calls one engine. Any number of calls may be in flight.

    With ``auto`` a call goes to the Responses API first and, where the engine has none, to Chat
    Completions. The first answer that shows which one the engine has fixes `api`. Only a call for tokens, or
    with a sampling parameter that the Responses API lacks, always goes to Chat Completions, because no engine
    offers these in the Responses API.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        model: str,
        api: Api,
        extra_body: bytes = b"{}",
        dialect: ChatVariant,
        authorize: Authorize | None = None,
        media_hosts: Sequence[str] = (),
        computer: Computer | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.model = model
        self.api: Api = "responses" if computer and api == "auto" else api
        self._free = self.api == "auto"
        # llama.cpp closes a connection after a stream without announcing it.
        self.pool = Pool(endpoint, reuse=not dialect.stream, authorize=authorize)
        self._limit = AnnouncedLimit(endpoint.url)
        self._extra_body = extra_body
        self._dialect = dialect
        self._left_out: set[str] = set()
        self._media_hosts = media_hosts
        self._computer: Computer | None = computer

    async def __aenter__(self) -> Self:
        await self.pool.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.pool.__aexit__()

    async def respond(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        """Answer one call; see `gym_runtime.workers.adapter.Adapter.respond`."""
        if self.api == "completions":
            return await self._completion(call, context)
        call = side_channel.with_audio(call)
        await media.check(call, self._media_hosts, context.notes)
        if self._computer is not None and not call.return_tokens:
            return await self._natively(self._computer, call, context)
        beyond = side_channel.beyond_responses(bytes(call.params))
        if self.api == "chat" or (self._free and (call.return_tokens or beyond)):
            return await self._chat(call, context, beyond)
        side_channel.require(
            beyond,
            side_channel.RESPONSES,
            f"{self.endpoint.url} is called by the Responses API ('api: chat' selects the other one), which",
        )
        if self.api == "responses":
            if call.return_tokens:
                raise ModelRefused(
                    f"{self.endpoint.url} is called by the Responses API, which has no token ids: leave the "
                    "api out, or select 'chat'",
                    stage="model",
                )
            return await self._responses(call, context)
        return await self._whichever(call, context)

    async def _whichever(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        answer = await self._post(
            responses_api.PATH, responses_api.write_request(call, self.model, self._extra_body), context
        )
        foreign = None
        if answer.status not in NO_SUCH_API:
            try:
                found = self._response(answer, call)
            # Something else answers at that path, such as a proxy: that decides nothing.
            except ForeignAnswer as error:
                foreign = (answer, error)
            else:
                self.api = "responses"
                return found
        return await self._chat_instead(call, context, foreign)

    async def _chat_instead(
        self, call: ModelCall, context: CallContext, foreign: tuple[Answer, ForeignAnswer] | None = None
    ) -> ModelAnswer:
        try:
            found = await self._chat(call, context, foreign=foreign)
        except ModelLimited:
            # It has this API. LiteLLM's proxy rests its engine for seconds after each 404 of the other one.
            self.api = "chat"
            raise
        # Only after an answer: another error does not show which API the engine has.
        self.api = "chat"
        return found

    async def _responses(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        answer = await self._post(
            responses_api.PATH, responses_api.write_request(call, self.model, self._extra_body), context
        )
        if self._free and answer.status in NO_SUCH_API:
            # A proxy, such as LiteLLM's, passed the check before the first call; what is behind it has no
            # such API.
            return await self._chat_instead(call, context)
        try:
            return self._response(answer, call)
        except ForeignAnswer as error:
            return self._foreign(answer, call, error)

    def _response(self, answer: Answer, call: ModelCall) -> ModelAnswer:
        if answer.status >= 300:
            return self._overflow_or_raise(answer, call)
        try:
            return ModelAnswer(response=responses_api.read_answer(answer.body))
        except FailedAnswer as error:
            raise failed(answer, self.endpoint) from error

    async def _chat(
        self,
        call: ModelCall,
        context: CallContext,
        beyond: Sequence[str] = (),
        foreign: tuple[Answer, ForeignAnswer] | None = None,
    ) -> ModelAnswer:
        body = chat_request.write_request(call, self.model, self._extra_body, self._dialect, context.notes)
        answer = await self._post(chat_request.PATH, body, context)
        if foreign is not None and answer.status in NO_SUCH_API:
            # There is no such API to be asked; what answered in the other one's place is the error.
            return self._foreign(foreign[0], call, foreign[1])
        if beyond and self.api != "chat" and answer.status in NO_SUCH_API:
            said = failure(answer, self.endpoint).message
            raise ModelRefused(
                f"{', '.join(beyond)} can only be asked for in Chat Completions, and {said}", stage="model"
            )
        if answer.status >= 300:
            return self._overflow_or_raise(answer, call)
        params = bytes(call.params)
        notes = chat_request.notes(params)
        if notes.left_out:
            self._say_left_out(notes.left_out)
        try:
            tokens = None
            if call.return_tokens:
                completion, tokens = chat_tokens.read_answer(answer.body, context.notes)
            elif self._dialect.stream and not notes.logprobs:
                completion = chat_answer.read_stream(answer.body)
            else:
                completion = chat_answer.read_answer(answer.body)
            logprobs = chat_tokens.shown_logprobs(answer.body) if notes.logprobs else b"null"
            response = chat_answer.response(completion, responses_api.echo(params), logprobs)
            return ModelAnswer(response=response, tokens=tokens)
        except (ForeignAnswer, *UNREADABLE) as error:
            return self._foreign(answer, call, error)

    async def _natively(self, tool: Computer, call: ModelCall, context: CallContext) -> ModelAnswer:
        asked = native.request(tool, call, self.model, self._extra_body, self.endpoint)
        answer = await self._post(asked.path, asked.body, context, asked.headers)
        if answer.status >= 300:
            return self._overflow_or_raise(answer, call)
        try:
            return ModelAnswer(response=native.read(tool, answer.body, call, self.model))
        except FailedAnswer as error:
            raise failed(answer, self.endpoint) from error
        except (ForeignAnswer, *UNREADABLE) as error:
            return self._foreign(answer, call, error)

    async def _completion(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        body = completions.write_request(call, self.model, self._extra_body)
        answer = await self._post(completions.PATH, body, context)
        if answer.status >= 300:
            return self._overflow_or_raise(answer, call)
        try:
            return ModelAnswer(response=completions.read_answer(answer.body, bytes(call.params)))
        except ForeignAnswer as error:
            return self._foreign(answer, call, error)

    def _say_left_out(self, kinds: Iterable[str]) -> None:
        for kind in sorted({*kinds} - self._left_out):
            self._left_out.add(kind)
            logger().warning(
                "a harness offers a hosted tool that engines asked by Chat Completions do not have: left out",
                tool=kind,
                url=self.endpoint.url,
            )

    def _foreign(self, answer: Answer, call: ModelCall, error: Exception) -> ModelAnswer:
        refusal = passed_on(answer)
        if refusal is not None:
            return self._overflow_or_raise(refusal, call)
        raise not_an_answer(answer, self.endpoint, str(error)) from error

    def _overflow_or_raise(self, answer: Answer, call: ModelCall) -> ModelAnswer:
        if is_context_overflow(answer):
            if call.first:
                said = failure(answer, self.endpoint).message
                raise ModelRefused(
                    f"the first prompt does not fit the model's context: {said}", stage="model"
                )
            return ModelAnswer(
                response=responses_api.overflow(self.model, responses_api.echo(bytes(call.params)))
            )
        raise failure(answer, self.endpoint)

    async def _post(
        self, path: str, body: bytes, context: CallContext, login: Mapping[str, str] = MappingProxyType({})
    ) -> Answer:
        number = await self._limit.admit(context.deadline_s)
        headers = self._affinity(context) if self.endpoint.private else context.headers
        headers = {**headers, **login}
        answer = await self.pool.post(path, body, deadline_s=context.deadline_s, headers=headers or None)
        self._limit.answered(number, answer.status, answer.headers)
        return answer

    def _affinity(self, context: CallContext) -> dict[str, str]:
        """Headers that keep a rollout at one engine behind a router: vLLM's router reads one, SGLang's the
        other.
        """
        return {
            **context.headers,
            "x-session-id": context.rollout,
            "x-smg-routing-key": context.rollout,
        }
