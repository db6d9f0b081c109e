"""Re-verification: the rewards of stored rollouts, computed again without a model.

It reads result rows of this runtime or of NeMo Gym: the dataset's fields, ``response``, ``reward`` and
``agent_ref``; fields that a row lacks come from its input. Recorded tool calls are repeated on a new session,
so verifiers that read state work too. A row that cannot be judged is reported with its place and its fault,
and the other rows are still judged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Container, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import anyio
import msgspec
from anyio import CapacityLimiter, to_thread
from gym_runtime import Pending, Role, Verdict, clock
from gym_runtime.adapters import Adapter, CallContext, ModelCall, ModelSettings
from gym_runtime.environment import (
    Asker,
    LoadedEnvironment,
    Models,
    RecordedAnswers,
    RoleAnswers,
    RoleLog,
    as_features,
    catalogue,
    filled,
    judge_recorded,
    no_verdicts,
    requirements,
    with_settings,
)
from gym_runtime.errors import (
    UNREADABLE,
    DeadlineExceeded,
    GymError,
    ResourceError,
    TaskError,
    UsageError,
    from_fault,
)
from gym_runtime.files import StoredInputs
from gym_runtime.messages import Candidate, ComparedVerdict
from gym_runtime.rpc import RetryBudget
from gym_runtime.system import adapter_of
from gym_runtime.workers import EngineHealth, ask_engine
from msgspec import Raw

from gym_testing.checks.judged_file import JudgedFile, StoredGroups, StoredLine, column_of
from gym_testing.checks.stored_row import FILE_LINE as FILE_LINE
from gym_testing.checks.stored_row import (
    Read,
    RejectedRow,
    ReverifiedRow,
    decode_named,
    decode_stored,
    require_all_moves,
)

ROWS_PER_SLOT = 16
ASKED_AGAIN = 8
"""How often a model may be asked again for one answer."""

_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode


class Reverifier:
    """Judges stored rows; its methods may run concurrently.

    Args:
        environment: of all rows; None for the one that each row's ``agent_ref`` names. An installed one
            judges no rows of another.
        settings: defaults of row fields (`environment.settings`), for the environments that have them.
        inputs: what completes the rows.
        models: makes the models that are asked again in an environment's roles, by the role's name; what
            is not among them answers as it is recorded in the row.

    Raises:
        UsageError: a setting does not match the environment's field.
    """

    def __init__(
        self,
        environment: LoadedEnvironment | None = None,
        *,
        settings: Mapping[str, Any] | None = None,
        inputs: StoredInputs | None = None,
        models: Mapping[str, Asker] | None = None,
    ) -> None:
        self._models = models or {}
        self._settings = settings or {}
        self._inputs = inputs
        self._environment = environment and with_settings(environment, self._settings)
        self._named_environments: dict[str, LoadedEnvironment] = {}
        self._owners: dict[str, list[str]] = {}

    async def judge(self, row: bytes) -> ReverifiedRow:
        """Judge one stored row.

        Raises:
            TaskError: the row has no response, no input, names no environment, or does not match its task; or
                it lacks the moves of other seats; or its reward exists only for its whole group, which
                `judge_file` judges.
            ResourceError: the verifier raised, took too long, or returned no finite number.
            UsageError: the environment is unknown.
        """
        read = await self._read(row)
        if isinstance(read.verdict, Pending):
            raise TaskError("its reward comes from the comparison of its group: judge the whole file")
        return read.judged(read.verdict)

    async def _read(self, row: bytes) -> Read:
        if self._inputs is not None:
            row = self._inputs.complete(row)
        try:
            stored = decode_stored(row)
        except UNREADABLE as error:
            raise TaskError(f"not a stored rollout: {error}") from error
        environment = self._given(stored.ref) or self._named(stored.ref)
        require_all_moves(environment, stored)
        own = stored.own
        answers = RoleAnswers(RecordedAnswers(own.role_answers), self._models, own.role_sampling)
        models = answers.models(environment.resource.roles)
        filled_row = filled(environment, row, stored.ref)
        verdict = await _judge(environment, filled_row, bytes(stored.response), models)
        return Read(environment, row, filled_row, stored, answers, verdict)

    async def _judge_in_group(self, line: bytes, number: int, file: JudgedFile) -> ReverifiedRow:
        """The verdict on a row that waits for the comparison of its group, which is made once.

        Raises:
            GymError: the comparison failed, or has none for this row: a second one of its rollout.
        """
        async with file.lock(StoredGroups.key(line)):
            if number not in file.judged:
                await self._compare(await file.groups.of(line), file)
        found = file.judged.pop(number, None)
        if found is None:
            raise TaskError("a row before it is of the same rollout, and was compared in its place")
        if isinstance(found, GymError):
            raise found
        return found

    async def _compare(self, lines: Sequence[tuple[StoredLine, bytes]], file: JudgedFile) -> None:
        """Compare the rows of a group; those that cannot be read, or have a verdict, take no part."""
        reads: list[tuple[StoredLine, Read, Candidate]] = []
        for place, line in lines:
            with suppress(GymError):
                read = await self._read(line)
                if isinstance(read.verdict, Pending):
                    features = as_features(read.verdict.features)
                    candidate = Candidate(rollout_index=place.rollout_index, features=features)
                    reads.append((place, read, candidate))
        recorded = [answer for _, read, _ in reads for answer in read.stored.own.role_answers]
        sampling = {name: one for _, read, _ in reads for name, one in read.stored.own.role_sampling.items()}
        answers = RoleAnswers(RecordedAnswers(recorded), self._models, sampling)
        try:
            verdicts = await _compared(reads[0][1], [one for _, _, one in reads], answers)
        except GymError as error:
            found: list[ReverifiedRow | GymError] = [error] * len(reads)
        else:
            found, log = [], answers.log if answers.asked else None
            for (_, read, _), verdict in zip(reads, verdicts, strict=True):
                if verdict.reward is None:
                    fault = verdict.fault or no_verdicts("nothing").fault()
                    found.append(from_fault(fault))
                else:
                    fields = dict(verdict.fields)
                    judged = Verdict(verdict.reward, verdict.components, fields, verdict.rewards)
                    found.append(read.judged(judged, log))
                    log = log and RoleLog()
        for (place, _, _), one in zip(reads, found, strict=True):
            if file.wants(place.number):
                file.judged[place.number] = one

    async def judge_file(
        self, path: Path, *, concurrency: int = 8, done: int = 0, skip: Container[int] = ()
    ) -> AsyncGenerator[ReverifiedRow | RejectedRow]:
        """Judge every row of a JSONL file, in the file's order; blank lines are skipped.

        At most ``concurrency`` rows are judged at once, and at most `ROWS_PER_SLOT` times as many are in
        memory.

        Args:
            done: how many lines at the beginning to skip.
            skip: numbers of further lines to skip.
        """
        limiter = CapacityLimiter(concurrency)
        judging = JudgedFile(path, lambda number: number > done and number not in skip)
        with path.open("rb") as file:
            await to_thread.run_sync(deque[bytes](maxlen=0).extend, islice(file, done))
            first = done + 1
            while lines := await to_thread.run_sync(list, islice(file, concurrency * ROWS_PER_SLOT)):
                # No task group may be open across a yield, so rows go in batches.
                judged: dict[int, ReverifiedRow | RejectedRow] = {}
                async with anyio.create_task_group() as tasks:
                    for number, line in enumerate(lines, first):
                        if line.strip() and number not in skip:
                            tasks.start_soon(self._judge_line, line, judging, number, judged, limiter)
                for number in sorted(judged):
                    yield judged[number]
                first += len(lines)

    async def _judge_line(
        self,
        line: bytes,
        file: JudgedFile,
        number: int,
        judged: dict[int, ReverifiedRow | RejectedRow],
        limiter: CapacityLimiter,
    ) -> None:
        where = f"{file.path}:{number}"
        try:
            _decode_fields(line)
        except UNREADABLE as error:
            fault = TaskError(f"not a JSON object: {error}").fault()
            column = column_of(line, str(error))
            judged[number] = RejectedRow(where=f"{where}:{column}", line=number, fault=fault, row=None)
            return
        async with limiter:
            try:
                row = await self._judge(line, number, file)
                judged[number] = msgspec.structs.replace(row, where=where)
            except GymError as error:
                judged[number] = RejectedRow(where=where, line=number, fault=error.fault(), row=Raw(line))

    async def _judge(self, line: bytes, number: int, file: JudgedFile) -> ReverifiedRow:
        if number not in file.judged:
            read = await self._read(line)
            if not isinstance(read.verdict, Pending):
                return read.judged(read.verdict)
        return await self._judge_in_group(line, number, file)

    def _given(self, ref: str | None) -> LoadedEnvironment | None:
        """The environment of all rows, if one was given.

        Raises:
            TaskError: the row is of another one. A file of the user's may be a version of that one.
        """
        given = self._environment
        if given is not None and ref is not None and given.name in catalogue.names("environments"):
            if ref not in self._owners:
                try:
                    self._owners[ref] = catalogue.resolve_agent_refs(ref)
                except UsageError:  # it names none that is here
                    self._owners[ref] = []
            owners = self._owners[ref]
            if owners and given.name not in owners:
                raise TaskError(
                    f"the row is of environment '{owners[0]}', not of '{given.name}': leave the name out to "
                    "judge each row by its own"
                )
        return given

    def _named(self, ref: str | None) -> LoadedEnvironment:
        if ref is None:
            raise TaskError("the row has no 'agent_ref.name'; give the environment's name too")
        if ref not in self._named_environments:
            self._named_environments[ref] = with_settings(_runnable(ref), self._settings)
        return self._named_environments[ref]


async def reverify(environment: LoadedEnvironment | None, row: bytes) -> ReverifiedRow:
    """`Reverifier.judge` on one row, without settings and inputs."""
    return await Reverifier(environment).judge(row)


def environments_of(*paths: Path) -> list[LoadedEnvironment]:
    """The environments that the rows of some files name; unknown names are ignored."""
    refs: set[str] = set()
    for path in paths:
        with path.open("rb") as file:
            for line in file:
                with suppress(*UNREADABLE):
                    refs.add(decode_named(line).ref or "")
    found: dict[str, LoadedEnvironment] = {}
    for ref in refs:
        with suppress(UsageError):
            environment = _runnable(ref)
            found[environment.name] = environment
    return list(found.values())


async def _compared(
    first: Read, candidates: Sequence[Candidate], answers: RoleAnswers
) -> list[ComparedVerdict]:
    if len(candidates) < 2:
        raise ResourceError("the file has no other row of its group to compare it with", stage="compare")
    resource, limit_s = first.environment.resource, first.environment.definition.timeout_s
    with anyio.move_on_after(limit_s):
        return await resource.compare(first.filled, candidates, answers.models(resource.roles))
    raise DeadlineExceeded(f"comparing took longer than {limit_s:g} s", stage="compare")


async def _judge(
    environment: LoadedEnvironment, row: bytes, response: bytes, models: Models
) -> Verdict | Pending:
    definition = environment.definition
    with anyio.move_on_after(definition.timeout_s):
        return await judge_recorded(environment, row, response, models)
    raise DeadlineExceeded(f"judging took longer than {definition.timeout_s:g} s", stage="verify")


def _runnable(ref: str) -> LoadedEnvironment:
    environment = catalogue.known_environment(catalogue.resolve_agent_ref(ref))
    requirements.require(environment)
    return environment


# -- models in roles that are asked from this process, without workers ---------------------------------


class AskedModel:
    """One role's model."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._health = EngineHealth()
        self._places: anyio.Semaphore | None = None

    async def __call__(self, role: Role, params: Raw, items: Sequence[Raw]) -> Raw:
        self._places = self._places or anyio.Semaphore(role.concurrency)
        async with self._places:
            context = CallContext(rollout="", attempt=1, deadline_s=clock.monotonic() + role.timeout_s)
            call = ModelCall(params=params, input=list(items))
            answer = await ask_engine(
                self._adapter.respond, call, context, RetryBudget(ASKED_AGAIN), self._health
            )
            return answer.response


@asynccontextmanager
async def asked_models(models: Mapping[str, ModelSettings]) -> AsyncGenerator[dict[str, Asker]]:
    """Models by their roles, until the context ends; one that is named for several roles is opened once.

    Raises:
        UsageError: one cannot be reached.
    """
    async with AsyncExitStack() as stack:
        opened: dict[bytes, Adapter] = {}
        asked: dict[str, Asker] = {}
        for role, settings in models.items():
            key = msgspec.json.encode(settings)
            if key not in opened:
                opened[key] = await stack.enter_async_context(adapter_of(settings))
            asked[role] = AskedModel(opened[key])
        yield asked
