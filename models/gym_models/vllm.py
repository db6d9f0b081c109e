"""vLLM: servers that run already, or an engine in the worker itself; exact tokens; weights that change.

With addresses (``--model vllm/NAME --model-url http://HOST:8000/v1``, or the sources of
`gym_models.wire.discovery`) it calls those servers as `openai` does. Without addresses the worker starts its
own engine (``--model vllm/NAME_OR_PATH --engine-args '--max-model-len 4096'``), one for each group of
accelerators; see `gym_models.vllm_engine.in_process`.

Where tokens are wanted they are exact: turn n+1's prompt starts with the very ids of turn n's prompt and
completion, wherever the model's template leaves the past alone (`gym_runtime.workers.prefixes`). A server
needs ``--enable-scale-out`` for this, or vLLM 0.32 (`gym_models.vllm_engine.vllm_server`); the version of the
weights of each token needs the former, and ``VLLM_SERVER_DEV_MODE=1`` lets weights change while it serves
(`gym_models.vllm_engine.live_weights`).

Settings:
    urls, api_key_variable, extra_body, max_concurrent_requests: as for `openai`.
    api: ``responses`` for vLLM's own Responses API; ``auto`` and ``chat`` both mean Chat Completions, the
        dialect in which vLLM gives tokens, thinking and template arguments.
    options: see `Options`. ``extra_body.chat_template_kwargs`` holds arguments for the template, to which
        a row may add in ``metadata.chat_template_kwargs``.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Literal, Self

import anyio
import msgspec
from gym_faces.dialects import ChatVariant, Reasoning, ToolImages
from gym_runtime import GymError, UsageError
from gym_runtime.adapters import CallContext, Control, ControlAnswer, ModelAnswer, ModelCall, ModelSettings
from gym_runtime.errors import ModelUnavailable
from gym_runtime.messages import choices
from msgspec.structs import replace

from gym_models.vllm_engine import live_weights
from gym_models.vllm_engine.in_process import InProcess, require_vllm
from gym_models.vllm_engine.vllm_server import VllmEngine
from gym_models.wire import preflight
from gym_models.wire.endpoint import Endpoint
from gym_models.wire.pinned import pinned
from gym_models.wire.replicas import Replicas

Api = Literal["auto", "chat", "responses"]


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of this adapter.

    Attributes:
        engine_args: for an engine in the worker, as on ``vllm serve``'s command line.
        exact: where tokens are wanted, go on with the tokens of the turns so far.
        routed_experts: where tokens are wanted, each comes with the experts to which it went, of servers with
            ``--enable-scale-out --enable-return-routed-experts``.
        renderer: goes on from the tokens where the model's template drops thinking, of servers with
            ``--enable-scale-out``: ``auto`` (the package ``renderers``) or ``MODULE:FUNCTION``; see
            `gym_models.vllm_engine.renderer`.
        reasoning: how earlier thinking goes back: ``reasoning_content`` (vLLM hands it to the template by
            both of its names), ``reasoning``, ``think`` (tags in the text), ``drop``.
        tool_images: ``user`` puts images of tools into a user's message after them, for models whose template
            takes only texts from tools; ``tool`` leaves them where they are.
        sampling: sampling parameters that win over the rows', by vLLM's names.
        check_model: false for a server whose list of models is incomplete.
    """

    engine_args: str = ""
    exact: bool = True
    routed_experts: bool = False
    renderer: str = ""
    reasoning: Reasoning = "reasoning_content"
    tool_images: ToolImages = "tool"
    sampling: dict[str, Any] = {}
    check_model: bool = True


