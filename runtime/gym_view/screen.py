"""The screen of ``top``: tables of a running system, and the commands of its viewer.

It asks for the system's state once a second, or less often where that and the drawing would take more than
`SHARE` of a core: a look at a system must not be what slows it down.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, Literal

from gym_runtime import Client, clock
from gym_runtime.adapters import Control
from gym_runtime.cli import formatting
from gym_runtime.errors import GymError
from gym_runtime.plurals import counted
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, Sparkline, Static

from gym_view import system_tables
from gym_view.limit import limit
from gym_view.live import GOING_ON, Reading, View, view
from gym_view.table_view import Lines

EVERY_S = 1.0
SHARE = 0.05
REMEMBERED = 120
TABLES = ("workers", "runs", "engines", "failures")


class Asked(ModalScreen[bool]):
    """A question before something is done: y does it, everything else does not."""

    CSS = """
    Asked { align: center middle; }
    Asked Vertical { width: auto; max-width: 80%; height: auto; border: round $warning; padding: 1 2; }
    Asked Static { width: auto; height: auto; }
    """

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        """The question."""
        with Vertical():
            yield Static(f"{self._question}\n\ny: yes   any other key: no", markup=False)

    def on_key(self, event: object) -> None:
        """The answer."""
        self.dismiss(getattr(event, "key", "") == "y")


class Top(App[None]):
    """The screen.

    Args:
        system: the client of the running system.
        address: the system's address, for the title.
    """

    CSS = """
    Static { height: auto; }
    #limit { text-style: bold; }
    Sparkline { height: 2; margin: 0 1; }
    Lines { height: 1fr; }
    #filter { display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(place), f"table('{name}')", name) for place, name in enumerate(TABLES, 1)),
        Binding("s", "sort", "sort"),
        Binding("slash", "filter", "filter"),
        Binding("c", "cancel", "cancel run"),
        Binding("p", "pause", "pause/resume weights"),
        Binding("d", "drain", "drain worker"),
        Binding("q", "quit", "quit"),
        # Textual only says which key quits; users expect the terminal's own. Also in the filter, hence first.
        Binding("ctrl+c", "quit", show=False, priority=True),
    ]
    TITLE = "gym-runtime top"
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, system: Client, address: str) -> None:
        super().__init__()
        self._system = system
        self._address = address
        self._table = "workers"
        self._sort = 0
        self._wanted = ""
        self._before: Reading | None = None
        self._view: View | None = None
        self._rates = [0.0] * REMEMBERED

    def compose(self) -> ComposeResult:
        """Title, the limit, rates, one table, keys."""
        yield Static(self._address, id="title", markup=False)
        yield Static("asking the system …", id="limit", markup=False)
        yield Sparkline(self._rates, id="rates")
        yield Lines(id="lines")
        yield Input(placeholder="only rows with this text", id="filter")
        yield Footer()

    def on_mount(self) -> None:
        """Begin to ask."""
        self.query_one(Lines).focus()
        self._watch()

    @work
    async def _watch(self) -> None:
        import anyio

        spent_s = time.process_time()
        while True:
            await self.look()
            await anyio.sleep(EVERY_S)
            before_s, spent_s = spent_s, time.process_time()  # asking, and drawing since then
            await anyio.sleep(max(0.0, (spent_s - before_s) / SHARE - EVERY_S))

    async def look(self) -> None:
        """Ask once and show the answer."""
        status, problem = None, ""
        try:
            status = await self._system.status()
        except GymError as error:
            problem = f"the system does not answer: {error}"
        if not self.query("#title"):
            return  # the screen was closed meanwhile
        if status is None:
            self._say(problem)
            return
        now = Reading(clock.monotonic(), status)
        self._view = view(now, self._before)
        if self._before is None or now.at_s - self._before.at_s >= EVERY_S / 2:
            # After a command it asks at once; a rate over a few milliseconds would say nothing.
            self._before = now
            self._rates = [*self._rates[1:], self._view.rollouts_per_s or 0.0]
            self.query_one(Sparkline).data = self._rates
        self.draw()

    def draw(self) -> None:
        """Show the latest state."""
        found = self._view
        if found is None:
            return
        self.query_one("#title", Static).update(f"{self._address}   {system_tables.headline(found)}")
        self._say(limit(found))
        head, rows = self._rows(found)
        if self._wanted:
            rows = [row for row in rows if any(self._wanted in cell.lower() for cell in row.cells)]
        column = head[self._sort % len(head)]
        if self._sort:
            rows = sorted(
                rows,
                key=lambda row: _key(row.cells[self._sort % len(head)]),
                reverse=column in system_tables.NUMBERS,
            )
        shown = tuple(f"{name} ▾" if self._sort and name == column else name for name in head)
        self.query_one(Lines).show(shown, rows, [name in system_tables.NUMBERS for name in head])

    def _rows(self, found: View) -> tuple[tuple[str, ...], Sequence[system_tables.Row]]:
        match self._table:
            case "runs":
                active_first = sorted(found.runs, key=lambda run: (run.state not in GOING_ON, -run.created_s))
                return system_tables.RUNS, system_tables.runs(active_first)
            case "engines":
                return system_tables.ENGINES, system_tables.engines(found)
            case "failures":
                return system_tables.FAILURES, system_tables.failures(found)
            case _:
                return system_tables.WORKERS, system_tables.workers(found.workers)

    def _say(self, text: str) -> None:
        self.query_one("#limit", Static).update(formatting.shorten(text, 300))

    # -- keys -----------------------------------------------------------------------------------------

    def action_table(self, name: str) -> None:
        """Show another table."""
        self._table, self._sort = name, 0
        self.draw()

    def action_sort(self) -> None:
        """Sort by the next column."""
        self._sort += 1
        self.draw()

    def action_filter(self) -> None:
        """Ask for a text that rows must have."""
        field = self.query_one(Input)
        field.display = True
        field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while it is typed."""
        self._wanted = event.value.lower()
        self.draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Back to the table; an empty filter is put away."""
        event.input.display = bool(event.value)
        self.query_one(Lines).focus()

    def action_cancel(self) -> None:
        """Cancel the chosen run, if the user says so."""
        found = self._view
        chosen = self.query_one(Lines).chosen
        run = next((one for one in found.runs if one.run == chosen), None) if found else None
        if self._table != "runs" or run is None or run.state not in GOING_ON:
            self.notify("choose an active run first: 2 shows them")
            return
        done = run.done or 0
        left = f"{run.total - done:,} of its {counted(run.total, 'rollout')} not run yet"
        if not run.total:  # of a stream
            left = f"{counted(done, 'rollout')} finished, and nothing says how many will follow"
        self._ask(
            f"Cancel run {run.run}? {left}.", lambda: self._system.cancel(run.run), f"cancelled {run.run}"
        )

    def action_pause(self) -> None:
        """Pause the chosen worker's model, or resume it, if the user says so."""
        found = self._view
        chosen = self.query_one(Lines).chosen
        workers = found.workers if found else []
        one = next((one for one in workers if one.name == chosen), None)
        if one is None or one.kind != "model" or not one.pools or self._table not in ("workers", "engines"):
            self.notify("choose the worker of a model first: 3 shows them")
            return
        op: Literal["pause", "resume"] = "resume" if one.state == "paused" else "pause"
        pool = one.pools[0]
        effect = "Rollouts wait until it is resumed." if op == "pause" else "Rollouts go on."
        self._ask(
            f"{op.capitalize()} model '{pool}', on all of its workers? {effect}",
            lambda: self._system.control(Control(op=op), model=pool),
            f"{op}d model '{pool}'",
        )

    def action_drain(self) -> None:
        """Drain the chosen worker, if the user says so."""
        found = self._view
        chosen = self.query_one(Lines).chosen
        one = next((one for one in found.workers if one.name == chosen), None) if found else None
        if one is None or one.state == "draining" or self._table not in ("workers", "engines"):
            self.notify("choose a worker that does not drain yet: 1 shows them")
            return
        self._ask(
            f"Drain {one.kind} worker {one.worker} on {one.host}? It takes no new work, finishes "
            f"{one.in_use:,} in flight and leaves; its supervisor starts no other for it.",
            lambda: self._system.drain(one.worker),
            f"{one.worker} drains",
        )

    @work
    async def _ask(self, question: str, act: Callable[[], Awaitable[object]], done: str) -> None:
        if not await self.push_screen_wait(Asked(question)):
            return
        try:
            await act()
        except GymError as error:
            self.notify(formatting.shorten(str(error), 300), severity="error", markup=False)
            return
        self.notify(done, markup=False)
        await self.look()


def _key(cell: str) -> tuple[bool, float, str]:
    """Numbers by their size, then texts.

    >>> sorted(["b", "1,000 of 2", "-", "20%"], key=_key)
    ['20%', '1,000 of 2', '-', 'b']
    """
    number = cell.split(" ")[0].replace(",", "").rstrip("%/smhin")
    try:
        return False, float(number), cell
    except ValueError:
        return True, 0.0, cell
