"""Re-verification: the rewards of stored rollouts, computed again without a model.

It reads result rows of this runtime or of NeMo Gym: the dataset's fields, ``response``, ``reward`` and
``agent_ref``; fields that a row lacks come from its input. Recorded tool calls are repeated on a new session,
so verifiers that read state work too. A row that cannot be judged is reported with its place and its fault,
and the other rows are still judged.
"""

from __future__ import annotations

import math
import re
from collections.abc import AsyncGenerator, Container, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import anyio
import msgspec
from anyio import CapacityLimiter, to_thread
from msgspec import Raw

from gym_runtime.environment import catalogue, requirements
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.environment.isolated import judge_recorded
from gym_runtime.environment.role_answers import RecordedAnswers, RoleAnswers
from gym_runtime.environment.roles import Asker, Models
from gym_runtime.environment.settings import filled, with_settings
from gym_runtime.environment.verdict import Verdict
from gym_runtime.errors import DeadlineExceeded, Fault, GymError, TaskError, UsageError
from gym_runtime.files.inputs import StoredInputs
from gym_runtime.messages.roles import RoleAnswer

TOLERANCE = 1e-9
ROWS_PER_SLOT = 16
FILE_LINE = "_reverify_line"
_OF_A_FAILURE = {
    "_ng_failure_class",
    "_ng_failure_terminal",
    "_ng_failure_judge_error",
    "_ng_failure",
    FILE_LINE,
}
"""Fields that a failures file adds to a row; they are removed when the row gets a verdict."""

_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode
_byte_position = re.compile(r"\(byte (\d+)\)")


class ReverifiedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A stored row with its new verdict.

    Attributes:
        row: the stored row, completed from its input, its ``reward`` and the verifier's fields replaced,
            ``_previous_reward`` added.
        previous_reward: the stored reward; None if the row had none.
        where: ``file:line`` for a row of a file.
    """

    row: Raw
    reward: float
    previous_reward: float | None
    where: str = ""

    @property
    def changed(self) -> bool:
        return self.previous_reward is None or abs(self.reward - self.previous_reward) > TOLERANCE


class RejectedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A stored row that could not be judged.

    Attributes:
        where: ``file:line``, and ``:column`` for broken JSON.
        line: its number in the file, from 1.
        row: the row; None if it is not a JSON object.
    """

    where: str
    line: int
    fault: Fault
    row: Raw | None


class _Named(msgspec.Struct):
    agent_ref: dict[str, Any] | None = None

    @property
    def ref(self) -> str | None:
        name = (self.agent_ref or {}).get("name")
        return name if isinstance(name, str) else None


class _Own(msgspec.Struct, frozen=True):
    role_answers: list[RoleAnswer] = []
    role_sampling: dict[str, dict[str, Any]] = {}


class _Stored(_Named, kw_only=True):
    """The fields of a row that re-verification reads."""

    response: Raw
    reward: float | None = None
    own: _Own = msgspec.field(default=_Own(), name="_gym")


_decode_named = msgspec.json.Decoder(_Named).decode
_decode_stored = msgspec.json.Decoder(_Stored, strict=False).decode


class Reverifier:
    """Judges stored rows; its methods may run concurrently.

    Args:
        environment: of all rows; None for the one that each row's ``agent_ref`` names.
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

    async def judge(self, row: bytes) -> ReverifiedRow:
        """Judge one stored row.

        Raises:
            TaskError: the row has no response, no input, names no environment, or does not match its task.
            ResourceError: the verifier raised, took too long, or returned no finite number.
            UsageError: the environment is unknown.
        """
        if self._inputs is not None:
            row = self._inputs.complete(row)
        try:
            stored = _decode_stored(row)
        except msgspec.DecodeError as error:
            raise TaskError(f"not a stored rollout: {error}") from error
        environment = self._environment or self._named(stored.ref)
        own = stored.own
        answers = RoleAnswers(RecordedAnswers(own.role_answers), self._models, own.role_sampling)
        models = answers.models(environment.resource.roles)
        filled_row = filled(environment, row, stored.ref)
        verdict = await _judge(environment, filled_row, bytes(stored.response), models)
        stored_fields = _decode_fields(row).items()
        fields: dict[str, Any] = {name: value for name, value in stored_fields if name not in _OF_A_FAILURE}
        fields |= {"reward": verdict.reward, **verdict.fields}
        if verdict.components:
            fields["reward_components"] = verdict.components
        if answers.asked:
            about: dict[str, Any] = dict(_decode_fields(fields.get("_gym", b"{}")))
            about |= {"roles": answers.log.use, "role_answers": answers.log.answers}
            fields["_gym"] = about
        fields["_previous_reward"] = stored.reward
        return ReverifiedRow(row=Raw(_encode(fields)), reward=verdict.reward, previous_reward=stored.reward)

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
        with path.open("rb") as file:
            await to_thread.run_sync(_skip_lines, file, done)
            first = done + 1
            while lines := await to_thread.run_sync(_next_lines, file, concurrency * ROWS_PER_SLOT):
                # No task group may be open across a yield, so rows go in batches.
                judged: dict[int, ReverifiedRow | RejectedRow] = {}
                async with anyio.create_task_group() as tasks:
                    for number, line in enumerate(lines, first):
                        if line.strip() and number not in skip:
                            tasks.start_soon(self._judge_line, line, path, number, judged, limiter)
                for number in sorted(judged):
                    yield judged[number]
                first += len(lines)

    async def _judge_line(
        self,
        line: bytes,
        path: Path,
        number: int,
        judged: dict[int, ReverifiedRow | RejectedRow],
        limiter: CapacityLimiter,
    ) -> None:
        where = f"{path}:{number}"
        try:
            _decode_fields(line)
        except msgspec.DecodeError as error:
            fault = TaskError(f"not a JSON object: {error}").fault()
            column = _column(line, str(error))
            judged[number] = RejectedRow(where=f"{where}:{column}", line=number, fault=fault, row=None)
            return
        async with limiter:
            try:
                judged[number] = msgspec.structs.replace(await self.judge(line), where=where)
            except GymError as error:
                judged[number] = RejectedRow(where=where, line=number, fault=error.fault(), row=Raw(line))

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
                with suppress(msgspec.DecodeError):
                    refs.add(_decode_named(line).ref or "")
    found: dict[str, LoadedEnvironment] = {}
    for ref in refs:
        with suppress(UsageError):
            environment = _runnable(ref)
            found[environment.name] = environment
    return list(found.values())


async def _judge(environment: LoadedEnvironment, row: bytes, response: bytes, models: Models) -> Verdict:
    definition = environment.definition
    with anyio.move_on_after(definition.timeout_s):
        return await judge_recorded(environment, row, response, models)
    raise DeadlineExceeded(f"judging took longer than {definition.timeout_s:g} s", stage="verify")


def _runnable(ref: str) -> LoadedEnvironment:
    environment = catalogue.known_environment(catalogue.resolve_agent_ref(ref))
    requirements.require(environment)
    return environment


def _skip_lines(file: BinaryIO, count: int) -> None:
    for _ in islice(file, count):
        pass


def _next_lines(file: BinaryIO, count: int) -> list[bytes]:
    return list(islice(file, count))


def _column(line: bytes, message: str) -> int:
    """The column of the JSON error, in characters from 1."""
    match = _byte_position.search(message)
    end = int(match[1]) if match else math.inf
    return len(line.rstrip()[: int(min(end, len(line)))].decode(errors="replace")) + 1
