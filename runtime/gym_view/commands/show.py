"""``show``: one rollout in the terminal, the verdict first."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter
from gym_runtime.cli import AsJson, formatting, terminal
from gym_runtime.errors import UNREADABLE, UsageError
from gym_runtime.escapes import shown
from gym_runtime.messages import ReadableItem, as_text, readable_items
from gym_runtime.plurals import counted
from rich.console import Console
from rich.text import Text

from gym_view.find import find_rollout
from gym_view.row import OWN, Card, card

MAX_CHARACTERS = 4000
FIELD_CHARACTERS = 200
RESULTS = Path("results")


def show(
    rollout: str,
    /,
    *,
    folder: Annotated[Path, Parameter(name="--in")] = RESULTS,
    json: AsJson = False,
) -> int:
    """Show one rollout in the terminal: its verdict, then its conversation.

    Args:
        rollout: A rollout's id; or a file with a line's number, or with TASK.ROLLOUT, as in FILE:N.
        folder: Where rollouts with an id are looked for.
    """
    rows, line = find_rollout(rollout, folder)
    try:
        row = msgspec.json.decode(line, type=dict[str, Any])
    except UNREADABLE as error:
        raise UsageError(f"this row of {rows} is no JSON object: {error}") from None
    if json:
        terminal.print_json(row)
        return 0
    console = terminal.output()
    items = list(readable_items(row))
    long = sum(item.text.count("\n") + 2 for item in items) > console.height
    with console.pager(styles=True) if long and sys.stdout.isatty() else nullcontext():
        _print_card(console, row, card(row))
        turn = -1
        for item in items:
            if item.turn != turn:
                turn = item.turn
                console.print(Text(f"\n── {f'turn {turn}' if turn else 'prompt'} ──", style="dim"))
            _print_item(console, item)
    return 0


def _print_card(console: Console, row: dict[str, Any], about: Card) -> None:
    style = "bold" if about.reward is None else "bold green" if about.reward > 0 else "bold red"
    numbers = [row[name] for name in ("_ng_task_index", "_ng_rollout_index") if row.get(name) is not None]
    title = about.rollout_id or ".".join(map(str, numbers))  # a reply that an audit made has neither
    reward = Text(f"reward {formatting.reward(about.reward)}", style=style)
    console.print(reward + Text(f"  {about.outcome}  {formatting.shorten(title, 200)}".rstrip()))
    lines: list[tuple[str, str]] = []
    if about.failure:
        lines.append(("failed", about.failure))
    lines += [("of which", f"{name} {value:g}") for name, value in about.components.items()]
    lines += [("found", f"{name}: {value or 'nothing'}") for name, value in about.found.items()]
    lines += [("expected", f"{name}: {value}") for name, value in about.expected.items()]
    for one in about.asked:
        label = f"{one.label or 'no label'}: " if one.label != "" else ""
        lines += [(one.role, f"was asked: {one.question}")] if one.question else []
        lines.append((one.role, f"{label}{one.answer}"))
    lines += [(name, said) for name, said in about.judged.items()]
    lines += [(name, formatting.shorten(said, FIELD_CHARACTERS)) for name, said in _rest(row, about)]
    lines += [("limit", limit) for limit in about.limits]
    if about.tool_error is not None:
        lines.append(("tool error", f"turn {about.tool_error.turn}: {about.tool_error.error}"))
    if about.attempt > 1 or about.again:
        lines.append(
            ("attempt", ", ".join([str(about.attempt), *(f"started again: {why}" for why in about.again)]))
        )
    if about.fork is not None:
        fork, changed = about.fork, "".join(f", another {name}" for name in about.fork.changed)
        source = f"{fork.run or 'rollout'} {fork.task}.{fork.rollout}"
        lines.append(("fork", f"begins with {counted(fork.turn, 'turn')} of {source}{changed}"))
    if about.facts:
        lines.append(("", about.facts))
    for name, said in lines:
        label = Text(f"{formatting.shorten(shown(name), 40):<12} ", style="dim")
        console.print(label + _plain(said), soft_wrap=True)


def _rest(row: Mapping[str, Any], about: Card) -> list[tuple[str, str]]:
    """The row's other fields, besides the conversation: the reward may rest on any of them."""
    known = {*OWN, *about.found, *about.expected, *about.judged, *(one.role for one in about.asked)}
    return [
        (name, as_text(value))
        for name, value in row.items()
        if not {name, name.replace("_", " ")} & known and value is not None
    ]


def _print_item(console: Console, item: ReadableItem) -> None:
    style = {"user": "bold", "system": "bold", "assistant": "bold blue", "reasoning": "dim"}.get(
        item.who, "yellow"
    )
    console.print(Text(formatting.shorten(item.who, 200), style="bold red" if item.error else style))
    console.print(_plain(item.text), style="dim" if item.who == "reasoning" else "")


def _plain(said: str) -> Text:
    """Foreign text, not endless. Before `rich` sees it, which drops some characters that it would obey."""
    more = len(said) - MAX_CHARACTERS
    return Text(shown(said[:MAX_CHARACTERS]) + (f" … {more:,} more characters (--json)" if more > 0 else ""))
