"""``test``: what is missing until a module is an environment."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import cast

import anyio
import msgspec
import structlog
from gym_runtime.adapters import Agent
from gym_runtime.cli import AsJson, Everything, formatting, run_async, terminal
from gym_runtime.environment import LoadedEnvironment, catalogue, requirements, watching
from gym_runtime.errors import UsageError
from gym_runtime.plurals import counted
from rich.console import Console
from structlog.typing import EventDict, Processor

from gym_testing.checks import contract
from gym_testing.checks.contract import Finding

AUDIT_S = 2.0
LONG_S = 10.0
"""How often a rule that is still checked is named, in seconds."""
AUDITED = {
    "false_positive": "wrong replies are not paid for",
    "false_negative": "right replies in other forms are paid for",
}


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What the contract says of one environment; ``skipped`` is why it could not be asked."""

    environment: str
    passed: bool
    skipped: str = ""
    findings: list[Finding] = []


def test(*names: str, everything: Everything = False, json: AsJson = False) -> int:  # noqa: PT028 - a command
    """Check an environment against the contract that all of them keep; needs no model and no broker.

    Environments that are named are also audited for two seconds, and their modules looked through for what
    often pays for wrong replies: these are warnings.

    Args:
        names: Environments by name or module path, with spaces or commas between; also paths of agents'
            modules.
        everything: Test every environment.
    """
    if bool(names) == everything:
        raise UsageError("say which: gym-runtime test NAME..., or --all (and not both)")
    subjects = [_agent(name) or catalogue.environment(name) for name in catalogue.several(names)]
    for subject in subjects:
        if isinstance(subject, LoadedEnvironment) and subject.guest:
            raise UsageError(
                f"{catalogue.address(subject.name)} is another project's, and there are no examples of it "
                "to check it by: 'gym-runtime play' shows what it does"
            )
    reports: list[Report] = []
    structlog.configure(processors=[_once(), *structlog.get_config()["processors"]])

    async def check() -> None:
        for subject in subjects:
            report = await _check(subject)
            if isinstance(subject, LoadedEnvironment) and report.passed:
                findings = [*report.findings, *await _audit(subject)]
                passed = all(finding.passed for finding in findings)
                report = msgspec.structs.replace(report, findings=findings, passed=passed)
            reports.append(report)
        for name in catalogue.names("environments") if everything else ():
            reports.append(await _check_if_runnable(name))

    run_async(check)
    if json:
        terminal.print_json(reports)
    else:
        for report in reports:
            _show(report, terminal.output(), in_full=not everything)
    return 0 if all(report.passed or report.skipped for report in reports) else 1


def _once() -> Processor:
    """A step of the log that shows one traceback of a line of code: the rules play rows many times."""
    shown: set[tuple[str, int | None]] = set()

    def drop(logger: object, name: str, event: EventDict) -> EventDict:
        error = sys.exc_info()[1]
        if error is not None and event.get("exc_info"):
            last = traceback.extract_tb(error.__traceback__)[-1]
            if (last.filename, last.lineno) in shown:
                raise structlog.DropEvent
            shown.add((last.filename, last.lineno))
        return event

    return drop


def _agent(name: str) -> ModuleType | None:
    """The module of a user's agent; None if the name is that of an environment, or of nothing."""
    file = name if name.endswith(".py") else f"{name}.py"
    if name in catalogue.names("environments") or not Path(file).is_file():
        return None
    module = catalogue.load("environments", name)
    return module if "Agent" in vars(module) and "environment" not in vars(module) else None


async def _check(subject: LoadedEnvironment | ModuleType) -> Report:
    if isinstance(subject, ModuleType):
        from gym_testing.checks import agent_contract  # it starts workers, which environments need not

        name = Path(subject.__file__ or "").stem
        agent = cast("type[Agent]", catalogue.load_class("agents", name))
        async with _saying_what_takes_long(name) as starting:
            findings = await agent_contract.check(subject, agent, starting)
    else:
        name = subject.name
        async with _saying_what_takes_long(name) as starting:
            findings = await contract.check(subject, starting)
    return Report(
        environment=name,
        passed=all(finding.passed for finding in findings),
        findings=findings,
    )


