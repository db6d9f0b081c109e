"""``merge``: the result files of several runs as those of one."""

from __future__ import annotations

from gym_runtime.cli import result, terminal
from gym_runtime.cli.options.data_options import MergeOptions
from gym_runtime.cli.tally import Tally
from gym_runtime.errors import UsageError
from gym_runtime.files.merging import merge as merge_files
from gym_runtime.files.merging import refuse_missing
from gym_runtime.files.results import OutputFiles
from gym_runtime.files.run_metrics import Metrics


def merge(options: MergeOptions) -> int:
    """Write the merged files and show what they come to; 0 if there is a reward.

    Raises:
        UsageError: a file is missing or wrong, two different rows have the same numbers, or there are rows at
            the output already.
    """
    if len(options.rollouts) < 2:
        raise UsageError("say which files: gym-runtime merge A.jsonl B.jsonl -o C.jsonl")
    refuse_missing(options.rollouts)
    files = OutputFiles.beside(options.output)
    for path in options.rollouts:
        files.refuse_inputs(*OutputFiles.beside(path).all())
    metrics = Metrics(failures_as_zero=options.failures_as_zero)
    with files.lock():
        there = [path for path in files.all() if path.exists() and path.stat().st_size]
        if there and not options.overwrite:
            raise UsageError(f"{there[0]} has content already; choose another -o, or --overwrite")
        merged = merge_files(options.rollouts, files, metrics)
    if merged.repeated or merged.recovered:
        terminal.errors().print(
            f"{merged.repeated:,} rows stood in more than one file; {merged.recovered:,} rollouts that "
            "failed in one have a row in another",
            soft_wrap=True,
        )
    summary = metrics.summary()
    found = result.make(
        summary, run="", files=files, parts=result.parts(metrics), tally=Tally(summary.rollouts), wall_s=0.0
    )
    if options.json:
        terminal.print_json(found)
    else:
        result.show(found, terminal.output())
    return 0 if summary.mean_reward is not None else 1
