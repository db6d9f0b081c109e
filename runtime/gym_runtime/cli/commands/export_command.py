"""``export``: rollouts as data to train on."""

from __future__ import annotations

from gym_view import training_data

from gym_runtime.cli import terminal
from gym_runtime.cli.options.data_options import ExportOptions
from gym_runtime.errors import UsageError


def export(options: ExportOptions) -> int:
    """Write them and say what was written.

    Raises:
        UsageError: as `training_data.export`, or no file was named.
    """
    if not options.rollouts:
        raise UsageError("say which files: gym-runtime export results/mcqa.jsonl -o mcqa.parquet")
    done = training_data.export(
        options.rollouts,
        options.output,
        form=options.format,
        best_of=options.best_of,
        min_reward=options.min_reward,
    )
    if options.json:
        terminal.print_json(done)
        return 0
    console = terminal.output()
    rows = f"{done.rows:,} {'row' if done.rows == 1 else 'rows'}"
    console.print(f"{rows}: {options.output}", soft_wrap=True)
    for reason, count in done.left_out.items():
        console.print(f"{count:,} left out: {reason}", soft_wrap=True)
    return 0
