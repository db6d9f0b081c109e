"""``reverify``: computes the rewards of stored rollouts again and compares them with the recorded ones."""

from __future__ import annotations

from contextlib import AsyncExitStack, ExitStack, aclosing, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
from gym_runtime.adapters import ModelSettings
from gym_runtime.cli import (
    AT_LEAST_ONE,
    FLAT,
    ROLES,
    AsJson,
    RequiredOutput,
    Roles,
    RowFields,
    fetch_weights,
    formatting,
    parse_roles,
    parse_row_fields,
    run_async,
    terminal,
)
from gym_runtime.environment import (
    LoadedEnvironment,
    catalogue,
    require_known,
    requirements,
    with_settings,
)
from gym_runtime.errors import UNREADABLE, UsageError
from gym_runtime.files import (
    TORN,
    Appender,
    OutputFiles,
    StoredInputs,
    count_lines,
    failure_class,
    repair_tail,
)
from gym_runtime.plurals import counted
from gym_runtime.statistics import Total
from msgspec import Raw
from rich.progress import Progress

from gym_testing.checks.judged_file import doubled_lines
from gym_testing.checks.reverification import (
    FILE_LINE,
    RejectedRow,
    ReverifiedRow,
    Reverifier,
    asked_models,
    environments_of,
)

SHOWN_REJECTIONS = 5
SHOWN_DIFFERENCES = 20

_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, kw_only=True)
class ReverifyOptions:
    """What ``reverify`` was asked to do.

    Attributes:
        rollouts: Stored rows, ours or NeMo Gym's. What models answered in roles is taken from them, but for
            the roles that are named here, whose models are asked again.
        output: The rows with their new rewards.
        inputs: The run's *_materialized_inputs.jsonl, or its dataset, for fields that the rows lack;
            repeatable.
        row_fields: NAME=VALUE, a field for the rows that leave it out; JSON or text, repeatable.
        concurrency: Rows judged at once.
        strict: A reward that differs from the recorded one makes the exit status 1.
        resume: Continue an interrupted re-verification.
    """

    rollouts: Path
    output: RequiredOutput
    inputs: tuple[Path, ...] = ()
    row_fields: RowFields = ()
    concurrency: Annotated[int, AT_LEAST_ONE] = 8
    strict: bool = False
    resume: bool = False
    json: AsJson = False
    roles: Roles = ROLES


class Difference(msgspec.Struct, frozen=True):
    """A row whose reward is another than before."""

    where: str
    recorded: float
    recomputed: float


class Totals:
    """What re-verification has found so far; it remembers the first `SHOWN_DIFFERENCES` differences."""

    def __init__(self) -> None:
        self.equal = self.different = self.unrecorded = self.rejected = 0
        self.differences: list[Difference] = []
        self._rewards, self._previous = Total(), Total()

    def add(self, row: ReverifiedRow) -> None:
        """Count a row that was judged."""
        self._rewards.add(row.reward)
        if row.previous_reward is None:
            self.unrecorded += 1
            return
        self._previous.add(row.previous_reward)
        if not row.changed:
            self.equal += 1
            return
        self.different += 1
        if len(self.differences) < SHOWN_DIFFERENCES:
            self.differences.append(Difference(row.where, row.previous_reward, row.reward))

    def document(self, files: OutputFiles) -> dict[str, Any]:
        """The numbers, for people and programs."""
        return {
            "rows": self.equal + self.different + self.unrecorded,
            "equal": self.equal,
            "different": self.different,
            "unrecorded": self.unrecorded,
            "rejected": self.rejected,
            "mean_reward": self._rewards.mean,
            "previous_mean_reward": self._previous.mean,
            "differences": self.differences,
            "output": str(files.rollouts),
            "failures": str(files.failures) if self.rejected else None,
        }


