"""The model worker: one adapter behind a service, and the one place that retries calls to engines.

A call that the engine refused for good is not retried. After overload or a broken connection it is, with
jittered pauses no shorter than the engine asks for, as often as the rollout's budget allows and only before
the deadline. The worker keeps the conversations of its rollouts (`workers.conversations`), and changes the
engine's weights: a `Control` arrives on ``control.<worker>``.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from contextlib import suppress

import anyio
import msgspec
from msgspec import Raw

from gym_runtime import clock, tracing
from gym_runtime.bus.interface import Bus, Incoming
from gym_runtime.errors import GymError, ModelRefused, ModelUnavailable, RuntimeFault
from gym_runtime.logs import logger
from gym_runtime.messages import calls
from gym_runtime.messages.metric_names import ENGINE_DURATION, ENGINE_TOKENS, RETRIES
from gym_runtime.messages.names import token
from gym_runtime.messages.responses import IncompleteDetails, Usage
from gym_runtime.rpc.meter import Meter
from gym_runtime.rpc.retry_budget import RetryBudget
from gym_runtime.rpc.service import Service
from gym_runtime.timing import (
    ENGINE_FIRST_PAUSE_S,
    ENGINE_LONGEST_PAUSE_S,
    ENGINE_ONLY_ERRORS_S,
    NEWS_EVERY_S,
)
from gym_runtime.workers.adapter import Adapter, CallContext, Controllable
from gym_runtime.workers.conversations import Conversations
from gym_runtime.workers.pace import Pace

MAX_TRIES = 8
MOST_NEWS = 100
ONLY_ERRORS = 3
"""An engine is reported as dead when all calls since its start have failed, at least this many, and for at
least `ENGINE_ONLY_ERRORS_S`."""
_NUMBER = re.compile(r"\d+")


class _Used(msgspec.Struct, frozen=True):
    usage: Usage | None = None
    id: str = ""
    model: str = ""
    incomplete_details: IncompleteDetails | None = None


_decode_usage = msgspec.json.Decoder(_Used).decode


class Notices:
    """Which reasons for asking again a person should hear of: each once, and not one after the other.

    Pure. Reasons that differ only in numbers are the same: engines put request ids into their messages.
    """

    def __init__(self) -> None:
        self._heard: set[str] = set()
        self._next_s = 0.0

    def is_news(self, reason: str, now_s: float) -> bool:
        """True at most every `NEWS_EVERY_S`, and for `MOST_NEWS` reasons."""
        kind = _NUMBER.sub("#", reason)
        if kind in self._heard or now_s < self._next_s or len(self._heard) >= MOST_NEWS:
            return False
        self._heard.add(kind)
        self._next_s = now_s + NEWS_EVERY_S
        return True


class EngineHealth:
    """Whether the engine has ever answered, and if not, for how long and with which words it has refused.

    The client reads this from the worker's heartbeat, and stops its run if the engine answers only errors.

    Args:
        meter: counts each call, its duration, its tokens and its error.
        model: the labels under which they are counted: operation, provider, the model's name.
    """

    def __init__(self, meter: Meter | None = None, model: tuple[str, str, str] = ("chat", "", "")) -> None:
        self._meter = meter or Meter()
        self._model = model
        self._answered = False
        self._errors = 0
        self._since_s = 0.0
        self._words = ""

    def answered(self, answer: calls.ModelAnswer, took_s: float) -> None:
        """A call has its answer."""
        self._answered = True
        self._meter.observe(ENGINE_DURATION, took_s, *self._model, "")
        with suppress(msgspec.DecodeError):  # whether it is a response is checked where it is used
            usage = _decode_usage(answer.response).usage
            if usage is not None:
                self._meter.observe(ENGINE_TOKENS, usage.input_tokens, *self._model, "input")
                self._meter.observe(ENGINE_TOKENS, usage.output_tokens, *self._model, "output")

    def retried(self, error: GymError) -> None:
        """The engine is asked again."""
        self._meter.add(RETRIES, "model", type(error).__name__)

    def failed(self, error: GymError, took_s: float) -> None:
        """A call has failed; it may be tried again."""
        self._meter.observe(ENGINE_DURATION, took_s, *self._model, type(error).__name__)
        if not self._errors:
            self._since_s = clock.now()
        self._errors += 1
        self._words = str(error)

    @property
    def only_errors(self) -> str:
        """The engine's last error, if it has answered only errors for `ENGINE_ONLY_ERRORS_S`; else empty."""
        waited = clock.now() - self._since_s >= ENGINE_ONLY_ERRORS_S
        return self._words if not self._answered and self._errors >= ONLY_ERRORS and waited else ""


def _since(started_s: float) -> float:
    return max(0.0, clock.now() - started_s)  # the time of day may be set back


