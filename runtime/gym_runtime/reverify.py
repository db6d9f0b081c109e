"""Re-verification: the rewards of stored rollouts, computed anew without a model.

Takes result rows of this runtime or of NeMo Gym: the dataset's fields, ``response``, ``reward`` and
``agent_ref``. Tool calls that were recorded are repeated on a fresh session, so verifiers that look at
state work too. A row that cannot be judged is reported with its place and its fault, and the others go on.
"""

from __future__ import annotations

import math
import re
from collections.abc import AsyncGenerator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import anyio
import msgspec
from anyio import CapacityLimiter, to_thread
from msgspec import Raw

from gym_runtime import catalogue
from gym_runtime.environment import LoadedEnvironment
from gym_runtime.errors import DeadlineExceeded, Fault, GymError, TaskError
from gym_runtime.heavy import verify_heavy
from gym_runtime.replay import rejudge
from gym_runtime.verdict import Verdict

TOLERANCE = 1e-9
ROWS_PER_SLOT = 16

_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode
_byte_position = re.compile(r"\(byte (\d+)\)")


class ReverifiedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A stored row with its new verdict.

    Attributes:
        row: the stored row, its ``reward`` and the verifier's fields replaced, ``_previous_reward`` added.
        previous_reward: what was stored; None if the row had no reward.
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
    """A stored row that could not be judged. ``where`` is ``file:line``, and ``:column`` for broken JSON."""

    where: str
    fault: Fault


class _Stored(msgspec.Struct):
    """What re-verification needs to know of a row."""

    response: Raw
    reward: float | None = None
    agent_ref: dict[str, Any] | None = None


_decode_stored = msgspec.json.Decoder(_Stored, strict=False).decode


async def reverify(environment: LoadedEnvironment | None, row: bytes) -> ReverifiedRow:
    """Judge one stored row; without an environment, the one that its ``agent_ref`` names.

    Raises:
        TaskError: the row has no response, names no environment, or does not fit the environment.
        ResourceError: the verifier raised, took too long, or gave no finite number.
        UsageError: there is no such environment.
    """
    try:
        stored = _decode_stored(row)
    except msgspec.DecodeError as error:
        raise TaskError(f"not a stored rollout: {error}") from error
    verdict = await _judge(environment or _named(stored), row, bytes(stored.response))
    fields: dict[str, Any] = dict(_decode_fields(row))
    fields |= {"reward": verdict.reward, **verdict.fields}
    if verdict.components:
        fields["reward_components"] = verdict.components
    fields["_previous_reward"] = stored.reward
    return ReverifiedRow(row=Raw(_encode(fields)), reward=verdict.reward, previous_reward=stored.reward)


async def reverify_file(
    path: Path, environment: LoadedEnvironment | None = None, *, concurrency: int = 8
) -> AsyncGenerator[ReverifiedRow | RejectedRow]:
    """Judge every row of a JSONL file, in the file's order; blank lines are skipped.

    At most ``concurrency`` rows are judged at once, and at most `ROWS_PER_SLOT` times as many are held in
    memory.
    """
    limiter = CapacityLimiter(concurrency)
    with path.open("rb") as file:
        first = 1
        while lines := await to_thread.run_sync(_next_lines, file, concurrency * ROWS_PER_SLOT):
            # No task group may be open across a yield, so rows go in batches.
            judged: dict[int, ReverifiedRow | RejectedRow] = {}
            async with anyio.create_task_group() as tasks:
                for number, line in enumerate(lines, first):
                    if line.strip():
                        where = f"{path}:{number}"
                        tasks.start_soon(_judge_line, environment, line, where, number, judged, limiter)
            for number in sorted(judged):
                yield judged[number]
            first += len(lines)


async def _judge_line(
    environment: LoadedEnvironment | None,
    line: bytes,
    where: str,
    number: int,
    judged: dict[int, ReverifiedRow | RejectedRow],
    limiter: CapacityLimiter,
) -> None:
    try:
        _decode_fields(line)
    except msgspec.DecodeError as error:
        fault = TaskError(f"not a JSON object: {error}").fault()
        judged[number] = RejectedRow(where=f"{where}:{_column(line, str(error))}", fault=fault)
        return
    async with limiter:
        try:
            judged[number] = msgspec.structs.replace(await reverify(environment, line), where=where)
        except GymError as error:
            judged[number] = RejectedRow(where=where, fault=error.fault())


async def _judge(environment: LoadedEnvironment, row: bytes, response: bytes) -> Verdict:
    definition = environment.definition
    if definition.heavy:
        return await verify_heavy(str(environment.source), row, response, definition.verify_timeout_s)
    with anyio.move_on_after(definition.timeout_s):
        return await rejudge(environment.resource, row, response)
    raise DeadlineExceeded(f"judging took longer than {definition.timeout_s:g} s", stage="verify")


def _named(stored: _Stored) -> LoadedEnvironment:
    name = (stored.agent_ref or {}).get("name")
    if not isinstance(name, str):
        raise TaskError("the row has no 'agent_ref.name'; say which environment it is of")
    environment = catalogue.environment(catalogue.resolve_agent_ref(name))
    catalogue.require(environment)
    return environment


def _next_lines(file: BinaryIO, count: int) -> list[bytes]:
    return list(islice(file, count))


def _column(line: bytes, message: str) -> int:
    """Where the JSON breaks, counted in characters from 1."""
    match = _byte_position.search(message)
    end = int(match[1]) if match else math.inf
    return len(line.rstrip()[: int(min(end, len(line)))].decode(errors="replace")) + 1
