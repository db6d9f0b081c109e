"""One vLLM: OpenAI's dialects for plain calls, the token endpoints where tokens are wanted.

An exact call is rendered, generated and parsed by the engine in three requests, so that templates, tool
parsers, reasoning parsers and grammars are the engine's own and nothing is tokenized here. Where earlier
turns' tokens are known, the prompt starts with them (`splice`). What comes back is what the engine says it
saw and produced.

An engine without ``--enable-scale-out`` is asked in Chat Completions with ``return_token_ids``: those ids
are the engine's too, but every turn's prompt is rendered anew from text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec
from gym_runtime.logs import logger
from gym_runtime.messages.calls import ModelAnswer, ModelCall, Prefix, WeightSpan
from gym_runtime.messages.items import Reasoning, decode_item
from gym_runtime.messages.packing import unpack_ids
from gym_runtime.model import CallContext
from msgspec import Raw
from msgspec.structs import replace

from gym_models.vllm_engine import tokens
from gym_models.vllm_engine.splice import splice
from gym_models.vllm_engine.tokens import Choice, Generated, Rendering
from gym_models.wire import chat_answer, chat_request, responses
from gym_models.wire.chat_request import Dialect
from gym_models.wire.endpoint import Endpoint
from gym_models.wire.engine import Api, Engine
from gym_models.wire.failures import not_an_answer
from gym_models.wire.http import Answer
from gym_models.wire.pieces import encode
from gym_models.wire.responses import ForeignAnswer

_NOT_ENABLED = (403, 404, 405, 501)
_UNPROMPTED = b',"add_generation_prompt":false}'

T = TypeVar("T")


class _Refused(Exception):
    """The engine answered one of an exact call's requests with an error."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


class VllmEngine(Engine):
    """Asks one vLLM; see `wire.engine.Engine`.

    Args:
        exact: use the token endpoints where there are any.

    Attributes:
        version: what the weights are called as far as is known here; empty if the engine does not say.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        model: str,
        api: Api,
        extra_body: bytes = b"{}",
        dialect: Dialect,
        exact: bool = True,
    ) -> None:
        super().__init__(endpoint, model=model, api=api, extra_body=extra_body, dialect=dialect)
        self.version = ""
        self._exact = exact
        self.root = endpoint.url.removesuffix("/v1")

    async def respond(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        """Answer one call; see `gym_runtime.model.Adapter.respond`."""
        if call.return_tokens and self._exact:
            try:
                return await self._exactly(call, context)
            except _Refused as refused:
                if refused.answer.status not in _NOT_ENABLED:
                    return self._overflow_or_raise(refused.answer, call)
                self._exact = False
                logger().warning(
                    "turns are rendered anew from text: start vLLM with --enable-scale-out for exact tokens",
                    url=self.endpoint.url,
                )
        before = self.version
        answer = await (self._chat(call, context) if call.return_tokens else super().respond(call, context))
        return self._stamped(answer, before)

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
        prompt, features = whole.token_ids, None
        if call.prefix is not None:
            prompt, features = await self._continued(call, call.prefix, whole, context)
        body = tokens.generate_request(whole, prompt, features)
        generated = await self._ask(self.root + tokens.GENERATE, body, Generated, context)
        said = tokens.tokens(generated)
        self.version = said.weights[-1].version if said.weights else self.version
        response = await self._parsed(call, generated, context)
        return ModelAnswer(response=response, tokens=said, weight_version=self.version or None)

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

    async def _continued(
        self, call: ModelCall, prefix: Prefix, whole: Rendering, context: CallContext
    ) -> tuple[list[int], Raw | None]:
        """The prompt that starts with the tokens so far, or the whole rendering where that cannot be."""
        items = call.input[: prefix.items]
        history = await self._render(call, context, items)
        so_far = unpack_ids(prefix.ids)
        prompt = splice(so_far, history.token_ids, whole.token_ids)
        if prompt is None or await self._drops_thinking(items, so_far, history.token_ids, context):
            return whole.token_ids, None
        if not bytes(whole.features) or bytes(whole.features) == b"null":
            return prompt, None
        features = tokens.moved_features(whole, prompt, so_far, history.token_ids)
        return (whole.token_ids if features is None else prompt), features

    async def _drops_thinking(
        self, items: Iterable[Raw], so_far: list[int], history: list[int], context: CallContext
    ) -> bool:
        """Whether the tokens so far hold thinking that the template no longer shows the model."""
        thoughts = [thought for item in items if (thought := _thought(item))]
        if not thoughts:
            return False
        shown = await self._text(history, context)
        hidden = [thought for thought in thoughts if thought not in shown]
        if not hidden:
            return False
        held = await self._text(so_far, context)
        return any(thought in held for thought in hidden)

    async def _text(self, ids: list[int], context: CallContext) -> str:
        body = encode({"model": self.model, "tokens": ids})
        return (await self._ask(self.root + tokens.DETOKENIZE, body, tokens.Text, context)).prompt

    async def _parsed(self, call: ModelCall, generated: Generated, context: CallContext) -> Raw:
        """The response that the completion's tokens amount to, by the engine's own parsers."""
        choice = generated.choices[0]
        if tokens.answered(choice):
            body = tokens.derender_request(generated, self._chat_body(call, ()))
            answer = await self._post(tokens.DERENDER, body, context)
            if answer.status >= 300:
                raise _Refused(answer)
        else:
            answer = Answer(200, {}, _nothing(generated, self.model))
        try:
            completion = chat_answer.decode(answer.body)
            _amend(completion, choice)
            return chat_answer.response(completion, responses.echo(bytes(call.params)))
        except (ForeignAnswer, msgspec.DecodeError) as error:
            raise not_an_answer(answer, self.endpoint, str(error)) from error

    def _chat_body(self, call: ModelCall, items: Sequence[Raw]) -> bytes:
        return chat_request.request(
            replace(call, input=list(items)), self.model, self._extra_body, self._dialect
        )

    async def _ask(self, path: str, body: bytes, kind: type[T], context: CallContext) -> T:
        return self._decoded(await self._post(path, body, context), kind)

    def _decoded(self, answer: Answer, kind: type[T]) -> T:
        if answer.status >= 300:
            raise _Refused(answer)
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except msgspec.DecodeError as error:
            raise not_an_answer(answer, self.endpoint, str(error)) from error


def _thought(raw: Raw) -> str:
    """The thinking of a reasoning item; empty for every other."""
    if b'"reasoning"' not in bytes(raw):
        return ""
    item = decode_item(raw)
    return item.text.strip() if isinstance(item, Reasoning) else ""


def _amend(completion: chat_answer.Completion[chat_answer.Choice], choice: Choice) -> None:
    """Count the token that ended the completion, and take off the stop string at which it ended."""
    if completion.usage is not None:
        completion.usage.completion_tokens = len(choice.token_ids or [])
    message = completion.choices[0].message
    if isinstance(choice.stop_reason, str) and bytes(message.content).startswith(b'"'):
        text, found, _ = msgspec.json.decode(message.content, type=str).rpartition(choice.stop_reason)
        if found:
            message.content = Raw(encode(text))


def _nothing(generated: Generated, model: str) -> bytes:
    """The completion of a model that had nothing to say."""
    choice, prompt = generated.choices[0], len(generated.prompt_token_ids or [])
    said = len(choice.token_ids or [])
    message: dict[str, Any] = {"message": {"content": ""}, "finish_reason": choice.finish_reason}
    usage = {"prompt_tokens": prompt, "completion_tokens": said, "total_tokens": prompt + said}
    return encode({"model": model, "choices": [message], "usage": usage})
