"""How rows become rollouts.

Numbering, as NeMo Gym's: rows with the same text are one task; tasks count from 0 in the order of their
first appearance; a row's own ``_ng_task_index`` is kept. Rollouts count from 0 within the task, also when the
row comes again. So the same rows and settings give the same keys, in the same order, repeats together.
"""

from __future__ import annotations

import dataclasses
import hashlib
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from gym_runtime.assets import cache_folder
from gym_runtime.cancellation import raised_at
from gym_runtime.environment import catalogue, requirements
from gym_runtime.environment.environment import Environment, LoadedEnvironment, fitting
from gym_runtime.environment.settings import agent_for, check_role_sampling
from gym_runtime.errors import UNREADABLE, TaskError, UsageError, described
from gym_runtime.files.appender import write_whole
from gym_runtime.files.complaints import bad_value
from gym_runtime.files.row_reader import BadRow, Row, RowReader
from gym_runtime.logs import logger
from gym_runtime.messages.fork import FIELD, Fork, decode_fork
from gym_runtime.messages.names import is_mark, token
from gym_runtime.messages.responses import CreateParams
from gym_runtime.messages.rollout_settings import RolloutSettings, Sampling, lay_over, seed_of
from gym_runtime.messages.rollout_spec import GroupSpan, RolloutSpec
from gym_runtime.messages.transcripts import plain

_PARAMS = "responses_create_params"

_CARRIED = [
    one.name for one in dataclasses.fields(RolloutSettings) if one.name in RolloutSpec.__struct_fields__
]
"""The settings that travel with each rollout, under the same names."""

_TOLD = {"input", "instructions", "tools"}
"""What a model is told; other fields of ``responses_create_params`` say how it answers."""

_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode


class Numbering:
    """Gives rows their task and rollout indices, in the order in which it is asked.

    Rows that bring no index are numbered after the largest index that a row before them brought.

    Args:
        first: the first index for rows that bring none.
        repeated: the tasks that come more than once, with how often, if known: of rows that all bring their
            index. What comes once needs no memory.
        apart: each row is a separate task, whatever its text and task index.
    """

    def __init__(
        self, first: int = 0, repeated: Mapping[int, int] | None = None, *, apart: bool = False
    ) -> None:
        self._apart = apart
        self._next = first
        self._repeated = repeated
        # Of 1,000,000 different rows the two take 160 MiB and 0.2 s; packed arrays took 27 MiB and 2.8 s.
        self._tasks: dict[int, int] = {}  # by `row_key`
        self._rollouts: dict[int, int] = {}  # how many each task has
        # Where the stretches of indices begin and end, in turns, that rows got which bring none.
        self._given: list[int] = []

    def number(self, row: Row, repeats: int) -> tuple[int, int]:
        """The row's task index, and the index of the first of its ``repeats`` rollouts.

        Raises:
            UsageError: the row brings an index that an earlier row got which brings none.
        """
        if self._apart:
            self._next += 1
            return self._next - 1, 0
        task_index = row.task_index
        if task_index is not None:
            if bisect_right(self._given, task_index) % 2:
                raise UsageError(
                    f"a row brings _ng_task_index {task_index}, which an earlier row without one has got: in "
                    "a stream of rows give all of them their index, or none; or pass the rows as a list"
                )
            self._next = max(self._next, task_index + 1)
        else:
            key = row_key(row.line, row.environment.name)
            if (task_index := self._tasks.get(key)) is None:
                task_index = self._tasks[key] = self._next
                self._next += 1
                if self._given and self._given[-1] == task_index:
                    self._given[-1] = self._next
                else:
                    self._given += [task_index, self._next]
        if self._repeated is not None and task_index not in self._repeated:
            return task_index, 0
        first = self._rollouts.get(task_index, 0)
        self._rollouts[task_index] = first + repeats
        return task_index, first

    def occurrences(self, row: Row) -> int:
        """How often the row comes; 1 if that is not known."""
        return (self._repeated or {}).get(-1 if row.task_index is None else row.task_index, 1)


