"""``collect``: the rows of a run that was published elsewhere, into files, as they come.

Rows are on the disk a moment after they came. Stopped by a signal, or killed, it goes on with its own files
when it is started again.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import nullcontext, suppress

import anyio
import msgspec
from anyio import to_thread

from gym_runtime.cli import formatting, result, terminal
from gym_runtime.cli.display import Display
from gym_runtime.cli.interruption import INTERRUPTED
from gym_runtime.cli.options import (
    BROKER,
    WATCH,
    AsJson,
    Broker,
    FailOnFailures,
    FailuresAsZero,
    RequiredOutput,
    Watch,
)
from gym_runtime.cli.remote import run_async
from gym_runtime.client import Client, RunInfo, connect, unserved
from gym_runtime.client.recorded_runs import keep_flushing
from gym_runtime.client.reward_watch import load_watch
from gym_runtime.client.run import Run
from gym_runtime.client.runs import tasks_of
from gym_runtime.client.status import Counter, read_controls
from gym_runtime.client.streaming import background
from gym_runtime.errors import GymError
from gym_runtime.files.appender import write_whole
from gym_runtime.files.recorded_run import benchmark_scores
from gym_runtime.files.results import OutputFiles, ResultWriter
from gym_runtime.files.resume import read_collected
from gym_runtime.files.run_metrics import Metrics
from gym_runtime.messages.alarms import Alarm
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.plurals import counted

LOOK_S = 5.0
"""How often it is checked, while no result comes, whether one can still come."""


async def tell_missing(gym: Client, info: RunInfo, metrics: Metrics, note: Callable[[str], None]) -> None:
    """Say once that the broker has no tasks of a run whose results are not complete.

    Tasks are stored until their results are. Two looks: a client that publishes may only be slow.
    """
    before, looks = -1, 0
    while looks < 2:
        await anyio.sleep(LOOK_S)
        with suppress(GymError):
            quiet = metrics.rollouts == before < info.total
            stored = quiet and [await gym.driver.bus.counts(one) for one in tasks_of(info.run)]
            looks = looks + 1 if quiet and not any(stored or ()) else 0
        before = metrics.rollouts
    missing = f"{info.total - before:,} of {counted(info.total, 'rollout')}"
    note(
        f"{missing} will not come: 'publish' was killed, or they waited for over 30 days. "
        f"'gym-runtime cancel {info.run}' ends the run with what has come; publish the other rows again"
    )


def collect(
    run: str,
    /,
    *,
    output: RequiredOutput,
    json: AsJson = False,
    failures_as_zero: FailuresAsZero = False,
    fail_on_failures: FailOnFailures = False,
    watch: Watch = WATCH,
    broker: Broker = BROKER,
) -> int:
    """Write a published run's rollouts to a file, as they come; from any machine.

    Args:
        run: The run's id, as publish printed it.
        output: The rollouts.
    """
    urls = broker.required()
    files = OutputFiles.beside(output)
    alarms = files.alarms
    metrics = Metrics(failures_as_zero=failures_as_zero)
    interrupted = stopped = False

    async def stop_on_signal(scope: anyio.CancelScope) -> None:
        nonlocal interrupted
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _ in signals:
                interrupted = True
                scope.cancel()

    async def main() -> None:
        async with connect(urls, prefix=broker.prefix) as gym:
            info = now = await gym.driver.run(run)
            has_all = len(had) and (info.done, info.failed) == (metrics.rollouts, metrics.failures.total())
            if info.closed and not has_all:
                await gym.driver.stored_run(run)  # for its error
            workers = await gym.workers() if info.state == "active" else None
            with ResultWriter(files) as writer, Display(info.total, metrics, label=run) as display:

                def take(record: RolloutRecord) -> None:
                    writer.write(record)
                    metrics.add(record)
                    display.add(record)

                if workers is not None:
                    for line in unserved(
                        workers, agents=info.agents, environments=info.environments, models=info.models
                    ):
                        display.note(line)
                    control = (await read_controls(gym.driver.bus)).get(run)
                    if control is not None and control.paused:
                        display.note(f"run {run} is paused; 'gym-runtime resume {run}' lets it go on")

                async with background() as tasks:
                    tasks.start_soon(keep_flushing, writer)
                    tasks.start_soon(stop_on_signal, tasks.cancel_scope)
                    if info.state == "active" and info.total and not info.attached:
                        tasks.start_soon(tell_missing, gym, info, metrics, display.note)
                    collected = Run(
                        gym.driver,
                        info,
                        take,
                        total=info.total - len(had),
                        settled=lambda task, rollout: (task, rollout) in had,
                        counter=Counter(),
                    )

                    def tell(what: Alarm | str) -> None:
                        nonlocal stopped
                        display.note(str(what))
                        if isinstance(what, Alarm):
                            gym.driver.alarms.ring(what)
                            if watch.stop_on_alarm:
                                stopped = True
                                tasks.start_soon(gym.cancel, run)

                    looking = nullcontext()
                    if watch.watch_rewards is not None:
                        names = {name: name for name in info.environments}
                        looking = load_watch()(names, watch.watch_rewards, watch.second_look, alarms, tell)
                    # Outside of the looks: those that are left at the end may ring, too.
                    counted = gym.driver.alarms.counted_in(run, collected.counter)
                    async with counted, looking as gym.driver.alarms.watch:
                        complete, now = await collected.follow_to_end()
                    # What the broker then frees is nowhere else.
                    writer.sync()
                    if (complete or now.state == "cancelled") and not now.closed:
                        # What an earlier call has written is not among the figures.
                        figures = None if len(had) else collected.counter.figures()
                        now = msgspec.structs.replace(
                            now,
                            done=metrics.rollouts,
                            failed=metrics.failures.total(),
                            figures=figures,
                            alarms=collected.counter.alarms,
                        )
                        state = "cancelled" if now.state == "cancelled" else "finished"
                        await gym.driver.finish_run(now, state=state)
            metrics.scores = await to_thread.run_sync(benchmark_scores, files.rollouts, metrics.agents)
            result.report(
                metrics.summary(),
                run=run,
                files=files,
                tally=display.tally,
                wall_s=display.wall_s,
                fetched=True,
                as_json=json,
            )
            if now.state == "cancelled":
                terminal.note(f"run {run} was {formatting.cancelled(now.cancelled_by, now.cancelled_s)}")

    with files.lock():
        had = read_collected(files, run, metrics)
        run_async(main)
        write_whole(files.aggregate_metrics, metrics.aggregate())
    if interrupted:
        terminal.note("interrupted; the same command continues with these files")
        return INTERRUPTED
    return result.status(metrics.summary(), fail_on_failures=fail_on_failures) or int(stopped)