class Adapter:
    """vLLM. See the module for its settings.

    Attributes:
        own: the engine in this worker, if it is one.
    """

    def __init__(self, settings: ModelSettings) -> None:
        try:
            self._options = msgspec.convert(settings.options, Options)
            self._api = msgspec.convert(settings.api, Api)
        except msgspec.ValidationError as error:
            said = f"{error}{choices(error, Options) or choices(error, Api)}"
            raise UsageError(f"settings of the vllm adapter: {said}") from error
        if settings.urls and self._options.engine_args:
            raise UsageError("engine arguments are for an engine in the worker; a server has its own")
        if not settings.urls:
            if settings.hold_kv_usage or settings.hold_waiting:
                raise UsageError("hold_kv_usage and hold_waiting are for servers, which have model URLs")
            require_vllm()
        self._settings = settings
        self._sampling = msgspec.json.encode(self._options.sampling)
        self._stack = AsyncExitStack()
        self._replicas: Replicas[VllmEngine] | None = None
        self.own: VllmEngine | None = None
        limit = settings.max_concurrent_requests
        self._gate = anyio.Semaphore(limit, fast_acquire=True) if limit else None

    async def __aenter__(self) -> Self:
        settings, options = self._settings, self._options
        async with AsyncExitStack() as stack:
            if settings.urls:
                made = Replicas(settings, self._engine, check_model=options.check_model)
                self._replicas = await stack.enter_async_context(made)
            else:
                pool = InProcess(settings.name, options.engine_args)
                self.own = self._engine(pool.endpoint)
                self.own.pool = pool
                await stack.enter_async_context(self.own)
                self.own.model = pool.served
                await preflight.check(self.own)
            self._stack = stack.pop_all()
        return self

    def _engine(self, one: Endpoint) -> VllmEngine:
        settings = self._settings
        return VllmEngine(
            one,
            model=settings.name,
            api="responses" if self._api == "responses" else "chat",
            extra_body=msgspec.json.encode(settings.extra_body),
            media_hosts=settings.media_hosts,
            dialect=ChatVariant(
                reasoning=self._options.reasoning, tool_images=self._options.tool_images, engine="vLLM"
            ),
            exact=self._options.exact,
            routed_experts=self._options.routed_experts,
            renderer=self._options.renderer,
        )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    @property
    def held(self) -> str:
        """Why rollouts should not ask the servers now; empty if they may, and for an engine in the worker."""
        return self._replicas.held if self._replicas else ""

    async def respond(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        """Answer one call; any number may be in flight. Cancelling it ends the generation.

        Raises:
            TaskError: the row holds what vLLM cannot carry.
            ModelRefused: asking again changes nothing.
            ModelUnavailable: asking again may help.
            DeadlineExceeded: the deadline passed first.
        """
        if self._options.sampling:
            call = replace(call, params=pinned(bytes(call.params), self._sampling))
        if self._gate is None:
            return await self._ask(call, context)
        async with self._gate:
            return await self._ask(call, context)

    async def _ask(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        if self._replicas is None:
            assert self.own is not None
            return await self.own.respond(call, context)
        return await self._replicas.ask(context, lambda engine: engine.respond(call, context))

    async def count(self, call: ModelCall, context: CallContext) -> int:
        """The tokens of a conversation; see `gym_runtime.workers.adapter.Counting`."""
        if self._replicas is None:
            assert self.own is not None
            return await self.own.count(call, context)
        return await self._replicas.ask(context, lambda engine: engine.count(call, context))

    async def control(self, command: Control) -> ControlAnswer:
        """Do one thing to the weights of every engine; see `gym_runtime.workers.adapter.Controllable`.

        Raises:
            ModelRefused: an engine cannot do this; the message names what is missing.
            ModelUnavailable: a replica is down and would come back with other weights, or all replicas are
            down.
        """
        engines = self._engines(command)
        answers: list[ControlAnswer] = []
        errors: list[GymError] = []

        async def one(engine: VllmEngine) -> None:
            try:
                answers.append(await live_weights.control(engine, command))
            except GymError as error:
                errors.append(error)

        async with anyio.create_task_group() as tasks:
            for engine in engines:
                tasks.start_soon(one, engine)
        if errors:
            raise errors[0]
        versions = {answer.version for answer in answers}
        return ControlAnswer(
            paused=any(answer.paused for answer in answers),
            version=versions.pop() if len(versions) == 1 else "",
        )

    def _engines(self, command: Control) -> list[VllmEngine]:
        if self._replicas is None:
            assert self.own is not None
            return [self.own]
        out = [state.url for state in self._replicas.states() if not (state.up or state.leaving)]
        if out and command.op in ("set_version", "update"):
            raise ModelUnavailable(
                f"{', '.join(out)} is out; remove it, or say '{command.op}' again when it is up",
                stage="model",
            )
        engines = self._replicas.engines()
        if not engines:
            raise ModelUnavailable("no replica is up: the command reached no engine", stage="model")
        return engines
