"""The runs that a broker knows: opened, published, cancelled, ended; what is stored for them is freed."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress

import anyio
import msgspec
from anyio.abc import TaskGroup

from gym_runtime import clock, tracing
from gym_runtime.bus import blobs
from gym_runtime.bus.interface import Bus, Headers, Incoming
from gym_runtime.bus.streams import LIFE_S
from gym_runtime.client.reward_watch import Alarms
from gym_runtime.client.status import Counter, results
from gym_runtime.client.stored import first_result
from gym_runtime.client.streaming import background
from gym_runtime.environment import catalogue
from gym_runtime.errors import (
    BrokerError,
    ConnectionLost,
    DeadlineExceeded,
    GymError,
    NoWorker,
    UsageError,
)
from gym_runtime.logs import logger
from gym_runtime.messages.names import rollout_token, token
from gym_runtime.messages.outcomes import Failed
from gym_runtime.messages.rollout_spec import RolloutSpec, decode_spec, encode_spec
from gym_runtime.messages.run_control import (
    CONTROLS,
    OWN,
    RunControl,
    changed,
    control_subject,
    encode_control,
    own_queue,
    own_subject,
)
from gym_runtime.messages.stored_records import (
    CLOSED,
    RUNS,
    Asked,
    RunInfo,
    Stored,
    asked_here,
    encode_asked,
    encode_run,
    read_asked,
)
from gym_runtime.rollout.journal import FAILED_TASK, Sweep, journal_subject
from gym_runtime.task_pool import TaskPool
from gym_runtime.timing import CLIENT_ANSWER_S, CLIENT_DROPPED_S, CLIENT_PARKED_S

PUBLISHERS = 64
"""Rollouts that are stored at the same time: one after the other would cost a round trip each."""
LATE_S = (0.1, 0.4)
"""A cancelled run is checked again after this time: anything that its workers had sent before they heard of
the cancellation has then arrived."""
ABANDONED_S = 24 * 3600
"""After this time without a client, other clients close a run."""
TIDIED_S = 60.0
"""How often a client that begins or collects one run after another looks for abandoned runs. It checks every
run that the broker remembers, which costs as much as several rollouts."""
LATE_RUNS = 64
"""How many of the runs that ended last are checked for records that arrived after their end."""
KEPT_RUNS = 2000
"""The broker keeps the summaries of so many closed runs. New workers, ``status`` and each look read all of
them: 100,000 would take 15 s and half a gigabyte."""


TASKS = Stored(decode_spec)
"""Reads the tasks of failed rollouts."""


def tasks_of(run: str) -> tuple[str, str]:
    """The patterns of a run's tasks: its rollouts, and the comparisons of its groups."""
    run = token(run, "run")
    # Two: a pattern with `>` does not cover the subject before it.
    return f"task.*.*.{run}", f"task.*.*.{run}.>"


def queue_of(task: RolloutSpec) -> str:
    """The subject under which a rollout waits for its agent."""
    token(task.model, "model")  # only for its error: the caller should meet it, not the worker
    agent, environment = token(task.agent, "agent"), token(task.environment, "environment")
    if agent == OWN:
        raise UsageError(f"an agent cannot have the name '{OWN}'")
    return f"task.{agent}.{environment}.{token(task.run, 'run')}"


