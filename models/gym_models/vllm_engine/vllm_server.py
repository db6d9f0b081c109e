"""One vLLM: OpenAI's dialects for plain calls, the token endpoints where tokens are wanted.

An exact call is rendered, generated and parsed by the engine in three requests, so that templates, tool
parsers, reasoning parsers and grammars are the engine's own and nothing is tokenized here. Where earlier
turns' tokens are known, the prompt starts with them (`splice`). The answer holds the tokens that the engine
reports as its prompt and its completion.

An engine without ``--enable-scale-out`` lacks these three endpoints. Its Chat Completions still accept a
prompt as tokens, and parse the answer as usual: so a turn is rendered by ``/tokenize``, spliced, and sent as
tokens. vLLM does not document this, so every answer is checked: the first one, that the engine's prompt
equals what ``/tokenize`` renders (it supports neither ``tool_choice`` nor gpt-oss's own format); the later
ones, that the engine's prompt equals the one which was sent. After one failed check (before vLLM 0.32, or
behind a router), and for conversations with images or sound, every turn is rendered from text again; the ids
are those that the engine reports in any case. ``/v1/completions`` also takes tokens, but parses nothing, and
an engine does not report which parsers it uses.

The servers of NeMo RL and of verl's NeMo Gym recipe have only Chat Completions and ``/tokenize``, and need
not report a prompt. Both take ``required_prefix_token_ids``: the tokens so far, from which they go on. So
each turn is tokenized with that field, for the ids of its prompt, and asked with it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

import msgspec
from gym_faces.dialects import (
    ChatVariant,
    ForeignAnswer,
    chat_answer,
    chat_request,
    chat_tokens,
    pieces,
    responses_api,
)
from gym_runtime.adapters import CallContext, ModelAnswer, ModelCall, WeightSpan
from gym_runtime.errors import UNREADABLE, ModelRefused, TaskError
from gym_runtime.logs import logger
from gym_runtime.messages import pack_ids, unpack_ids
from msgspec import Raw
from msgspec.structs import replace

from gym_models.vllm_engine import log_probs, tokens
from gym_models.vllm_engine.continuation import Prompt, Render, continued
from gym_models.vllm_engine.renderer import RendererPrefixes, renderer_of
from gym_models.vllm_engine.routed import with_experts
from gym_models.vllm_engine.tokens import Generated, Rendering
from gym_models.wire import media
from gym_models.wire.endpoint import Endpoint
from gym_models.wire.engine import Api, Engine
from gym_models.wire.failures import failure, is_context_overflow, not_an_answer
from gym_models.wire.http import Answer

_NOT_ENABLED = (403, 404, 405, 501)
_BAD_REQUEST = (400, 422)
_UNPROMPTED = b',"add_generation_prompt":false}'
_MEDIA = re.compile(rb'"input_(?:image|audio|file|video)"')

T = TypeVar("T")


class Refused(Exception):
    """The engine answered one of an exact call's requests with an error."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


