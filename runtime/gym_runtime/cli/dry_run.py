"""``run --dry-run``: what a run would make and about what it would take; nothing is started or written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from rich.table import Table

from gym_runtime.cli import formatting, terminal
from gym_runtime.files.recorded_run import RunPlan
from gym_runtime.files.results import OutputFiles
from gym_runtime.files.run_metrics import Metrics
from gym_runtime.files.sample import samples_of
from gym_runtime.plurals import counted

if TYPE_CHECKING:
    from gym_runtime.cli.run import BudgetOptions

CHARS_PER_TOKEN = 4
"""Of prompts in English; other languages and code have fewer."""


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """The document that ``--json`` prints.

    Attributes:
        rows: of each environment.
        input_tokens, output_tokens: of the model, all rollouts together; what it writes is None if nothing
            tells.
        cost: of these tokens, in the currency of the prices; None if a price or a number is missing.
        by: what the numbers of tokens rest on.
    """

    rows: dict[str, int]
    rollouts: int
    model: str
    roles: dict[str, str]
    output: str
    input_tokens: int
    output_tokens: int | None
    cost: float | None
    by: str


class _Params(msgspec.Struct, frozen=True):
    max_output_tokens: int | None = None


class _Row(msgspec.Struct, frozen=True):
    responses_create_params: msgspec.Raw


_decode_row, _decode_params = msgspec.json.Decoder(_Row).decode, msgspec.json.Decoder(_Params).decode


def estimate(
    plan: RunPlan, files: OutputFiles, budget: BudgetOptions, *, model: str, roles: dict[str, str]
) -> Estimate:
    """What a run would take: as the rollouts that its files have took, else as far as its rows tell.

    Raises:
        UsageError: a line of the rollouts is no rollout's.
    """
    earlier = Metrics()
    if files.rollouts.exists():
        for sample, _, _ in samples_of(files.rollouts):
            earlier.add_sample(sample)
    if earlier.rollouts:
        read, written = (round(part / earlier.rollouts * plan.rollouts) for part in earlier.tokens)
        by = f"as the {counted(earlier.rollouts, 'rollout')} in {files.rollouts}"
    else:
        read, written = _from_rows(plan)
        what = "the prompts once" if written is None else "at most"
        by = f"{what}, a token for {CHARS_PER_TOKEN} characters"
    return Estimate(
        rows=dict(plan.dataset.environments),
        rollouts=plan.rollouts,
        model=model,
        roles=roles,
        output=str(files.rollouts),
        input_tokens=read,
        output_tokens=written,
        cost=None if written is None else budget.price(read, written),
        by=by,
    )


def _from_rows(plan: RunPlan) -> tuple[int, int | None]:
    """The most tokens, read and written, of rollouts whose turns and answers are limited.

    Each turn reads the prompt and all answers before it. Without limits: the prompts once, and None.
    """
    prompts = read = written = 0
    limited = True
    for spec in plan.specs("dry-run", attached=False):
        params = _decode_row(spec.row).responses_create_params
        answer, turns = _decode_params(params).max_output_tokens, spec.max_turns
        prompt = len(bytes(params)) // CHARS_PER_TOKEN
        prompts += prompt
        if answer is None or turns is None:
            limited = False
        else:
            read += turns * prompt + answer * turns * (turns - 1) // 2
            written += turns * answer
    return (read, written) if limited else (prompts, None)


def show(found: Estimate, *, as_json: bool) -> None:
    """Print it on standard output."""
    if as_json:
        terminal.print_json(found)
        return
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, style="bold")
    grid.add_column(overflow="fold")
    rows = sum(found.rows.values())
    grid.add_row("rollouts", f"{found.rollouts:,}  (of {counted(rows, 'row')})")
    grid.add_row("environments", formatting.listed([f"{name} {rows:,}" for name, rows in found.rows.items()]))
    grid.add_row("model", found.model)
    for role, model in found.roles.items():
        grid.add_row(role, f"{model}  (its tokens are not among those below)")
    tokens = f"about {found.input_tokens:,} in"
    tokens += "" if found.output_tokens is None else f", {found.output_tokens:,} out"
    grid.add_row("tokens", f"{tokens}  ({found.by})")
    if found.output_tokens is None:
        grid.add_row(
            "",
            "answers and further turns are not known: limit them (--max-turns, --max-output-tokens), or run "
            "with --limit 2 first and ask again",
        )
    if found.cost is not None:
        grid.add_row("cost", f"about {found.cost:,.4g}")
    grid.add_row("output", found.output)
    terminal.output().print(grid)
