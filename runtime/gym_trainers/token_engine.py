"""A trainer's own engine as a model of the system: token ids in, token ids out.

OpenRLHF, verl and SkyRL start their engines, change their weights, and hand a program that makes rollouts a
function: ids of a prompt to ids of a completion. `TokenEngine` is the model adapter around such a function,
and the trainer's process serves it to the system (`gym_runtime.client.serve_model`). So agents, tools,
judges, journals and deadlines are those of every rollout here; the engine and its weights stay the trainer's.

The tokens are exact. A turn's prompt is the ids so far, and after them only what the model's chat template
adds (`gym_runtime.workers.splice`); the ids that the engine sampled are never tokenized again. Where a
template rewrites the past, such as thinking that it drops, a new segment of tokens begins; a renderer goes on
with the one before.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, Self

import anyio
import anyio.to_thread
import msgspec
from gym_runtime.adapters import CallContext, Experts, ModelAnswer, ModelCall, Prefix, Tokens, WeightSpan
from gym_runtime.errors import (
    UNREADABLE,
    GymError,
    ModelRefused,
    ModelUnavailable,
    TaskError,
    UsageError,
)
from gym_runtime.logs import logger
from gym_runtime.messages import (
    CreateParams,
    IncompleteDetails,
    Response,
    Usage,
    chat_messages,
    decode_params,
    pack_ids,
    pack_logprobs,
    unpack_ids,
)
from gym_runtime.workers import splice
from msgspec import Raw

from gym_trainers.hermes import Said, said

_FREE_CHOICE = (b'"auto"', b'"none"', b"null")
_encode = msgspec.json.Encoder().encode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


class Sampled(NamedTuple):
    """What the engine sampled.

    Attributes:
        ids: of the completion, its end token included.
        log_probs: natural logarithms, one per id; None if the engine gave none.
        cut: it ended at a limit.
        version: of the weights, such as ``step-12``; empty if unknown.
        experts: a numpy array of whole numbers, shape (prompt and completion tokens - 1, layers, top_k): the
            experts that the engine chose; None if it does not say.
    """

    ids: list[int]
    log_probs: list[float] | None
    cut: bool = False
    version: str = ""
    experts: Any = None


Generate = Callable[[list[int], dict[str, Any], str], Awaitable[Sampled]]
"""Samples a completion of these ids. The parameters are vLLM's names, ``max_tokens`` always among them; the
text names the rollout, for engines that keep its turns on one replica."""
Read = Callable[[list[int], Sequence[Mapping[str, Any]]], Awaitable[Said]]
"""The parts of an answer, from its ids and the tools that were offered."""
MakeRenderer = Callable[[Any], Any]
"""Makes a renderer for a tokenizer, such as `library_renderer`."""


def library_renderer(tokenizer: Any) -> Any:
    """The renderer of the package ``renderers`` for a tokenizer of Hugging Face; it keeps all thinking.

    The package knows a model by the tokenizer's ``name_or_path``, such as ``Qwen/Qwen3-8B``.

    Raises:
        UsageError: the package is not installed, or has no renderer of this model.
    """
    try:
        base: Any = import_module("renderers.base")
        config: Any = import_module("renderers.configs").AutoRendererConfig(thinking_retention="all")
        return base.create_renderer(tokenizer, config)
    except Exception as error:  # foreign code raises what it likes
        missing = isinstance(error, ModuleNotFoundError)
        made = "pip install 'renderers[transformers]'" if missing else "give a function that makes one"
        what = f"no renderer of the package `renderers`: {type(error).__name__}: {error}"
        raise UsageError(f"{what}; {made}, or leave the renderer out") from error


class TokenEngine:
    """The model adapter around a trainer's engine.

    Args:
        tokenizer: of Hugging Face, with a chat template.
        generate: the trainer's engine.
        context: tokens that a prompt and its completion may have together.
        read: how answers are parsed; by default as Qwen and Hermes models write them (`hermes`).
        renderer: an object with ``render_ids`` and ``bridge_to_next_turn``, as the package ``renderers`` has
            them. Where the chat template rewrites the past, it makes the next prompt from the ids so far. It
            is used after it rendered a first prompt to the very ids of the template.
        template: the trainer's arguments of ``apply_chat_template``, such as ``enable_thinking``; a row's
            own ``chat_template_kwargs`` win over them.
    """

    def __init__(
        self,
        tokenizer: Any,
        generate: Generate,
        *,
        context: int,
        read: Read | None = None,
        renderer: Any = None,
        template: Mapping[str, Any] | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._template = dict(template or {})
        self._generate = generate
        self._context = context
        self._read = read or self._read_hermes
        self._renderer = renderer
        self._renderer_agrees: bool | None = None
        # One thread at a time: a fast tokenizer that two threads use raises "Already borrowed".
        self._one = anyio.CapacityLimiter(1)
        self._in_progress = 0
        self._idle, self._opened = anyio.Event(), anyio.Event()
        self._paused = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    async def respond(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        """Answer one call. A conversation that leaves no room for an answer is answered incomplete.

        Raises:
            TaskError: the conversation cannot be rendered.
            ModelRefused: the row asks for what such an engine cannot do; or its log-probabilities or experts
                are not those of its tokens.
            ModelUnavailable: the engine failed.
        """
        while self._paused:
            await self._opened.wait()
        # From here on `pause` waits for it: it counts while its prompt is rendered, too.
        self._in_progress += 1
        try:
            return await self._respond(call, context)
        finally:
            self._in_progress -= 1
            self._idle.set()

    async def _respond(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        params = decode_params(call.params)
        if bytes(params.tool_choice) not in _FREE_CHOICE:
            raise ModelRefused('a trainer\'s engine cannot enforce a tool_choice; use "auto"', stage="model")
        tools = [] if bytes(params.tool_choice) == b'"none"' else [_chat_tool(tool) for tool in params.tools]
        prompt = await anyio.to_thread.run_sync(self._prompt, call, params, tools, limiter=self._one)
        room = self._context - len(prompt)
        if room <= 0 and call.prefix is None:
            what = f"the prompt has {len(prompt)} tokens, and with its answer it may have {self._context}"
            raise TaskError(f"{what}: leave such rows out of the dataset", stage="model")
        if room <= 0:
            return _answer(Said(""), prompt, Sampled([], None, cut=True))
        sampling = sampling_of(params)
        sampling["max_tokens"] = min(room, params.max_output_tokens or room)
        try:
            sampled = await self._generate(prompt, sampling, context.rollout)
        except GymError:
            raise
        except Exception as error:  # foreign code: its errors become ours here
            what = f"the trainer's engine raised {type(error).__name__}: {error}"
            raise ModelUnavailable(what, stage="model") from error
        return _answer(await self._read(sampled.ids, tools), prompt, sampled)

    async def pause(self) -> None:
        """Begin no more calls until `go_on`; return when those that have begun are answered."""
        # A second pause, such as of an evaluation beside the training, must not replace what is waited for.
        if not self._paused:
            self._paused, self._opened = True, anyio.Event()
        while self._in_progress:
            if self._idle.is_set():
                self._idle = anyio.Event()
            await self._idle.wait()

    def go_on(self) -> None:
        """Ask the engine again."""
        self._paused = False
        self._opened.set()

    def _prompt(self, call: ModelCall, params: CreateParams, tools: list[dict[str, Any]]) -> list[int]:
        """The ids of the next turn's prompt. It computes for a while, so it runs in a thread."""
        own = _decode_object((params.metadata or {}).get("chat_template_kwargs", "{}"))
        arguments = {**self._template, **own}

        def render(items: Sequence[Raw], *, prompted: bool) -> list[int]:
            messages = [_for_template(one) for one in _chat(items, params.instructions)]
            return self._tokenizer.apply_chat_template(
                messages,
                tools=tools or None,
                add_generation_prompt=prompted,
                tokenize=True,
                return_dict=False,
                **arguments,
            )

        try:
            whole = render(call.input, prompted=True)
            if call.prefix is None:
                self._compare(call, tools, whole)
                return whole
            past = render(call.input[: call.prefix.items], prompted=False)
        except Exception as error:  # templates raise what they like
            what = f"the chat template refused the conversation: {type(error).__name__}: {error}"
            raise TaskError(what, stage="model") from error
        so_far = unpack_ids(call.prefix.ids)
        new = call.input[call.prefix.items :]
        special = self._tokenizer.all_special_ids
        return splice(so_far, past, whole, special) or self._bridged(call.prefix, new, tools) or whole

    def _compare(self, call: ModelCall, tools: list[dict[str, Any]], ids: list[int]) -> None:
        """Learn, from the first turn of a conversation, whether the renderer makes what the template does."""
        if self._renderer is None or self._renderer_agrees is not None:
            return
        messages = _chat(call.input, decode_params(call.params).instructions)
        try:
            own = self._renderer.render_ids(messages, tools=tools or None, add_generation_prompt=True)
            self._renderer_agrees = list(own) == ids
            why = "its first prompt has other ids than the chat template's"
        except Exception as error:  # noqa: BLE001 - foreign code; the template renders instead
            self._renderer_agrees, why = False, f"{type(error).__name__}: {error}"
        if not self._renderer_agrees:
            logger().warning("the renderer is not used: the chat template renders every turn", reason=why)

    def _bridged(self, prefix: Prefix, new: Sequence[Raw], tools: list[dict[str, Any]]) -> list[int] | None:
        """The renderer's prompt, which begins with the ids so far; None if it has no such prompt."""
        if not self._renderer_agrees:
            return None
        prompt, completion = prefix.prompt_and_completion
        try:
            said = self._renderer.bridge_to_next_turn(prompt, completion, _chat(new), tools=tools or None)
        except Exception as error:  # noqa: BLE001 - foreign code; the template renders instead
            self._renderer_agrees = False
            reason = f"{type(error).__name__}: {error}"
            logger().warning("the renderer is not used any more: it failed", reason=reason)
            return None
        found = [] if said is None else list(said.token_ids)
        so_far = prompt + completion
        return found if found[: len(so_far)] == so_far else None

    async def _read_hermes(self, ids: list[int], tools: Sequence[Mapping[str, Any]]) -> Said:
        def decode() -> str:
            return self._tokenizer.decode(ids, skip_special_tokens=True)

        return said(await anyio.to_thread.run_sync(decode, limiter=self._one), tools=bool(tools))