@asynccontextmanager
async def _saying_what_takes_long(name: str) -> AsyncGenerator[Callable[[str], None]]:
    """Say which rule goes on for long, and what blocks: a verifier may hang.

    Yields what is called with each rule as its check starts.
    """
    rule, since_s = "", time.monotonic()

    def starting(another: str) -> None:
        nonlocal rule, since_s
        rule, since_s = another, time.monotonic()

    def blocked(place: str, blocked_s: float) -> None:
        terminal.note(f"{name}: {place} has not returned for {blocked_s:.0f} s; Ctrl-C twice ends the check")

    async def say() -> None:
        while True:
            await anyio.sleep(LONG_S)
            if rule and (lasts_s := time.monotonic() - since_s) > LONG_S / 2:
                terminal.note(f"{name}: '{rule}' has been checked for {lasts_s:.0f} s; Ctrl-C ends the check")

    async with watching(LONG_S, blocked), anyio.create_task_group() as tasks:
        tasks.start_soon(say)
        yield starting
        tasks.cancel_scope.cancel()


async def _audit(environment: LoadedEnvironment) -> list[Finding]:
    """What the quick part of an audit finds, and what its module looks like: warnings, unless code of the
    module's own that makes replies raised.
    """
    from gym_testing.audit import lint
    from gym_testing.audit.measuring import Auditor, Plan

    name = str(environment.source)
    found = [
        Finding("no rule pays for what it does not know", True, place, warning=True)
        for place in lint.shown(lint.places(environment.source), environment.source.name)
    ]
    plan = Plan(seconds=AUDIT_S, rows=5, repeats=1, elsewhere=False, slow=False)
    try:
        made = await Auditor(name, environment, plan).measure()
    except UsageError as error:
        return [*found, Finding("its own replies for the audit can be made", False, error.message)]
    for kind, rate in made.rates.items():
        if kind in ("false_positive", "false_negative") and rate.found:
            sources = formatting.listed(sorted(rate.by))
            where = f"{rate.found} of {counted(rate.rows, 'row')}"
            detail = f"{where} ({sources}); gym-runtime audit shows the replies"
            found.append(Finding(AUDITED[kind], True, detail, warning=True))
    return found


async def _check_if_runnable(name: str) -> Report:
    try:
        environment = catalogue.environment(name)
        requirements.require(environment)
    except UsageError as error:
        return Report(environment=name, passed=False, skipped=error.message)
    return await _check(environment)


def _show(report: Report, console: Console, *, in_full: bool) -> None:
    good, bad = ("✓", "✗") if console.encoding.startswith("utf") else ("ok", "FAILED")
    if report.skipped:
        console.print(f"- {report.environment}: skipped: {report.skipped}", soft_wrap=True, style="dim")
        return
    failed = sum(not finding.passed for finding in report.findings)
    said = f"{failed} of {counted(len(report.findings), 'rule')} broken" if failed else "keeps the contract"
    mark, colour = (bad, "bold red") if failed else (good, "bold green")
    console.print(f"{mark} {report.environment}: {said}", soft_wrap=True, style=colour)
    for finding in _grouped(report.findings):
        if in_full or not finding.passed:
            mark, colour = (good, "green") if finding.passed else (bad, "red")
            if finding.warning:
                mark, colour = "!", "yellow"
            detail = f": {formatting.shorten(finding.detail, 2000)}" if finding.detail else ""
            console.print(f"  {mark} ", style=colour, end="")
            console.print(f"{finding.rule}{detail}", soft_wrap=True)


def _grouped(findings: list[Finding]) -> list[Finding]:
    """Broken rules that have the same reason, such as a session that cannot be opened, as one finding."""
    broken: dict[str, list[str]] = {}
    for finding in findings:
        if not finding.passed:
            broken.setdefault(finding.detail, []).append(finding.rule)
    grouped: list[Finding] = []
    for finding in findings:
        rules = [finding.rule] if finding.passed else broken.pop(finding.detail, [])
        if rules:
            grouped.append(msgspec.structs.replace(finding, rule="; ".join(rules)))
    return grouped
