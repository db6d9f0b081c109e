"""``fork``: a run whose rollouts begin with the first turns of a stored one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec

from gym_runtime.cli.options import AT_LEAST_ONE, FLAT
from gym_runtime.cli.run import RESULTS, RUN, RunOptions
from gym_runtime.errors import UNREADABLE, UsageError


def fork(
    rollout: str,
    /,
    *,
    times: Annotated[int, AT_LEAST_ONE] = 1,
    tool_output: str | None = None,
    go_on: bool = False,
    environment: str | None = None,
    options: Annotated[RunOptions, FLAT] = RUN,
) -> int:
    """Make new rollouts that begin with the first turns of a stored one.

    The recorded answers are used; the environment's calls are made again in new sessions, and must be
    answered as they were. From the next turn on the model is asked. Flags of sampling replace what is
    recorded. The row that is run is put beside the output, as NAME_fork.jsonl.

    Args:
        rollout: A stored rollout and how many turns of it are shared: FILE:TASK@TURN or
            FILE:TASK.ROLLOUT@TURN; without ROLLOUT it is the first one of its task.
        times: How many rollouts begin there.
        tool_output: What the model is told that its last shared call answered, in place of the real answer;
            for several calls a JSON object of texts by call_id.
        go_on: Where a repeated call is answered differently, go on with the new answer; by default the
            rollout fails.
        environment: The environment of a row that names none.
    """
    from gym_runtime.cli.whole_run import WholeRun
    from gym_runtime.environment import catalogue
    from gym_runtime.files.appender import write_whole
    from gym_runtime.files.forks import Change, forked, stored_row

    if options.input is not None or options.extend:
        raise UsageError("fork runs one row, which it makes itself: leave --input and --extend out")
    line, turn = stored_row(rollout)
    sampling = options.rollouts.sampling
    change = Change(system_prompt=sampling.system_prompt, tool_output=_outputs(tool_output))
    made = forked(line, turn, change, on_difference="go_on" if go_on else "fail")
    file, _, place = rollout.rpartition(":")
    output = options.output or RESULTS / f"{Path(file).stem}-fork-{place.replace('@', '-')}.jsonl"
    rows = output.with_name(f"{output.stem}_fork.jsonl")
    try:
        rows.parent.mkdir(parents=True, exist_ok=True)
        write_whole(rows, iter([made + b"\n"]))
    except OSError as error:
        raise UsageError(f"cannot write {rows}: {error.strerror}") from None
    asked = replace(
        options.rollouts,
        repeats=(str(times),),
        sampling=replace(sampling, system_prompt=None),
    )
    names = catalogue.several((environment,) if environment else ())
    return WholeRun(names, replace(options, input=rows, output=output, rollouts=asked)).run()


def _outputs(said: str | None) -> str | dict[str, str] | None:
    """A text, or texts by ``call_id``."""
    try:
        return msgspec.json.decode(said or "", type=dict[str, str])
    except UNREADABLE:
        return said