def sampling_of(params: CreateParams) -> dict[str, Any]:
    """A call's sampling parameters by vLLM's names, without the limit."""
    sampling = _decode_object((params.metadata or {}).get("extra_body", "{}"))
    for name, value in (("temperature", params.temperature), ("top_p", params.top_p)):
        if value is not None:
            sampling[name] = value
    return sampling


def _chat(items: Sequence[Raw], instructions: str | None = None) -> list[dict[str, Any]]:
    """Messages of Chat Completions."""
    system = [{"role": "system", "content": instructions}] if instructions else []
    return [*system, *chat_messages(items)]


def _for_template(message: dict[str, Any]) -> dict[str, Any]:
    """A message as chat templates read it: content is text, arguments are objects where they are JSON."""
    if message.get("content") is None:
        message["content"] = ""
    for call in message.get("tool_calls", ()):
        try:
            call["function"]["arguments"] = _decode_object(call["function"]["arguments"])
        except UNREADABLE:
            continue  # the model wrote something else, and the template shows it that
    return message


def _chat_tool(tool: Raw) -> dict[str, Any]:
    function = _decode_object(tool)
    if function.pop("type", "") != "function":
        raise ModelRefused("a trainer's engine has function tools only", stage="model")
    return {"type": "function", "function": {name: value for name, value in function.items() if value}}


