"""The place in an author's code that a stack or an error points at."""

from __future__ import annotations

import sysconfig
from types import FrameType, TracebackType

_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def describe(frame: FrameType | None) -> str:
    """``FILE:LINE in FUNCTION`` of the innermost frame that is not of an installed library."""
    innermost = frame
    while frame is not None and frame.f_code.co_filename.startswith((*_LIBRARIES, "<")):
        frame = frame.f_back
    shown = frame or innermost
    if shown is None:
        return "an unknown place"
    return f"{shown.f_code.co_filename}:{shown.f_lineno} in {shown.f_code.co_name}"


def raised_at(trace: TracebackType | None) -> str:
    """``FILE:LINE`` where an error was raised, in the innermost frame that is not of an installed library."""
    place = ""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if not place or not name.startswith((*_LIBRARIES, "<")):
            place = f"{name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
