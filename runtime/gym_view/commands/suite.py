"""``suite``: several environments with several models, one run each, and one table of what came out."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter
from gym_runtime.cli import AT_LEAST_ONE, AsJson, Output, RoleOptions, parse_roles, shown_name, terminal
from gym_runtime.environment import catalogue
from gym_runtime.errors import UNREADABLE, UsageError
from gym_runtime.plurals import counted

from gym_view import suite_file, system_tables
from gym_view.suite_file import Part, Suite, SuiteModel

RUN = (sys.executable, "-c", "import sys; from gym_runtime.cli.main import main; sys.exit(main())", "run")
INTERRUPTED = 130
HALF_WIDTH = 1.96
"""Standard errors in half of a 95 % interval."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a suite.

    Attributes:
        score: the figures of the environment's score, in percent; empty without one.
        mean_reward, error: of the rollouts, and the standard error over tasks.
        rollouts, total: how many have ended, and how many the run is of.
        failed: how many rollouts failed and are in no figure.
        not_made: how many were not run or were cancelled, and are in no figure: as when a budget is used up.
        problem: why there is no figure; empty if there is one.
        command: the run's own command, to which the remedies of a problem belong.
    """

    environment: str
    model: str
    score: dict[str, float] = {}
    mean_reward: float | None = None
    error: float | None = None
    rollouts: int = 0
    total: int = 0
    failed: int = 0
    not_made: int = 0
    problem: str = ""
    output: str = ""
    command: str = ""

    @property
    def shown(self) -> str:
        """The score's first figure, or the mean reward in percent; with its interval where it has one."""
        if self.mean_reward is None:
            return self.problem or "no reward"
        mean = 100 * self.mean_reward
        first = next(iter(self.score.values()), mean)
        known = self.error is not None and abs(first - mean) < 1e-6
        return f"{first:.1f}" + (f" ±{HALF_WIDTH * 100 * (self.error or 0):.1f}" if known else "")


class _Summary(msgspec.Struct):
    score: dict[str, float] = {}
    mean_reward: float | None = None
    mean_reward_error: float | None = None
    rollouts: int = 0
    outcomes: dict[str, int] = {}
    failures_as_zero: bool = False


class _Document(msgspec.Struct):
    summary: _Summary
    not_made: int


def suite(
    file: str,
    /,
    *,
    models: Annotated[tuple[str, ...], Parameter(name="--model", show_default=False)] = (),
    model_url: str = "",
    roles: Annotated[tuple[str, ...], Parameter(name="--role", show_default=False)] = (),
    judge: str = "",
    limit: Annotated[int | None, AT_LEAST_ONE] = None,
    output: Output = None,
    json: AsJson = False,
) -> int:
    """Run several environments with several models, and show one table of their scores.

    Each pair is its own run, in DIR/MODEL/ENVIRONMENT.jsonl. The same command again continues what was
    interrupted and keeps what is complete. A run that fails does not stop the others. The exit status is 1 if
    a run has no figure, or lacks rollouts that a budget left out. Intervals are of 95 %, over tasks, where
    the score's first figure is the mean reward.

    Args:
        file: A TOML file of environments and models, or a suite that is shipped: nemotron_3_ultra,
            nemotron_3.5_super, lightning-3.5.
        models: PROVIDER/NAME, in place of the file's models; repeatable.
        model_url: Where these models are served.
        roles: NAME=PROVIDER/NAME, the model in a role of the environments that have it; repeatable.
        judge: The same for the role 'judge'.
        limit: Take the first N rows of each environment only.
        output: The folder of the results; by default results/ and the suite's name.
    """
    name, whole = suite_file.read(file)
    chosen = tuple(SuiteModel(name=one, url=model_url) for one in models) or whole.models
    if not chosen:
        raise UsageError(f"the suite '{name}' names no model: --model PROVIDER/NAME")
    suite_file.require_distinct("the suite's models", [one.folder for one in chosen])
    folder = output or Path("results") / name
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; -o names the folder of the results")
    named = (*roles, *([f"judge={judge}"] if judge else []))
    _require_roles(name, whole, parse_roles(RoleOptions(roles=named)))
    cells = list(_cells(whole, chosen, folder, named, limit))
    if json:
        terminal.print_json({"suite": name, "runs": cells, "missing": whole.missing})
    else:
        _show(whole, chosen, cells)
    return 1 if any(cell.mean_reward is None or cell.not_made for cell in cells) else 0


def _require_roles(name: str, whole: Suite, roles: Iterable[str]) -> None:
    """Refuse a role that no environment has.

    Raises:
        UsageError: there is one, or there is no such environment.
    """
    parts = [catalogue.environment(part.name).definition for part in whole.environments]
    has = sorted({role.name for definition in parts for role in definition.declared_roles})
    for role in roles:
        if role not in has:
            there = f"; there are: {', '.join(has)}" if has else ""
            raise UsageError(
                f"no environment of the suite '{name}' has a role '{role}'{there}; leave its model out"
            )


