"""Any other adapter, with every call written to a file: ``--model record/openai/NAME``.

What follows ``record/`` names the model as usual, and all of its settings apply. Each call becomes one line
of ``options.record`` (default ``calls.jsonl``): the conversation, the parameters, the answer or the error,
the tokens, the time (`gym_faces.recordings.CallsFile`). ``--model replay/calls.jsonl`` gives the same answers
again. Keys and headers are never written.

A line is handed to the operating system before its answer is returned: the file stays complete when this
process crashes. Several workers may write one file.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import msgspec
from gym_faces.recordings import CallsFile, make_entry
from gym_runtime import GymError, UsageError, clock
from gym_runtime.adapters import (
    CallContext,
    Control,
    ControlAnswer,
    Controllable,
    ModelAnswer,
    ModelCall,
    ModelSettings,
)
from gym_runtime.environment import catalogue
from gym_runtime.errors import ModelRefused

DEFAULT_PATH = "calls.jsonl"


class Adapter:
    """Passes calls on to another adapter, and records the results. See the module."""

    def __init__(self, settings: ModelSettings) -> None:
        provider, _, name = settings.name.partition("/")
        if not provider or not name:
            raise UsageError(f"record needs a model: --model record/PROVIDER/NAME, not '{settings.name}'")
        if not catalogue.exists("models", provider):
            near = catalogue.suggest(provider, catalogue.names("models"))
            raise UsageError(f"--model record/{settings.name}: there is no model provider '{provider}'{near}")
        options = dict(settings.options)
        path = options.pop("record", DEFAULT_PATH)
        if not isinstance(path, str) or not path:
            raise UsageError(f"options.record is the path of a file, not {path!r}")
        self._path = Path(path)
        inner = _inner(settings, options)
        adapter: Any = catalogue.load_class("models", provider)
        self._inner = adapter(inner)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._file = CallsFile(self._path)
            stack.callback(self._file.close)
            await stack.enter_async_context(self._inner)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def respond(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        """The other adapter's answer. A cancelled call leaves no line.

        Raises:
            GymError: the other adapter's, or `UsageError` when the file cannot be written.
        """
        asked_s, began_s = clock.now(), clock.monotonic()
        try:
            answer: ModelAnswer = await self._inner.respond(call, context)
        except GymError as error:
            self._write(call, error.fault(), context, asked_s, clock.monotonic() - began_s)
            raise
        self._write(call, answer, context, asked_s, clock.monotonic() - began_s)
        return answer

    async def control(self, command: Control) -> ControlAnswer:
        """Pass a command about the weights on.

        Raises:
            ModelRefused: the other adapter takes no such commands.
        """
        if not isinstance(self._inner, Controllable):
            raise ModelRefused("the recorded adapter does not change weights", stage="model")
        return await self._inner.control(command)

    def _write(
        self, call: ModelCall, outcome: Any, context: CallContext, asked_s: float, took_s: float
    ) -> None:
        self._file.append(
            make_entry(
                call,
                outcome,
                model_call_id=uuid4().hex,
                created_at=asked_s,
                rollout_id=context.rollout,
                attempt=context.attempt,
                duration_s=round(took_s, 4),
            )
        )


def _inner(settings: ModelSettings, options: dict[str, Any]) -> ModelSettings:
    provider, _, name = settings.name.partition("/")
    return msgspec.structs.replace(settings, provider=provider, name=name, options=options)
