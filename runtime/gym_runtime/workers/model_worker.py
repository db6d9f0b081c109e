"""The model worker: one adapter behind a service, and the one place that retries calls to engines.

A call that the engine refused for good is not retried. A call that met overload or a broken connection is
retried, with jittered pauses no shorter than the engine asks for, as often as the rollout's budget allows and
only before the deadline. A call that hangs is aborted and retried (`workers.call_limits`).

The worker keeps the conversations of its rollouts (`workers.conversations`), and changes the engine's
weights: a `Control` arrives on ``control.<worker>``. Before its first call the engine has the weights that
the trainer gave the others (`workers.current_weights`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext, suppress
from typing import Any

import anyio
import msgspec
from msgspec import Raw

from gym_runtime import clock, tracing
from gym_runtime.bus.interface import Bus, Incoming
from gym_runtime.cancellation import contained
from gym_runtime.errors import (
    UNREADABLE,
    GymError,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    RuntimeFault,
    described,
)
from gym_runtime.logs import logger
from gym_runtime.messages import calls
from gym_runtime.messages.call_tokens import shortened
from gym_runtime.messages.names import token
from gym_runtime.messages.responses import NULL, Response, Usage
from gym_runtime.retrying import Backoff, Pauses
from gym_runtime.rpc.answer import Service
from gym_runtime.rpc.retry_budget import RetryBudget
from gym_runtime.workers.adapter import Adapter, CallContext, Controllable, Counting, Holding
from gym_runtime.workers.call_limits import CallLimits, CallTimeout, Pace
from gym_runtime.workers.conversations import Conversations
from gym_runtime.workers.current_weights import load_current
from gym_runtime.workers.engine_health import EngineHealth, decode_used

ENGINE_PAUSES = Pauses(first_s=0.25, longest_s=30.0)
"""The pauses before a failed call of an engine is repeated."""

MAX_TRIES = 8


Respond = Callable[[calls.ModelCall, CallContext], Awaitable[calls.ModelAnswer]]
"""As `Adapter.respond`."""


async def ask_engine(
    respond: Respond,
    call: calls.ModelCall,
    context: CallContext,
    budget: RetryBudget,
    health: EngineHealth,
    pace: Pace | None = None,
    limits: CallLimits | None = None,
    call_timeout_s: float | None = None,
) -> calls.ModelAnswer:
    """Ask an engine, with retries where they may help, within the deadline and the budget.

    Raises:
        ModelRefused, ModelUnavailable: the engine's last error.
        ModelError: the adapter's code cancelled itself, or returned what is no answer.
    """
    limits = limits or CallLimits()
    backoff, hung = Backoff(ENGINE_PAUSES), 0
    for tries in range(1, MAX_TRIES + 1):
        if pace is not None:
            await pace.wait()
        started_s = clock.monotonic()
        try:
            with limits.limited(call_timeout_s, call.params, again=hung):
                async with contained(ModelError, "model"):
                    answer = _checked(await respond(call, context))
            took_s = clock.monotonic() - started_s
            limits.answered(took_s, health.answered(answer, took_s))
            return answer
        except ModelRefused as error:
            health.failed(error, clock.monotonic() - started_s)
            raise
        except ModelUnavailable as error:
            health.failed(error, clock.monotonic() - started_s)
            hung += isinstance(error, CallTimeout)
            # Jitter only for our own pause: the pause that an engine names is kept exactly.
            wait_s = max(error.retry_after_s or 0.0, backoff.next_s())
            # No pause that would end after the deadline: the caller gets the engine's error instead.
            if tries == MAX_TRIES or clock.monotonic() + wait_s >= context.deadline_s:
                raise
            budget.spend(error)
            health.retried(error, wait_s)
            await anyio.sleep(wait_s)
    # For the type checker: the last try raises or returns.
    raise AssertionError("MAX_TRIES is at least 1")


def _checked(answer: Any) -> calls.ModelAnswer:
    """What an adapter returned, if it is an answer; its author may have forgotten a part."""
    what = type(answer).__name__
    if isinstance(answer, calls.ModelAnswer):
        if isinstance(answer.response, Raw):  # pyright: ignore[reportUnnecessaryIsInstance]
            return answer
        what = f"{what}(response={type(answer.response).__name__})"
    raise ModelError(
        f"the adapter's respond returned {what}; it must return ModelAnswer(response=Raw(...)) with the JSON "
        "of a response, such as Raw(make_response(TEXT))",
        stage="model",
    )


class ModelWorker:
    """Answers the calls to one model.

    Args:
        worker: this worker's id.
        pools: the names it serves, such as ``policy``.
        adapter: the engine; entered by the caller.
        capacity: the most calls in progress.
        per_minute: the most calls of the engine in a minute; 0 for no limit.
        call_timeout_s: as `ModelSettings.call_timeout_s`.
        model: provider and name of the model, for the figures.

    Attributes:
        weight_version: of the newest answer; empty until the engine reports one.
        paused: the engine generates nothing until a ``resume`` command.
        meter: its counters.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        worker: str,
        pools: Sequence[str],
        adapter: Adapter,
        capacity: int,
        per_minute: float = 0.0,
        call_timeout_s: float | None = None,
        model: tuple[str, str] = ("", ""),
    ) -> None:
        self.weight_version = ""
        self.paused = False
        self._worker = worker
        self._pools = pools
        self._bus = bus
        self._adapter = adapter
        self._limits = CallLimits()
        self._conversations = Conversations()
        self._pace = Pace(per_minute) if per_minute else None
        self._call_timeout_s = call_timeout_s
        self.service = Service(
            bus, kind="model", worker=worker, pools=pools, capacity=capacity, handle=self._handle
        )
        self.meter = self.service.meter
        provider, name = model
        self._controls = anyio.Lock()
        self._health = EngineHealth(self.meter, ("chat", *model))
        about = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": name,
        }
        self.service.traced = (f"chat {name}".strip(), "client", about)

    @property
    def only_errors(self) -> str:
        """The engine's last error, if it has answered only errors since its start; else empty."""
        return self._health.only_errors

    @property
    def held(self) -> str:
        """Why rollouts should not ask its engines now; empty if they may."""
        return self._adapter.held if isinstance(self._adapter, Holding) else ""

    async def run(self, *, ready: Callable[[], None]) -> None:
        """Serve until cancelled."""
        async with anyio.create_task_group() as tasks:

            def control(incoming: Incoming) -> None:
                # A client asks for an answer; what does not may be JetStream's, which any key can send here.
                if incoming.reply:
                    tasks.start_soon(self._control, incoming)

            # Subscribed before the weights are read, so that no command is lost meanwhile.
            async with self._bus.serve(f"control.{token(self._worker, 'worker')}", control):
                await self._look()
                await self._load_current()
                tasks.start_soon(self._limits.watch, lambda: self.paused)

                def announced() -> None:
                    ready()
                    # Again: the first look and the trainer's command both miss weights stored between them.
                    tasks.start_soon(self._load_current)

                await self.service.run(ready=announced)

    async def _look(self) -> None:
        """Read the version of the weights before the first answer, if the engine reports it."""
        if isinstance(self._adapter, Controllable):
            try:
                # An engine that does not answer this may still serve, so the worker starts anyway.
                with anyio.move_on_after(5):
                    self._learn(await self._adapter.control(calls.Control(op="state")))
            except GymError as error:
                logger().info("the engine does not report its version of the weights", reason=str(error))

    async def _load_current(self) -> None:
        """Load the weights that the trainer gave the other engines before this engine started."""
        if isinstance(self._adapter, Controllable):
            for pool in self._pools:
                answer = await load_current(self._bus, pool, self._adapter, self.weight_version)
                if answer is not None:
                    self._learn(answer)

    async def _handle(self, pool: str, request: calls.Request[Any], budget: RetryBudget) -> Raw:
        asked = calls.body_of(request, calls.decode_model_call)
        call = self._conversations.complete(asked)
        notes = self._conversations.notes(asked)
        context = CallContext(
            rollout=request.rollout,
            attempt=request.attempt,
            deadline_s=request.deadline_s,
            headers=tracing.headers() or {},
            notes=notes,
        )
        answer = await ask_engine(
            self._count if call.count else self._adapter.respond,
            call,
            context,
            budget,
            self._health,
            self._pace,
            self._limits,
            self._call_timeout_s if request.call_timeout_s is None else request.call_timeout_s,
        )
        # An answer without a version keeps the known one.
        self.weight_version = answer.weight_version or self.weight_version
        if tracing.recording():
            _note(answer)
        answer = self._conversations.keep(call, answer, notes)
        if call.brief and call.prefix is not None and answer.tokens is not None:
            short = shortened(answer.tokens, call.prefix.ids)
            answer = msgspec.structs.replace(answer, tokens=short)
        return calls.pack(answer)

    async def _count(self, call: calls.ModelCall, context: CallContext) -> calls.ModelAnswer:
        """An answer without output, whose usage says how many tokens a conversation has.

        Raises:
            ModelRefused: the engine does not count.
        """
        if not isinstance(self._adapter, Counting):
            raise ModelRefused(
                "the engine counts tokens only of what it answers: an answer's usage says how many",
                stage="model",
            )
        count = await self._adapter.count(call, context)
        usage = Usage(input_tokens=count, total_tokens=count)
        return calls.ModelAnswer(response=calls.pack(Response(id="count", usage=usage)))

    async def _control(self, incoming: Incoming) -> None:
        body, fault = NULL, None
        try:
            command = calls.decode_control(incoming.payload)
            if not isinstance(self._adapter, Controllable):
                raise ModelRefused("this adapter cannot change weights; use the vllm adapter", stage="model")
            # In their order, or a pause that takes its time would undo the resume that was sent after it.
            order = nullcontext() if command.op == "state" else self._controls
            async with order, contained(ModelError, "model"):
                answer = await self._adapter.control(command)
            self._learn(answer)
            body = calls.pack(answer)
        except GymError as error:
            fault = error.fault()
        except UNREADABLE as error:
            what = f"the command cannot be read ({error}); use one version of gym-runtime everywhere"
            fault = ModelRefused(what, stage="model").fault()
        except Exception as error:  # noqa: BLE001 - a worker's handler boundary: one bad command ends no worker
            logger().exception("a control command raised")
            fault = RuntimeFault(described(error), stage="model").fault()
        reply = calls.RpcReply(worker=self._worker, body=body, fault=fault)
        await self._bus.publish(incoming.reply, calls.encode(reply))

    def _learn(self, answer: calls.ControlAnswer) -> None:
        self.paused = answer.paused
        self.weight_version = answer.version or self.weight_version


def _note(answer: calls.ModelAnswer) -> None:
    """Set the span's attributes from the answer to a call."""
    # An answer that is not a response fails the rollout elsewhere; the span must not.
    with suppress(*UNREADABLE):
        said = decode_used(answer.response)
        reason = said.incomplete_details.reason if said.incomplete_details else None
        noted: dict[str, str | int | float | tuple[str, ...]] = {
            "gen_ai.response.id": said.id,
            "gen_ai.response.model": said.model,
            "gen_ai.response.finish_reasons": (reason or "stop",),
        }
        if said.usage is not None:
            noted["gen_ai.usage.input_tokens"] = said.usage.input_tokens
            noted["gen_ai.usage.output_tokens"] = said.usage.output_tokens
            if said.usage.input_tokens_details is not None:
                noted["gen_ai.usage.cache_read.input_tokens"] = said.usage.input_tokens_details.cached_tokens
            if said.usage.output_tokens_details is not None:
                thought = said.usage.output_tokens_details.reasoning_tokens
                noted["gen_ai.usage.reasoning.output_tokens"] = thought
        if answer.weight_version:
            noted["gym.weight_version"] = answer.weight_version
        tracing.note(noted)