def row_key(line: bytes, environment: str) -> int:
    """What rows of the same task have in common, in this process: a negative number, so no task index.

    63 bits of Python's own hash of bytes, which takes a fifth of the time of a cryptographic one.
    """
    return -1 - (hash((line, environment)) & (2**63 - 1))


def check_sampling(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Sampling settings as they are laid over ``responses_create_params``.

    Args:
        sampling: by the names of `Sampling`, or by those of ``responses_create_params`` itself.

    Raises:
        UsageError: an unknown name (with the nearest one), or a value of a wrong type or out of bounds.
    """
    own = {one.name for one in dataclasses.fields(Sampling)}
    fields = CreateParams.__struct_encode_fields__
    if "model" in sampling:
        raise UsageError("'model' is not a sampling setting; model_pool names the model that rollouts ask")
    for name in sampling:
        if name not in fields and name not in own:
            known = sorted({*own, *fields})
            hint = catalogue.suggest(name, known) or f"; there are: {', '.join(known)}"
            raise UsageError(f"there is no sampling setting '{name}'{hint}")
    others = {name: value for name, value in sampling.items() if name not in own}
    try:
        msgspec.json.decode(_encode(others), type=CreateParams)
    except msgspec.ValidationError as error:
        raise UsageError(f"sampling setting {bad_value('{}', str(error))}") from error
    said = Sampling.read({name: value for name, value in sampling.items() if name in own}).overrides()
    if isinstance(others.get("reasoning"), dict) and "reasoning" in said:
        said["reasoning"] = {**others["reasoning"], **said["reasoning"]}
    return {**others, **said}


def expand(
    rows: Iterable[bytes | Row],
    settings: RolloutSettings | None = None,
    *,
    run: str,
    environment: str | None = None,
    attached: bool = False,
    numbering: Numbering | None = None,
    declared: Mapping[str, LoadedEnvironment] | None = None,
    **keywords: Any,
) -> Iterator[RolloutSpec]:
    """The rollouts of some rows: each row's repeats together, in the order of the rows.

    It is lazy; lines are checked as they come, `Row` s were checked where they were read.

    Args:
        environment: where lines without an ``agent_ref`` belong.
        attached: the rollouts stop when their client disappears.
        declared: environments whose code is elsewhere, by their names.
        keywords: fields of `RolloutSettings` to change in ``settings``; its ``sampling`` is what
            `check_sampling` takes.

    Raises:
        TaskError: a line can't be run; the message names it.
        UsageError: an unknown environment or sampling setting, a name that cannot be one, or a setting out
            of its bounds.
    """
    settings = (settings or RolloutSettings()).with_keywords(keywords)
    run, model = token(run, "run"), token(settings.model_pool, "model")
    sampling = check_sampling(settings.sampling)
    check_role_sampling(settings.role_sampling)
    on_the_wire = {name: getattr(settings, name) for name in _CARRIED}
    given = {name: token(pool, "model") for name, pool in settings.roles.items()}
    numbering, reader = numbering or Numbering(), RowReader(environment, declared=declared)
    for position, line_or_row in enumerate(rows, 1):
        row = line_or_row if isinstance(line_or_row, Row) else _read(reader, line_or_row, position)
        definition = row.environment.definition
        fork = _fork(row, position, sampling)
        base = _base_row(row, sampling)
        agent = agent_for(row.environment, row.ref, settings.agent, settings.agent_options)
        spec: dict[str, Any] = {
            **on_the_wire,
            "run": run,
            "environment": row.environment.name,
            "agent": token(agent.name, "agent"),
            "agent_options": agent.options,
            "model": model,
            "roles": {**required_roles(definition), **given},
            "agent_ref": row.agent_ref or Raw(_encode({"name": row.environment.name})),
            "timeout_s": definition.timeout_s if settings.timeout_s is None else settings.timeout_s,
            "max_turns": definition.max_turns if settings.max_turns is None else settings.max_turns,
            "parallel_tools": definition.parallel_tools,
            "replayable": definition.replayable,
            "reads_input": definition.reads_input,
            "steps": definition.shape == "episode",
            "opens_first": (definition.opens_first or bool(definition.assets))
            and definition.shape != "episode",
            "attached": attached,
            "fork": fork,
        }
        spec["return_tokens"] = spec["packed_tokens"] = settings.return_token_ids
        spec["names_images"] = True
        repeats = settings.repeats_of(row.environment.name, definition.repeats)
        task_index, first = numbering.number(row, repeats)
        if definition.compare is not None and settings.skip_verification is None:
            times = numbering.occurrences(row)
            spec["group"] = GroupSpan(first if times == 1 else 0, times * repeats)
        for rollout_index in range(first, first + repeats):
            line = _seeded(base, rollout_index) if settings.seed_repeats else base
            yield RolloutSpec(**spec, task_index=task_index, rollout_index=rollout_index, row=Raw(line))


def _fork(row: Row, position: int, sampling: Mapping[str, Any]) -> Fork | None:
    """
    Raises:
        TaskError: the row forks a rollout, and cannot.
    """
    if row.plain or FIELD not in row.fields:
        return None
    name = row.environment.name
    try:
        fork = decode_fork(row.fields[FIELD])
    except UNREADABLE as error:
        raise TaskError(f"row {position}: '{FIELD}' is no fork: {error}") from error
    if fork.turns and not row.environment.definition.replayable:
        raise TaskError(f"row {position}: {unrepeatable(name)}")
    if told := _TOLD & sampling.keys():
        # The model would have seen other tokens.
        turns = [msgspec.structs.replace(turn, tokens=None) for turn in fork.turns]
        fork = msgspec.structs.replace(fork, turns=turns, changed=[*fork.changed, *sorted(told)])
    return fork


def whole_groups(specs: list[RolloutSpec]) -> list[RolloutSpec]:
    """The rollouts of a list, each with all others of its task in its group, if it has one.

    Raises:
        UsageError: a group would have one rollout.
    """
    if not any(spec.group for spec in specs):
        return specs
    sizes = Counter(spec.task_index for spec in specs)
    for spec in specs:
        if spec.group and sizes[spec.task_index] == 1:
            raise UsageError(alone(spec.environment))
    return [
        msgspec.structs.replace(spec, group=GroupSpan(0, sizes[spec.task_index])) if spec.group else spec
        for spec in specs
    ]


def unrepeatable(environment: str) -> str:
    """What is wrong with a fork at a turn where a session cannot be rebuilt."""
    said = f"environment '{environment}' says replayable=False: its calls cannot be repeated"
    return f"{said}, so its rollouts can be forked at turn 0 only"


def alone(environment: str) -> str:
    """What is wrong with one rollout per row where rollouts are compared."""
    return f"environment '{environment}' compares the rollouts of a row: repeats must be at least 2"


def required_roles(definition: Environment) -> dict[str, str]:
    """The roles that an environment cannot do without, each with the pool that serves it by default."""
    return {role.name: role.name for role in definition.declared_roles if not role.optional}


def note_seed(settings: RolloutSettings, repeats: int) -> None:
    """Warn of one seed for all rollouts of a row: an engine that follows it gives the same answer to all."""
    seed = settings.sampling.get("seed")
    if seed is not None and repeats > 1 and not settings.seed_repeats:
        logger().warning(
            f"the {repeats} rollouts of a row have the same seed, {seed}, and may give the same answer: "
            "with seed_repeats (--seed-repeats) each has its own"
        )


def _read(reader: RowReader, line: bytes, position: int) -> Row:
    try:
        return reader.read(line)
    except BadRow as error:
        raise TaskError(f"row {position}: {error.message}") from error


def _base_row(row: Row, sampling: Mapping[str, Any]) -> bytes:
    """The row without the fields that the rollout itself carries, overridden by the sampling settings.

    A row that does not say which tools the model gets has those of its environment.
    """
    fields = row.fields
    if not row.plain:
        fields = {name: value for name, value in fields.items() if name != "agent_ref" and not is_mark(name)}
        if "gold" not in row.environment.resource.task_type.__struct_encode_fields__:
            fields.pop("gold", None)
    tools = row.environment.resource.tools
    if tools and "tools" not in row.params:
        sampling = {"tools": [tool.definition() for tool in tools.values()], **sampling}
    of_agent = fitting(row.environment.definition.agent_sampling, row.ref)
    params = _laid_over(row.params, check_sampling(of_agent)) if of_agent else row.params
    params = _laid_over(params, sampling) if sampling else params
    if params is not row.params:
        return _encode({**fields, _PARAMS: params})
    return row.line if row.plain else _encode(fields)


def _seeded(row: bytes, by: int) -> bytes:
    """A row whose seed is larger by so much; one that has none has 0."""
    try:
        seed = seed_of(_decode_fields(_decode_fields(row)[_PARAMS]))
    except UNREADABLE as error:
        raise TaskError(f"{_PARAMS}.metadata: {error}") from error
    return overridden(row, {"extra_body": {"seed": seed + by}})


def renumbered(spec: RolloutSpec, rollout_index: int, *, seeded: bool) -> RolloutSpec:
    """A rollout of the same task with another index.

    Args:
        seeded: each repeat has a seed, by its index: with the old one the engine would sample the same again.
    """
    row = Raw(_seeded(bytes(spec.row), rollout_index - spec.rollout_index)) if seeded else spec.row
    return msgspec.structs.replace(spec, rollout_index=rollout_index, row=row)


def overridden(row: bytes, sampling: Mapping[str, Any]) -> bytes:
    """A row whose ``responses_create_params`` carries ``sampling`` on top; the other bytes are kept.

    Raises:
        TaskError: its ``metadata`` does not hold JSON objects as text where it should.
    """
    fields = _decode_fields(row)
    return _encode({**fields, _PARAMS: _laid_over(_decode_fields(fields[_PARAMS]), sampling)})


def _laid_over(params: Mapping[str, Raw], sampling: Mapping[str, Any]) -> dict[str, Raw]:
    """As `overridden`, of the ``responses_create_params`` alone."""
    try:
        laid = lay_over(params, sampling)
    except UNREADABLE as error:
        raise TaskError(f"{_PARAMS}.metadata: {error}") from error
    return {name: value if isinstance(value, Raw) else Raw(_encode(value)) for name, value in laid.items()}


def materialize(task: RolloutSpec) -> bytes:
    """A rollout's line in the materialized inputs: its row, ``agent_ref`` and numbers."""
    tail = _encode(
        {
            "agent_ref": task.agent_ref,
            "_ng_task_index": task.task_index,
            "_ng_rollout_index": task.rollout_index,
            **({} if task.fork is None else {FIELD: task.fork}),
        }
    )
    head = bytes(task.row).rstrip()[:-1].rstrip()
    return b"".join((head, b"" if head.endswith(b"{") else b",", tail[1:]))


FOLDER = "rows"
SEED = 0


def generated_rows(environment: LoadedEnvironment, name: str, limit: int | None) -> Path:
    """Write the rows that an environment makes itself into the user's cache, and say where.

    Args:
        name: as the user has named it.
        limit: so many rows; None for all that there are.

    Raises:
        UsageError: it makes none, there is no end of them, or the file cannot be written.
    """
    make = environment.definition.generate
    if make is None:
        raise UsageError(f"{name} has no rows of its own: --input FILE")
    requirements.require(environment)
    folder = cache_folder() / FOLDER
    # The limit is part of the name: a run with fewer rows must not change the file of another.
    key = hashlib.sha256(f"{name}\0{limit}".encode()).hexdigest()[:12]
    path = folder / f"{environment.name[:80]}-{key}.jsonl"

    def lines() -> Iterator[bytes]:
        for row in make(limit, SEED):
            yield msgspec.json.encode(row, enc_hook=plain) + b"\n"

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with redirect_stdout(sys.stderr):  # libraries that make rows may talk
            write_whole(path, lines())
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror}") from error
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        place = raised_at(error.__traceback__)
        raise UsageError(f"{name} cannot make its rows: {described(error)} ({place})") from error
    return path
