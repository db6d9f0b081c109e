"""``export``: rollouts as data to train on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from gym_runtime.cli import AT_LEAST_ONE, AsJson, RequiredOutput, terminal
from gym_runtime.errors import UsageError
from gym_runtime.plurals import counted

from gym_view import atif_files, harbor_export, inspect_logs, training_data
from gym_view.run_files import one_file


def export(
    *rollouts: Path,
    output: RequiredOutput,
    format: Literal["rollouts", "messages", "completion", "pairs", "atif", "inspect", "harbor"] = "rollouts",  # noqa: A002 - the flag
    best_of: Annotated[int | None, AT_LEAST_ONE] = None,
    min_reward: float | None = None,
    tokens: Literal["none", "completion", "all"] = "completion",
    image: str = "localhost/gym-runtime",
    json: AsJson = False,
) -> int:
    """Write rollouts with a verdict as Parquet, with trainers' columns, as ATIF, or for inspect or Harbor.

    For NeMo Gym's files too. Rows that have no such form are left out and counted.

    Args:
        rollouts: Result files, such as results/mcqa.jsonl, or folders with one run each.
        output: One file if the name ends in .parquet (of atif: in .jsonl), else a folder, for Hugging Face's
            datasets; of atif, with a file for each rollout; of inspect and harbor, for each task.
        format: rollouts: all there is, what is nested as JSON; messages: one conversation, for supervised
            fine-tuning; completion: prompt and completion apart; pairs: of each task the best and the worst
            rollout, for preference training; atif: a trajectory document for each rollout; inspect: logs for
            `inspect score`, of a run of inspect:NAME?log=true; harbor: a folder for each task that one answer
            solves, as Harbor runs it.
        best_of: Only the best of each task's first N rollouts; of equal ones the earliest.
        min_reward: Only rollouts with at least this reward; of pairs, the better one must have it.
        image: Of harbor: the image that the tasks' images are made of; it has gym-runtime.
        tokens: Of atif: which token ids are written: none, those of completions, or prompts', too.
    """
    if not rollouts:
        raise UsageError("say which files: gym-runtime export results/mcqa.jsonl -o mcqa.parquet")
    rollouts = tuple(map(one_file, rollouts))
    if format in ("inspect", "harbor"):
        if best_of is not None or min_reward is not None:
            raise UsageError(f"--format {format} takes all rollouts: leave --best-of and --min-reward out")
        if format == "inspect":
            done = inspect_logs.export(rollouts, output)
        else:
            done = harbor_export.export(rollouts, output, image=image)
    elif format == "atif":
        done = atif_files.export(rollouts, output, tokens=tokens, best_of=best_of, min_reward=min_reward)
    else:
        done = training_data.export(rollouts, output, form=format, best_of=best_of, min_reward=min_reward)
    if json:
        terminal.print_json(done)
        return 0
    console = terminal.output()
    console.print(f"{counted(done.rows, 'row')}: {output}", soft_wrap=True)
    for reason, count in done.left_out.items():
        console.print(f"{count:,} left out: {reason}", soft_wrap=True)
    return 0
