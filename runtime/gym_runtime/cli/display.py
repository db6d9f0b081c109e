"""The display of a run in progress.

On a terminal it is one line that a thread of `rich` redraws four times a second; elsewhere a plain line
now and then. Both go to standard error. The loop that collects records only counts them: a microsecond
each, whatever is shown.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from gym_runtime.cli import formatting, terminal
from gym_runtime.errors import Fault
from gym_runtime.messages.outcomes import Failed, RolloutRecord
from gym_runtime.plurals import counted

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.live import Live

    from gym_runtime.client.status import InProgress
    from gym_runtime.files.run_metrics import Metrics

REDRAWS_PER_S = 4
RATE_WINDOW_S = 30
LABEL_WIDTH = 28
BAR_WIDTH = 40
MIN_BAR_WIDTH = 10
GAP = 2
FIRST_LINE_S = 2.0
MOST_S = 60.0
"""From one plain line to the next; until then each is due after twice the time."""
LEFT_FROM = 5
"""So many finished rollouts tell a rate, and how much time is left; the first ones are the shortest."""


class Tally:
    """The counts while records arrive: those of the metrics, and how many are of this part of the run.

    The metrics take in a record before it is added here.
    """

    def __init__(self, total: int, metrics: Metrics) -> None:
        self.total, self.metrics = total, metrics
        self._earlier = metrics.rollouts
        self.examples: dict[str, Fault] = {}

    def add(self, record: RolloutRecord) -> None:
        """Keep the first failure of each kind."""
        if isinstance(record.outcome, Failed):
            self.examples.setdefault(record.outcome.fault.kind, record.outcome.fault)

    @property
    def done(self) -> int:
        return self.metrics.rollouts

    @property
    def added(self) -> int:
        return self.done - self._earlier

    @property
    def trouble(self) -> str:
        """Failed and cancelled rollouts, by kind; empty without any."""
        failures = self.metrics.failures.copy()  # another thread may be adding
        failed = sum(failures.values())
        parts = [f"{failed:,} failed ({formatting.breakdown(failures)})"] if failed else []
        cancelled = self.metrics.cancelled
        return ", ".join([*parts, *([f"{cancelled:,} cancelled"] if cancelled else [])])


class Display:
    """What a run shows. Enter it when rollouts start; `add` each record; `note` what should be known.

    Args:
        total: rollouts of the whole run, the earlier part of a resumed one included.
        metrics: of the whole run; they take in each record before it is shown.
        console: where to; standard error by default.
        now: the clock, in seconds.
    """

    def __init__(
        self,
        total: int,
        metrics: Metrics,
        *,
        label: str = "",
        console: Console | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tally = Tally(total, metrics)
        self._label = formatting.shorten(label, LABEL_WIDTH)
        self._now = now
        self._console = console or terminal.errors()
        self._live: Live | None = None
        self._animated = self._console.is_terminal and not self._console.is_dumb_terminal
        self._started = self._ended = now()
        self._samples: deque[tuple[float, int]] = deque(maxlen=RATE_WINDOW_S * REDRAWS_PER_S)
        self._next_line, self._apart_s = 0.0, FIRST_LINE_S
        self._said = -1
        self._progress: InProgress | None = None

    def __enter__(self) -> Self:
        self._started = self._now()
        self._next_line = self._started + self._apart_s
        if self._animated:
            from rich.live import Live

            self._live = Live(
                self, console=self._console, refresh_per_second=REDRAWS_PER_S, redirect_stdout=False
            )
            self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = self._now()
        if self._live is not None:
            self._live.stop()
            self._live = None
        elif self.tally.added and self._said != self.tally.done:
            self._say(self._ended)

    @property
    def wall_s(self) -> float:
        """How long rollouts have been coming in, or came in, in seconds."""
        running = self._ended <= self._started
        return (self._now() if running else self._ended) - self._started

    def add(self, record: RolloutRecord) -> None:
        """Show one more record."""
        self.tally.add(record)
        self._say_in_time()

    def look(self, progress: InProgress) -> None:
        """Show what the workers are at."""
        self._progress = progress
        self._say_in_time()

    def note(self, text: str) -> None:
        """Print a separate line, above the bar if there is one."""
        self._console.print(text, soft_wrap=True)

    # -- plain lines ----------------------------------------------------------------------------------

    def _say_in_time(self) -> None:
        now = self._now()
        if not self._animated and now >= self._next_line:
            self._say(now)
            self._apart_s = min(2 * self._apart_s, MOST_S)
            self._next_line = now + self._apart_s

    def _say(self, now: float) -> None:
        tally, elapsed_s = self.tally, max(now - self._started, 1e-9)
        share = tally.done / tally.total if tally.total else 1.0
        rate = tally.added / elapsed_s
        over, mean = self._ended > self._started, tally.metrics.mean_reward
        per_min = f"{rate * 60:,.0f}" if rate * 60 >= 10 else f"{rate * 60:.2g}"
        pace = f" ({per_min} rollouts/min)" if tally.added else ""
        parts = [
            f"Finished {tally.done:,} / {counted(tally.total, 'rollout')} ({share:.0%}) "
            f"in {formatting.span(elapsed_s)}{pace}.",
            "" if over else _sentence(self._doing()),
            "" if mean is None else f"Mean reward {formatting.reward(mean)}.",
            f"{tally.trouble}." if tally.trouble else "",
            f"About {left} left." if (left := self._left(rate)) and not over else "",
        ]
        self.note(" ".join(filter(None, parts)))
        self._said = tally.done

    def _doing(self) -> list[str]:
        """What the workers are at, and what the model has done so far."""
        progress, left = self._progress, self.tally.total - self.tally.done
        if progress is None or not (running := min(progress.rollouts, left)):
            return []
        if progress.held:
            return [f"{running:,} in progress, waiting for the model's engines: {progress.held}"]
        said = [f"{running:,} in progress"]
        # Workers announce what they have done now and then: a rollout may be finished before that.
        if progress.answers or not self.tally.done:
            said.append(counted(progress.answers, "model call") if progress.answers else "no model call yet")
        return [*said, f"{counted(progress.tokens, 'token')} written"] if progress.tokens else said

    def _left(self, rate: float) -> str:
        """The time that is left; empty where it is not known yet."""
        tally = self.tally
        if tally.added < LEFT_FROM or tally.done >= tally.total or not rate:
            return ""
        return formatting.span((tally.total - tally.done) / rate)

    # -- the bar --------------------------------------------------------------------------------------

    def _rate(self) -> float:
        """Rollouts per second over the last half minute; over all the time if few were finished in that."""
        now = self._now()
        if not self._samples:
            self._samples.append((self._started, 0))
        self._samples.append((now, self.tally.added))
        since, added = self._samples[0]
        if self.tally.added - added < LEFT_FROM:
            since, added = self._started, 0
        return (self.tally.added - added) / max(now - since, 1e-9)

    def _pieces(self) -> list[str]:
        """The texts after the bar, the most important ones first; some may be empty."""
        tally, over = self.tally, self._ended > self._started
        rate = tally.added / self.wall_s if over else self._rate()
        left, mean = self._left(rate), tally.metrics.mean_reward
        held = not over and self._progress is not None and self._progress.held
        return [
            tally.trouble,
            # Why, a line of the log says, which is too long for here.
            "waiting for the model's engines" if held else "",
            "" if mean is None else f"reward {mean:{'.3f' if abs(mean) < 1e6 else '.4g'}}",
            formatting.pace(rate) if tally.added else "",
            f"in {formatting.span(self.wall_s)}" if over else f"{left} left" if left else "",
            "" if over or held else ", ".join(self._doing()),
        ]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        tally = self.tally
        share = tally.done / tally.total if tally.total else 1.0
        head = " ".join(filter(None, [self._label, f"{tally.done:,}/{tally.total:,}", f"{share:.0%}"]))
        room = options.max_width - 1 - len(head) - GAP
        with_bar = room >= MIN_BAR_WIDTH + GAP
        if with_bar:
            room -= MIN_BAR_WIDTH + GAP
        shown: list[str] = []
        for text in filter(None, self._pieces()):
            if len(text) + GAP <= room:
                shown.append(text)
                room -= len(text) + GAP
        tail = (" " * GAP).join(shown)
        grid = Table.grid(padding=(0, GAP, 0, 0))
        cells: list[Text | ProgressBar] = [Text(head, no_wrap=True, overflow="crop")]
        if with_bar:
            bar_width = min(BAR_WIDTH, MIN_BAR_WIDTH + room)
            cells.append(ProgressBar(total=max(1, tally.total), completed=tally.done, width=bar_width))
        if tail:
            cells.append(Text(tail, no_wrap=True, overflow="crop", style="yellow" if tally.trouble else ""))
        grid.add_row(*cells)
        yield grid


def _sentence(doing: list[str]) -> str:
    said = ", ".join(doing)
    return f"{said[:1].upper()}{said[1:]}." if said else ""