def _cells(
    whole: Suite, models: tuple[SuiteModel, ...], folder: Path, roles: tuple[str, ...], limit: int | None
) -> Iterator[Cell]:
    pairs = [(part, model) for part in whole.environments for model in models]
    commands = {pair: _command(*pair, folder, roles, limit) for pair in pairs}
    for number, ((part, model), (path, command)) in enumerate(commands.items(), 1):
        terminal.note(f"{number} of {len(commands)}: {part.name} with {model.name}")
        yield _run(part, model, path, command)


def _command(
    part: Part, model: SuiteModel, folder: Path, roles: tuple[str, ...], limit: int | None
) -> tuple[Path, list[str]]:
    """Where a run's rollouts go, and its command.

    Raises:
        UsageError: there is no such environment.
    """
    environment = catalogue.environment(part.name)
    has = {role.name for role in environment.definition.declared_roles}
    path = folder / model.folder / f"{shown_name(part.name)}.jsonl"
    command = [part.name, "--json", "-o", str(path), "--model", model.name]
    if model.url:
        command += ["--model-url", model.url]
    for given in roles:
        if given.partition("=")[0] in has:
            command += ["--role", given]
    if part.input:
        command += ["--input", part.input]
    if part.repeats:
        command += ["--repeats", str(part.repeats)]
    if limit:
        command += ["--limit", str(limit)]
    if path.exists():
        command.append("--resume")
    return path, [*RUN, *command, *part.options, *model.options]


def _run(part: Part, model: SuiteModel, path: Path, command: list[str]) -> Cell:
    """One run, to its end; Ctrl-C ends the suite, too.

    Raises:
        KeyboardInterrupt: the run was interrupted.
    """
    pipe = subprocess.PIPE
    # A group of its own: Ctrl-C reaches the suite alone, which passes it on once.
    running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, process_group=0)
    with running as process, _interruptions_passed_on(process):
        stdout, stderr = process.communicate()
    if process.returncode in (INTERRUPTED, -signal.SIGTERM):
        terminal.note("interrupted; the same command continues the suite")
        raise KeyboardInterrupt
    said = stderr.decode(errors="replace").strip().splitlines()
    about: dict[str, Any] = {
        "environment": part.name,
        "model": model.name,
        "output": str(path),
        "command": _shown_command(command),
    }
    try:
        document = msgspec.json.decode(stdout, type=_Document)
    except UNREADABLE:
        return Cell(**about, problem=said[-1] if said else f"it ended with status {process.returncode}")
    found = document.summary
    return Cell(
        **about,
        score=found.score,
        mean_reward=found.mean_reward,
        error=found.mean_reward_error,
        rollouts=found.rollouts,
        total=found.rollouts + document.not_made,
        failed=0 if found.failures_as_zero else found.outcomes.get("failed", 0),
        not_made=document.not_made + found.outcomes.get("cancelled", 0),
        problem="" if found.mean_reward is not None else (said[-1] if said else ""),
    )


def _shown_command(command: list[str]) -> str:
    """The run's command as a person types it; what the suite adds for itself is left out."""
    given = [part for part in command[len(RUN) :] if part not in ("--json", "--resume")]
    return shlex.join(["gym-runtime", "run", *given])


@contextmanager
def _interruptions_passed_on(process: subprocess.Popen[bytes]) -> Generator[None]:
    """Let a run end itself: signals to end are passed on."""

    def pass_on(number: int, _frame: FrameType | None) -> None:
        process.send_signal(number)

    before = signal.signal(signal.SIGINT, pass_on)
    ending = signal.signal(signal.SIGTERM, pass_on)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGTERM, ending)


def _show(whole: Suite, models: tuple[SuiteModel, ...], cells: list[Cell]) -> None:
    shown = {(cell.environment, cell.model): cell for cell in cells}
    table = system_tables.drawn(("environment", *(model.name for model in models)), ())
    for part in whole.environments:
        row = [shown[part.name, model.name] for model in models]
        table.add_row(part.name, *("-" if cell.mean_reward is None else cell.shown for cell in row))
    console = terminal.output()
    console.print(table)
    for cell in cells:
        if cell.mean_reward is None:
            console.print(f"{cell.environment} with {cell.model}: {cell.shown}", soft_wrap=True, markup=False)
            if " --" in cell.problem:
                # What it advises are options of 'run', which the suite does not have.
                console.print(f"  options that this names are those of: {cell.command}", soft_wrap=True)
            continue
        for number, what in ((cell.failed, "failed"), (cell.not_made, "were not run to their end")):
            if number:
                few = f"{number:,} of {counted(cell.total, 'rollout')} {what} and are not in the figure"
                console.print(f"{cell.environment} with {cell.model}: {few}", soft_wrap=True, markup=False)
    notes = [(part.name, part.about) for part in whole.environments if part.about]
    for name, about in (*notes, *((name, f"not here: {why}") for name, why in whole.missing.items())):
        console.print(f"{name}: {about}", soft_wrap=True, markup=False)
