"""``cancel``: stopping a run, or a part of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from gym_runtime.cli import remote, terminal
from gym_runtime.cli.options import BROKER, NOT_NEGATIVE, Broker
from gym_runtime.errors import UsageError
from gym_runtime.messages.stored_records import RunInfo
from gym_runtime.plurals import counted

if TYPE_CHECKING:
    from gym_runtime.client import Client


def cancel(
    run: str,
    /,
    *,
    task: Annotated[int | None, NOT_NEGATIVE] = None,
    rollout: Annotated[int | None, NOT_NEGATIVE] = None,
    broker: Broker = BROKER,
) -> None:
    """Stop a run, one of its tasks, or one rollout.

    The results of a stopped run are deleted, except those already collected. A run whose rollouts are all
    finished is kept for collect.

    Args:
        run: The run's id, as publish printed it.
        task: Only the rollouts of this task.
        rollout: Only this rollout of the task.
    """
    if rollout is not None and task is None:
        raise UsageError(f"--rollout {rollout} needs its task: --task I --rollout {rollout}")

    async def stop(gym: Client) -> tuple[RunInfo, bool]:
        info = await gym.driver.known(RunInfo(run=run, total=0))
        if info.state != "active":
            return info, False
        # Cancelling frees the results as well, and a run whose rollouts are done has nothing to stop. A
        # client's open run has no total.
        has_all = 0 < info.total <= await gym.driver.made(run)
        if not has_all:
            await gym.cancel(run, task, rollout)
        return info, has_all

    info, has_all = remote.ask(broker, stop)
    if info.state != "active":
        terminal.say(f"run {run} is {info.state} already")
        return
    if has_all:
        terminal.say(
            f"run {run} has nothing to stop: {counted(info.total, 'rollout has', 'rollouts have')} finished; "
            f"'gym-runtime collect {run} -o FILE' fetches them"
        )
        return
    which = ".".join(str(part) for part in (run, task, rollout) if part is not None)
    terminal.say(f"cancelled {which}")