class Runs:
    """The runs of one connection: what the broker knows of them, and what this client has published.

    Args:
        tasks: last as long as the connection, and outlive every run that is begun here.

    Attributes:
        sweeps: for each run of which this client has published something, which journals can be deleted.
        counted: what this client has counted of runs that it has collected whole; see `finish_run`.
        alarms: of the rewards of all runs of this connection.
    """

    def __init__(self, bus: Bus, tasks: TaskGroup) -> None:
        self.bus = bus
        self.tasks = tasks
        self.sweeps: dict[str, Sweep] = {}
        self.counted: dict[str, Counter] = {}
        self.alarms = Alarms()
        self._queues: set[str] = set()
        self._ranked: set[str] = set()
        self._tidied_s = -math.inf

    # -- what is known of runs ------------------------------------------------------------------------

    async def open_run(self, run: RunInfo) -> None:
        """Make a run known, so that others can collect, list and cancel it.

        Raises:
            UsageError: the name of the run, of an agent or of an environment cannot be one.
        """
        # Only for the errors: what cannot be a part of a subject could never be reached.
        for agent in run.agents:
            token(agent, "agent")
        for environment in run.environments:
            token(environment, "environment")
        await self.bus.append(f"runs.{token(run.run, 'run')}", encode_run(run))
        ranked = {"share": run.share, "priority": run.priority}
        # Once: a run is opened again when its total is known, and may have been changed meanwhile.
        if run.run not in self._ranked and any(value is not None for value in ranked.values()):
            self._ranked.add(run.run)
            control = await self.set_control(run.run, lambda before: changed(before, ranked))
            for agent in run.agents:
                await self._open_queue(*own_queue(run.run, agent), most=control.concurrency or 0)

    async def run(self, run: str) -> RunInfo:
        """What is known of a run.

        Raises:
            UsageError: there is no such run, this cannot be the name of one, or what is stored of it cannot
                be read.
        """
        info = await self._info(run)
        if isinstance(info, str):
            raise UsageError(
                f"what is stored of run '{run}' cannot be read ({info}): a client of another version, or an "
                f"intruder, stored it; 'gym-runtime cancel {run}' stops and frees the run"
            )
        return info

    async def _info(self, run: str) -> RunInfo | str:
        """What is known of a run, or why it cannot be read."""
        found = await self.bus.latest(f"runs.{token(run, 'run')}")
        if not found:
            known = [info.run for info in await self.runs()]
            raise UsageError(f"there is no run '{run}'{catalogue.suggest(run, known, 'runs')}")
        return RUNS.problem(found[0])

    async def known(self, before: RunInfo) -> RunInfo:
        """What is known of a run now; what was known of it ``before``, where that cannot be read.

        Raises:
            UsageError: there is no such run, or this cannot be the name of one.
        """
        info = await self._info(before.run)
        return before if isinstance(info, str) else info

    async def stored_run(self, run: str) -> RunInfo:
        """What is known of a run whose records are still stored.

        Raises:
            UsageError: as `run`, or the run is over and its records were freed.
        """
        info = await self.run(run)
        if info.closed:
            raise UsageError(f"run '{run}' is {info.state}, and its records are not stored any more")
        return info

    async def made(self, run: str) -> int:
        """How many results of a run the broker stores."""
        return results(await self.bus.counts(f"rollout.{token(run, 'run')}.>"))

    async def runs(self) -> list[RunInfo]:
        """All runs that the broker remembers, oldest first."""
        return RUNS.read_all(await self.bus.latest("runs.*"))

    # -- publishing -----------------------------------------------------------------------------------

    async def publish(
        self, tasks: Iterable[RolloutSpec], *, place: Callable[[], Awaitable[None]] | None = None
    ) -> int:
        """Put rollouts on the queues of their agents; returns how many.

        Args:
            place: waited for before each rollout is published.

        Raises:
            UsageError: the name of a run, an agent, an environment or a model cannot be one.
        """
        limit = asyncio.Semaphore(PUBLISHERS)
        count = 0
        # Read here: the jobs below run in tasks of the pool, which may have an older context.
        inherited = tracing.inherited()

        async def one(task: RolloutSpec) -> None:
            try:
                await self._enqueue(task, inherited)
            finally:
                limit.release()

        # `cancel=False`: it ends when all are stored.
        async with background(cancel=False) as group:
            jobs = TaskPool(group)
            for task in tasks:
                if task.agent not in self._queues:
                    self._queues.add(task.agent)  # first, so that no other publisher creates it, too
                    agent = token(task.agent, "agent")
                    await self._open_queue(f"task.{agent}.>", f"agent-{agent}")
                if place is not None:
                    await place()
                # Acquired here and released there, so that no more jobs are begun than may run.
                await limit.acquire()
                # In the order of the tasks, and before their results can come.
                self._note_journal(task)
                jobs.start_soon(one, task)
                count += 1
            jobs.close()
        return count

    async def publish_one(self, task: RolloutSpec) -> None:
        """As `publish`, for a caller who waits for this rollout anyway.

        Raises:
            UsageError: as `publish`.
        """
        self._note_journal(task)
        await self._enqueue(task)

    async def publish_once(self, task: RolloutSpec) -> None:
        """Publish a comparison, or a failed rollout again, unless it is queued already."""
        # A subject for each, by which the broker knows that it is queued already.
        subject = f"{queue_of(task)}.{task.task_index}.{task.rollout_index}"
        await self.bus.enqueue(subject, encode_spec(task), headers=tracing.headers(), once=True)

    async def _enqueue(self, task: RolloutSpec, inherited: Headers | None = None) -> None:
        queue = queue_of(task)
        if task.run in self._ranked:  # the workers would move it there
            queue = own_subject(task)
        await self.bus.enqueue(queue, encode_spec(task), headers=tracing.headers() or inherited)

    def _note_journal(self, task: RolloutSpec) -> None:
        if task.durability == "turn":
            self.sweep(task.run).published(task.task_index)

    async def _open_queue(self, pattern: str, consumer: str, *, most: int | None = None) -> None:
        """Create a queue, so that an autoscaler sees its depth before the first worker joins."""
        try:
            await self.bus.open_queue(pattern, consumer=consumer, most=most)
        # Some brokers do not let clients create consumers; then the first worker creates it.
        except BrokerError as error:
            logger().info("a queue is left to its first worker", queue=consumer, reason=str(error))

    def sweep(self, run: str) -> Sweep:
        """Which journals of a run can be deleted."""
        return self.sweeps.setdefault(run, Sweep(run))

    # -- the end of a run -----------------------------------------------------------------------------

    async def cancel(
        self,
        run: str,
        task_index: int | None = None,
        rollout_index: int | None = None,
        *,
        asked: Asked | None = None,
    ) -> None:
        """Stop a run, one of its groups, or one rollout: what is waiting is dropped, what runs is stopped.

        Args:
            asked: who cancels it; None for the run's own client, which no log names.

        Raises:
            UsageError: there is no such run or no such task, or a rollout is named without its task.
        """
        if rollout_index is not None and task_index is None:
            raise UsageError("a rollout is named by its task and its index: say which task")
        run = token(run, "run")
        parts = "".join(f".{part:d}" for part in (task_index, rollout_index) if part is not None)
        info = await self.known(RunInfo(run=run, total=0))
        if task_index is not None and 0 < info.tasks <= task_index:
            raise UsageError(f"run {run} has no task {task_index}: its tasks are 0 to {info.tasks - 1}")
        said = b"" if asked is None else encode_asked(asked)
        if parts:
            # Stored before it is signalled: a worker that starts in between reads it.
            await self.bus.append(f"runs.{run}.cancelled{parts}", said)
            await self.bus.publish(f"cancel.{run}{parts}", said)
            return
        # The queue first, so that no worker begins a task that is about to be cancelled.
        for pattern in tasks_of(run):
            await self.bus.forget(pattern)
        if asked is not None and not info.cancelled_by:
            info = msgspec.structs.replace(info, cancelled_by=asked.by, cancelled_s=asked.at_s)
        info = msgspec.structs.replace(info, state="cancelled", done=await self.made(run))
        # Stored before it is signalled: a worker that starts in between reads it.
        await self.bus.append(f"runs.{run}", encode_run(info))
        await self.bus.publish(f"cancel.{run}", said)
        await self._close_unless_followed(info)

    async def cancelled_parts(self, run: str) -> dict[str, Asked]:
        """Who cancelled which tasks (``3``) and rollouts (``3.0``) of a run that is not over."""
        prefix = f"runs.{token(run, 'run')}.cancelled."
        stored = await self.bus.latest(f"{prefix}>")
        return {one.subject.removeprefix(prefix): read_asked(one.payload) for one in stored}

    # -- control while it goes on --------------------------------------------------------------------

    async def control(self, run: str) -> RunControl:
        """What is set for a run; the defaults if nothing is."""
        found = CONTROLS.read_all(await self.bus.latest(control_subject(run)))
        return found[0] if found else RunControl(run=run)

    async def set_control(self, run: str, change: Callable[[RunControl], RunControl]) -> RunControl:
        """Change what is set for a run that is not over.

        Raises:
            UsageError: there is no such run, it is over, or the change is refused.
        """
        info, subject = await self.run(run), control_subject(run)
        if info.state != "active":
            raise UsageError(f"run '{run}' is {info.state}, and nothing can be changed for it any more")
        while True:
            found = await self.bus.latest(subject)
            known = CONTROLS.read(found[0]) if found else None
            before = known or RunControl(run=run)
            after = change(before)
            if after == before:
                return before
            by = asked_here()
            after = msgspec.structs.replace(after, by=by.by, at_s=by.at_s)
            sequence = found[0].sequence if found else 0
            # None: another client has changed it meanwhile.
            if await self.bus.append(subject, encode_control(after), expect=sequence) is not None:
                await self.bus.publish(f"cancel.{token(run, 'run')}.control", b"")
                # The broker answers in order: it has passed the signal on before this returns.
                await self.bus.latest(subject)
                return after

    async def serve_parked(self, run: str) -> None:
        """Until cancelled, have what workers moved to the run's own queue served; see `ClientPresent`."""
        own = f"task.{OWN}.*.{token(run, 'run')}.>"
        while run not in self._ranked:
            await anyio.sleep(CLIENT_PARKED_S)
            with suppress(GymError):  # it looks again; with a control it is served, and may be long
                if not await self.bus.latest(control_subject(run)) and await self.bus.counts(own):
                    await self.set_control(run, lambda before: changed(before, {"share": 1.0}))
                    self._ranked.add(run)
                    logger().warning("rollouts go on that waited while this client was cut off", run=run)

    async def retry_failed(self, run: str) -> int:
        """See `Client.retry_failed`. If it is interrupted, another call does the rest."""
        info = await self.stored_run(run)
        if info.state != "active" or info.attached or await self.answers(f"follow.{token(run, 'run')}"):
            raise UsageError(
                f"run '{run}' is {info.state}, and a client has its failures already: 'gym-runtime run "
                "--resume --retry-failed' runs those of a file again"
            )
        again = 0
        for stored in TASKS.read_all(
            await self.bus.latest(f"journal.{token(run, 'run')}.*.*.*." + FAILED_TASK)
        ):
            key = rollout_token(stored.rollout_id)
            journal = journal_subject(run, stored.task_index, stored.rollout_index)
            result = await first_result(self.bus, f"rollout.{key}")
            # Without a result, an earlier call was interrupted after it had deleted it.
            if result is None or isinstance(result.outcome, Failed):
                task = stored
                if result is not None:
                    task = msgspec.structs.replace(stored, attempt_base=result.attempt)
                    await self.bus.append(f"{journal}.{FAILED_TASK}", encode_spec(task))
                # The result first, or the new attempt would find it. The task last: it is what a repeated
                # call begins with.
                for pattern in (f"rollout.{key}", journal, f"{journal}.spent", f"{journal}.role.*"):
                    await self.bus.forget(pattern)
                self._note_journal(task)
                await self.publish_once(task)
                again += 1
            await self.bus.forget(f"{journal}.{FAILED_TASK}")
        return again

    async def finish_run(self, run: RunInfo, *, state: str = "finished") -> None:
        """Say that a run is over. It is closed now, or by the last of the other clients that follow it.

        A client that has collected all of it says what it has counted, too.
        """
        counted = self.counted.pop(run.run, None)
        if counted is not None:
            run = counted.told(run)
        info = msgspec.structs.replace(run, state=state)
        await self.bus.append(f"runs.{token(run.run, 'run')}", encode_run(info))
        await self._close_unless_followed(info)

    async def close_run(self, run: RunInfo, *, state: str = "finished") -> None:
        """Say that a run is over and free all that the broker stored for it, except this summary.

        The workers are told first: they stop, and store nothing more for it. A second pass frees what they
        had sent before they were told.
        """
        name = token(run.run, "run")
        info = msgspec.structs.replace(run, state=state, closed=True)
        await self.bus.append(f"runs.{name}", encode_run(info))
        await self.bus.publish(f"cancel.{name}", CLOSED)
        self.sweeps.pop(name, None)
        self._ranked.discard(name)
        await self._free(name)
        if state != "finished":  # a finished run has all of its results, so nothing is on its way
            for pause_s in LATE_S:
                await anyio.sleep(pause_s)
                await self._free(name)

    async def _free(self, run: str) -> None:
        run = token(run, "run")
        kept = (*tasks_of(run), f"rollout.{run}.>", f"journal.{run}.>", f"runs.{run}.cancelled.>")
        for pattern in (*kept, control_subject(run), blobs.of_run(run)):
            await self.bus.forget(pattern)

    @asynccontextmanager
    async def followed(self, run: str) -> AsyncGenerator[None]:
        """While this lasts, other clients do not free the run's records."""

        async def answer(incoming: Incoming) -> None:
            with suppress(GymError):  # a client that gets no answer assumes that the run is followed
                await self.bus.publish(incoming.reply, b"")

        async with background() as tasks:

            def receive(incoming: Incoming) -> None:
                tasks.start_soon(answer, incoming)

            async with self.bus.serve(f"follow.{token(run, 'run')}", receive):
                yield

    async def _close_unless_followed(self, info: RunInfo) -> None:
        if not await self.answers(f"follow.{token(info.run, 'run')}"):
            await self.close_run(info, state=info.state)

    async def answers(self, subject: str) -> bool:
        """Whether a client serves a subject; True if that is unknown."""
        try:
            await self.bus.request(subject, b"", deadline_s=clock.monotonic() + CLIENT_ANSWER_S)
        except NoWorker:
            return False
        except (ConnectionLost, DeadlineExceeded):
            pass
        return True

    async def tidy(self) -> None:
        """As `close_abandoned`, at most once in `TIDIED_S`."""
        if clock.monotonic() < self._tidied_s + TIDIED_S:
            return
        self._tidied_s = clock.monotonic()
        with suppress(GymError):  # nothing waits for it, and the next client tries again
            await self.close_abandoned()

    async def close_abandoned(self, older_than_s: float = ABANDONED_S) -> None:
        """Close the attached runs whose clients died ``older_than_s`` after they began, or later.

        Until then such a run can be resumed from what is stored. A published run that was never collected is
        closed when its tasks and results have expired. Records that were stored after a run was closed, by a
        worker that was frozen or cut off at that time, are freed too, of the last `LATE_RUNS`. Of older runs
        than the last `KEPT_RUNS` the summaries are deleted.
        """
        known = await self.runs()
        closed = [info.run for info in known if info.closed]
        for run in closed[-LATE_RUNS:]:
            if await self.bus.counts(f"rollout.{token(run, 'run')}.>"):
                await self._free(run)
        for run in closed[:-KEPT_RUNS]:
            await self.bus.forget(f"runs.{token(run, 'run')}")
        absent: list[RunInfo] = []
        for info in known:
            life_s = older_than_s if info.attached else LIFE_S["rollout"]
            if info.state != "active" or info.created_s + life_s > clock.now():
                continue
            run = token(info.run, "run")
            kept = () if info.attached else (*tasks_of(run), f"rollout.{run}.>")
            stored = [await self.bus.counts(one) for one in kept]
            known_s = info.attached or info.created_s  # that of a published run may not be known
            if known_s and not any(stored) and not await self.answers(f"alive.client.{run}"):
                absent.append(info)
        if absent:
            # A client that only has to reconnect answers the second time.
            await anyio.sleep(CLIENT_DROPPED_S)
        for info in absent:
            if not await self.answers(f"alive.client.{token(info.run, 'run')}"):
                await self.close_run(info, state="cancelled")
