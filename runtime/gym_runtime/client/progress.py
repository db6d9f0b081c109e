"""The progress of a run in the client's own program: one line that is replaced as results come.

In a notebook it is an output of the cell, made of HTML and of text, and needs no widgets. Elsewhere it is a
line on standard error, which a terminal shows in place, and of which a file gets the last state only.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from html import escape
from typing import Any, TypeVar

from gym_runtime.messages.outcomes import RolloutRecord

REDRAW_S = 0.25
T = TypeVar("T")
Show = Callable[[str, float | None, bool], None]


async def shown(
    results: AsyncGenerator[T], rollouts_of: Callable[[T], list[RolloutRecord]], total: int
) -> AsyncGenerator[T]:
    """The same results; meanwhile the progress of their rollouts is shown.

    Args:
        rollouts_of: the rollouts that are settled with a result.
        total: how many rollouts there will be; 0 where that is not known.
    """
    show, began_s = _notebook() or _standard_error, time.monotonic()
    done = failed = 0
    rewards, due_s = 0.0, began_s

    def tell(*, over: bool = False) -> None:
        passed_s = max(time.monotonic() - began_s, 1e-9)
        left_s = (total - done) * passed_s / done if done and total > done and not over else 0.0
        parts = [
            # Replacements of failed rollouts come on top.
            f"rollouts: {done:,} of {max(done, total):,}" if total else f"rollouts: {done:,}",
            f"mean reward {rewards / (done - failed):.3f}" if done > failed else "",
            f"{failed:,} failed" if failed else "",
            f"{done / passed_s:,.1f} per s" if done else "",
            f"in {_clock(passed_s)}" if over else f"about {_clock(left_s)} left" if left_s else "",
        ]
        show(", ".join(filter(None, parts)), done / total if total else None, over)

    async with aclosing(results):
        tell()
        try:
            async for result in results:
                records = rollouts_of(result)
                done += len(records)
                failed += sum(record.reward is None for record in records)
                rewards += sum(record.reward or 0.0 for record in records)
                if time.monotonic() >= due_s:
                    due_s = time.monotonic() + REDRAW_S
                    tell()
                yield result
        finally:
            tell(over=True)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"


def _notebook() -> Show | None:
    """Replaces an output of the cell in progress; None outside of a notebook."""
    # What is not imported is not in use, and is not imported for this.
    ipython: Any = sys.modules.get("IPython")
    shell: Any = ipython.get_ipython() if ipython is not None else None
    if getattr(shell, "kernel", None) is None:
        return None
    name, shown_before = uuid.uuid4().hex, False

    def show(text: str, share: float | None, over: bool) -> None:
        nonlocal shown_before
        value = "" if share is None else f" value='{min(share, 1.0):.4f}'"
        bar = "" if over else f"<progress{value}></progress> "
        data = {"text/plain": text, "text/html": f"<div>{bar}{escape(text)}</div>"}
        shell.display_pub.publish(data, transient={"display_id": name}, update=shown_before)
        shown_before = True

    return show


def _standard_error(text: str, share: float | None, over: bool) -> None:
    if sys.stderr.isatty():
        print(f"\r{text}\x1b[K", end="\n" if over else "", file=sys.stderr, flush=True)
    elif over:
        print(text, file=sys.stderr, flush=True)
