"""``import-atif``: documents of ATIF as result rows."""

from __future__ import annotations

from pathlib import Path

from gym_runtime.cli import AsJson, RequiredOutput, terminal
from gym_runtime.errors import UsageError

from gym_view import atif_files


def import_atif(
    *documents: Path,
    output: RequiredOutput,
    environment: str = "",
    json: AsJson = False,
) -> int:
    """Write ATIF trajectories as result rows, which view and export read.

    Args:
        documents: Documents, .jsonl files with one a line, or folders: each trajectory.json in them, in a
            trial's folder of Harbor with its reward.
        output: The file of rows, such as results/imported.jsonl.
        environment: The environment whose rows they become, if a document does not say.
    """
    if not documents:
        raise UsageError("say which: gym-runtime import-atif jobs/JOB -o results/imported.jsonl")
    count = atif_files.imported(documents, output, environment=environment)
    without = atif_files.without_trajectory(documents)
    if json:
        terminal.print_json({"rows": count, "file": str(output), "without_trajectory": without})
        return 0
    rows = f"{count:,} {'row' if count == 1 else 'rows'}"
    terminal.say(f"{rows}: {output}")
    if without:
        few = (
            f"{without:,} left out: the trial has a result and no trajectory, such as of an agent that ended"
        )
        terminal.say(few)
    return 0
