"""Structured logs on standard error: lines for people on a terminal, JSON elsewhere.

Commands that show people what they do there write lines everywhere, and so do the workers that they start: a
stream has one format.
Every line carries the run, rollout, attempt and trace it belongs to, where there is one.
"""

from __future__ import annotations

import io
import logging
import os
import sys
import time
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, TextIO, cast

from gym_runtime import light_imports, tracing
from gym_runtime.errors import UsageError
from gym_runtime.escapes import shown

light_imports.load("structlog", without="rich")
import structlog  # noqa: E402
from structlog.typing import EventDict, ExcInfo, FilteringBoundLogger, WrappedLogger  # noqa: E402

if TYPE_CHECKING:
    from opentelemetry._logs import Logger
    from opentelemetry.sdk._logs import LoggerProvider

LOG_EXPORT_S = 2.0
"""How long one export of logs may take; the end of a process waits for a collector so long at most."""

_provider: LoggerProvider | None = None
_exported: Logger | None = None
_rollout: ContextVar[tuple[str, int]] = ContextVar("rollout", default=("", 0))

FORMAT_VARIABLE = "GYM_LOG_FORMAT"
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_SEVERITIES = {"debug": "DEBUG", "warning": "WARN", "error": "ERROR", "critical": "FATAL"}


def start(worker: str = "", *, lines: bool = False) -> None:
    """Set logging up in this process. ``GYM_LOG_LEVEL`` is debug, info, warning (default) or error.

    Args:
        lines: lines for people in pipes and files, too, as with ``GYM_LOG_FORMAT=lines``; ``json`` is JSON on
            a terminal, too.

    Raises:
        UsageError: a variable has another value.
    """
    name = os.environ.get("GYM_LOG_LEVEL") or "warning"
    level = LEVELS.get(name.lower())
    if level is None:
        raise UsageError(f"GYM_LOG_LEVEL is '{name}'; it must be one of {', '.join(LEVELS)}")
    form = os.environ.get(FORMAT_VARIABLE, "").lower()
    if form not in ("", "lines", "json"):
        raise UsageError(f"{FORMAT_VARIABLE} is '{form}'; it must be lines or json")
    lines = form == "lines" or (form != "json" and (lines or sys.stderr.isatty()))
    tail = _tail(lines=lines)

    # Not a context variable: callbacks of the event loop run in the context in which they were scheduled,
    # which may not have it.
    def add_worker(logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
        return {"worker": worker, **event} if worker else event

    chain: list[Any] = [add_worker, *_CHAIN]
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
            # Its name first, because `_export` looks at it.
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *chain],
        )
    )
    logging.basicConfig(level=max(level, logging.WARNING), handlers=[libraries], force=True)


def _tail(*, lines: bool) -> list[Any]:
    """What makes text of an event."""
    if not lines:
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    # Plain tracebacks: rich ones show local variables, among them keys and passwords.
    renderer = structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty() and "NO_COLOR" not in os.environ,
        exception_formatter=_plain_traceback,
    )
    return [_show, renderer]


def export(service: str, worker: str = "") -> None:
    """Send each line to an OpenTelemetry collector besides, if the standard variables ask for it.

    They are ``OTEL_EXPORTER_OTLP_ENDPOINT``, ``OTEL_EXPORTER_OTLP_LOGS_ENDPOINT`` and
    ``OTEL_LOGS_EXPORTER``. Call it after any fork, and `stop_export` at the end.
    """
    global _provider, _exported
    if not tracing.exports("logs"):
        return
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

    _provider = LoggerProvider(resource=tracing.resource(service, worker))
    _provider.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter(timeout=LOG_EXPORT_S)))
    _exported = _provider.get_logger("gym_runtime")


def stop_export() -> None:
    """Send what is left; a collector that does not answer takes `LOG_EXPORT_S` at most."""
    global _provider, _exported
    if _provider is not None:
        _provider.shutdown()
    _provider = _exported = None


def _export(logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
    # The exporter logs that it cannot reach its collector; exporting that would never end.
    if _exported is not None and not str(event.get("logger", "")).startswith(("opentelemetry", "urllib3")):
        from opentelemetry._logs import SeverityNumber

        level = str(event.get("level", name))
        hidden = ("event", "level", "timestamp", "trace_id", "exc_info")
        attributes = {key: value for key, value in event.items() if key[0] != "_" and key not in hidden}
        if event.get("exc_info"):
            told = structlog.processors.format_exc_info(logger, name, dict(event))
            attributes["exception.stacktrace"] = told.get("exception", "")
        now_ns = time.time_ns()
        _exported.emit(
            timestamp=now_ns,
            observed_timestamp=now_ns,
            severity_number=SeverityNumber[_SEVERITIES.get(level, "INFO")],
            severity_text=level,
            body=str(event.get("event", "")),
            attributes={
                key: value if isinstance(value, (str, bool, int, float)) else str(value)
                for key, value in attributes.items()
            },
        )
    return event


class _Logger:
    """Logs as this process has set structlog up.

    A program of others, such as a trainer, may have set up nothing. Then warnings go to standard error, as
    lines: structlog by itself would print all lines on standard output, and with an exception the local
    variables, among them keys.
    """

    def __getattr__(self, name: str) -> Any:
        if structlog.is_configured():
            return getattr(structlog.get_logger(), name)
        level = LEVELS.get(os.environ.get("GYM_LOG_LEVEL", "").lower(), LEVELS["warning"])
        ours = structlog.wrap_logger(
            _current_stderr(),
            processors=_lines(),
            wrapper_class=structlog.make_filtering_bound_logger(level),
        )
        return getattr(ours, name)


@cache
def _lines() -> list[Any]:
    return [*_CHAIN, *_tail(lines=True)]  # once, because a renderer is a cycle of objects


_LOGGER = cast("FilteringBoundLogger", _Logger())


def logger() -> FilteringBoundLogger:
    """Where this package logs."""
    return _LOGGER


def set_rollout(rollout: str, attempt: int) -> None:
    """Add these ids, and the run's, to each line that this asyncio task logs from now on."""
    _rollout.set((rollout, attempt))


def rollout() -> tuple[str, int]:
    """The rollout and the attempt of this asyncio task; empty and 0 outside a rollout."""
    return _rollout.get()


def _add_rollout(logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
    rollout_id, attempt = rollout()
    if rollout_id:
        event = {"run": rollout_id.partition(".")[0], "rollout": rollout_id, "attempt": attempt, **event}
    return event


def _show(logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
    """Lines for people may be read on a terminal, which must not obey them; JSON escapes such characters."""
    return {key: shown(value) if isinstance(value, str) else value for key, value in event.items()}


def _plain_traceback(file: TextIO, error: ExcInfo) -> None:
    told = io.StringIO()
    structlog.dev.plain_traceback(told, error)
    file.write(shown(told.getvalue()))


def _current_stderr(*_: object) -> structlog.WriteLogger:
    """Standard error is looked up for each line: a test or a terminal display may replace it later."""
    # One write for each line: several processes of a system write to one pipe.
    return structlog.WriteLogger(sys.stderr)


def _add_trace(logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
    trace = tracing.trace_id()
    if trace is not None:
        event["trace_id"] = trace
    return event


_CHAIN: list[Any] = [
    structlog.contextvars.merge_contextvars,
    _add_rollout,
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    _add_trace,
    _export,
]
"""What each line carries."""