class VllmEngine(Engine):
    """Calls one vLLM; see `wire.engine.Engine`.

    Args:
        exact: go on with the tokens of the turns so far.
        routed_experts: tokens come with the experts to which they went.
        renderer: goes on from the tokens where the template does not: `renderer.renderer_of`.

    Attributes:
        version: the last known version of the weights; empty if the engine does not report it.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        model: str,
        api: Api,
        extra_body: bytes = b"{}",
        dialect: ChatVariant,
        exact: bool = True,
        routed_experts: bool = False,
        renderer: str = "",
        media_hosts: Sequence[str] = (),
    ) -> None:
        super().__init__(
            endpoint,
            model=model,
            api=api,
            extra_body=extra_body,
            dialect=dialect,
            media_hosts=media_hosts,
        )
        self.version = ""
        self._exact = exact
        self._routed = routed_experts
        make = partial(renderer_of, renderer, model)
        self._renderer = RendererPrefixes(make, endpoint.url) if renderer else None
        self._space: dict[int, bool] = {}
        self._scales_out = True
        self._takes_ids: bool | None = None  # by its Chat Completions; None before the first answer
        self._takes_prefix: bool | None = None
        self._knows_log_probs = False

    async def respond(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        """Answer one call; see `gym_runtime.workers.adapter.Adapter.respond`."""
        await media.check(call, self._media_hosts, context.notes)
        if call.return_tokens and self._exact and self._scales_out:
            try:
                return await self._exactly(call, context)
            except Refused as refused:
                if refused.answer.status not in _NOT_ENABLED:
                    return self._overflow_or_raise(refused.answer, call)
                self._scales_out = False
        if call.return_tokens and self._routed:
            what = "the option routed_experts needs a vLLM with --enable-scale-out, and the option exact"
            raise ModelRefused(what, stage="model")
        before = self.version
        answer = await (
            self._by_chat(call, context) if call.return_tokens else super().respond(call, context)
        )
        return self._stamped(answer, before)

    async def count(self, call: ModelCall, context: CallContext) -> int:
        """How many tokens a conversation has; see `gym_runtime.workers.adapter.Counting`."""
        await media.check(call, self._media_hosts, context.notes)
        try:
            return len((await self._tokenize(call, context)).token_ids)
        except Refused as refused:
            error = failure(refused.answer, self.endpoint)
            if refused.answer.status in _NOT_ENABLED:
                raise ModelRefused(
                    "this vLLM has no /tokenize, so it counts no tokens", stage="model"
                ) from None
            if refused.answer.status in _BAD_REQUEST:
                raise TaskError(error.message, stage="model") from None
            raise error from None

    def _stamped(self, answer: ModelAnswer, before: str) -> ModelAnswer:
        """The answer with the version of the weights; no spans where they changed in the meantime."""
        if not self.version:
            return answer
        said = answer.tokens
        if said is not None and before == self.version and said.generation_ids:
            span = WeightSpan(version=before, start=0, end=len(said.generation_ids) // 4)
            said = replace(said, weights=[span])
        return replace(answer, tokens=said, weight_version=self.version)

    # -- exact calls ----------------------------------------------------------------------------------

    async def _exactly(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        whole = await self._render(call, context)
        found = None
        if call.prefix is not None:
            found = await self._continued(call, context, whole, partial(self._render, call, context))
        if found is None and self._renderer is not None and not _has_media(call):
            found = await self._by_renderer(self._renderer, call, whole)
        prompt, features = found or (whole.token_ids, None)
        body = tokens.generate_request(whole, prompt, features)
        if not self._knows_log_probs and log_probs.another_temperature(body):
            self._knows_log_probs = True
            ask = partial(self._post, chat_request.PATH, context=context)
            await log_probs.warn_of_raw(self.model, self.endpoint.url, ask)
        generated = await self._ask(self.root + tokens.GENERATE, body, Generated, context)
        # A router may leave them out.
        generated.prompt_token_ids = generated.prompt_token_ids or prompt
        said = tokens.tokens(generated)
        if self._routed:
            said = with_experts(said, generated)
        self.version = said.weights[-1].version if said.weights else self.version
        response = await self._parsed(call, generated, context)
        return ModelAnswer(response=response, tokens=said, weight_version=self.version or None)

    async def _by_renderer(
        self, renderer: RendererPrefixes, call: ModelCall, whole: Rendering
    ) -> Prompt | None:
        """The prompt that a renderer makes of the tokens so far; a first turn shows whether it can."""
        chat = self._chat_body(call, call.input)
        if call.prefix is None:
            await renderer.compare(chat, whole.token_ids)
            return None
        past = self._chat_body(call, call.input[: call.prefix.items])
        ids = await renderer.continued(call.prefix, chat, past)
        return None if ids is None else Prompt(ids)

    async def _parsed(self, call: ModelCall, generated: Generated, context: CallContext) -> Raw:
        """The response that the engine's own parsers make of the completion's tokens."""
        choice = generated.choices[0]
        if tokens.answered(choice):
            body = tokens.derender_request(generated, self._chat_body(call, ()))
            answer = await self._post(tokens.DERENDER, body, context)
            if answer.status >= 300:
                raise Refused(answer)
        else:
            answer = Answer(200, {}, tokens.empty_completion(generated, self.model))
        try:
            completion = chat_answer.read_answer(answer.body)
            tokens.amend(completion, choice)
            return chat_answer.response(completion, responses_api.echo(bytes(call.params)))
        except (ForeignAnswer, *UNREADABLE) as error:
            raise not_an_answer(answer, self.endpoint, str(error)) from error

    # -- exact calls without the token endpoints ------------------------------------------------------

    async def _by_chat(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        """A chat completion whose prompt starts with the tokens so far, where that can be."""
        if not self._exact or self._takes_ids is False or _has_media(call):
            return await self._chat(call, context)
        if self._takes_prefix:
            return await self._from_prefix(call, context)
        if self._takes_ids is None:
            return await self._first(call, context)
        prompt = await self._prompt(call, context)
        if prompt is None:
            if await self._goes_on(call, context):
                return await self._from_prefix(call, context)
            return await self._chat(call, context)
        answer = await self._chat_from(call, prompt, context)
        if not _saw(answer, prompt):
            return await self._prefix_instead(
                call, context, "it takes no token ids in Chat Completions", answer
            )
        return answer

    async def _first(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        """The chat completion that shows whether ``/tokenize`` renders what the engine sees."""
        try:
            rendered = (await self._tokenize(call, context)).token_ids
        except Refused as refused:
            if refused.answer.status in _NOT_ENABLED:
                self._give_up("it has no /tokenize")
            return await self._chat(call, context)
        answer = await self._chat(call, context)
        if answer.tokens is not None and not answer.tokens.prompt_ids:
            self._takes_prefix = True
            return await self._from_prefix(call, context)
        if not _saw(answer, rendered):
            self._give_up("its chat renders otherwise than its /tokenize")
        elif answer.tokens is not None and self._takes_ids is None:
            self._takes_ids = True
        return answer

    async def _prompt(self, call: ModelCall, context: CallContext) -> list[int] | None:
        if call.prefix is None:
            return None
        try:
            whole = await self._tokenize(call, context)
            found = await self._continued(call, context, whole, partial(self._tokenize, call, context))
        except Refused:  # the chat completion will report the error
            return None
        return None if found is None else found.ids

    def _give_up(self, reason: str) -> None:
        if self._takes_ids is not False:
            self._takes_ids = False
            logger().warning(
                "turns are rendered again from text: start vLLM with --enable-scale-out for exact tokens",
                url=self.endpoint.url,
                reason=reason,
            )

    async def _chat_from(self, call: ModelCall, prompt: list[int], context: CallContext) -> ModelAnswer:
        body = tokens.chat_request_from(self._chat_body(call, call.input), prompt)
        answer = await self._post(chat_request.PATH, body, context)
        if answer.status in _BAD_REQUEST and not is_context_overflow(answer):
            return await self._prefix_instead(call, context, "it refuses token ids in Chat Completions")
        if answer.status >= 300:
            return self._overflow_or_raise(answer, call)
        return self._completed(answer, call)

    # -- exact calls of NeMo RL's servers -------------------------------------------------------------

    async def _prefix_instead(
        self, call: ModelCall, context: CallContext, reason: str, answer: ModelAnswer | None = None
    ) -> ModelAnswer:
        """The turn again by `_from_prefix`, if the engine can; else ``answer``, or a plain chat."""
        if await self._goes_on(call, context):
            return await self._from_prefix(call, context)
        self._give_up(reason)
        return answer or await self._chat(call, context)

    async def _goes_on(self, call: ModelCall, context: CallContext) -> bool:
        """Whether the engine goes on from the tokens so far; it is found out once."""
        if call.prefix is not None and self._takes_prefix is None:
            with suppress(Refused):
                rendered, so_far = await self._rendered_from(call, context)
                self._takes_prefix = rendered[: len(so_far)] == so_far
        return call.prefix is not None and bool(self._takes_prefix)

    async def _from_prefix(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        """A chat completion that goes on from the tokens so far; `tokens.with_prefix`."""
        try:
            prompt, so_far = await self._rendered_from(call, context)
        except Refused as refused:
            return self._overflow_or_raise(refused.answer, call)
        body = tokens.with_prefix(self._chat_body(call, call.input), so_far, ids_named=True)
        answer = await self._post(chat_request.PATH, body, context)
        if answer.status >= 300:
            return self._overflow_or_raise(answer, call)
        found = self._completed(answer, call)
        if found.tokens is None or not found.tokens.generation_ids:
            self._give_up("it reports no token ids")
        elif found.tokens.prompt_ids and not found.tokens.prompt_ids.startswith(pack_ids(so_far)):
            self._takes_prefix = False  # the rendering began with these tokens by chance
        elif not found.tokens.prompt_ids:
            found = replace(found, tokens=replace(found.tokens, prompt_ids=pack_ids(prompt)))
        return found

    # -- the requests ---------------------------------------------------------------------------------

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
            response = chat_answer.response(completion, responses_api.echo(bytes(call.params)))
        except (ForeignAnswer, *UNREADABLE) as error:
            return self._foreign(answer, call, error)
        return ModelAnswer(response=response, tokens=said)

    def _chat_body(self, call: ModelCall, items: Sequence[Raw], dialect: ChatVariant | None = None) -> bytes:
        return chat_request.write_request(
            replace(call, input=list(items)), self.model, self._extra_body, dialect or self._dialect
        )

    async def _continued(
        self, call: ModelCall, context: CallContext, whole: Rendering, render: Render
    ) -> Prompt | None:
        assert call.prefix is not None
        text, is_space = partial(self._text, context), partial(self._is_space, context)
        return await continued(call.prefix, call.input, whole, render, text, is_space)

    async def _is_space(self, context: CallContext, token: int) -> bool:
        if token not in self._space:  # one request for each token that ends turns
            text = ""
            with suppress(Refused):
                text = await self._text(context, [token])
            self._space[token] = text.isspace()
        return self._space[token]

    async def _text(self, context: CallContext, ids: list[int]) -> str:
        body = pieces.encode({"model": self.model, "tokens": ids})
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


def _saw(answer: ModelAnswer, prompt: list[int]) -> bool:
    """Whether the engine reports this as its prompt; true also if it reports none."""
    return answer.tokens is None or answer.tokens.prompt_ids == pack_ids(prompt)


def _has_media(call: ModelCall) -> bool:
    return any(_MEDIA.search(item) for item in call.input)
