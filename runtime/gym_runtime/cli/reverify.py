"""``reverify``: the rewards of stored rollouts, computed anew."""

from __future__ import annotations

import sys
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import anyio
from rich.progress import Progress

from gym_runtime import catalogue
from gym_runtime.cli import figures, terminal
from gym_runtime.environment import LoadedEnvironment
from gym_runtime.errors import UsageError
from gym_runtime.files.appender import Appender
from gym_runtime.files.lock import Lock
from gym_runtime.files.results import count_lines
from gym_runtime.reverify import ReverifiedRow, reverify_file

SHOWN_REJECTIONS = 5


class Totals:
    """What re-verification has found so far."""

    def __init__(self) -> None:
        self.rows = self.changed = self.rejected = self.had_reward = 0
        self.reward_sum = self.previous_sum = 0.0

    def document(self, output: Path) -> dict[str, Any]:
        """The numbers, for people and programs."""
        return {
            "rows": self.rows,
            "changed": self.changed,
            "rejected": self.rejected,
            "mean_reward": self.reward_sum / self.rows if self.rows else None,
            "previous_mean_reward": self.previous_sum / self.had_reward if self.had_reward else None,
            "output": str(output),
        }


def reverify(name: str | None, rollouts: Path, output: Path, *, concurrency: int, as_json: bool) -> int:
    """Judge stored rows anew; 0 if every row could be judged.

    Raises:
        UsageError: a name or a file is wrong, or the disk is full.
    """
    environment = catalogue.environment(name) if name else None
    if environment is not None:
        catalogue.require(environment)
    if not rollouts.is_file():
        raise UsageError(f"{rollouts} is not a file; --rollouts wants stored rows, JSONL")
    if output.exists() and output.samefile(rollouts):
        raise UsageError(f"{output} would be read and written; choose another -o")
    if output.exists() and (not output.is_file() or output.stat().st_size):
        raise UsageError(f"{output} has content already; choose another -o")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot create {output.parent}: {error.strerror}") from None
    totals = Totals()
    anyio.run(
        _reverify,
        environment,
        rollouts,
        output,
        concurrency,
        totals,
        backend_options={"use_uvloop": sys.platform != "win32"},
    )
    _show_totals(totals, output, as_json=as_json)
    return 1 if totals.rejected else 0


async def _reverify(
    environment: LoadedEnvironment | None, rollouts: Path, output: Path, concurrency: int, totals: Totals
) -> None:
    console = terminal.errors()
    with (
        Lock(output),
        closing(Appender(output)) as writer,
        Progress(console=console, transient=True, disable=not console.is_terminal) as progress,
    ):
        bar = progress.add_task("judging", total=count_lines(rollouts))
        async with aclosing(reverify_file(rollouts, environment, concurrency=concurrency)) as found:
            async for row in found:
                if isinstance(row, ReverifiedRow):
                    writer.append(bytes(row.row))
                    totals.rows += 1
                    totals.changed += row.changed
                    totals.reward_sum += row.reward
                    if row.previous_reward is not None:
                        totals.had_reward += 1
                        totals.previous_sum += row.previous_reward
                else:
                    totals.rejected += 1
                    if totals.rejected <= SHOWN_REJECTIONS:
                        said = figures.shorten(row.fault.message, 500)
                        progress.console.print(f"{row.where}: {said}", soft_wrap=True)
                progress.advance(bar)


def _show_totals(totals: Totals, output: Path, *, as_json: bool) -> None:
    if totals.rejected > SHOWN_REJECTIONS:
        terminal.errors().print(f"… and {totals.rejected - SHOWN_REJECTIONS:,} more rows")
    document = totals.document(output)
    if as_json:
        terminal.print_json(document)
        return
    console = terminal.output()
    console.print(
        f"judged {totals.rows:,} rows, {totals.changed:,} of them with another reward than before; "
        f"{totals.rejected:,} could not be judged",
        soft_wrap=True,
    )
    before, after = document["previous_mean_reward"], document["mean_reward"]
    console.print(f"mean reward {figures.reward(after)}, was {figures.reward(before)}")
    console.print(f"rows        {output}", soft_wrap=True)