def reverify(name: str | None = None, /, *, options: Annotated[ReverifyOptions, FLAT]) -> int:
    """Compute the rewards of stored rollouts again, without a model, and compare them with the recorded ones.

    Recorded tool calls are repeated. Rows that cannot be judged are put into a file beside the output, with
    the reason, and make the exit status 1.

    Args:
        name: The environment; by default each row's own.
    """
    environment = catalogue.environment(name) if name else None
    if environment is not None:
        requirements.require(environment)
    for flag, path in (("--rollouts", options.rollouts), *(("--inputs", path) for path in options.inputs)):
        if not path.is_file():
            raise UsageError(f"{path} is not a file; {flag} wants rows, JSONL")
    with options.rollouts.open("rb") as file:
        if not any(line.strip() for line in file):
            raise UsageError(f"{options.rollouts} has no rows")
    row_fields = parse_row_fields(options.row_fields)
    if row_fields:
        found = [environment] if environment else environments_of(options.rollouts, *options.inputs)
        require_known(row_fields, found)
        for one in found:
            with_settings(one, row_fields)  # to refuse a bad value before the first row
    files = OutputFiles.beside(options.output)
    files.refuse_inputs(options.rollouts, *options.inputs)
    totals = Totals()
    with files.lock():
        run_async(_reverify, environment, options, files, totals)
    _show(totals, files, as_json=options.json)
    return 1 if totals.rejected or (options.strict and totals.different) else 0


async def _reverify(
    environment: LoadedEnvironment | None, options: ReverifyOptions, files: OutputFiles, totals: Totals
) -> None:
    console = terminal.errors()
    rejected = _prepare(files, resume=options.resume)
    doubled = doubled_lines(options.rollouts)
    if doubled:
        rows = counted(len(doubled), "row is", "rows are")
        terminal.note(f"{options.rollouts}: {rows} of a rollout that has one; the first counts")
    totals.rejected += len(rejected)
    skipped = rejected | doubled
    done = _count_done(options.rollouts, files.rollouts, skipped, totals)
    async with AsyncExitStack() as live:
        stack = live.enter_context(ExitStack())
        inputs = stack.enter_context(StoredInputs(options.inputs)) if options.inputs else None
        for path in inputs.torn if inputs else ():
            terminal.note(f"{path}: {TORN}")
        models = await live.enter_async_context(asked_models(_models(options)))
        reverifier = Reverifier(
            environment, settings=parse_row_fields(options.row_fields), inputs=inputs, models=models
        )
        writer = stack.enter_context(closing(Appender(files.rollouts)))
        failures: Appender | None = None
        progress = stack.enter_context(
            Progress(console=console, transient=True, disable=not console.is_terminal)
        )
        bar = progress.add_task("judging", total=count_lines(options.rollouts), completed=done)
        rows = reverifier.judge_file(
            options.rollouts, concurrency=options.concurrency, done=done, skip=skipped
        )
        async with aclosing(rows):
            async for row in rows:
                if isinstance(row, ReverifiedRow):
                    writer.append(bytes(row.row))
                    totals.add(row)
                else:
                    totals.rejected += 1
                    if failures is None:
                        failures = stack.enter_context(closing(Appender(files.failures)))
                    failures.append(_failure(row))
                    failures.flush()
                    if totals.rejected <= SHOWN_REJECTIONS:
                        said = formatting.shorten(row.fault.message, 500)
                        progress.console.print(f"{row.where}: {said}", soft_wrap=True)
                progress.advance(bar)


def _models(options: ReverifyOptions) -> dict[str, ModelSettings]:
    """The models that are asked again, by role.

    Raises:
        UsageError: an option is wrong, or says that the policy judges: nothing serves it here.
    """
    found: dict[str, ModelSettings] = {}
    for role, settings in parse_roles(options.roles).items():
        if settings is None:
            raise UsageError(f"role '{role}': re-verification has no policy; name a model, PROVIDER/NAME")
        fetch_weights(settings)
        found[role] = settings
    return found


# -- resuming -----------------------------------------------------------------------------------------
# Rows come out in the order of the file, and a failure is on its way to the disk before any later row. So the
# rows of the output are the first ones of the file, without those that the failures name by their lines, and
# without those of a rollout that has a row already.