def _answer(parts: Said, prompt: list[int], sampled: Sampled) -> ModelAnswer:
    identity = uuid.uuid4().hex
    output: list[dict[str, Any]] = []
    if parts.thought:
        summary = [{"type": "summary_text", "text": parts.thought}]
        output.append({"type": "reasoning", "id": f"rs_{identity}", "summary": summary})
    if parts.text or not parts.calls:
        content = [{"type": "output_text", "text": parts.text, "annotations": list[str]()}]
        about = {"type": "message", "id": f"msg_{identity}", "role": "assistant", "status": "completed"}
        output.append({**about, "content": content})
    for number, (name, arguments) in enumerate(parts.calls):
        call = {"call_id": f"call_{identity}_{number}", "name": name, "arguments": arguments}
        output.append({"type": "function_call", "status": "completed", **call})
    read, written = len(prompt), len(sampled.ids)
    log_probs = sampled.log_probs or []
    if log_probs and len(log_probs) != written:
        what = f"the trainer's engine gave {len(log_probs)} log-probabilities of {written} tokens"
        raise ModelRefused(what, stage="model")
    response = Response(
        id=f"resp_{identity}",
        output=[Raw(_encode(item)) for item in output],
        status="incomplete" if sampled.cut else "completed",
        incomplete_details=IncompleteDetails(reason="max_output_tokens") if sampled.cut else None,
        usage=Usage(input_tokens=read, output_tokens=written, total_tokens=read + written),
    )
    version = sampled.version
    return ModelAnswer(
        response=Raw(_encode(response)),
        tokens=Tokens(
            prompt_ids=pack_ids(prompt),
            generation_ids=pack_ids(sampled.ids),
            log_probs=pack_logprobs(log_probs),
            weights=[WeightSpan(version=version, start=0, end=written)] if version and written else [],
            experts=None
            if sampled.experts is None or not written
            else _experts(sampled.experts, read + written),
        ),
        weight_version=version or None,
    )


def _experts(array: Any, tokens: int) -> Experts | None:
    """
    Raises:
        ModelRefused: they are not those of a call with so many tokens.
    """
    if array is None:
        return None
    try:
        _, layers, top_k = array.shape
        wide = bool(array.size) and int(array.max()) > 255
        data = array.astype("<u2" if wide else "u1").tobytes()
        return Experts(layers=layers, top_k=top_k, data=data, wide=wide).until(tokens).checked(tokens)
    except (AttributeError, ValueError, TaskError) as error:
        raise ModelRefused(
            f"the engine's routed experts are not those of its answer: {error}", stage="model"
        ) from error
