"""``fork``: a run whose rollouts begin with the first turns of a stored one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from gym_runtime.cli.options import FLAT, REPEATS
from gym_runtime.cli.run import RESULTS, RUN, RunOptions
from gym_runtime.errors import UNREADABLE, UsageError

if TYPE_CHECKING:
    from gym_runtime.cli.options import RolloutOptions
    from gym_runtime.files.forks import StoredRollout


def fork(
    rollout: str,
    /,
    *,
    times: Annotated[int, REPEATS] = 1,
    tool_output: str | None = None,
    go_on: bool = False,
    environment: str | None = None,
    options: Annotated[RunOptions, FLAT] = RUN,
) -> int:
    """Make new rollouts that begin with the first turns of a stored one.

    The recorded answers are used; the environment's calls are made again in new sessions, and must be
    answered as they were. From the next turn on the model is asked. The agent and its options are those of
    the rollout's run, as the manifest beside its file says; --agent and --agent-set replace them, and flags
    of sampling what is recorded. The row that is run is put beside the output, as NAME_fork.jsonl.

    Args:
        rollout: A stored rollout and how many turns of it are shared: FILE:TASK@TURN or
            FILE:TASK.ROLLOUT@TURN; without ROLLOUT it is the first one of its task.
        times: How many rollouts begin there.
        tool_output: What the model is told that its last shared call answered, in place of the real answer.
            Of several calls, a JSON object of texts by call_id; of one call, an object without its call_id is
            the text itself.
        go_on: Where a repeated call is answered differently, go on with the new answer; by default the
            rollout fails.
        environment: The environment of a row that names none, or one that is not installed here: a module's
            path, or a guest's SCHEME:ADDRESS.
    """
    from gym_runtime.cli.whole_run import WholeRun
    from gym_runtime.files.dataset import Source
    from gym_runtime.files.forks import Change, answered_calls, forked, stored_rollout
    from gym_runtime.files.results import OutputFiles

    if options.input is not None:
        raise UsageError("fork runs one row, which it makes itself: leave --input out")
    if options.rollouts.repeats:
        raise UsageError("fork makes --times rollouts: leave --repeats out")
    stored = stored_rollout(rollout, environment)
    sampling = options.rollouts.sampling
    told = tool_output and _outputs(tool_output, answered_calls(stored.line, stored.turn))
    change = Change(system_prompt=sampling.system_prompt, tool_output=told)
    made = forked(stored.line, stored.turn, change, on_difference="go_on" if go_on else "fail")
    file, _, place = rollout.rpartition(":")
    output = options.output or RESULTS / f"{Path(file).stem}-fork-{place.replace('@', '-')}.jsonl"
    rows = output.with_name(f"{output.stem}_fork.jsonl")
    OutputFiles.beside(output).refuse_inputs(stored.path)
    if rows.resolve() == stored.path.resolve():
        raise UsageError(f"{rows} would be read and written; choose another -o")
    if rows.exists() and not output.exists() and not options.overwrite:
        raise UsageError(f"{rows}, where the forked row goes, exists; choose another -o, or --overwrite it")
    asked = replace(
        _with_agent(options.rollouts, stored),
        repeats=(str(times),),
        sampling=replace(sampling, system_prompt=None),
    )
    source = Source(str(rows), environment, called=rollout, content=made + b"\n")
    names = (environment,) if environment else ()
    return WholeRun(names, replace(options, input=rows, output=output, rollouts=asked), source).run()


def _with_agent(asked: RolloutOptions, stored: StoredRollout) -> RolloutOptions:
    """The options with the agent of the stored rollout, as far as they do not replace it."""
    from gym_runtime.cli import terminal

    if stored.run is None and asked.settings.agent is None:
        terminal.note(
            f"{stored.path} has no manifest beside it: the agent is the environment's; --agent names another"
        )
    agent, recorded = stored.agent(asked.settings.agent)
    given = {text.partition("=")[0] for text in asked.agent_options}
    kept = [f"{name}={_encode(value)}" for name, value in recorded.items() if name not in given]
    return replace(
        asked, settings=replace(asked.settings, agent=agent), agent_options=(*kept, *asked.agent_options)
    )


def _encode(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _outputs(said: str, calls: Sequence[str]) -> str | dict[str, str]:
    """A text, or texts by ``call_id``: a tool may answer with an object, too."""
    try:
        texts = msgspec.json.decode(said, type=dict[str, str])
    except UNREADABLE:
        return said
    return said if len(calls) == 1 and calls[0] not in texts else texts
