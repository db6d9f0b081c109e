"""The tool loop: the model answers, its tool calls are executed, until it answers with a message.

It stops
1. when an answer is incomplete; tool calls of that answer are not executed,
2. when an answer has a message of the assistant and no tool call,
3. when ``max_turns`` answers were given; the tool calls of the last are still executed,
4. where an option of `Options` says so.

After an answer with neither message nor tool call (reasoning only) the model is called again. These are the
rules of NeMo Gym's simple agent, and with options those of its finance and browsing agents. Two things
differ: such reasoning-only answers are bounded (there a model can loop for ever), and tool calls of one
answer run concurrently where the environment allows it.

With options, the response's ``metadata`` has ``stop_reason`` (``message``, ``done_tool``, or the limit) and
``steps``, the number of model calls.
"""

from __future__ import annotations

from typing import Annotated, Literal

import anyio
import msgspec
from gym_runtime.adapters import Rollout, Turn
from gym_runtime.errors import ModelUnavailable
from gym_runtime.messages import user_message
from msgspec import Meta, Raw

MAX_REASONING_ONLY = 4
Seconds = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=0)]


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the loop goes on and when it stops; without any, it is the plain loop.

    Attributes:
        done_tools: a call of one of these tools ends the rollout, unless it fails; later calls of the same
            answer are not executed.
        nudge: the user's message after an answer without a call, which then does not end the rollout.
        max_time_s: no model call is begun after so many seconds, over all attempts: truncated, ``max_time``.
        tool_timeout_s: a call that takes longer is given up, and the model is told so.
        model_timeout_s: a model call that takes longer is given up, and the attempt has failed.
        abort_on_tool_errors: calls that fail in such a way end the rollout: truncated, ``tool_error``.
        truncate_on_overflow: where the conversation exceeds the engine's context, leave out its oldest
            round, which is an answer with what follows it, and ask again. For evaluation.
        context_reset_tokens: after a call of more tokens, read and written, the model is shown only the
            row's input and the latest rounds.
        context_reset_keep_rounds: how many.
        max_reset_count: so many resets at most: truncated, ``max_reset_count``.
    """

    done_tools: tuple[str, ...] = ()
    nudge: str = ""
    max_time_s: Seconds | None = None
    tool_timeout_s: Seconds | None = None
    model_timeout_s: Seconds | None = None
    abort_on_tool_errors: tuple[Literal["arguments", "exception", "timeout", "unknown_tool"], ...] = ()
    truncate_on_overflow: bool = False
    context_reset_tokens: Annotated[int, Meta(ge=1)] | None = None
    context_reset_keep_rounds: Count = 3
    max_reset_count: Count | None = None


PLAIN = Options()


class Agent:
    """The default agent of environments with tools; without tools it is a single answer."""

    async def run(self, rollout: Rollout) -> None:
        options = rollout.options(Options)
        window = _Window(rollout, options)
        reasoning_only, stop = 0, ""
        while not stop:
            turn = await window.respond()
            if turn.incomplete is not None:
                stop = "" if window.drops_oldest(turn) else turn.incomplete
            elif turn.function_calls:
                reasoning_only = 0
                stop = await self._call_tools(rollout, turn, options)
            elif turn.messages and not options.nudge:
                stop = "message"
            else:
                reasoning_only = 0 if turn.messages else reasoning_only + 1
                if reasoning_only >= MAX_REASONING_ONLY:
                    stop = "reasoning_only"
                elif turn.messages:
                    rollout.output.append(user_message(options.nudge))
            stop = stop or _limit(rollout, options) or window.reset(turn)
        if stop not in ("message", "done_tool"):
            rollout.truncate(stop)
        if options != PLAIN:
            rollout.notes |= {"stop_reason": stop, "steps": str(rollout.turns)}

    async def _call_tools(self, rollout: Rollout, turn: Turn, options: Options) -> str:
        """Execute an answer's calls; why they end the rollout, or nothing."""
        calls = turn.function_calls
        done = next((index for index, call in enumerate(calls) if call.name in options.done_tools), None)
        if done is not None:
            calls = calls[: done + 1]
        failures = await rollout.call_tools(calls, limit_s=options.tool_timeout_s)
        if any(failure in options.abort_on_tool_errors for failure in failures):
            return "tool_error"
        return "done_tool" if done is not None and failures[done] is None else ""


def _limit(rollout: Rollout, options: Options) -> str:
    """The limit that does not allow another model call, or nothing."""
    if rollout.max_turns is not None and rollout.turns >= rollout.max_turns:
        return "max_turns"
    # What the journal has was in time.
    if options.max_time_s is not None and not rollout.is_resuming and rollout.used_s >= options.max_time_s:
        return "max_time"
    return ""


class _Window:
    """What the model is shown: the row's input, and the rounds from the first that is not left out."""

    def __init__(self, rollout: Rollout, options: Options) -> None:
        self._rollout = rollout
        self._options = options
        self._rounds: list[int] = []  # where each begins in the transcript
        self._first = 0
        self._resets = 0

    async def respond(self) -> Turn:
        """The model's next answer, which begins a round.

        Raises:
            ModelUnavailable: it took too long.
        """
        rollout, limit_s = self._rollout, self._options.model_timeout_s
        self._rounds.append(len(rollout.output))
        shown = self._shown() if self._first else None
        kind = "compaction" if self._first else "main"
        if limit_s is None:
            return await rollout.respond(shown, kind=kind)
        with anyio.move_on_after(limit_s):
            return await rollout.respond(shown, kind=kind)
        what = f"the model did not answer within {limit_s:g} s (model_timeout_s)"
        raise ModelUnavailable(what, stage="model")

    def _shown(self) -> list[Raw]:
        return [*self._rollout.input, *self._rollout.output[self._rounds[self._first] :]]

    def drops_oldest(self, turn: Turn) -> bool:
        """Leave out the oldest round if an engine's context was too short, which then answers nothing."""
        if not self._options.truncate_on_overflow or turn.response.output:
            return False
        self._rounds.pop()
        if self._first >= len(self._rounds):
            return False
        self._first += 1
        return True

    def reset(self, turn: Turn) -> str:
        """Leave out all but the latest rounds if the call was too long; ``max_reset_count`` if it may not."""
        options, usage = self._options, turn.response.usage
        if options.context_reset_tokens is None or usage is None:
            return ""
        kept_from = len(self._rounds) - options.context_reset_keep_rounds
        if usage.total_tokens <= options.context_reset_tokens or kept_from <= self._first:
            return ""
        if options.max_reset_count is not None and self._resets >= options.max_reset_count:
            return "max_reset_count"
        self._resets += 1
        self._first = kept_from
        return ""
