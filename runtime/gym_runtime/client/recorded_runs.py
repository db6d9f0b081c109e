"""Runs of whole datasets that are recorded in files, and resumed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import ExitStack, aclosing, asynccontextmanager
from pathlib import Path

import anyio
from anyio import to_thread

from gym_runtime.client.recovery import Remains, take_up
from gym_runtime.client.row_sources import POLICY, NewRuns
from gym_runtime.client.run import Keep, run_rollouts
from gym_runtime.client.runs import Runs
from gym_runtime.client.streaming import background
from gym_runtime.files.recorded_run import RecordedRun, RunPlan
from gym_runtime.files.results import InputWriter, OutputFiles, ResultWriter, load_manifest
from gym_runtime.files.stored_images import Images
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.messages.stored_records import new_run_id
from gym_runtime.timing import FLUSH_S

FILES_CLOSE_S = 15.0
"""How long a recorded run that is left early may take to stop its work and close its files."""

NOTHING_LEFT = (
    "the interrupted run left nothing on this broker: what was in progress is made from the start (a broker "
    "that stays, --nats or --state-dir, keeps it)"
)
Expecting = Callable[[Iterable[RolloutSpec]], Iterable[RolloutSpec]]


async def run_recorded(
    runs: Runs,
    recorded: RecordedRun,
    *,
    in_flight: int,
    note: Callable[[str], None] | None = None,
    expecting: Expecting | None = None,
) -> AsyncGenerator[RolloutRecord]:
    """Run the rollouts that a recorded run still lacks; see `Client.recorded`."""
    progress = recorded.progress
    remains = None
    if progress.previous is not None:
        remains = await take_up(runs, recorded.run, progress)
        if remains is None:
            if note is not None and not progress.previous.counts:
                note(NOTHING_LEFT)
            recorded.rename(new_run_id())
    elif recorded.superseded:
        recorded.rename(new_run_id())  # what is at the broker is of other rows or settings
    inputs = InputWriter(recorded.files.materialized_inputs, resume=progress.previous is not None)
    closed = anyio.Event()
    records = run_rollouts(
        runs,
        _missing(recorded, inputs, remains, expecting),
        recorded.plan.info(recorded.run, recorded.missing, recorded.model),
        in_flight=in_flight,
        remains=remains,
        settled=progress.settled if progress.previous is not None else None,
        keeping=_writing(recorded, inputs, closed),
        restored=inputs.restored,
        over=recorded.note_end,
    )
    try:
        async with aclosing(records):
            async for record in records:
                yield record
    finally:
        # The work owns the files, and has not ended yet if this generator is left early.
        with anyio.move_on_after(FILES_CLOSE_S, shield=True):
            await closed.wait()


@asynccontextmanager
async def recording(
    plan: RunPlan,
    new_runs: NewRuns,
    output: str | Path,
    *,
    resume: bool,
    retry_failed: bool,
    images: Images = "inline",
) -> AsyncGenerator[RecordedRun]:
    """A recorded run of a plan; when the context ends its summary is written."""
    files = OutputFiles.beside(output)
    info = new_runs.info(plan.settings)
    served = new_runs.served if plan.settings.model_pool == POLICY else None
    with files.lock():
        previous = load_manifest(files.manifest) if resume else None
        # Opening reads what an earlier part of the run has written, which may be gigabytes.
        recorded = await to_thread.run_sync(
            lambda: RecordedRun(
                plan,
                output,
                run=previous.run if previous else info.run,
                model=info.model,
                settings={"model_options": served.options} if served else None,
                resume=resume,
                retry_failed=retry_failed,
                images=images,
            )
        )
        try:
            yield recorded
        finally:
            # Also after Ctrl-C: the summary must fit the rows that were written.
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(recorded.summarize)


def _missing(
    recorded: RecordedRun, inputs: InputWriter, remains: Remains | None, expecting: Expecting | None
) -> Iterator[RolloutSpec]:
    """The rollouts that are left to run; all rollouts, run or not, go to the inputs."""

    def left() -> Iterator[RolloutSpec]:
        for spec in recorded.plan.specs(recorded.run, attached=True):
            yield from recorded.progress.remaining([inputs.add(spec)])

    for spec in expecting(left()) if expecting else left():
        if remains is None:
            yield spec
        elif (spec.task_index, spec.rollout_index) not in remains.results:
            yield remains.resumed(spec)


async def keep_flushing(*writers: InputWriter | ResultWriter) -> None:
    """Have lines on the disk within moments, until cancelled."""
    while True:
        await anyio.sleep(FLUSH_S)
        for writer in writers:
            writer.flush()


@asynccontextmanager
async def _writing(recorded: RecordedRun, inputs: InputWriter, closed: anyio.Event) -> AsyncGenerator[Keep]:
    """Writes records; closes the files when the context ends, and says so."""
    with ExitStack() as stack:
        # First in, last out: the files are closed when this is called.
        stack.callback(closed.set)
        stack.enter_context(inputs)
        writer = stack.enter_context(ResultWriter(recorded.files, recorded.images))

        def keep(record: RolloutRecord) -> None:
            writer.write(record)
            recorded.metrics.add(record)

        async with background() as tasks:
            tasks.start_soon(keep_flushing, inputs, writer)
            yield keep