class _Place(msgspec.Struct):
    line: int = msgspec.field(name=FILE_LINE)


class _Judged(msgspec.Struct):
    response: Raw
    reward: float
    previous_reward: float | None = msgspec.field(name="_previous_reward")


_decode_place = msgspec.json.Decoder(_Place).decode
_decode_judged = msgspec.json.Decoder(_Judged).decode


def _prepare(files: OutputFiles, *, resume: bool) -> set[int]:
    """The lines that are known not to be judgeable.

    Raises:
        UsageError: there are files of another run, or they are not this command's.
    """
    there = [path for path in (files.rollouts, files.failures) if path.exists() and path.stat().st_size]
    if there and not resume:
        raise UsageError(f"{there[0]} has content already; choose another -o, or continue with --resume")
    for path in there:
        repair_tail(path)
    if files.failures not in there:
        return set()
    try:
        with files.failures.open("rb") as file:
            return {_decode_place(line).line for line in file}
    except UNREADABLE as error:
        raise UsageError(
            f"{files.failures} was not written by reverify: {error}; choose another -o"
        ) from None


def _count_done(rollouts: Path, output: Path, skipped: set[int], totals: Totals) -> int:
    """How many lines of the rollouts are done; the rewards of those that were judged enter the totals.

    Raises:
        UsageError: the output is not of these rollouts.
    """
    if not output.exists():
        return 0
    number = 0
    with rollouts.open("rb") as stored, output.open("rb") as judged:
        for number, line in enumerate(stored, 1):
            if not line.strip() or number in skipped:
                continue
            new = judged.readline()
            if not new:
                return number - 1
            where = f"{rollouts}:{number}"
            found = _same(line, new)
            if found is None:
                raise UsageError(
                    f"{output} does not go on at {where}; resume with the same --rollouts, "
                    "or choose another -o"
                )
            totals.add(
                ReverifiedRow(
                    row=Raw(new), reward=found.reward, previous_reward=found.previous_reward, where=where
                )
            )
    return number


def _same(stored: bytes, judged: bytes) -> _Judged | None:
    """What a line of the output says, if it is of the stored row."""
    try:
        found = _decode_judged(judged)
        return found if _decode_fields(stored).get("response") == found.response else None
    except UNREADABLE:
        return None


def _failure(row: RejectedRow) -> bytes:
    """A row that could not be judged, and why."""
    fields: dict[str, Any] = dict(_decode_fields(row.row)) if row.row is not None else {}
    fields["_ng_failure_class"] = failure_class(row.fault)
    fields["_ng_failure_terminal"] = row.fault.kind == "task"
    fields["_ng_failure"] = row.fault
    fields[FILE_LINE] = row.line
    return _encode(fields)


# -- showing ------------------------------------------------------------------------------------------


def _show(totals: Totals, files: OutputFiles, *, as_json: bool) -> None:
    if totals.rejected > SHOWN_REJECTIONS:
        terminal.note(f"{counted(totals.rejected, 'row')} in all could not be judged")
    document = totals.document(files)
    if as_json:
        terminal.print_json(document)
        return
    console = terminal.output()
    for one in totals.differences:
        console.print(f"{one.where}: recorded {one.recorded:g}, now {one.recomputed:g}", soft_wrap=True)
    if totals.different > len(totals.differences):
        console.print(f"… and {totals.different - len(totals.differences):,} more")
    console.print(
        f"judged {counted(document['rows'], 'row')}: {counted(totals.equal, 'reward')} equal, "
        f"{totals.different:,} different, "
        f"{totals.unrecorded:,} had none; {totals.rejected:,} could not be judged",
        soft_wrap=True,
    )
    before, after = document["previous_mean_reward"], document["mean_reward"]
    console.print(f"mean reward {formatting.reward(after)}, was {formatting.reward(before)}")
    console.print(f"rows        {files.rollouts}", soft_wrap=True)
    if totals.rejected:
        console.print(f"failures    {files.failures}", soft_wrap=True)
