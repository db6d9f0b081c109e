"""From options to rollouts: where the rows are, what is to be made of them, and which run that is.

``run`` and ``publish`` share it.
"""

from __future__ import annotations

from collections.abc import Iterator

from gym_runtime import clock
from gym_runtime.cli.options import RunOptions
from gym_runtime.environment import catalogue
from gym_runtime.errors import UsageError
from gym_runtime.files.dataset import Dataset, Source
from gym_runtime.files.rows import expand
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.messages.run_info import RunInfo


def sources(options: RunOptions) -> list[Source]:
    """The file that was named, or the environments' own examples.

    Raises:
        UsageError: neither a file nor an environment was named, or there is no such environment.
    """
    if options.input is not None:
        return [Source(str(options.input), options.names[0] if len(options.names) == 1 else None)]
    if not options.names:
        raise UsageError("say what to run: gym-runtime run NAME, or -i FILE with rows that carry agent_ref")
    return [Source(str(catalogue.environment(name).examples), name) for name in options.names]


def tasks(
    options: RunOptions, dataset: Dataset, run: str, *, model: str = "policy", attached: bool = False
) -> Iterator[RolloutSpec]:
    """The rollouts to be made, in the order of the rows. The same options give the same ones each time."""
    return expand(
        dataset.read(),
        run=run,
        repeats=options.repeats,
        sampling=options.sampling,
        add_seed=options.seed_repeats,
        agent=options.agent,
        model=model,
        timeout_s=options.timeout_s,
        max_attempts=options.max_attempts,
        durability=options.durability,
        max_turns=options.max_turns,
        return_tokens=options.return_token_ids,
        max_staleness=options.max_staleness,
        attached=attached,
        numbering=dataset.numbering(),
    )


def run_info(options: RunOptions, dataset: Dataset, run: str, total: int) -> RunInfo:
    """What others are told of the run: ``total`` rollouts, and the agents that they wait for."""
    agents = sorted(dataset.agents) if options.agent is None else [options.agent]
    return RunInfo(
        run=run,
        total=total,
        environments=sorted(dataset.environments),
        agents=agents,
        created_s=clock.now(),
    )