async def ask_engine(
    adapter: Adapter,
    call: calls.ModelCall,
    context: CallContext,
    budget: RetryBudget,
    notices: Notices,
    health: EngineHealth,
    pace: Pace | None = None,
) -> calls.ModelAnswer:
    """An engine's answer, asked for again where that may help, within the deadline and the budget.

    Raises:
        ModelRefused, ModelUnavailable: what the engine said at the end.
    """
    pause_s = ENGINE_FIRST_PAUSE_S
    for tries in range(1, MAX_TRIES + 1):
        if pace is not None:
            await pace.turn()
        started_s = clock.now()
        try:
            answer = await adapter.respond(call, context)
            health.answered(answer, _since(started_s))
            return answer
        except ModelRefused as error:
            health.failed(error, _since(started_s))
            raise
        except ModelUnavailable as error:
            health.failed(error, _since(started_s))
            wait_s = max(error.retry_after_s or 0.0, pause_s * random.uniform(0.5, 1.5))
            if tries == MAX_TRIES or clock.now() + wait_s >= context.deadline_s:
                raise
            budget.spend(error)
            health.retried(error)
            say = logger().warning if notices.is_news(str(error), clock.now()) else logger().info
            say("the engine is asked again", error=str(error), wait_s=round(wait_s, 1))
            await anyio.sleep(wait_s)
            pause_s = min(pause_s * 2, ENGINE_LONGEST_PAUSE_S)
    raise AssertionError("MAX_TRIES is at least 1")


class ModelWorker:
    """Answers the calls to one model.

    Args:
        worker: this worker's id.
        pools: the names it serves, such as ``policy``.
        adapter: the engine; entered by the caller.
        capacity: calls in progress at most.
        per_minute: calls of the engine in a minute at most; 0 for no limit.
        model: provider and name of the model, for the figures.

    Attributes:
        weight_version: of the newest answer; empty until the engine reports one.
        paused: the engine generates nothing until a ``resume`` command.
        meter: what it has counted.
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
        model: tuple[str, str] = ("", ""),
    ) -> None:
        self.weight_version = ""
        self.paused = False
        self._worker = worker
        self._bus = bus
        self._adapter = adapter
        self._conversations = Conversations()
        self._notices = Notices()
        self._pace = Pace(per_minute) if per_minute else None
        self.service = Service(
            bus, kind="model", worker=worker, pools=pools, capacity=capacity, handle=self._handle
        )
        self.meter = self.service.meter
        provider, name = model
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

    async def run(self, *, ready: Callable[[], None]) -> None:
        """Serve until cancelled."""
        async with anyio.create_task_group() as tasks:

            def control(incoming: Incoming) -> None:
                tasks.start_soon(self._control, incoming)

            async with self._bus.serve(f"control.{token(self._worker, 'worker')}", control):
                await self._look()
                await self.service.run(ready=ready)

    async def _look(self) -> None:
        """Read the version of the weights before the first answer, if the engine reports it."""
        if isinstance(self._adapter, Controllable):
            try:
                with anyio.move_on_after(5):
                    self._learn(await self._adapter.control(calls.Control(op="state")))
            except GymError as error:
                logger().info("the engine does not report its version of the weights", reason=str(error))

    async def _handle(self, pool: str, request: calls.Request, budget: RetryBudget) -> Raw:
        call = self._conversations.complete(calls.decode_model_call(request.body))
        context = CallContext(
            rollout=request.rollout,
            attempt=request.attempt,
            deadline_s=request.deadline_s,
            headers=tracing.headers() or {},
        )
        answer = await ask_engine(
            self._adapter, call, context, budget, self._notices, self._health, self._pace
        )
        self.weight_version = answer.weight_version or self.weight_version
        if tracing.recording():
            _note(answer)
        return calls.pack(self._conversations.keep(call, answer))

    async def _control(self, incoming: Incoming) -> None:
        reply = calls.RpcReply(worker=self._worker)
        try:
            command = calls.decode_control(incoming.payload)
            if not isinstance(self._adapter, Controllable):
                raise ModelRefused("this adapter cannot change weights; use the vllm adapter", stage="model")
            answer = await self._adapter.control(command)
            self._learn(answer)
            reply = msgspec.structs.replace(reply, body=calls.pack(answer))
        except GymError as error:
            reply = msgspec.structs.replace(reply, fault=error.fault())
        except Exception as error:  # noqa: BLE001 - a worker's handler boundary: one bad command ends no worker
            logger().exception("a control command raised")
            fault = RuntimeFault(f"{type(error).__name__}: {error}", stage="model").fault()
            reply = msgspec.structs.replace(reply, fault=fault)
        if incoming.reply:
            await self._bus.publish(incoming.reply, calls.encode(reply))

    def _learn(self, answer: calls.ControlAnswer) -> None:
        self.paused = answer.paused
        self.weight_version = answer.version or self.weight_version


def _note(answer: calls.ModelAnswer) -> None:
    """What the span of a call says of its answer."""
    with suppress(msgspec.DecodeError):
        said = _decode_usage(answer.response)
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
