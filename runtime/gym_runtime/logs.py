"""Structured logs on standard error: lines for people on a terminal, JSON elsewhere.

Commands that show people what they do there write lines everywhere, and so do the workers that they start: a
stream has one format.
Every line carries the run, rollout, attempt and trace it belongs to, where there is one.
"""

from __future__ import annotations

import logging
import os
import sys
from contextvars import ContextVar
from typing import Any

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

from gym_runtime import tracing
from gym_runtime.errors import UsageError

_rollout: ContextVar[tuple[str, int]] = ContextVar("rollout", default=("", 0))

FORMAT_VARIABLE = "GYM_LOG_FORMAT"
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def start(worker: str = "", *, lines: bool = False) -> None:
    """Set logging up in this process. ``GYM_LOG_LEVEL`` is debug, info, warning (default) or error.

    Args:
        lines: lines for people in pipes and files, too, as with ``GYM_LOG_FORMAT=lines``.

    Raises:
        UsageError: the variable has another value.
    """
    name = os.environ.get("GYM_LOG_LEVEL") or "warning"
    level = LEVELS.get(name.lower())
    if level is None:
        raise UsageError(f"GYM_LOG_LEVEL is '{name}'; it must be one of {', '.join(LEVELS)}")
    terminal = sys.stderr.isatty()
    lines = lines or terminal or os.environ.get(FORMAT_VARIABLE) == "lines"
    # Plain tracebacks: rich ones show local variables, among them keys and passwords.
    renderer: Any = (
        structlog.dev.ConsoleRenderer(
            colors=terminal and "NO_COLOR" not in os.environ,
            exception_formatter=structlog.dev.plain_traceback,
        )
        if lines
        else structlog.processors.JSONRenderer()
    )
    tail: list[Any] = [renderer] if lines else [structlog.processors.format_exc_info, renderer]

    # Not a context variable: callbacks of the event loop run in the context in which they were scheduled,
    # which may not have it.
    def add_worker(logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
        return {"worker": worker, **event} if worker else event

    chain: list[Any] = [
        add_worker,
        structlog.contextvars.merge_contextvars,
        _add_rollout,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _add_trace,
    ]
    structlog.configure(
        processors=[*chain, *tail],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=_current_stderr,
        cache_logger_on_first_use=False,
    )
    # Libraries log through the standard library; their lines get the same format.
    libraries = logging.StreamHandler(sys.stderr)
    libraries.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *tail],
            foreign_pre_chain=[*chain, structlog.stdlib.add_logger_name],
        )
    )
    logging.basicConfig(level=max(level, logging.WARNING), handlers=[libraries], force=True)


def logger() -> FilteringBoundLogger:
    return structlog.get_logger()


def set_rollout(rollout: str, attempt: int) -> None:
    """Add these ids, and the run's, to each line that this asyncio task logs from now on."""
    _rollout.set((rollout, attempt))


def rollout() -> tuple[str, int]:
    """The rollout and the attempt of this asyncio task; empty and 0 where there is none."""
    return _rollout.get()


def _add_rollout(logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
    rollout_id, attempt = rollout()
    if rollout_id:
        event = {"run": rollout_id.partition(".")[0], "rollout": rollout_id, "attempt": attempt, **event}
    return event


def _current_stderr(*_: object) -> structlog.PrintLogger:
    """Standard error is looked up for each line: a test or a terminal display may replace it later."""
    return structlog.PrintLogger(sys.stderr)


def _add_trace(logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
    trace = tracing.trace_id()
    if trace is not None:
        event["trace_id"] = trace
    return event
